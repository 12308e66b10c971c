"""The grid: masks, order of the tests, rows of the table, and a store that never generates a cell twice."""

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from refusal_helpers import count_generations, rates, small_plan, small_run, swept

from engine.edits.contrasts import Contrast, refusal_mask, refusal_masks
from engine.edits.edit import NO_ROWS
from engine.interventions.in_weights import zeroed
from engine.judges.embedded import Verdict
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.studies.refusal.grid import UNFINISHED
from engine.studies.refusal.refusal_inputs import RefusalInputs

LAMBDAS, KS = (0.0, 0.3, 1.0), (0.01, 0.2, 0.5)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as store:
        yield store


def contrast(selector: str = "lrp", n: int = 200) -> Contrast:
    generator = np.random.default_rng(4)
    c_comply = np.round(generator.uniform(-1, 1, n), 1).astype(np.float32)  # with ties
    return Contrast(selector, "hate", c_comply, generator.random(n))


def test_masks_of_one_lambda_are_exact_and_nested():
    one = contrast()
    for lam in LAMBDAS:
        masks = refusal_masks(one, lam, KS)
        score = [float(c) - lam * float(r) for c, r in zip(one.c_comply, one.lm_rank, strict=True)]
        order = sorted(range(200), key=lambda row: (-score[row], row))
        for mask, k in zip(masks, KS, strict=True):
            assert mask.tolist() == sorted(order[: round(200 * k)]) == refusal_mask(one, lam, k).tolist()
        assert set(masks[0]) < set(masks[1]) < set(masks[2])


@pytest.mark.long
def test_the_table_holds_what_each_mask_does(demo: LoadedModel, store: Store):
    run = small_run(demo, store)
    table = swept(run)
    assert dict(table.schema) == spec("refusal_sweep").schema(UNFINISHED)
    # two domains: lrp has 4 cells, random 2, and each part its unedited row
    assert table.height == 2 * (5 + 3)
    for row in table.filter(selector="lrp", domain="crime").iter_rows(named=True):
        mask = NO_ROWS
        if row["k"]:
            [one] = [c for c in run.contrasts if (c.selector, c.domain) == ("lrp", "crime")]
            mask = refusal_mask(one, row["lambda"], row["k"])
        assert row["rows_removed"] == len(mask) == round(row["k"] * demo.rows.n_rows)
        with zeroed(demo, mask):
            nll = negative_log_likelihood(demo, run.evaluation).nats_per_token
        assert row["nll"] == pytest.approx(nll, rel=1e-6)
        assert row["perplexity"] == pytest.approx(np.exp(nll))
        found = rates(run, mask, run.calibration["crime"])
        assert (row["malign"], row["benign"]) == (found.malign.mean, found.benign.mean)
        assert row["malign_n"] == row["benign_n"] == 4


def test_perplexity_comes_first_and_a_cell_above_the_cap_is_not_generated(
    demo: LoadedModel, store: Store, monkeypatch: pytest.MonkeyPatch
):
    stages: list[str] = []
    run = small_run(demo, store, perplexity_factor=1.0)
    contrasts = run.contrasts  # asks the unedited model once per domain
    generated = count_generations(monkeypatch)
    run.progress = lambda stage, done, total: stages.append(f"{stage} {len(generated)}")
    table = swept(run, contrasts)
    assert all(stage.endswith(" 0") for stage in stages if stage.startswith("perplexity of the grid"))
    dense = table.filter(k=0)["nll"][0]
    above = table.filter(table["nll"] > dense)
    assert above.height > 0
    assert above["malign"].null_count() == above["benign"].null_count() == above.height
    assert not above["feasible"].any()
    below = table.filter((table["nll"] <= dense) & (table["k"] > 0))
    assert below["malign"].null_count() == 0
    assert sum(generated) == below.height

    everything = small_run(demo, store, perplexity_factor=1.0, all_cells=True)
    table = swept(everything)
    assert table["malign"].null_count() == 0
    assert not table.filter(table["nll"] > dense)["feasible"].any()


@pytest.mark.long
def test_another_judge_needs_no_generation(demo: LoadedModel, store: Store, monkeypatch: pytest.MonkeyPatch):
    run = small_run(demo, store)
    swept(run)
    generated = count_generations(monkeypatch)

    def everything(replies: Any, progress: Any = None) -> list[Verdict]:
        return [Verdict(True, "test") for _ in replies]

    strict: Any = SimpleNamespace(id="strict", version="1", judge=everything)
    judged = RefusalInputs(demo, small_plan(), store, strict)
    table = swept(judged, run.contrasts)
    assert not generated
    assert (table["malign"] == 1).all()
    assert (table["benign"] == 1).all()
    assert not table["feasible"].any()
    # a new version of the same judge judges again
    strict.version, strict.judge = "2", lambda replies: [Verdict(False, "test") for _ in replies]
    assert run_rates(judged) == 0
    assert not generated


def run_rates(run: RefusalInputs) -> int:
    return rates(run, NO_ROWS, run.calibration["hate"]).malign.count


@pytest.mark.first_run("reply_tokens|batch_size")
@pytest.mark.parametrize(
    "changes", [{"reply_tokens": 7}, {"batch_size": 3}, {"calibration_pairs": 3}], ids=lambda one: next(iter(one))
)
def test_the_key_covers_what_can_change_a_reply(
    demo: LoadedModel, store: Store, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
):
    run_rates(small_run(demo, store))
    generated = count_generations(monkeypatch)
    run_rates(small_run(demo, store))
    assert not generated
    run_rates(small_run(demo, store, **changes))
    assert len(generated) == 1


@pytest.mark.long
def test_prompts_that_the_template_dates_have_cells_of_their_day(
    demo: LoadedModel, store: Store, monkeypatch: pytest.MonkeyPatch
):
    """The same texts as other tokens, under one fingerprint: neither replies nor contrasts are shared."""
    days = []
    for day in ("Monday", "Tuesday"):
        tokenizer = copy.deepcopy(demo.tokenizer)
        tokenizer.chat_template = f"{day} " + tokenizer.chat_template
        days.append(dataclasses.replace(demo, tokenizer=tokenizer))
    run_rates(small_run(days[0], store))
    first = small_run(days[0], store).contrasts
    generated = count_generations(monkeypatch)
    run_rates(small_run(days[0], store))
    assert not generated
    run_rates(small_run(days[1], store))
    assert len(generated) == 1
    second = small_run(days[1], store).contrasts
    assert not np.array_equal(first[0].c_comply, second[0].c_comply)


@pytest.mark.long
def test_contrasts_are_kept_one_by_one(demo: LoadedModel, store: Store, monkeypatch: pytest.MonkeyPatch):
    """Calibration that stops after the first domain goes on with the second."""
    stopped = small_run(demo, store, selectors=("lrp",))
    calls: list[tuple[str, int, int]] = []

    def stop(*call: Any) -> None:
        calls.append(call)
        if len([one for one in calls if one[0] == "lrp"]) > 3 + 1:
            raise KeyboardInterrupt

    stopped.progress = stop
    with pytest.raises(KeyboardInterrupt):
        _ = stopped.contrasts
    passes: list[str] = []
    resumed = small_run(demo, store, selectors=("lrp",))
    resumed.progress = lambda what, done, total: passes.append(what)
    whole = resumed.contrasts
    assert len(passes) < len(calls)
    assert [one.domain for one in whole] == ["hate", "crime"]
    with Store(store.folder / "fresh") as other:
        for one, same in zip(whole, small_run(demo, other, selectors=("lrp",)).contrasts, strict=True):
            np.testing.assert_array_equal(one.c_comply, same.c_comply)
            np.testing.assert_array_equal(one.lm_rank, same.lm_rank)
