"""The share of a score on first positions, against gradients of a plain model."""

from pathlib import Path

import pytest
import torch

from engine.models.loading import LoadedModel
from engine.run.audit_plan import ScorePlan
from engine.run.scoring import calibration_text, first_position_shares


def plan(text: Path, **more: object) -> ScorePlan:
    return ScorePlan(
        ("random", "wanda", "ria", "mean_activation", "grad_x_input", "fisher"),
        corpus=str(text),
        samples=6,
        length=16,
        **more,
    )


def test_the_share_is_that_of_plain_gradients(tiny_llama: LoadedModel, tiny_text: Path) -> None:
    asked = plan(tiny_text)
    shares = first_position_shares(tiny_llama, asked)
    outputs: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []
    linears = [tiny_llama.model.get_submodule(layer.name) for layer in tiny_llama.rows.layers]
    keep = lambda _m, given, out: (out.retain_grad(), inputs.append(*given), outputs.append(out))[0]  # noqa: E731
    handles = [one.register_forward_hook(keep) for one in linears]
    ids = calibration_text(tiny_llama, asked).input_ids[:4]
    try:
        given = tiny_llama.model.get_input_embeddings()(ids).detach().requires_grad_()
        logits = tiny_llama.model(inputs_embeds=given).logits
        torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"
        ).backward()
    finally:
        for handle in handles:
            handle.remove()
        tiny_llama.model.zero_grad()
    products = [(out * out.grad).detach().double()[:, :-1] for out in outputs]
    for name, power in (("grad_x_input", 1), ("fisher", 2)):
        first, whole = (sum(one[:, :end].abs().pow(power).sum() for one in products) for end in (1, None))
        assert shares[name] == pytest.approx(float(first / whole), rel=1e-4)
    read, said = ([one.detach().double() for one in some] for some in (inputs, outputs))
    for name, parts in (("wanda", [x.square() for x in read]), ("mean_activation", [h[:, :-1].abs() for h in said])):
        first, whole = (sum(one[:, :end].sum() for one in parts) for end in (1, None))
        assert shares[name] == pytest.approx(float(first / whole), rel=1e-4)
    assert shares["ria"] == shares["wanda"]
    assert set(shares) == {"wanda", "ria", "mean_activation", "grad_x_input", "fisher"}
    assert first_position_shares(tiny_llama, plan(tiny_text, skip_first=1)) == {}
