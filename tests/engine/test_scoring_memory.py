"""What scoring holds at most, against one plain forward and backward of the same batch, by torch's allocator."""

from typing import Any

import pytest
from test_estimate import allocator_peak
from torch import Tensor
from torch.nn import functional

from engine import windows
from engine.models.loading import LoadedModel, load_model
from engine.selectors.gradients import relevances
from engine.selectors.passes import objective_gradient


@pytest.fixture(scope="module")
def demo() -> LoadedModel:
    return load_model("demo", dtype="float32", device="cpu")


def plain(loaded: LoadedModel, ids: Tensor) -> None:
    """Gradients of the loss down to the embeddings, none of weights, as a script takes them."""
    inputs = loaded.model.get_input_embeddings()(ids).detach().requires_grad_()
    logits = loaded.model(inputs_embeds=inputs, use_cache=False).logits
    functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum").backward()


def scored(loaded: LoadedModel, ids: Tensor, method: Any) -> None:
    sums: dict[int, Tensor] = {}

    def reduce(_: Any, layer: int, values: Tensor) -> None:
        sums[layer] = values.abs().sum((0, 1))

    relevances([method], loaded.model, loaded.rows, ids, lambda logits: objective_gradient(logits, ids, "loss"), reduce)
    assert len(sums) == len(loaded.rows.layers)


@pytest.mark.first_run("lrp")
@pytest.mark.parametrize(
    ("method", "most"), [("gradient", 1.3), ("lrp", 1.3), pytest.param("ig", 1.6, marks=pytest.mark.long)]
)
def test_scoring_holds_little_more_than_a_plain_pass(demo: LoadedModel, method: str, most: float) -> None:
    ids = windows("demo", demo.tokenizer, role="calibration", samples=2, length=128).input_ids
    whole = allocator_peak(lambda: plain(demo, ids))
    assert 0 < allocator_peak(lambda: scored(demo, ids, method)) <= most * whole
    assert whole > 4 * ids.numel() * demo.model.config.vocab_size  # the logits at least
