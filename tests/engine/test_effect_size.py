"""Effect size: the point-biserial correlation written out, one direction only, one pass with grad_x_input."""

import copy

import numpy as np
import pytest
import torch
from test_contrast import literal_relevance, lm_scores, pairs_for
from tiny_models import load_tiny

from engine.data.corpora import Pair
from engine.data.onsets import onset_tokens
from engine.measures.margin import margin_of_logits
from engine.models.loading import LoadedModel
from engine.selectors import PromptRun
from engine.selectors.prompt_run import Side
from engine.studies.refusal.algorithm import contrasts


@pytest.fixture(scope="module", params=["llama", "gpt_neox"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), seed=3)


@pytest.fixture(scope="module")
def pairs(model: LoadedModel) -> list[Pair]:
    return pairs_for(model, "hate", 5, seed=0)


def run_of(model: LoadedModel, risk: list[str], base: list[str]) -> PromptRun:
    onsets = onset_tokens(model.tokenizer)
    return PromptRun(model, "hate", risk, base, lambda logits: margin_of_logits(logits, onsets), batch_size=3)


@pytest.mark.first_run("llama-1|gpt_neox-4")
@pytest.mark.parametrize("batch_size", [1, 4])
def test_it_is_the_correlation_of_promoting_compliance_with_the_side(
    model: LoadedModel, pairs: list[Pair], batch_size: int
) -> None:
    """Prompts one by one in float64, numpy's correlation with 1 for risk and 0 for base; 0 where nothing varies."""
    [found] = contrasts(model, ["effect_size"], pairs, lm_scores(model), batch_size=batch_size)
    double = copy.deepcopy(model.model).double()
    prompts = [*(pair.risk for pair in pairs), *(pair.base for pair in pairs)]
    values = np.array([literal_relevance(model, double, "grad_x_input", prompt) for prompt in prompts])
    promoting = np.maximum(-values, 0)  # [prompts, N]
    side = np.repeat([1.0, 0.0], len(pairs))
    expected = [np.corrcoef(side, row)[0, 1] if np.ptp(row) else 0.0 for row in promoting.T]
    # float32 relevance of rows whose effects nearly cancel over positions
    np.testing.assert_allclose(found.c_comply, expected, atol=1e-3)
    assert np.median(np.abs(found.c_comply - expected)) < 1e-6
    assert np.abs(found.c_comply).max() > 0.5
    assert (found.c_comply > 0).any()
    assert (found.c_comply < 0).any()


def test_it_has_one_direction(model: LoadedModel, pairs: list[Pair]) -> None:
    """The other way round it turns its sign: no row scores high for a difference as such, or on both sides."""
    risk, base = [pair.risk for pair in pairs], [pair.base for pair in pairs]
    found = run_of(model, risk, base).contrast("effect_size")
    torch.testing.assert_close(run_of(model, base, risk).contrast("effect_size"), -found)
    assert torch.equal(run_of(model, risk, risk).contrast("effect_size"), torch.zeros_like(found))
    compliance, _ = run_of(model, risk, base).compliance("grad_x_input")
    assert (compliance.mean >= 0).all()


def test_rows_that_never_promote_complying_are_not_chosen(model: LoadedModel, pairs: list[Pair]) -> None:
    risk, base = [pair.risk for pair in pairs], [pair.base for pair in pairs]
    run = run_of(model, risk, base)
    sides = run.compliance("grad_x_input")
    never = (sides[0].mean == 0) & (sides[1].mean == 0)
    in_risk_only = (sides[0].mean > 0) & (sides[1].mean == 0)
    found = run.contrast("effect_size")
    assert in_risk_only.any()
    assert (found[never] == 0).all()
    assert (found[in_risk_only] > 0).all()


def test_it_shares_the_pass_of_grad_x_input(model: LoadedModel, pairs: list[Pair]) -> None:
    calls: list[tuple[str, int, int]] = []
    names = ["grad_x_input", "effect_size"]
    both = contrasts(model, names, pairs, lm_scores(model), progress=lambda *one: calls.append(one))
    assert [stage for stage, *_ in calls] == ["grad_x_input"] * 2  # risk and base
    for name, found in zip(names, both, strict=True):
        [alone] = contrasts(model, [name], pairs, lm_scores(model))
        np.testing.assert_array_equal(found.c_comply, alone.c_comply)


def test_a_row_that_differs_without_spread_is_the_strongest(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """d is infinite there, and the score stays in its range; equal and constant is no difference."""
    zero, one = torch.zeros(model.rows.n_rows, dtype=torch.float64), torch.ones(model.rows.n_rows, dtype=torch.float64)
    sides = {"risk": (one, zero), "base": (zero, one), "equal": (one, one)}
    for name, score in (("risk", 1), ("base", -1), ("equal", 0)):
        risk, base = (Side(mean, zero) for mean in sides[name])
        monkeypatch.setattr(PromptRun, "compliance", lambda *_, risk=risk, base=base: (risk, base))
        assert (run_of(model, ["a"], ["b"]).contrast("effect_size") == score).all()
