"""Logits in pieces against logits at once: the same numbers, less memory, and keys that change nowhere else."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.special import log_softmax
from tiny_models import load_tiny, tiny_model
from torch import Tensor, nn
from window_nll import window_nll

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.edits.masks import removed_rows
from engine.interventions.at_outputs import applied, edited_outputs
from engine.measures.fidelity import Fidelity
from engine.measures.logit_bits import LogitBits
from engine.measures.nll import Nll, predicted_nll
from engine.measures.predictions import LOGIT_BUDGET, SOFTMAX_BUDGET, halves, has_two_halves, in_pieces, predictions
from engine.models.dry_passes import dry
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index
from engine.run import edited_passes
from engine.run.edited_passes import measured
from engine.run.runner import Cell

# Soft caps, a bias, scales, experts, several types at the end of their names, and no attention at all.
FAMILIES = ("llama", "qwen3", "gemma2", "gemma3", "gpt_neox", "phi", "granite", "gpt2", "mixtral", "mamba")
# Where a product of fewer rows sums in another order, a float32 logit of size 10 moves by some of its roundings of
# 2^-24 * 10; most families gave equal bits.
SAME = 1e-6  # nats per token


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget that the logits of two windows of 16 tokens are beyond, and 16 positions in a piece."""
    in_small_pieces(monkeypatch)


def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOGIT_BUDGET, "cpu", 300 * 16)
    monkeypatch.setattr("engine.measures.predictions.LEAST", 1)


def three_under_one_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOFTMAX_BUDGET, "cpu", 300 * 3)
    monkeypatch.setattr("engine.measures.predictions.LEAST_ROWS", 1)


def windows(count: int = 6, length: int = 16) -> Windows:
    ids = torch.randint(5, 290, (count, length), generator=torch.Generator().manual_seed(1))
    return Windows("text", "hash", ids, tuple(range(count)))


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_losses_in_pieces_are_those_at_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model(family), windows().input_ids
    row_index(model)  # as every model that is loaded: an expert's Linears instead of one fused product
    whole = window_nll(model, ids)[0]
    assert predictions(model, {"input_ids": ids}).logits_of is None
    in_small_pieces(monkeypatch)
    assert predictions(model, {"input_ids": ids}).logits_of
    three_under_one_softmax(monkeypatch)  # and three under one softmax
    found = window_nll(model, ids)[0]
    assert float((found - whole).abs().max()) / 15 < SAME
    logits = model(ids).logits[:, :-1].double().numpy()
    slow = [-sum(log_softmax(row[t])[ids[b, t + 1]] for t in range(15)) for b, row in enumerate(logits)]
    torch.testing.assert_close(found, torch.tensor(slow), rtol=0, atol=15e-6)


@torch.no_grad()
def test_how_many_positions_are_under_one_softmax_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny_model("llama"), windows().input_ids
    monkeypatch.setattr("engine.measures.predictions.LEAST_ROWS", 1)
    found = []
    for positions in (1, 4, 7, 15, 10**6):
        monkeypatch.setitem(SOFTMAX_BUDGET, "cpu", 300 * positions)
        sizes = [len(some) for some in predictions(model, {"input_ids": ids}).chunks()]
        assert (max(sizes), sum(sizes)) == (min(positions, 15), 6 * 15)
        found.append(window_nll(model, ids)[0])
    assert all(torch.equal(one, found[0]) for one in found)


@torch.no_grad()
def test_a_soft_cap_is_respected(few: None) -> None:
    ids = windows().input_ids
    capped, free = (tiny_model("gemma2", final_logit_softcapping=cap) for cap in (2.0, None))
    logits = free(ids).logits[:, :-1].double()
    said = 2 * torch.tanh(logits / 2)
    expected = -said.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0].sum(-1)
    found, uncapped = (window_nll(model, ids)[0] for model in (capped, free))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert float((found - uncapped).abs().min()) > 0.1


class ByPosition(nn.Module):
    """A head that looks at more than one position."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Tensor) -> Tensor:
        return self.head(hidden.cumsum(1))


@torch.no_grad()
def test_a_model_that_ends_otherwise_gives_all_logits_at_once(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = windows(2).input_ids
    model = tiny_model("llama")
    assert has_two_halves(model)
    usual = type(model).forward

    def scaled(self: Any, *args: Any, **more: Any) -> Any:  # by something that is not in the states
        output = usual(self, *args, **more)
        output.logits = output.logits * (1 + more["input_ids"].sum() / 1000)
        return output

    monkeypatch.setattr(type(model), "forward", scaled)
    assert halves(model, {"input_ids": ids}) is None
    said = predictions(model, {"input_ids": ids})
    assert said.logits_of is None
    assert torch.equal(torch.cat([*said.chunks()]), model(input_ids=ids).logits[:, :-1].flatten(0, 1))
    monkeypatch.setattr(type(model), "forward", usual)
    model.lm_head = ByPosition(model.lm_head)
    assert not has_two_halves(model)
    assert not in_pieces(model, "cpu", 16)
    assert predictions(model, {"input_ids": ids}).logits_of is None


def test_threads_do_not_hear_each_other(few: None) -> None:
    model, ids = tiny_model("llama"), windows().input_ids
    expected = [window_nll(model, part)[0] for part in ids.split(3)]
    found: dict[int, list[Tensor]] = {0: [], 1: []}

    def work(which: int) -> None:
        for _ in range(10):
            found[which].append(window_nll(model, ids[which * 3 : which * 3 + 3])[0])

    threads = [threading.Thread(target=work, args=(which,)) for which in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(one, expected[which]) for which, all_of in found.items() for one in all_of)
    assert [len(all_of) for all_of in found.values()] == [10, 10]
    assert not model.model._forward_hooks


def edits_of(loaded: LoadedModel) -> list[Edit]:
    generator = torch.Generator().manual_seed(5)
    scores = torch.rand(loaded.rows.n_rows, generator=generator).numpy()
    return [edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows) for rate in (0.1, 0.4)] + [UNEDITED]


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_fidelity_in_pieces(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_tiny(family, tmp_path)
    text, edits = windows(), edits_of(loaded)
    whole = measured(loaded, Fidelity(text), edits)
    in_small_pieces(monkeypatch)
    three_under_one_softmax(monkeypatch)
    found = measured(loaded, Fidelity(text), edits)
    for one, other in zip(found, whole, strict=True):
        assert one.window_nats == pytest.approx(other.window_nats, abs=15 * SAME)
        assert one.window_kl == pytest.approx(other.window_kl, abs=15 * SAME)
        assert one.window_same == other.window_same
    assert found[-1].window_kl == (0.0,) * 6  # exactly
    assert found[-1].window_same == (15,) * 6
    assert min(found[1].window_kl) > 0.01


def test_edits_at_outputs_and_in_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_tiny("llama", tmp_path)
    ids, edits = windows(3).input_ids, edits_of(loaded)
    expected = []
    for edit in edits:
        with applied(loaded, edit):
            expected.append(window_nll(loaded.model, ids)[0])
    in_small_pieces(monkeypatch)
    with edited_outputs(loaded, edits) as outputs, outputs.sequences([0, 1, 2]):
        mixed = window_nll(loaded.model, ids)[0]
    for place, edit in enumerate(edits):
        with applied(loaded, edit):
            found = window_nll(loaded.model, ids)[0]
        torch.testing.assert_close(found, expected[place], rtol=0, atol=15 * SAME)
        torch.testing.assert_close(mixed[place], expected[place][place], rtol=0, atol=15 * SAME)


def test_keys_and_batches_change_only_where_logits_come_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, text = load_tiny("llama", tmp_path), windows()
    monkeypatch.setitem(edited_passes.ENOUGH_TOKENS, "cpu", 1024)
    cells = [Cell[Any](loaded, UNEDITED, measure) for measure in (Nll(text), Fidelity(text), LogitBits(text))]

    def records() -> list[Any]:
        return [json.loads(replace(cell).measure_key.partition(" ")[2]) for cell in cells]

    usual = records()
    assert [record.keys() for record in usual] == [
        {"tokens", "batch_size", "compaction"}, {"tokens", "batch", "version"}, {"tokens", "batch_size"},
    ]  # fmt: skip
    monkeypatch.setitem(LOGIT_BUDGET, "cpu", 2 * 300 * 16)  # two windows' logits: at once as ever
    assert records()[0] == usual[0] | {"batch_size": 2}
    assert records()[1] == usual[1] | {"batch": [2, 1]}
    monkeypatch.setitem(LOGIT_BUDGET, "cpu", 2 * 300 * 16 - 1)
    size = (2 * 300 * 16 - 1) // (16 * 28)  # 28: the widest Linear
    assert size > 6
    assert records()[0] == usual[0] | {"batch_size": 6, "logits_in_pieces": 1}
    assert records()[1] == usual[1] | {"batch": [6, size // 6], "logits_in_pieces": 1}
    assert records()[2] == usual[2] | {"batch_size": 1}  # it looks at every logit


def test_the_peak_is_far_below_that_of_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted on shapes, as `estimate` does it: with the same batch, and so that tensors of the body hardly matter."""
    ids = torch.zeros(8, 64, dtype=torch.int64)

    def peak() -> int:
        model = tiny_model("llama", vocab_size=20_000)
        with dry(model, torch.float32) as found, torch.no_grad():
            return found.cost(
                lambda: predicted_nll(predictions(found.model, {"input_ids": ids}, "cpu", check=False), ids[:, 1:])
            ).peak_bytes

    monkeypatch.setitem(SOFTMAX_BUDGET, "cpu", 20_000 * 16)
    whole = peak()
    in_small_pieces(monkeypatch)
    monkeypatch.setitem(LOGIT_BUDGET, "cpu", 20_000 * 64)
    pieces = peak()
    assert whole > 4 * 20_000 * 64 * 8
    assert pieces < whole / 3
