"""The attribution machinery: integrated gradients against captum, relevance per prompt under padding."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from captum.attr import LayerConductance, LayerGradientXActivation
from tiny_models import LRP_FAMILIES, tiny_model
from torch import Tensor, nn

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError
from engine.selectors.gradients import per_prompt_relevance, relevances
from engine.selectors.passes import objective_gradient

METHODS: list[Any] = ["lrp", "ig", "grad_x_input", "ig_conductance"]


def difference(logits: Tensor) -> Tensor:
    """A margin: one logit minus another."""
    return logits[:, 11] - 2 * logits[:, 23]


@pytest.fixture
def prompts() -> Tensor:
    return torch.randint(3, 290, (3, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.first_run("llama|gemma3_text")
@pytest.mark.parametrize("family", [*LRP_FAMILIES, "phi"])
def test_ig_combines_captums_gradients_on_the_path(family: str) -> None:
    """dF/dh at the 16 points as captum's LayerGradientXActivation gives them, layer by layer.

    float64, so that the tolerance is about formulas; norms of transformers round to float32 inside.
    """
    model = tiny_model(family).double().requires_grad_(False)
    rows = row_index(model)
    ids = torch.randint(3, 290, (2, 8), generator=torch.Generator().manual_seed(5))
    found: dict[int, Tensor] = {}
    relevances(
        ["ig"], model, rows, ids, lambda logits: objective_gradient(logits, ids, "loss"),
        lambda _, layer, values: found.__setitem__(layer, values),
    )  # fmt: skip

    def summed_loss(embeddings: Tensor) -> Tensor:
        logits = model(inputs_embeds=embeddings, use_cache=False).logits[:, :-1]
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")[None]

    embeddings = model.get_input_embeddings()(ids)
    modules: list[Any] = [model.get_submodule(layer.name) for layer in rows.layers]
    gradient_of = LayerGradientXActivation(summed_loss, modules, multiply_by_inputs=False)
    gradients = [gradient_of.attribute(embeddings * (k / 16)) for k in range(1, 17)]
    activation = [[], []]  # type: list[list[Tensor]]
    for index, scale in enumerate((0.0, 1.0)):
        handles = [
            module.register_forward_hook(lambda _, __, output, index=index: activation[index].append(output))
            for module in modules
        ]
        model(inputs_embeds=embeddings * scale, use_cache=False)
        for handle in handles:
            handle.remove()
    order = {id(module): place for place, module in enumerate(_in_running_order(model, modules, embeddings))}
    for layer in rows.layers:
        at_zero, at_one = (values[order[id(modules[layer.index])]] for values in activation)
        mean = torch.stack([step[layer.index] for step in gradients]).mean(0)
        expected = (at_one - at_zero) * mean
        assert found[layer.index].shape == expected.shape
        assert (found[layer.index] - expected).norm() < 1e-6 * expected.norm(), layer.name


def _in_running_order(model: Any, modules: list[nn.Module], embeddings: Tensor) -> list[nn.Module]:
    order: list[nn.Module] = []
    handles = [module.register_forward_hook(lambda module, *_: order.append(module)) for module in modules]
    model(inputs_embeds=embeddings, use_cache=False)
    for handle in handles:
        handle.remove()
    return order


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "phi"])
def test_grad_x_input_is_captums_gradient_times_activation(family: str) -> None:
    """float64, norms of transformers round to float32 inside."""
    model, ids, found = _relevance_in_float64(family, "grad_x_input")
    rows = row_index(model)
    modules: list[Any] = [model.get_submodule(layer.name) for layer in rows.layers]
    captum = LayerGradientXActivation(_loss_per_window(model), modules)
    expected = captum.attribute(model.get_input_embeddings()(ids), additional_forward_args=ids)
    for layer, values in zip(rows.layers, expected, strict=True):
        assert (found[layer.index] - values).norm() < 1e-6 * values.norm(), layer.name


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "phi"])
def test_conductance_is_captums_on_the_reversed_path(family: str) -> None:
    """captum takes the gradient at the start of each step. From the input down to zero that is our end of the step.

    Its trapezoid points are k/16 for k = 0..16, and it weighs no step, so that all 16 steps are in, the one next
    to zero too. The signs of the path's steps turn around.
    """
    model, ids, found = _relevance_in_float64(family, "ig_conductance")
    embeddings = model.get_input_embeddings()(ids)
    for layer in row_index(model).layers:
        captum = LayerConductance(_loss_per_window(model), model.get_submodule(layer.name))
        how = {"additional_forward_args": ids, "n_steps": 16, "method": "riemann_trapezoid"}
        expected = -captum.attribute(torch.zeros_like(embeddings), baselines=embeddings, **how)
        assert (found[layer.index] - expected).norm() < 1e-6 * expected.norm(), layer.name


def test_conductance_counts_the_first_step_of_the_path() -> None:
    """Early layers go most of their way in it: without it (captum's `riemann_right`) the numbers are others."""
    model, ids, found = _relevance_in_float64("llama", "ig_conductance")
    embeddings = model.get_input_embeddings()(ids)
    first = LayerConductance(_loss_per_window(model), model.model.layers[0].self_attn.q_proj)
    how = {"additional_forward_args": ids, "n_steps": 16, "method": "riemann_right"}
    other = first.attribute(embeddings, baselines=torch.zeros_like(embeddings), **how)
    assert (found[0] - other).norm() > 0.5 * other.norm()


def _relevance_in_float64(family: str, method: Any) -> tuple[Any, Tensor, dict[int, Tensor]]:
    """A tiny model, two windows, and the token-level relevance for the summed loss by layer."""
    model = tiny_model(family).double().requires_grad_(False)
    ids = torch.randint(3, 290, (2, 8), generator=torch.Generator().manual_seed(5))
    found: dict[int, Tensor] = {}
    relevances(
        [method], model, row_index(model), ids, lambda logits: objective_gradient(logits, ids, "loss"),
        lambda _, layer, values: found.__setitem__(layer, values),
    )  # fmt: skip
    return model, ids, found


def _loss_per_window(model: Any) -> Any:
    def loss(embeddings: Tensor, ids: Tensor) -> Tensor:
        logits = model(inputs_embeds=embeddings, use_cache=False).logits[:, :-1]
        nats = nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return nats.sum(1)

    return loss


@pytest.mark.first_run("llama|gemma3_text")
@pytest.mark.parametrize("family", LRP_FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_relevance_per_prompt_ignores_padding_and_neighbours(
    method: Any, family: str, tiny_llama: LoadedModel, prompts: Tensor
) -> None:
    """A left-padded prompt in a batch has the relevance that it has alone and unpadded."""
    model = tiny_model(family).requires_grad_(False)
    loaded = replace(tiny_llama, model=model, rows=row_index(model))
    mask = torch.ones_like(prompts)
    mask[0, :4] = 0
    mask[2, :1] = 0
    batch = per_prompt_relevance(loaded, method, prompts, mask, difference)
    assert batch.shape == (3, loaded.rows.n_rows)
    assert batch.dtype == torch.float32
    for number, row in enumerate(prompts):
        alone = row[mask[number].bool()][None]
        expected = per_prompt_relevance(loaded, method, alone, torch.ones_like(alone), difference)
        # float32 through two blocks; rows of tiny relevance are held to the prompt's own scale
        torch.testing.assert_close(
            batch[number : number + 1], expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item()
        )


@pytest.mark.parametrize("method", METHODS)
def test_relevance_per_prompt_is_signed_and_linear_in_the_target(
    method: Any, tiny_llama: LoadedModel, prompts: Tensor
) -> None:
    mask = torch.ones_like(prompts)
    plain = per_prompt_relevance(tiny_llama, method, prompts, mask, difference)
    turned = per_prompt_relevance(tiny_llama, method, prompts, mask, lambda logits: -3 * difference(logits))
    assert (plain < 0).any()
    assert (plain > 0).any()
    torch.testing.assert_close(turned, -3 * plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_relevance_per_prompt_is_the_sum_over_its_tokens(method: Any, tiny_llama: LoadedModel, prompts: Tensor) -> None:
    """Against the token-level relevance for the same target, built by hand."""
    rows = tiny_llama.rows

    def gradient_of(logits: Tensor) -> Tensor:
        gradient = torch.zeros_like(logits)
        gradient[:, -1, 11] = 1
        gradient[:, -1, 23] = -2
        return gradient

    tokens: dict[int, Tensor] = {}
    relevances(
        [method], tiny_llama.model, rows, prompts, gradient_of,
        lambda _, layer, values: tokens.__setitem__(layer, values),
    )  # fmt: skip
    expected = torch.cat([tokens[layer.index].sum(1) for layer in rows.layers], dim=1)
    found = per_prompt_relevance(tiny_llama, method, prompts, torch.ones_like(prompts), difference, batch_size=2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_lrp_conserves_relevance_through_the_mlp(tiny_llama: LoadedModel, prompts: Tensor) -> None:
    """Half of the product's relevance goes to the gate, half to the up projection (the uniform rule)."""
    rows = tiny_llama.rows
    total: dict[tuple[int, str], float] = {}

    def gradient_of(logits: Tensor) -> Tensor:
        gradient = torch.zeros_like(logits)
        gradient[:, -1, 11] = 1
        return gradient

    def keep(_: str, layer: int, values: Tensor) -> None:
        total[rows.layers[layer].block, rows.layers[layer].projection] = values.sum().item()

    relevances(["lrp"], tiny_llama.model, rows, prompts, gradient_of, keep)
    for block in range(rows.n_blocks):
        down, gate, up = (total[block, name] for name in ("down_proj", "gate_proj", "up_proj"))
        # a Linear without bias passes on all of its relevance; lxt's identity rule has an epsilon of 1e-10
        assert gate == pytest.approx(down / 2, rel=1e-4)
        assert up == pytest.approx(down / 2, rel=1e-4)


def test_prompts_padded_on_the_right_are_an_error(tiny_llama: LoadedModel, prompts: Tensor) -> None:
    mask = torch.ones_like(prompts)
    mask[1, -1] = 0
    with pytest.raises(InputError, match="pad on the left"):
        per_prompt_relevance(tiny_llama, "lrp", prompts, mask, difference)
    with pytest.raises(InputError, match=r"\[3, 9\] and \[2, 9\]"):
        per_prompt_relevance(tiny_llama, "lrp", prompts, mask[:2], difference)


def test_one_scalar_per_prompt(tiny_llama: LoadedModel, prompts: Tensor) -> None:
    with pytest.raises(ValueError, match=r"gave \[\] for 3 prompts"):
        per_prompt_relevance(tiny_llama, "lrp", prompts, torch.ones_like(prompts), torch.sum)


def test_a_layer_that_no_gradient_reaches_is_an_error(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """Zeros there would look like scores."""
    model = tiny_model("llama").requires_grad_(False)
    model.model.layers[0].mlp.register_forward_hook(lambda _, __, output: output.detach())
    for method in METHODS:
        with pytest.raises(InputError, match=r"no gradient reaches model.layers.0.mlp.gate_proj"):
            relevances([method], model, row_index(model), tiny_windows.input_ids, torch.ones_like, lambda *_: None)
