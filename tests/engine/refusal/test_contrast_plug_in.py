"""A selector of a third party, registered in one file, goes the whole way of the built-in ones to a refusal mask."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusal_helpers import small_plan
from scipy.stats import rankdata
from torch import Tensor

from engine.cli import main
from engine.data.corpora import CALIBRATION
from engine.data.pairs import read_pairs
from engine.data.prompts import EncodedPrompts, prompt_ids
from engine.edits.contrasts import edit_from_contrast, load_contrasts, refusal_mask
from engine.edits.edit import UNEDITED
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.recorded_plan import refusal_plan
from engine.run.runner import LocalRunner
from engine.selectors import PromptRun, ScoringRun, base, compute_scores, get_selector, register_selector
from engine.selectors.base import contrast_selectors
from engine.selectors.prompt_run import percentile_ranks
from engine.studies.refusal.algorithm import calibrate, contrasts, write_contrasts
from engine.studies.refusal.refusal_inputs import RefusalInputs

NAME = "last_token"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is forgotten."""
    contrast_selectors()
    monkeypatch.setattr(base.REGISTRY, "_entries", dict(base.REGISTRY._entries))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def test_scores_of_ones_own_protect_rows(tiny_run, tmp_path: Path) -> None:
    """Under lambda every selector's rows count by the file's, in the place of those of its own scores."""
    run = tiny_run()
    scores = np.random.default_rng(5).random(run.loaded.rows.n_rows)
    np.savez(tmp_path / "mine.npz", scores)
    scoring = replace(run.plan.scoring, score_files=(f"mine={tmp_path / 'mine.npz'}",))
    run = tiny_run(selectors=("mean_activation", "random"), scoring=scoring)
    by_activation, random = run.contrasts
    layers = run.loaded.rows.layers
    ranks = [rankdata(scores[one.start : one.start + one.rows]) - 1 for one in layers]
    assert np.allclose(by_activation.lm_rank, np.concatenate([one / (one.size - 1) for one in ranks]))
    assert (random.lm_rank == 0.5).all()
    recorded = run.calibration_spec["lm_scores"]["score_files"]["mine"][0]
    assert recorded["file"] == "mine.npz"
    runner = LocalRunner(run.store)
    runner.run([run.nll(UNEDITED)])
    again = refusal_plan(run.spec(runner.results), sorted(tmp_path.iterdir()))
    assert again.scoring.score_files == scoring.score_files
    np.savez(tmp_path / "below.npz", -scores)
    below = replace(run.plan, scoring=replace(scoring, score_files=(f"mine={tmp_path / 'below.npz'}",)))
    with pytest.raises(InputError, match="below 0, and rows are protected by how much they matter"):
        RefusalInputs.fitting_plan(run.loaded, below, named=True)
    with pytest.raises(InputError, match="one kind of scores, got mine, other"):
        replace(run.plan, scoring=replace(scoring, score_files=(*scoring.score_files, f"other={tmp_path}/mine.npz")))


def last_outputs(loaded: LoadedModel, batch: EncodedPrompts) -> Tensor:
    """|h| of every row at the last prompt position, summed over the prompts. [N]"""
    found: dict[int, Tensor] = {}
    handles = [
        loaded.model.get_submodule(layer.name).register_forward_hook(
            lambda _, __, output, index=layer.index: found.__setitem__(index, output[:, -1].abs().sum(0))
        )
        for layer in loaded.rows.layers
    ]
    try:
        loaded.model(**batch._asdict())
    finally:
        for handle in handles:
            handle.remove()
    return torch.cat([found[layer.index] for layer in loaded.rows.layers]).cpu()


def register(sign: int = 1, version: int = 1) -> list[str]:
    """A selector that scores by weights and contrasts by the last token; returns the domains it was asked for."""
    asked: list[str] = []

    @register_selector(NAME, title="Last token", data_free=True, version=version)
    class LastToken:
        """s_i = the Euclidean norm of row i."""

        def score(self, run: ScoringRun) -> Tensor:
            return run.per_layer(lambda linear: linear.weight.norm(dim=1))

        def contrast(self, run: PromptRun) -> Tensor:
            asked.append(run.domain)
            return sign * run.rank_difference("last_token", lambda batch: last_outputs(run.loaded, batch))

    return asked


def test_it_is_calibrated_kept_written_and_makes_a_mask(demo: LoadedModel, store: Store, tmp_path: Path) -> None:
    assert NAME not in contrast_selectors()
    with pytest.raises(InputError, match=f"unknown contrast selector {NAME!r}"):
        small_plan(selectors=(NAME,))
    asked = register()
    assert contrast_selectors()[-1] == NAME
    assert get_selector(NAME).contrasts
    plan = small_plan(selectors=(NAME, "random"))
    pairs = read_pairs(plan.pairs, CALIBRATION, plan.domains, plan.calibration_pairs)
    results = calibrate(demo, plan, pairs, store=store)
    assert [(one.selector, one.domain) for one in results] == [
        (name, domain) for domain in ("hate", "crime") for name in (NAME, "random")
    ]
    assert asked == ["hate", "crime"]

    def ranks(prompts: list[str]) -> Any:
        total = torch.zeros(demo.rows.n_rows)
        for prompt in prompts:
            ids = torch.tensor([prompt_ids(demo.tokenizer, prompt)])
            ones = torch.ones_like(ids)
            with torch.no_grad():
                total += last_outputs(demo, EncodedPrompts(ids, ones, ones.cumsum(-1) - 1))
        return percentile_ranks(total / len(prompts), demo.rows)

    expected = ranks([pair.risk for pair in pairs["hate"]]) - ranks([pair.base for pair in pairs["hate"]])
    # batched, padded prompts against single ones: float32 sums may swap neighbours of almost equal size
    np.testing.assert_allclose(results[0].c_comply, expected, atol=0.02)
    assert np.abs(results[0].c_comply).max() > 0.5

    again = calibrate(demo, plan, pairs, store=store)
    assert asked == ["hate", "crime"]
    np.testing.assert_array_equal(again[0].c_comply, results[0].c_comply)

    write_contrasts(tmp_path, demo, results, {}, 0.0)
    loaded, _ = load_contrasts(tmp_path / "contrast.safetensors")
    one = next(one for one in loaded if (one.selector, one.domain) == (NAME, "hate"))
    mask = refusal_mask(one, 0.5, 0.02)
    assert mask.tolist() == refusal_mask(results[0], 0.5, 0.02).tolist()
    file, n_rows = tmp_path / "contrast.safetensors", demo.rows.n_rows
    edit = edit_from_contrast(file, NAME, "hate", 0.5, 0.02, n_rows, demo.weights_hash)
    assert edit.units.tolist() == mask.tolist()


@pytest.mark.long
def test_the_command_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    register()
    few = ["--domains", "hate", "--pairs-per-domain", "4", "--store", str(tmp_path / "s"), "--out", str(tmp_path)]
    assert main(["refusal", "calibrate", "demo", "--selectors", NAME, *few, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["contrasts"] == [{"selector": NAME, "domain": "hate"}]
    assert [one.selector for one in load_contrasts(tmp_path / "contrast.safetensors")[0]] == [NAME]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(3), rf"{NAME!r} gave a contrast of shape \[3\]; expected \["),
        (torch.full((1,), torch.nan), f"{NAME} produced .* non-finite scores"),
        (torch.full((1,), -1.5), r"c_comply must be finite and in \[-1, 1\]"),
    ],
)
def test_wrong_contrasts_are_clear_errors(demo: LoadedModel, values: Tensor, message: str) -> None:
    @register_selector(NAME, data_free=True)
    class Wrong:
        def score(self, run: ScoringRun) -> Tensor:
            return torch.ones(run.rows.n_rows)

        def contrast(self, run: PromptRun) -> Tensor:
            return values.repeat(run.rows.n_rows) if values.numel() == 1 else values

    pairs = read_pairs("demo", CALIBRATION, ("hate",), 4)["hate"]
    with pytest.raises(InputError, match=message):
        contrasts(demo, [NAME], pairs, {NAME: np.ones(demo.rows.n_rows)})
    with pytest.raises(InputError, match="no language-model scores"):
        contrasts(demo, [NAME], pairs, {})


def test_what_contrasts_prompts_only_is_protected_by_the_scores_it_names(demo: LoadedModel, store: Store) -> None:
    """effect_size by grad_x_input's, a plug-in without scores likewise; their masks are made like any other's."""

    @register_selector(NAME, protected_by="magnitude")
    class OnlyContrasts:
        """C = r(|h| of the last token, risk) - r(base)."""

        def contrast(self, run: PromptRun) -> Tensor:
            return run.rank_difference("last_token", lambda batch: last_outputs(run.loaded, batch))

    assert NAME in contrast_selectors()
    pairs = read_pairs("demo", CALIBRATION, ("hate",), 4)
    plan = small_plan(selectors=("effect_size", NAME), domains=("hate",))
    effect_size, plug_in = calibrate(demo, plan, pairs, store=store)
    [by_gradient] = calibrate(demo, small_plan(selectors=("grad_x_input",)), pairs, store=store)
    np.testing.assert_array_equal(effect_size.lm_rank, by_gradient.lm_rank)
    assert (effect_size.c_comply != by_gradient.c_comply).any()
    magnitude = compute_scores(demo, ["magnitude"], None)["magnitude"]
    np.testing.assert_array_equal(plug_in.lm_rank, percentile_ranks(magnitude, demo.rows).astype(np.float32))
    for one in (effect_size, plug_in):
        assert refusal_mask(one, 0.5, 0.02).size == round(0.02 * demo.rows.n_rows)
    with pytest.raises(InputError, match=f"{NAME!r} contrasts prompts and gives text no scores.*score with magnitude"):
        compute_scores(demo, [NAME], None)
