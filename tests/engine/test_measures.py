"""Measures: the documented one, ours and a plug-in's take the same passes; keys stay what they are."""

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tiny_models import load_tiny
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from window_nll import window_nll

import engine.measures.base as base
from engine.data.corpora import Windows
from engine.data.onsets import OnsetTokens
from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.interventions.at_outputs import applied
from engine.judges.embedded import EmbeddedJudge
from engine.judges.refusals import Refusals
from engine.measures.base import MEASURES, Given, TokenMeasure
from engine.measures.divergence import Kl
from engine.measures.fidelity import Fidelity
from engine.measures.margin import Margins, margins
from engine.measures.nll import Nll
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run import edited_passes
from engine.run.audit_plan import ScorePlan
from engine.run.edited_passes import edits_together
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Cell, LocalRunner
from engine.run.scoring import _score_key, _size_key
from engine.studies.refusal.algorithm import _key

PROMPTS = ("Sure, here it is.", "No way.", "sat on")


class BesideUnedited(TokenMeasure[Any]):
    """A plug-in that compares with the unedited model: how far the largest logit moved."""

    kind = "moved"
    beside_unedited = True

    def of_unedited(self, logits: Tensor) -> Tensor:
        return logits.max(-1).values

    def of_tokens(self, logits: Tensor, tokens: Tensor, unedited: Tensor) -> Tensor:
        return (logits.max(-1).values - unedited).abs()


@pytest.fixture(scope="module")
def documented() -> Iterator[type[TokenMeasure[Any]]]:
    """The class that the docstring shows, run as a file of its own would be."""
    example = [line for line in (base.__doc__ or "").splitlines() if not line or line.startswith("    ")]
    module = ModuleType("plug_in_accuracy")
    exec(textwrap.dedent("\n".join(example)), module.__dict__)
    try:
        yield module.__dict__["Accuracy"]
    finally:
        MEASURES.remove("accuracy")


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny("llama", tmp_path_factory.mktemp("deep"), num_hidden_layers=4, intermediate_size=96)


def dead_neurons(loaded: LoadedModel, block: int, *, of: int = 2) -> Edit:
    rows = loaded.rows.frame().filter(projection="gate_proj", block=block)["row_id"].to_numpy()
    return edit_of(rows[: len(rows) // of], loaded.rows.n_rows)


def by_loop(loaded: LoadedModel, edit: Edit, measure: TokenMeasure[Any]) -> list[float]:
    """Window by window through the whole model, every row computed."""
    found = []
    for window in measure.windows.read_ids:
        with torch.no_grad():
            before = loaded.model(input_ids=window[None]).logits[0, :-1]
            with applied(loaded, edit):
                after = loaded.model(input_ids=window[None]).logits[0, :-1]
        values = measure.of_tokens(after, window[1:], measure.of_unedited(before))
        found.append(float(values.double().sum(-1).flatten()[0]))
    return found


def sums(result: Any) -> list[float]:
    return list(result.sums if isinstance(result, base.Average) else result.window_nats)


def flops(loaded: LoadedModel, edits: list[Edit], measure: TokenMeasure[Any], store: Store) -> int:
    with FlopCounterMode(display=False) as counted:
        LocalRunner(store).run([Cell(loaded, edit, measure) for edit in edits])
    return counted.get_total_flops()


@pytest.mark.parametrize("several", [False, True])
def test_every_token_measure_gives_what_a_dense_loop_gives(
    several: bool, deep: LoadedModel, tiny_windows: Windows, documented: type[TokenMeasure[Any]], tmp_path: Path
) -> None:
    """Several edits in one pass over little text, or one in the weights; late edits and early ones, and none."""
    text = tiny_windows.first(2) if several else tiny_windows
    measures = [one(text, None if several else 4) for one in (Nll, Fidelity, documented, BesideUnedited)]
    edits = [UNEDITED, *(dead_neurons(deep, block, of=of) for block in (3, 0, 2) for of in (1, 2))]
    assert edits_together(deep, measures[2]) == edits_together(deep, measures[0])
    with Store(tmp_path) as store:
        for measure in measures:
            results = LocalRunner(store).run([Cell(deep, edit, measure) for edit in edits])
            for edit in edits:
                found = sums(results[Cell(deep, edit, measure)])
                # float32 logits of other shapes, summed over 15 tokens
                assert found == pytest.approx(by_loop(deep, edit, measure), rel=1e-5, abs=1e-4)


def test_edits_share_a_pass_only_as_far_as_their_text_does_not_fill_one(
    deep: LoadedModel, tiny_windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six windows of 16 tokens: where these fill a pass, one cell costs what one edit costs, and its key says so."""
    measure, edits = Nll(tiny_windows), [dead_neurons(deep, block, of=1) for block in (0, 2)]
    shared = [Cell(deep, edit, measure) for edit in edits]
    monkeypatch.setitem(edited_passes.ENOUGH_TOKENS, "cpu", 8 * 6 * 16)
    assert edits_together(deep, measure) == 8
    with Store(tmp_path / "shared") as store:
        cost, results = flops(deep, edits[:1], measure, store), LocalRunner(store).run(shared)
        together = [sums(results[cell]) for cell in shared]
    monkeypatch.setitem(edited_passes.ENOUGH_TOKENS, "cpu", 6 * 16 + 5)
    alone = [Cell(deep, edit, measure) for edit in edits]
    assert edits_together(deep, measure) == 1
    assert {cell.key for cell in alone}.isdisjoint(cell.key for cell in shared)
    with Store(tmp_path / "alone") as store:
        assert flops(deep, edits[:1], measure, store) < cost / 7
        results = LocalRunner(store).run(alone)
        for cell, expected in zip(alone, together, strict=True):
            assert sums(results[cell]) == pytest.approx(expected, rel=1e-5, abs=1e-4)


def test_a_plug_in_is_passed_as_ours_are(
    deep: LoadedModel, tiny_windows: Windows, documented: type[TokenMeasure[Any]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As many operations as for NLL, counted by torch: without dead neurons, and from the first edited block on."""
    monkeypatch.setattr(edited_passes, "EDITS_TOGETHER", 1)  # so that so little text is measured in the weights
    ours, theirs = Nll(tiny_windows, 6), documented(tiny_windows, 6)
    late = [dead_neurons(deep, 3, of=of) for of in (2, 3, 4)]
    with Store(tmp_path / "proofs") as store:  # what a model must prove, it has proven then
        flops(deep, late[:1], Nll(tiny_windows, 5), store)
    with Store(tmp_path / "store") as store:
        counts = [
            [flops(deep, edits, measure, store) for measure in (ours, theirs)]
            for edits in ([UNEDITED], [dead_neurons(deep, 0, of=1)], late)
        ]
    (whole, _), (dead, _), (begun_late, _) = counts
    assert all(one == other for one, other in counts)
    assert dead < 0.9 * whole
    assert begun_late < 2 * whole  # three passes, of which two begin at the last of four blocks


def test_beside_the_unedited_model_edits_begin_late_too(
    deep: LoadedModel, tiny_windows: Windows, tmp_path: Path
) -> None:
    """The unedited pass goes through every block; the edited one begins where it is edited."""
    edits = [dead_neurons(deep, 3, of=of) for of in (2, 3, 4)]
    with Store(tmp_path / "proofs") as store:
        flops(deep, edits[:1], Nll(tiny_windows), store)
    for measure in (Fidelity(tiny_windows), BesideUnedited(tiny_windows)):
        with Store(tmp_path / measure.kind) as store:
            early = flops(deep, [dead_neurons(deep, 0, of=of) for of in (2, 3, 4)], measure, store)
            assert flops(deep, edits, measure, store) < 0.75 * early


def test_every_registered_measure_gives_a_value(tiny_llama: LoadedModel, tiny_windows: Windows, tmp_path: Path) -> None:
    """Of no edit what the unedited model says of itself, against the functions that give the same directly."""
    given = Given(tiny_windows, None, PROMPTS, 6)
    some = edit_of(range(0, tiny_llama.rows.n_rows, 3), tiny_llama.rows.n_rows)
    with Store(tmp_path) as store:
        cells = {info.id: [Cell(tiny_llama, e, info.make(given)) for e in (UNEDITED, some)] for info in MEASURES}
        results = LocalRunner(store).run([cell for both in cells.values() for cell in both])
        values = {name: [results[cell].value for cell in both] for name, both in cells.items()}
        again = LocalRunner(store)
        assert again.count([cell for both in cells.values() for cell in both]).to_compute == 0
        assert {name: [again.results[cell].value for cell in both] for name, both in cells.items()} == values
    nats = window_nll(tiny_llama.model, tiny_windows.input_ids)[0]
    assert values["nll"][0] == pytest.approx(float(nats.sum()) / 90, rel=1e-6)
    assert values["kl"][0] == 0.0 < values["kl"][1]
    assert values["top1"][0] == 1.0 > values["top1"][1]
    assert values["margin"][0] == pytest.approx(float(margins(tiny_llama, PROMPTS).mean()), rel=1e-5)
    with applied(tiny_llama, some):
        assert values["margin"][1] == pytest.approx(float(margins(tiny_llama, PROMPTS).mean()), rel=1e-4)
    assert values["fluency"][1] < values["fluency"][0] < 0  # its own greedy replies are what it expects
    tokens = {name: results[both[0]].tokens for name, both in cells.items()}
    assert (tokens["nll"], tokens["kl"], tokens["top1"], tokens["margin"]) == (90, 90, 90, 3)


KEYS = {
    "nll": "96b4ec60a3dadb8f044f9810a48fde5c7f7cc90298db06f16330088f2889972e",  # pragma: allowlist secret
    "nll, one window": "f5ef48d3ccd444ef916f299dc3b0e147a52ec5982f4ad81a21741bde3ba60069",  # pragma: allowlist secret
    "fidelity": "d1226c9debab64800eaf978d052ae0c80c861f11cfac0e1913272916435b2b4d",  # pragma: allowlist secret
    "replies": "cba0d3cbdea9df856f028bd5d737be9d669bd5ebf22ca9764c9d58186818d0d7",  # pragma: allowlist secret
    "refusals": "3216ff126b7f5a72cf2b8a3b5ea0569b7cc993a0dbf136f2d38bf56ef6ad54d5",  # pragma: allowlist secret
    "divergence": "14fa3c6be5a5f59cc5dd5599efc69e3d0ee0d776f196867a908fbe4f865a24da",  # pragma: allowlist secret
    "margins": "5b7d1b854321444f04eafdf48700a724d5aa86121de9547c8124f4d4a52bb7a7",  # pragma: allowlist secret
    "scores": "93116bf26688b260eb0b6c8527d996b14fd7f7a304c8ecd86c5f56fc168b3da9",  # pragma: allowlist secret
    "scores of seeds": "5132ad1e88acef6da089a4a264629c46a1762aea91d7f4b8450c04c211b27f0a",  # pragma: allowlist secret
    "scores of a size": "1385e2a48d8d089fdfacacdbab8228dc70fecc7e49c618499aa57f477db71c03",  # pragma: allowlist secret
    "contrast": "44d9bece49e9f048cace3a59721da5eb21721e4f6613cf21c939a86f4f4fe22f",  # pragma: allowlist secret
}


def test_keys_are_what_they_were(
    tiny_llama: LoadedModel, tiny_windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written out: another key makes every kept result unknown, so that it is due where a number changes and nowhere
    else. The model's hashes and the libraries' versions, which a key holds too, are fixed here.
    """
    monkeypatch.setattr("engine.records.hashing.installed_version", lambda _: "1.0")
    model = replace(tiny_llama, **dict.fromkeys(("weights_hash", "config_hash", "tokenizer_hash"), "0" * 64))
    replies, edit = Replies(PROMPTS, 8, 4), edit_of([3, 40, 200], tiny_llama.rows.n_rows)
    measures = {
        "nll": Nll(tiny_windows), "nll, one window": Nll(tiny_windows, 1), "fidelity": Fidelity(tiny_windows),
        "replies": replies, "refusals": Refusals(replies, EmbeddedJudge()), "margins": Margins(PROMPTS),
        "divergence": Kl(PROMPTS, ("a", "b", "c"), 2),
    }  # fmt: skip
    plan, onsets = ScorePlan(seeds=(4, 5), batch_size=2, skip_first=1), OnsetTokens((1,), (2, 3))
    assert {name: Cell(model, edit, measure).key for name, measure in measures.items()} | {
        "scores": _score_key(model, plan, "wanda", tiny_windows),
        "scores of seeds": _score_key(model, plan, "random", None),
        "scores of a size": _size_key(model, plan, "wanda", tiny_windows, 2),
        "contrast": _key(model, RefusalPlan(), "random", {}, onsets, "1" * 64),
    } == KEYS
