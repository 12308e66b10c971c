"""Selectors against slow loops, and what holds for every selector in the registry."""

from dataclasses import replace
from typing import Any

import pytest
import reference
import torch
from reference import close
from same_bits import assert_same_bits, bits
from scipy.stats import spearmanr
from tiny_models import in_float64, tiny_model

from engine.data.corpora import Windows
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index
from engine.run.audit_plan import PAPER_SELECTORS, ScorePlan
from engine.selectors import available_selectors, compute_scores, get_selector
from engine.selectors.consensus2 import borda
from engine.stats.removal_order import removal_order

SELECTORS = [info.id for info in available_selectors()]
DATA_DEPENDENT = [info.id for info in available_selectors() if not info.data_free]


def loaded_as(template: LoadedModel, model: Any, **changes: Any) -> LoadedModel:
    """`template` around another model."""
    return replace(template, model=model, rows=row_index(model), **changes)


def hooks(model: torch.nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    )


def test_the_seven_of_the_paper_come_first_and_in_its_order_then_ours() -> None:
    seven = ["random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2"]
    shelf = ["fisher", "taylor", "atp_signed", "relp", "gradient_norm", "activation_std", "flap", "ria", "weight_norm"]
    assert SELECTORS[:18] == [*seven, "grad_x_input", "ig_conductance", *shelf]
    assert list(PAPER_SELECTORS) == seven
    assert ScorePlan().selectors == PAPER_SELECTORS
    assert [get_selector(name).data_free for name in seven] == [True, True, *[False] * 5]


# --- references


def test_magnitude_is_the_slow_loop(tiny_family: LoadedModel) -> None:
    scores = compute_scores(tiny_family, ["magnitude"], None)["magnitude"]
    close(scores, reference.magnitude(tiny_family.model, tiny_family.rows))


@pytest.mark.parametrize("selector", ["wanda", "mean_activation"])
def test_activation_selectors_are_the_slow_loops(
    selector: str, tiny_family: LoadedModel, tiny_windows: Windows
) -> None:
    few = tiny_windows.first(3)
    scores = compute_scores(tiny_family, [selector], few)[selector]
    close(scores, getattr(reference, selector)(tiny_family.model, tiny_family.rows, few.input_ids))


@pytest.mark.first_run("llama-.*loss|gemma3_text-.*logit|qwen2-lrp")
@pytest.mark.parametrize("objective", ["loss", "logit"])
@pytest.mark.parametrize("selector", ["lrp", "ig"])
@pytest.mark.parametrize("family", ["llama", "qwen2", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def test_attribution_selectors_are_the_slow_loops(
    family: str, selector: str, objective: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    few = tiny_windows.first(3)
    loaded = loaded_as(tiny_llama, tiny_model(family, seed=3).requires_grad_(False))
    scores = compute_scores(loaded, [selector], few, objective=objective)[selector]
    expected = getattr(reference, selector)(loaded.model, loaded.rows, few.input_ids, objective)
    close(scores, expected)


@pytest.mark.first_run("grad_x_input|llama.*loss|gemma.*logit|neox.*loss")
@pytest.mark.parametrize("objective", ["loss", "logit"])
@pytest.mark.parametrize("selector", ["grad_x_input", "ig_conductance"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mistral", "phi", "gpt_neox"])
def test_our_own_attribution_selectors_are_the_slow_loops(
    family: str, selector: str, objective: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    """float64, since conductance sums small differences; norms of transformers round to float32 inside."""
    few = tiny_windows.first(2)
    loaded = in_float64(tiny_llama, family)
    scores = compute_scores(loaded, [selector], few, objective=objective)[selector]
    close(scores, getattr(reference, selector)(loaded.model, loaded.rows, few.input_ids, objective))


def test_random_is_uniform_seeded_and_one_ranking_per_seed(tiny_llama: LoadedModel) -> None:
    scores = compute_scores(tiny_llama, ["random"], None, seeds=(42, 43, 44))["random"]
    assert scores.shape == (3, tiny_llama.rows.n_rows)
    again = compute_scores(tiny_llama, ["random"], None, seeds=(44,))["random"]
    assert torch.equal(scores[2], again[0])
    assert len({tuple(ranking.tolist()) for ranking in scores}) == 3
    assert scores.min() >= 0
    assert scores.max() < 1
    # 864 draws: the mean of U(0, 1) has a standard error of 0.0098, four of them
    assert abs(scores.mean().item() - 0.5) < 0.04


def test_consensus_by_hand() -> None:
    lrp = [0.3, 0.1, 0.1, 0.9]  # ranks 2, 0, 1, 3: of the tied rows 1 and 2 the lower id is less important
    ig = [5.0, 7.0, 7.0, 6.0]  # ranks 0, 2, 3, 1
    assert borda(lrp, ig).tolist() == [2 / 8, 2 / 8, 4 / 8, 4 / 8]
    assert removal_order(borda(lrp, ig), "lerf").tolist() == [0, 1, 2, 3]
    assert removal_order(borda(lrp, ig), "morf").tolist() == [2, 3, 0, 1]


def test_attribution_sees_that_removing_a_row_changes_nothing(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """Rows whose output nobody reads: large activations, and not a bit of difference when they are removed."""
    model = tiny_model("llama", seed=5).requires_grad_(False)
    unread = [3, 8, 20]
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[:, unread] = 0
    loaded = loaded_as(tiny_llama, model)
    dead = [
        layer.start + neuron
        for layer in loaded.rows.layers
        if layer.block == 0 and layer.projection in ("gate_proj", "up_proj")
        for neuron in unread
    ]
    before = negative_log_likelihood(loaded, tiny_windows)
    with zeroed(loaded, dead):
        assert negative_log_likelihood(loaded, tiny_windows) == before
    by_gradient = ("grad_x_input", "fisher", "taylor", "atp_signed", "gradient_norm")
    attributions = ("lrp", "relp", "ig", "ig_conductance", *by_gradient)
    baselines = ("magnitude", "mean_activation", "activation_std", "flap", "ria", "weight_norm")
    scores = compute_scores(loaded, [*baselines, *attributions], tiny_windows)
    alive = torch.ones(loaded.rows.n_rows, dtype=torch.bool)
    alive[dead] = False
    for method in attributions:
        assert (scores[method][dead] == 0).all()
        assert (scores[method][alive] != 0).all()
    for baseline in baselines:
        assert scores[baseline][dead].min() > 0


# --- what holds for every selector


@pytest.mark.parametrize("selector", SELECTORS)
def test_shape_dtype_finiteness_determinism_and_an_untouched_model(
    selector: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    before, hooked = bits(tiny_llama.model), hooks(tiny_llama.model)
    scores = compute_scores(tiny_llama, [selector], tiny_windows)[selector]
    n = tiny_llama.rows.n_rows
    assert scores.shape == ((3, n) if get_selector(selector).seeded else (n,))
    assert scores.dtype == torch.float32
    assert scores.device.type == "cpu"
    assert not scores.requires_grad
    assert scores.isfinite().all()
    assert scores.unique().numel() > n // 2  # a ranking, not a constant
    assert torch.equal(scores, compute_scores(tiny_llama, [selector], tiny_windows)[selector])
    assert_same_bits(tiny_llama.model, before)
    assert hooks(tiny_llama.model) == hooked
    assert not any(parameter.requires_grad for parameter in tiny_llama.model.parameters())
    assert all(parameter.grad is None for parameter in tiny_llama.model.parameters())


@pytest.mark.parametrize("selector", SELECTORS)
def test_after_an_exception_no_hook_is_left_and_gradients_are_plain(
    selector: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    model = tiny_llama.model
    before, hooked = bits(model), hooks(model)
    expected = compute_scores(tiny_llama, ["grad_x_input"], tiny_windows)["grad_x_input"]

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    failing = model.model.layers[1].mlp.down_proj.register_forward_hook(fail)
    try:
        if get_selector(selector).data_free:
            compute_scores(tiny_llama, [selector], tiny_windows)
        else:
            with pytest.raises(KeyboardInterrupt):
                compute_scores(tiny_llama, [selector], tiny_windows)
    finally:
        failing.remove()
    assert hooks(model) == hooked
    assert_same_bits(model, before)
    assert torch.equal(compute_scores(tiny_llama, ["grad_x_input"], tiny_windows)["grad_x_input"], expected)
    assert tiny_llama.lock.acquire(blocking=False)
    tiny_llama.lock.release()


@pytest.mark.parametrize("selector", DATA_DEPENDENT)
def test_scores_are_means_over_windows(selector: str, tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """The same text twice gives the same scores, so calibration sizes compare."""
    twice = replace(tiny_windows, input_ids=tiny_windows.input_ids.repeat(2, 1))
    once, double = (compute_scores(tiny_llama, [selector], some)[selector] for some in (tiny_windows, twice))
    tolerance = 5 / tiny_llama.rows.n_rows if selector == "consensus2" else 1e-6
    torch.testing.assert_close(once, double, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("selector", [name for name in SELECTORS if name not in ("lrp", "relp", "consensus2")])
def test_every_family_can_be_scored(selector: str, tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    scores = compute_scores(tiny_family, [selector], tiny_windows.first(2))[selector]
    assert scores.shape[-1] == tiny_family.rows.n_rows
    assert scores.isfinite().all()


def test_bfloat16_scores_are_finite_and_rank_alike(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    model = tiny_model("llama").to(torch.bfloat16).requires_grad_(False)
    half = loaded_as(tiny_llama, model, dtype="bfloat16")
    exact = loaded_as(tiny_llama, tiny_model("llama").requires_grad_(False))
    scores, expected = (compute_scores(loaded, SELECTORS, tiny_windows) for loaded in (half, exact))
    for selector in SELECTORS:
        assert scores[selector].dtype == torch.float32
        assert spearmanr(scores[selector].flatten(), expected[selector].flatten()).statistic > 0.97
