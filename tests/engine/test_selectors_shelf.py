"""The shelf beyond the paper's selectors: slow loops, what the numbers must mean, and passes that are shared."""

from dataclasses import replace
from typing import Any

import pytest
import reference
import torch
from reference import close
from tiny_models import in_float64, tiny_model
from torch import Tensor, nn

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError
from engine.selectors import base, compute_scores, register_selector
from engine.selectors.scoring_run import nested_scores

BY_GRADIENT = ("fisher", "taylor", "atp_signed", "gradient_norm")
BY_ACTIVATION = ("activation_std", "flap", "ria")
SHELF = (*BY_GRADIENT, "relp", *BY_ACTIVATION, "weight_norm")


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is forgotten."""
    base.available_selectors()
    monkeypatch.setattr(base.REGISTRY, "_entries", dict(base.REGISTRY._entries))


# --- references


@pytest.mark.parametrize("objective", ["loss", "logit"])
@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text", "gpt_neox"])
def test_selectors_by_gradient_are_the_slow_loops(
    family: str, objective: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    """taylor and atp_signed against the parameters' gradients, which no hook has a part in."""
    loaded, few = in_float64(tiny_llama, family), tiny_windows.first(3)
    scores = compute_scores(loaded, BY_GRADIENT, few, objective=objective)
    for selector in BY_GRADIENT:
        close(scores[selector], getattr(reference, selector)(loaded.model, loaded.rows, few.input_ids, objective))


@pytest.mark.parametrize("objective", ["loss", "logit"])
@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def test_relp_is_the_slow_loop(family: str, objective: str, tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    loaded, few = in_float64(tiny_llama, family), tiny_windows.first(3)
    scores = compute_scores(loaded, ["relp"], few, objective=objective)["relp"]
    close(scores, reference.relp(loaded.model, loaded.rows, few.input_ids, objective))


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text", "gpt_neox"])
def test_selectors_by_activation_and_weight_are_the_slow_loops(
    family: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    loaded, few = in_float64(tiny_llama, family), tiny_windows.first(3)
    scores = compute_scores(loaded, [*BY_ACTIVATION, "weight_norm"], few, batch_size=2)
    for selector in BY_ACTIVATION:
        close(scores[selector], getattr(reference, selector)(loaded.model, loaded.rows, few.input_ids))
    close(scores["weight_norm"], reference.weight_norm(loaded.model, loaded.rows))


# --- what they mean


@pytest.mark.parametrize(("objective", "sign"), [("loss", 1), ("logit", -1)])
def test_atp_signed_is_the_slope_of_taking_a_row_away(
    objective: str, sign: int, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    """Rows scaled a little down and up, the loss measured: no gradient in it."""
    loaded, few = in_float64(tiny_llama, "gpt_neox"), tiny_windows.first(2)
    scores = compute_scores(loaded, ["atp_signed"], few, objective=objective)["atp_signed"]
    step, tokens = 1e-3, few.input_ids.shape[0] * (few.input_ids.shape[1] - 1)

    def objective_value(window: Tensor) -> float:
        """In float64 throughout, which transformers' own loss is not."""
        logits = loaded.model(input_ids=window[None]).logits[0, :-1]
        chosen = logits.log_softmax(-1) if objective == "loss" else logits
        total = chosen.gather(-1, window[1:, None]).sum().item()
        return -total if objective == "loss" else total

    def measured(linear: nn.Linear, row: int, scale: float) -> float:
        weight, bias = linear.weight[row].clone(), linear.bias[row].clone()
        try:
            linear.weight[row] *= scale
            linear.bias[row] *= scale
            return sum(objective_value(window) for window in few.input_ids)
        finally:
            linear.weight[row], linear.bias[row] = weight, bias

    with torch.no_grad():
        for layer in loaded.rows.layers:
            linear: Any = loaded.model.get_submodule(layer.name)
            for row in (0, layer.rows // 2):
                slope = (measured(linear, row, 1 - step) - measured(linear, row, 1 + step)) / (2 * step * tokens)
                # the error of a central difference, step^2 times a third derivative
                assert scores[layer.start + row].item() == pytest.approx(sign * slope, rel=1e-4, abs=1e-7)


def test_absolute_values_come_after_tokens_are_summed_or_before(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    found = compute_scores(tiny_llama, [*BY_GRADIENT, "grad_x_input"], tiny_windows)
    assert torch.equal(found["atp_signed"].abs(), found["taylor"])
    assert (found["atp_signed"] < 0).any()
    assert (found["atp_signed"] > 0).any()
    # |E x| <= E |x| <= sqrt(E x^2), strictly where tokens differ
    assert (found["taylor"] < found["grad_x_input"]).all()
    assert (found["grad_x_input"] < found["fisher"]).all()


def test_a_constant_output_is_no_fluctuation(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """What mean ablation leaves as it is scores 0; what zero ablation takes away does not."""
    model = tiny_model("qwen2").requires_grad_(False)  # with biases, and rules for relp
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[4] = 0
    loaded = replace(tiny_llama, model=model, rows=row_index(model))
    layer = next(one for one in loaded.rows.layers if (one.block, one.projection) == (1, "k_proj"))
    found = compute_scores(loaded, ["activation_std", "flap", "relp", "mean_activation", "lrp"], tiny_windows)
    row = layer.start + 4
    size = found["mean_activation"][row].item()
    assert size > 0
    assert found["lrp"][row] > 0
    assert found["activation_std"][row] < 1e-6 * size  # the mean of equal float32 numbers rounds
    assert found["flap"][row] == 0
    assert found["relp"][row] < 1e-6 * found["lrp"][row]


def test_a_small_variance_survives_a_large_mean(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """E h^2 - (E h)^2 in float32 would have nothing left of it."""
    model = tiny_model("gpt_neox").requires_grad_(False)
    name = "gpt_neox.layers.0.attention.dense"
    with torch.no_grad():
        model.get_submodule(name).bias += 3000
    loaded = replace(tiny_llama, model=model, rows=row_index(model))
    layer = next(one for one in loaded.rows.layers if one.name == name)
    scores = compute_scores(loaded, ["activation_std"], tiny_windows, batch_size=4)["activation_std"]
    expected = reference.activation_std(model, loaded.rows, tiny_windows.input_ids)
    part = slice(layer.start, layer.start + layer.rows)
    # outputs near 3000 are float32 numbers 2.4e-4 apart, and differ in the last bit between batch sizes
    torch.testing.assert_close(scores[part], torch.tensor(expected[part]), rtol=1e-3, atol=1e-4)
    assert scores[part].min() > 0.1


def test_rows_and_columns_of_zeros_have_no_relative_importance(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    model = tiny_model("llama").requires_grad_(False)
    up = model.model.layers[0].mlp.up_proj
    with torch.no_grad():
        up.weight[5] = 0
        up.weight[:, 7] = 0
    loaded = replace(tiny_llama, model=model, rows=row_index(model))
    layer = next(one for one in loaded.rows.layers if one.name.endswith("0.mlp.up_proj"))
    scores = compute_scores(loaded, ["ria"], tiny_windows)["ria"]
    assert scores[layer.start + 5] == 0
    assert (scores == 0).sum() == 1


# --- passes


def test_what_rides_along_changes_no_bit(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    names = [*SHELF, "lrp", "ig", "grad_x_input", "ig_conductance", "wanda", "mean_activation"]
    together = compute_scores(tiny_llama, names, tiny_windows, batch_size=4)
    for selector in names:
        assert torch.equal(
            together[selector], compute_scores(tiny_llama, [selector], tiny_windows, batch_size=4)[selector]
        )


def stages(progress: list[tuple[str, int, int]]) -> list[str]:
    return [stage for stage, done, _ in progress if not done]


def test_a_pass_sums_only_what_is_asked_for_and_not_known(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    seen: list[tuple[str, int, int]] = []
    whole = compute_scores(tiny_llama, ["lrp", "relp"], tiny_windows)
    compute_scores(
        tiny_llama, ["lrp", "relp"], tiny_windows, known={"relp": whole["relp"]}, progress=lambda *one: seen.append(one)
    )
    assert stages(seen) == ["lrp"]  # and no activations, which only relp needs
    seen.clear()
    compute_scores(tiny_llama, ["gradient_norm", "taylor"], tiny_windows, progress=lambda *one: seen.append(one))
    assert stages(seen) == ["grad_x_input, gradient"]


def test_nested_sizes_share_all_passes_but_relps(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    seen: list[tuple[str, int, int]] = []
    names = ["lrp", "relp", *BY_GRADIENT, *BY_ACTIVATION]
    nested_scores(tiny_llama, names, tiny_windows, [2, 4, 6], progress=lambda *one: seen.append(one))
    assert sorted(stages(seen)) == ["grad_x_input, gradient", "lrp", "relp", "relp", "relp"]
    assert [total for stage, done, total in seen if stage == "relp" and not done] == [6, 4, 2]


# --- the registry


def test_a_class_without_scores_has_to_say_what_protects_its_rows() -> None:
    class Nothing:
        pass

    with pytest.raises(InputError, match="selector 'nothing' has no method score; give it one, or contrast prompts"):
        register_selector("nothing")(Nothing)  # type: ignore[type-var]
