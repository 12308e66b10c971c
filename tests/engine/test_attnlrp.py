"""AttnLRP's rules: lxt's own numbers inside the block, nothing left of them outside."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from accelerate.hooks import attach_execution_device_hook
from safetensors import safe_open
from tiny_models import LRP_FAMILIES, tiny_model
from torch import Tensor

from engine.models.attnlrp import _lxt, attn_lrp, check_rules, plain_gradients
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError
from engine.selectors.gradients import relevances

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "attnlrp"
CONFIGS = {"llama": "LlamaConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config", "gemma3_text": "Gemma3TextConfig"}


def largest_logit(logits: Tensor) -> Tensor:
    """Gradient of the sum over the batch of the largest logit at the last position."""
    gradient = torch.zeros_like(logits)
    at = logits[:, -1].argmax(-1, keepdim=True)
    gradient[:, -1] = torch.zeros_like(logits[:, -1]).scatter_(-1, at, 1.0)
    return gradient


def collected(model: Any, method: str, input_ids: Tensor) -> dict[str, Tensor]:
    rows = row_index(model)
    found: dict[str, Tensor] = {}

    def keep(_: str, layer: int, values: Tensor) -> None:
        found[rows.layers[layer].name] = values

    relevances([method], model, rows, input_ids, largest_logit, keep)  # type: ignore[list-item]
    return found


def gradients(model: Any, input_ids: Tensor) -> list[Tensor]:
    """Plain gradients at every Linear and at the embeddings."""
    outputs: list[Tensor] = []
    handles = [
        model.get_submodule(layer.name).register_forward_hook(lambda _, __, output: outputs.append(output))
        for layer in row_index(model).layers
    ]
    embeddings = model.get_input_embeddings()(input_ids).detach().requires_grad_()
    logits = model(inputs_embeds=embeddings, use_cache=False).logits
    for handle in handles:
        handle.remove()
    return list(torch.autograd.grad(logits, [embeddings, *outputs], largest_logit(logits.detach())))


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.fixture
def input_ids() -> Tensor:
    return torch.randint(3, 290, (2, 11), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", CONFIGS)
def test_relevances_are_those_of_unmodified_lxt(family: str, attention: str) -> None:
    path = REFERENCE / f"attnlrp_{family}.safetensors"
    if not path.exists():
        pytest.skip("the reference relevances are not beside this checkout")
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        written = json.loads(file.metadata()["config"])
    config = getattr(transformers, CONFIGS[family]).from_dict(written)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    model.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("model.")})
    model.requires_grad_(False)
    found = collected(model, "lrp", tensors["input_ids"])
    expected = {name[10:]: value for name, value in tensors.items() if name.startswith("relevance.")}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # float32 rounding through three blocks; eager is in fact bit-equal, sdpa sums in another order
        assert (found[name] - values).norm() < 1e-5 * values.norm(), name


@pytest.mark.parametrize("family", LRP_FAMILIES)
def test_plain_gradients_are_bit_equal_afterwards(family: str, input_ids: Tensor) -> None:
    model = tiny_model(family).requires_grad_(False)
    before = gradients(model, input_ids)
    with attn_lrp(model):
        inside = gradients(model, input_ids)
    assert not same(before, inside)
    assert same(before, gradients(model, input_ids))
    with pytest.raises(KeyboardInterrupt), attn_lrp(model):
        raise KeyboardInterrupt
    assert same(before, gradients(model, input_ids))


@pytest.mark.parametrize("family", LRP_FAMILIES)
def test_forward_values_stay_bit_equal_inside(family: str, input_ids: Tensor) -> None:
    model = tiny_model(family)
    with torch.no_grad():
        before = model(input_ids).logits
        with attn_lrp(model):
            inside = model(input_ids).logits
    assert torch.equal(before, inside)


@pytest.mark.parametrize("family", LRP_FAMILIES)
def test_everything_that_was_patched_is_what_it_was(family: str) -> None:
    model = tiny_model(family)
    modeling = sys.modules[type(model).__module__]
    patched = [modeling, torch.nn.Dropout, *{type(module) for module in model.modules()}]
    before = [dict(vars(owner)) for owner in patched]
    with attn_lrp(model):
        changed = [
            name
            for owner, old in zip(patched, before, strict=True)
            for name, value in vars(owner).items()
            if old.get(name) is not value
        ]
    assert {"eager_attention_forward", "ALL_ATTENTION_FUNCTIONS", "forward"} <= set(changed)
    assert before == [dict(vars(owner)) for owner in patched]
    # The stand-ins for lxt's own packages are gone, so that other code can import the real ones.
    assert "lxt.efficient" not in sys.modules
    assert "lxt.efficient.models" not in sys.modules


def test_blocks_do_not_nest(tiny_llama: Any) -> None:
    model = tiny_llama.model
    with attn_lrp(model), pytest.raises(RuntimeError, match="already active"), attn_lrp(model):
        pass
    with attn_lrp(model), pytest.raises(RuntimeError, match="inside attn_lrp"), plain_gradients():
        pass
    with plain_gradients(), attn_lrp(model):
        pass


@pytest.mark.parametrize("family", ["phi", "olmo", "gpt_neox"])
def test_an_architecture_without_rules_is_an_error_that_names_those_with(family: str) -> None:
    with pytest.raises(InputError, match=f"{family}.*supported families: llama, qwen2, qwen3, gemma3"):
        check_rules(tiny_model(family))


def test_rules_set_by_other_code_are_an_error_and_left_alone(tiny_llama: Any) -> None:
    rms_norm_forward = _lxt("patches").rms_norm_forward
    norm = type(tiny_llama.model.model.norm)
    own = norm.forward
    try:
        norm.forward = rms_norm_forward
        with pytest.raises(RuntimeError, match="already carries lxt's rules"), attn_lrp(tiny_llama.model):
            pass
        assert norm.forward is rms_norm_forward
    finally:
        norm.forward = own
    with attn_lrp(tiny_llama.model):
        assert norm.forward is not own


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_rules_reach_modules_with_hooks_of_accelerate(family: str, input_ids: Tensor) -> None:
    """A model spread over devices keeps each module's `forward` from before the patch."""
    plain, hooked = tiny_model(family), tiny_model(family)
    attach_execution_device_hook(hooked, "cpu")
    before = gradients(hooked, input_ids)
    expected = collected(plain, "lrp", input_ids)
    found = collected(hooked, "lrp", input_ids)
    assert all(torch.equal(found[name], values) for name, values in expected.items())
    assert same(before, gradients(hooked, input_ids))


def test_multimodal_gemma_gives_its_language_model_the_same_relevances(input_ids: Tensor) -> None:
    whole, alone = tiny_model("gemma3", seed=1), tiny_model("gemma3_text", seed=2)
    alone.model.load_state_dict(whole.model.language_model.state_dict())
    alone.lm_head.load_state_dict(whole.lm_head.state_dict())
    expected, found = collected(alone, "lrp", input_ids), collected(whole, "lrp", input_ids)
    assert list(found) == [name.replace("model.", "model.language_model.", 1) for name in expected]
    for one, other in zip(expected.values(), found.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_both_patched_and_restored_between_families(input_ids: Tensor) -> None:
    """Two families share torch.nn.Dropout; one block after the other leaves both plain."""
    models = [tiny_model(family) for family in ("llama", "qwen3")]
    before = [gradients(model, input_ids) for model in models]
    for model in models:
        with attn_lrp(model):
            pass
    assert all(same(old, gradients(model, input_ids)) for model, old in zip(models, before, strict=True))


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    dropout = torch.nn.Dropout.forward
    yield
    assert torch.nn.Dropout.forward is dropout


def test_another_thread_takes_plain_gradients_only_afterwards(tiny_llama: Any, input_ids: Tensor) -> None:
    model, found = tiny_llama.model, []
    expected = gradients(model, input_ids)
    started = threading.Event()

    def other() -> None:
        started.set()
        with plain_gradients():
            found.append(gradients(model, input_ids))

    thread = threading.Thread(target=other)
    with attn_lrp(model):
        thread.start()
        started.wait(10)
        thread.join(0.2)
        assert thread.is_alive()
        assert not found
    thread.join(10)
    assert same(expected, found[0])
