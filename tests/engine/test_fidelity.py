"""NLL, KL and top-1 agreement of one pass against loops in float64 and torch's own; edits of nothing; broken models."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, Edit, edit_of, first_of
from engine.interventions.at_outputs import applied
from engine.interventions.kinds import prepare
from engine.measures import predictions
from engine.measures.divergence import token_kl
from engine.measures.fidelity import Fidelity
from engine.models.loading import LoadedModel
from engine.models.units import UNITS
from engine.records.errors import InputError
from engine.run.edited_passes import measured


def edits_of(loaded: LoadedModel, windows: Windows) -> list[Edit]:
    """Rows, neurons and heads, under every intervention, and nothing."""
    for name in ("mean", "resample"):
        prepare(loaded, name, windows)
    generator = np.random.default_rng(0)
    n = loaded.rows.n_rows
    edits = [edit_of(generator.choice(n, n // 4, replace=False), n, intervention=one) for one in ("zero", "mean")]
    for kind, intervention in (("neuron", "zero"), ("head", "resample"), ("head", "zero")):
        units = UNITS[kind](loaded)
        if units.count:
            order = generator.permutation(units.count)
            edits.append(first_of(order, units.count // 3, intervention=intervention, ids=units.ids, side=units.side))
    return [*edits[:2], UNEDITED, *edits[2:]]


@torch.no_grad()
def logits(loaded: LoadedModel, window: Tensor) -> Tensor:
    return loaded.model(input_ids=window[None], use_cache=False).logits[0, :-1].double()


def test_all_three_are_those_of_one_window_after_another(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    edits = edits_of(tiny_family, tiny_windows)
    found = measured(tiny_family, Fidelity(tiny_windows), edits)
    ids = tiny_windows.input_ids
    dense = [logits(tiny_family, window) for window in ids]
    moved = 0
    for edit, result in zip(edits, found, strict=True):
        assert result.window_tokens == (15,) * len(ids)
        for number, window in enumerate(ids):
            with applied(tiny_family, edit):
                after = logits(tiny_family, window)
            log_q = after.log_softmax(-1)
            nats = -math.fsum(log_q[t, window[t + 1]].item() for t in range(15))
            log_p = dense[number].log_softmax(-1)
            kl = functional.kl_div(log_q, log_p, reduction="sum", log_target=True).item()
            same = sum(int(dense[number][t].argmax() == after[t].argmax()) for t in range(15))
            # float32 logits of another batch shape, and float32 sums over 300 tokens: 1e-6 per position
            assert result.window_nats[number] == pytest.approx(nats, abs=1e-4)
            assert result.window_kl[number] == pytest.approx(kl, abs=1e-4)
            assert result.window_kl[number] == pytest.approx(float(token_kl(dense[number], after).sum()), abs=1e-4)
            assert result.window_same[number] == same
            moved += kl > 1
        if not edit.size:
            assert result.window_kl == (0.0,) * len(ids)  # exactly
            assert result.window_same == result.window_tokens
    assert moved > len(ids)
    if len(edits) > 3:
        assert any(result.window_same[0] < 15 for result in found)


@pytest.mark.parametrize("budget", [300 * 16, 300 * 16 * 4, 300 * 16 * 100])
def test_windows_and_edits_in_any_number_of_passes(
    tiny_llama: LoadedModel, tiny_windows: Windows, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """One window in a pass; four of six; all windows under all edits and more."""
    edits = edits_of(tiny_llama, tiny_windows)
    expected = measured(tiny_llama, Fidelity(tiny_windows), edits)
    monkeypatch.setitem(predictions.LOGIT_BUDGET, "cpu", budget)
    monkeypatch.setitem(predictions.SOFTMAX_BUDGET, "cpu", 700)
    monkeypatch.setattr(predictions, "LEAST_ROWS", 1)
    found = measured(tiny_llama, Fidelity(tiny_windows), edits)
    for one, other in zip(found, expected, strict=True):
        assert one.window_nats == pytest.approx(other.window_nats, rel=1e-5)
        assert one.window_kl == pytest.approx(other.window_kl, abs=1e-4)
        assert one.window_same == other.window_same
    assert found[2].window_kl == (0.0,) * 6


def test_a_model_without_a_finite_loss_is_told(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    norm = tiny_llama.model.model.norm.weight
    kept = norm.clone()
    try:
        with torch.no_grad():
            norm.fill_(math.nan)
        with pytest.raises(InputError, match="no finite loss with 0 rows removed"):
            measured(tiny_llama, Fidelity(tiny_windows), [UNEDITED])
    finally:
        with torch.no_grad():
            norm.copy_(kept)
    double = replace(tiny_llama, dtype="float32")
    assert measured(double, Fidelity(tiny_windows), [UNEDITED])[0].window_kl == (0.0,) * 6
