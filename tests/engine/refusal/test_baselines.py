"""Row masks beside system prompts and steering vectors: vectors, the rule of choice, and every number of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from refusal_helpers import ThirdJudge, count_generations, small_plan, tables_of
from tiny_models import load_tiny
from torch import Tensor
from window_nll import window_nll

from engine.cli import main
from engine.data.onsets import ONSET_PHRASES, OnsetPhrases
from engine.data.pairs import read_pairs
from engine.data.prompts import TOPICS, prompt_ids, wordings
from engine.edits.edit import Steering
from engine.interventions.at_outputs import applied
from engine.judges.base import Exchange
from engine.judges.embedded import EmbeddedJudge
from engine.measures.generation import generate_batch
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.store import Store
from engine.results.tables import checked
from engine.stats.uncertainty import wilson
from engine.studies.refusal.baselines import (
    ADDITION,
    CONDITIONAL,
    DIFFERENCE,
    OPENINGS,
    ROW_MASK,
    SYSTEM_PROMPT,
    TABLE,
    WORDING,
    Baselines,
    Measured,
    block_at,
    strongest,
)
from engine.studies.refusal.operating_point import operating_point
from engine.studies.refusal.refusal_inputs import Rate, Rates, RefusalInputs
from engine.studies.refusal.vectors import Setting, vectors_of

CAST = Path(__file__).parents[4] / "shared" / "data" / "cast"


def states_by_hand(loaded: LoadedModel, ids: list[int], last: int) -> Tensor:
    """Mean over the last tokens of every block's output, from one pass of one sequence: [blocks, d] float64."""
    found: list[Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        found.append((output[0] if isinstance(output, tuple) else output)[0, -last:].double().mean(0))

    handles = [block.register_forward_hook(keep) for block in decoder_blocks(loaded.model)]
    with torch.no_grad():
        loaded.model(torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return torch.stack(found)


def test_vectors_are_differences_and_components_of_single_passes(
    tiny_run: Callable[..., RefusalInputs], tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_run()
    pairs = run.calibration["mats"]
    vectors = vectors_of(tiny, ONSET_PHRASES, pairs, run.store)
    tokenizer = tiny.tokenizer
    sides = [
        [prompt_ids(tokenizer, text) for text in texts]
        for texts in zip(*((p.risk, p.base) for p in pairs), strict=True)
    ]
    risk, base = (torch.stack([states_by_hand(tiny, ids, 1) for ids in side]).mean(0) for side in sides)
    # float32 passes of other batch shapes
    np.testing.assert_allclose(vectors.difference, (risk - base).numpy(), rtol=1e-3, atol=1e-5)

    opened = []
    for phrases in ONSET_PHRASES:
        tokens = [tokenizer(phrases[place], add_special_tokens=False)["input_ids"] for place in range(len(pairs))]
        opened.append(
            [states_by_hand(tiny, [*ids, *said], len(said)) for ids, said in zip(sides[1], tokens, strict=True)]
        )
    for block in range(2):
        refusing, complying = (np.stack([one[block].numpy() for one in side]) for side in opened)
        axis = principal_axis(refusing, complying)
        gap = (refusing.mean(0) - complying.mean(0)) @ axis
        np.testing.assert_allclose(vectors.openings[block], gap * axis, rtol=1e-3, atol=1e-4)
        assert (refusing.mean(0) - complying.mean(0)) @ vectors.openings[block] > 0

    condition, found = vectors.condition, []
    whole = [[states_by_hand(tiny, ids, len(ids)) for ids in side] for side in sides]
    for block in range(2):
        states = [np.stack([one[block].numpy() for one in side]) for side in whole]
        axis = principal_axis(*states)
        projector = np.outer(axis, axis)
        scores = [[cosine(h, np.tanh(projector @ h)) for h in side] for side in states]
        found.append(max(f1(scores, cut, above) for cut in np.linspace(-1, 1, 4001) for above in (True, False)))
    assert condition.threshold.f1 == pytest.approx(max(found))
    assert condition.block == int(np.argmax(found))

    monkeypatch.setattr("engine.studies.refusal.vectors.block_states", None)  # known: nothing is computed again
    again = vectors_of(tiny, ONSET_PHRASES, pairs, run.store)
    np.testing.assert_array_equal(again.openings, vectors.openings)
    assert again.condition.threshold == condition.threshold
    for changed in (
        lambda: vectors_of(tiny, ONSET_PHRASES, pairs[1:], run.store),
        lambda: vectors_of(tiny, OnsetPhrases(("Sorry",), ("Sure",)), pairs, run.store),
    ):
        with pytest.raises(TypeError):
            changed()
    with pytest.raises(InputError, match="swapped"):
        vectors_of(tiny, OnsetPhrases(*reversed(ONSET_PHRASES)), pairs, run.store)


def principal_axis(first: Any, second: Any) -> Any:
    """By the covariance of all states, each less the middle of its pair."""
    middle = (first + second) / 2
    values, axes = np.linalg.eigh(np.cov(np.vstack([first - middle, second - middle]), rowvar=False))
    return axes[:, values.argmax()]


def cosine(first: Any, second: Any) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def f1(scores: Sequence[Sequence[float]], cut: float, above: bool) -> float:
    hits, wrong = (sum((one > cut) == above and one != cut for one in side) for side in scores)
    return 2 * hits / (hits + wrong + len(scores[0]))


@pytest.mark.long
def test_every_number_of_the_table_is_measured_again_by_hand(
    tiny_run: Callable[..., RefusalInputs], tiny: LoadedModel
) -> None:
    run = tiny_run()
    study = Baselines(run)
    table = checked(TABLE, tables_of(study, run)[TABLE], "the test")
    ways = [(ROW_MASK, "random"), (SYSTEM_PROMPT, WORDING), (ADDITION, DIFFERENCE), (ADDITION, OPENINGS)]
    assert table.select("method", "vector").unique(maintain_order=True).rows() == [*ways, (CONDITIONAL, OPENINGS)]
    assert table.select("method", "vector", "setting", "prompts").is_unique().all()
    steered = table.filter(method=ADDITION, prompts="calibration")
    assert steered["setting"].to_list() == [
        "block 1, coefficient 0.1", "block 1, coefficient 0.5",
        "block 1, coefficient 0.1", "blocks 0 to 1, coefficient 0.1",
        "block 1, coefficient 0.5", "blocks 0 to 1, coefficient 0.5",
    ]  # fmt: skip
    left_out = run.self_refused(run.calibration).get("mats", [])  # as contrasts leave them out
    used = [pair for pair in run.calibration["mats"] if pair not in left_out]
    vectors = vectors_of(tiny, ONSET_PHRASES, used, run.store)
    for row in table.filter(pl.col("setting").is_not_null(), pl.col("method") != ROW_MASK).iter_rows(named=True):
        pairs = (run.heldout if row["prompts"] == "heldout" else run.calibration)["mats"]
        settings = {one.name: one for one in study.ways[row["method"], row["vector"], "mats"]}
        check_by_hand(
            run, row, settings[row["setting"]], vectors, [pair.risk for pair in pairs], [pair.base for pair in pairs]
        )
    check_choices(table)


def check_by_hand(
    run: RefusalInputs, row: dict[str, Any], setting: Setting, vectors: Any, risk: list[str], base: list[str]
) -> None:
    """Prompt by prompt: the condition read first, then the reply with or without what is added."""
    loaded = run.loaded
    assert row["strength"] == setting.strength
    if isinstance(setting.edit, Steering):
        blocks = {
            int(one) for one in row["setting"].split(",")[0].replace("blocks", "").replace("block", "").split("to")
        }
        array = {DIFFERENCE: vectors.difference, OPENINGS: vectors.openings}[row["vector"]]
        assert setting.edit.coefficient == row["strength"]
        assert set(setting.edit.vectors) == blocks
        assert all((vector == array[block]).all() for block, vector in setting.edit.vectors.items())

    def changed(ids: list[int]) -> Any:
        if row["method"] != CONDITIONAL:
            return applied(loaded, setting.edit)
        condition = vectors.condition
        mean = states_by_hand(loaded, ids, len(ids))[condition.block].numpy()
        c = condition.direction.astype(float)
        score = cosine(mean, np.tanh(np.outer(c, c) / (c @ c) @ mean))
        met = score > condition.threshold.value if condition.threshold.above else score < condition.threshold.value
        return applied(loaded, setting.edit) if met else nullcontext()

    found: dict[str, list[bool]] = {}
    for side, prompts in (("malign", risk), ("benign", base)):
        replies = []
        for prompt in prompts:
            with changed(prompt_ids(loaded.tokenizer, prompt)):
                replies += generate_batch(loaded, [prompt], run.plan.reply_tokens, system=setting.system)
        found[side] = [verdict.refusal for verdict in ThirdJudge().judge([Exchange("", one.text) for one in replies])]
        assert row[f"edited_{side}"] == sum(found[side]) / len(prompts)
        low_high = wilson(sum(found[side]), len(prompts))
        assert (row[f"edited_{side}_low"], row[f"edited_{side}_high"]) == tuple(low_high)
        assert row[f"{side}_unfinished"] == sum(not one.finished for one in replies)
    nats = 0.0
    for window in run.evaluation.input_ids:
        with changed(window.tolist()):
            nats += float(window_nll(loaded.model, window[None])[0])
    assert row["edited_nll"] == pytest.approx(nats / (3 * 15), rel=1e-5)
    if row["prompts"] == "heldout":
        sums, positions = 0.0, 0
        for prompt in base:
            [plain] = generate_batch(loaded, [prompt], run.plan.reply_tokens)
            said = loaded.tokenizer(plain.text, add_special_tokens=False)["input_ids"]
            logits = []
            for system, context in (
                ("", nullcontext()),
                (setting.system, changed(prompt_ids(loaded.tokenizer, prompt))),
            ):
                ids = [*prompt_ids(loaded.tokenizer, prompt, system=system), *said]
                with context, torch.no_grad():
                    logits.append(loaded.model(torch.tensor([ids]), use_cache=False).logits[0, -len(said) - 1 :])
            p, q = (some.double().log_softmax(-1) for some in logits)
            sums, positions = sums + float((p.exp() * (p - q)).sum()), positions + len(said) + 1
        assert row["kl"] == pytest.approx(sums / positions, rel=1e-3, abs=1e-6)
    else:
        assert row["kl"] is None


def check_choices(table: pl.DataFrame) -> None:
    """Each way's chosen line has no feasible one above it; without a feasible one, the last line says so."""
    for _, part in table.group_by("method", "vector"):
        tried, final = part.filter(prompts="calibration"), part.filter(prompts="heldout")
        assert final.height == 1
        usable = tried.filter("feasible")
        if usable.is_empty():
            line = final.row(0, named=True)
            assert line["setting"] is line["edited_malign"] is line["kl"] is None
            assert line["unedited_malign"] is not None
            assert not line["chosen"]
            continue
        ordered = usable.sort(["edited_malign", "strength", "edited_nll"], descending=[True, False, False])
        assert tried.filter("chosen")["setting"].to_list() == final["setting"].to_list() == [ordered["setting"][0]]
        assert usable["edited_benign"].max() <= 0.7


def rates(malign: int, benign: int, n: int = 10) -> Rates:
    return Rates(*(Rate(tuple(place < count for place in range(n))) for count in (malign, benign)))


def test_the_rule_of_choice_is_that_of_operating_points() -> None:
    """On the same made-up grid, ties included, both choose the same; a rescue is for operating points only."""
    generator = np.random.default_rng(0)
    chosen = 0
    for _ in range(200):
        before = rates(int(generator.integers(0, 4)), 0)
        cells, measured = [], []
        for place, k in enumerate(generator.permutation([0.01, 0.02, 0.03, 0.04, 0.05])):
            one = rates(int(generator.integers(0, 8)), int(generator.integers(0, 4)))
            nll = float(generator.choice([2.0, 2.1, 2.5]))
            cells.append((k, place, one.malign.mean, one.benign.mean, nll))
            measured.append(Measured(SimpleNamespace(strength=k, name=f"{k:g}"), nll, one))
        names = ["k", "rows_removed", "malign", "benign", "nll"]
        sweep = pl.DataFrame([(0.0, 0, before.malign.mean, 0.0, 2.0), *cells], schema=names, orient="row")
        sweep = sweep.with_columns(
            pl.col("nll").exp().alias("perplexity"), (1000 * pl.col("k")).round().cast(pl.Int64).alias("rows_removed"),
            **{"model": pl.lit("m"), "selector": pl.lit("s"), "domain": pl.lit("d"), "lambda": pl.lit(0.5)},
        )  # fmt: skip
        point = operating_point(sweep, benign_limit=0.1, max_perplexity=float(np.exp(2.2)))
        run: Any = SimpleNamespace(
            plan=SimpleNamespace(benign_limit=0.1), max_nll=lambda _: 2.2, rates=lambda *_, kept=before: kept
        )
        run.feasible = MethodType(RefusalInputs.feasible, run)
        found: Any = strongest(run, {}, measured, [])  # type: ignore[arg-type]
        if point is None or point.rescue:
            assert found is None
        else:
            chosen += 1
            assert found.name == f"{point.k:g}"
    assert chosen > 50


def test_blocks_are_shares_of_the_depth() -> None:
    assert [block_at(depth, 6) for depth in (0, 0.25, 0.5, 0.75, 1)] == [0, 1, 3, 4, 5]
    assert [block_at(depth, 32) for depth in (15 / 32, 23 / 32)] == [15, 23]
    assert block_at(0.5, 1) == 0


@pytest.mark.long
def test_without_a_system_turn_that_way_has_no_setting_and_a_reason(tiny_run: Any, tmp_path: Path) -> None:
    loaded = load_tiny("llama", tmp_path / "model")
    loaded.tokenizer.chat_template = (
        "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
    )
    run = replace(tiny_run(steering_coefficients=(0.1,)), loaded=loaded)
    study = Baselines(run)
    table = tables_of(study, run)[TABLE]
    assert "no system turn" in study.impossible[SYSTEM_PROMPT]
    [line] = table.filter(method=SYSTEM_PROMPT).iter_rows(named=True)
    assert line["setting"] is line["edited_malign"] is line["kl"] is None
    assert study.record(run)["system_prompts"] == {}


def test_what_cannot_be_compared_is_refused(tiny_run: Callable[..., RefusalInputs]) -> None:
    with pytest.raises(InputError, match="leave --system out"):
        Baselines(tiny_run(system="Be brief."))
    for wrong in ((), (0.0, 1.0), (-1.0,)):
        with pytest.raises(InputError, match="coefficients above 0"):
            tiny_run(steering_coefficients=wrong)
    with pytest.raises(InputError, match="depth"):
        tiny_run(steering_depths=(1.5,))


def test_wordings_name_the_domain_and_grow_in_strength() -> None:
    for domain in (*TOPICS, "gardening"):
        found = wordings(domain)
        assert [one.strength for one in found] == [1, 2, 3, 4]
        assert all(TOPICS.get(domain, domain) in one.text for one in found)
        assert len({one.text for one in found}) == 4


@pytest.mark.long
def test_a_second_run_computes_nothing(tiny_run: Callable[..., RefusalInputs], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one pass of the model, also where the first run was interrupted before its end."""
    run = tiny_run(steering_coefficients=(0.1,))
    generated = count_generations(monkeypatch, fail_at=3)
    with pytest.raises(KeyboardInterrupt):
        tables_of(Baselines(run), run)
    monkeypatch.undo()
    generated = count_generations(monkeypatch)
    table = tables_of(Baselines(run), run)[TABLE]
    assert generated
    passes: list[int] = []
    handle = run.loaded.model.register_forward_hook(lambda *_: passes.append(1))
    with Store(run.store.folder) as store:
        later = replace(run, store=store)
        assert tables_of(Baselines(later), later)[TABLE].equals(table)
    handle.remove()
    assert not passes
    check_choices(table)


@pytest.mark.long
def test_the_shipped_model_from_the_plan_of_few_pairs(demo: LoadedModel, tmp_path: Path) -> None:
    plan = small_plan(
        selectors=("lrp",), domains=("hate",), calibration_pairs=12, heldout_pairs=8, reply_tokens=40,
        steering_coefficients=(0.1,), steering_depths=(0.5,), benign_limit=0.2,
    )  # fmt: skip
    with Store(tmp_path) as store:
        run = RefusalInputs(demo, plan, store, EmbeddedJudge())
        table = checked(TABLE, tables_of(Baselines(run), run)[TABLE], "the test")
    assert table.filter(prompts="heldout").height == 5
    mask = table.filter(method=ROW_MASK, prompts="heldout").row(0, named=True)
    assert mask["edited_malign"] > mask["unedited_malign"]
    assert mask["kl"] > 0


@pytest.mark.long
def test_the_command_says_what_each_way_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "refusal", "baselines", "demo", "--selectors", "random", "--domains", "hate", "--pairs-per-domain", "4",
        "--heldout-pairs", "3", "--eval-samples", "2", "--eval-length", "64", "--reply-tokens", "8", "--ks", "1%",
        "--coefficients", "0.1", "--depths", "0.5", "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    assert main([*asked, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    written = pl.read_parquet(tmp_path / "out" / "baselines.parquet")
    assert [row["setting"] for row in answer[TABLE]] == written["setting"].to_list()
    spec = read_manifest(tmp_path / "out")["files"]["baselines.parquet"]["spec"]
    assert spec["steering"]["coefficients"] == [0.1]
    assert spec["steering"]["conditions"].keys() == spec["system_prompts"].keys() == {"hate"}
    assert main(asked) == 0
    told = capsys.readouterr().out
    assert "at most 10% benign refusal" in " ".join(told.split())
    assert str(tmp_path / "out") in told.replace("\n", "")
    assert main([*asked, "--coefficients=-1"]) == 2
    assert "coefficients above 0" in " ".join(capsys.readouterr().err.split())


@pytest.mark.long
@pytest.mark.skipif(not CAST.exists(), reason="CAST's data is not here")
def test_our_openings_point_where_casts_do(demo: LoadedModel, tmp_path: Path) -> None:
    """Vectors from our phrases and from the reference data's openings behind the same CAST prompts, in blocks 2 to 4 of
    the shipped model. In the others the two do not agree (cosines of -.49, .07 and .15): its tokens are words, of which
    the two lists share few. Two random directions have a cosine of more than .22 in one of 700 cases (192 dimensions,
    three standard deviations of 1 / sqrt(192))."""
    given = json.loads((CAST / "behavior_refusal.json").read_text(encoding="utf-8"))
    theirs = OnsetPhrases(given["non_compliant_responses"], given["compliant_responses"])
    pairs = read_pairs(str(CAST / "condition_multiple.json"), "calibration", ["hate"], 40)["hate"]
    with Store(tmp_path) as store:
        from engine.studies.refusal import vectors as module

        ours = vectors_of(demo, ONSET_PHRASES, pairs, store)
        sides = [[pair.risk for pair in pairs], [pair.base for pair in pairs]]
        arrays, condition = module._computed(demo, theirs, *sides)
    for block in range(2, 5):
        assert cosine(ours.openings[block], arrays["openings"][block]) > 0.22
    assert condition.threshold == ours.condition.threshold  # openings are no part of it
    assert ours.condition.threshold.f1 > 2 / 3  # what calling everything risk gives
