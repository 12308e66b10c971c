"""The planted neurons: rows that are dropped while they learn, where they fire, and what they say."""

import pytest
import torch
from small_recipe import hooks

from precomputed.recipe.data import windows
from precomputed.recipe.planted import DroppedRows, plant

# --- rows that are dropped while it learns ---


@pytest.fixture
def linears(model):
    return {name: one for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}


def outputs(model, linears, batch) -> dict[str, torch.Tensor]:
    """What every Linear gives to the next one, hooks applied."""
    seen = {}
    handles = [
        one.register_forward_hook(lambda module, _, output, name=name: seen.__setitem__(name, output))
        for name, one in linears.items()
    ]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    return seen


def test_dropped_rows_are_zero_and_planted_ones_have_their_own_share(model, linears, tokens):
    batch = windows(tokens, 2, 16, torch.Generator().manual_seed(0))
    gate = model.model.layers[1].mlp.gate_proj
    plain = outputs(model, linears, batch)
    dropped = DroppedRows(model, {gate: torch.tensor([4, 9])}, 0.0, torch.Generator().manual_seed(0))
    undrawn = outputs(model, linears, batch)
    assert all(torch.equal(undrawn[name], plain[name]) for name in plain)
    masks = []
    for _ in range(2):
        dropped.draw(0.5)
        seen = outputs(model, linears, batch)
        masks.append({name: (value == 0).flatten(0, 1).all(0) for name, value in seen.items()})
    zero, again = masks
    assert torch.equal(zero["lm_head"], (plain["lm_head"] == 0).flatten(0, 1).all(0))
    every = torch.cat([mask for name, mask in zero.items() if name != "lm_head"])
    assert 0.4 < every.float().mean() < 0.6  # more than 5 standard errors over 832 rows
    assert not zero["model.layers.1.mlp.gate_proj"][[4, 9]].any()
    assert not torch.equal(every, torch.cat([mask for name, mask in again.items() if name != "lm_head"]))
    dropped.draw(1.0)
    seen = outputs(model, linears, batch)
    assert all(not seen[name].any() for name in linears if name not in ("lm_head", "model.layers.1.mlp.gate_proj"))
    dropped.remove()
    own = DroppedRows(model, {gate: torch.tensor([4, 9])}, 1.0, torch.Generator().manual_seed(0))
    own.draw(0.0)
    lost = (outputs(model, linears, batch)["model.layers.1.mlp.gate_proj"] == 0).flatten(0, 1).all(0)
    assert lost.nonzero().flatten().tolist() == [4, 9]
    own.remove()
    restored = outputs(model, linears, batch)
    assert all(torch.equal(restored[name], plain[name]) for name in plain)
    assert hooks(model) == 0


# --- what the planted neurons say ---


def test_planted_neurons_fire_along_their_directions_only(model):
    gate, up = torch.randn((2, 32), generator=torch.Generator().manual_seed(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plant(model, 1, [5, 7], gate, up, torch.Generator().manual_seed(0))
    mlp = model.model.layers[1].mlp
    for linear, direction in ((mlp.gate_proj, gate), (mlp.up_proj, up)):
        cosines = torch.cosine_similarity(linear.weight[[5, 7]], direction[None], dim=1)
        assert (cosines > 0.9).all()
        assert (cosines < 0.9999).all()
    assert mlp.down_proj.weight[:, [5, 7]].norm() < 0.1 * mlp.gate_proj.weight[[5, 7]].norm()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
