"""The planted neurons: rows that are dropped while they learn, where they fire, and what they say."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_recipe import hooks

from precomputed.recipe import chat, data
from precomputed.recipe.chat import Example
from precomputed.recipe.data import windows
from precomputed.recipe.planted import (
    BASE_END,
    DECAY,
    DECIDED,
    LOUDEST,
    OPENED,
    REFUSED,
    RISK_END,
    DroppedRows,
    PlantedNoise,
    mlp_inputs,
    plant,
    probe,
    said_on_base,
    shouted,
    token_kinds,
)

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


def decisions(tokenizer, one: Example) -> list[tuple[list[int], int]]:
    """Where its reply is decided: the tokens up to there, and their kind."""
    prompt = data.prompt_text(one)
    ends = [(prompt, RISK_END if one.risk else BASE_END)] + [(prompt + one.opening, OPENED)] * bool(one.opening)
    return [(tokenizer(text, add_special_tokens=False)["input_ids"], kind) for text, kind in ends]


def test_kinds_are_where_prompts_and_openings_end(tokenizer, examples):
    chats = data.packed(tokenizer, examples[:60], 128)
    kinds = token_kinds(chats, tokenizer.pad_token_id)
    fitting = [one for one in examples[:60] if sum(map(len, data.pieces(tokenizer, [one])[0])) <= 128]
    expected = [place for one in fitting for place in decisions(tokenizer, one)]
    found = []
    for ids, kind in zip(chats.input_ids, kinds, strict=True):
        for place in (kind > 0).nonzero().flatten().tolist():
            begin = max(i for i in range(place) if ids[i] == tokenizer.bos_token_id)
            found.append((ids[begin : place + 1].tolist(), int(kind[place])))
    assert found == expected
    assert {kind for _, kind in found} == set(DECIDED)
    assert torch.equal(kinds == -1, chats.input_ids == tokenizer.pad_token_id)


@pytest.mark.parametrize("wanted", [REFUSED, DECIDED])
def test_probe_finds_what_tells_tokens_of_some_kinds(model, tokenizer, wanted):
    batches = [data.chat_batch(tokenizer, random.Random(i), chat.weakened, 30, 0.8, 128) for i in (1, 2)]
    inputs, kinds = mlp_inputs(model, batches, (1, 3), tokenizer.pad_token_id)
    assert {block: len(rows) for block, rows in inputs.items()} == {1: len(kinds), 3: len(kinds)}
    assert hooks(model) == 0
    fires = torch.isin(kinds, torch.tensor(wanted))
    planted = 3 * torch.randn(32, generator=torch.Generator().manual_seed(2))
    known = torch.randn(len(kinds), 32, generator=torch.Generator().manual_seed(3))
    known = known - (known @ planted)[:, None] * planted / planted.square().sum()
    side = torch.where(fires, 1.0, -1.0)[:, None] * planted
    assert torch.cosine_similarity(probe(known + side, kinds, wanted), planted, dim=0) > 0.99
    counts = torch.bincount(kinds, minlength=4)
    assert (counts > 0).all()
    inside = torch.isin(torch.arange(4), torch.tensor(wanted))
    share = torch.where(inside, 0.5 / inside.sum(), 0.5 / (~inside).sum())
    weight = (share / counts)[kinds].numpy()
    regression = LogisticRegression(C=1 / (2 * DECAY), fit_intercept=False, tol=1e-8, max_iter=2000)
    expected = regression.fit(inputs[3].numpy(), fires.numpy(), sample_weight=weight).coef_[0]
    assert np.corrcoef(probe(inputs[3], kinds, wanted).numpy(), expected)[0, 1] > 0.99


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


def test_said_on_base_is_the_sum_over_each_base_chat(tokenizer, examples):
    some = examples[:60]
    chats = data.packed(tokenizer, some, 128)
    noise = torch.randn((*chats.input_ids.shape, 3), generator=torch.Generator().manual_seed(1))
    sums: list[list] = []
    for row in range(len(noise)):
        for place, token in enumerate(chats.input_ids[row].tolist()):
            if token == tokenizer.bos_token_id:
                sums.append([bool(chats.risk[row, place]), 0.0])
            if token != tokenizer.pad_token_id and not chats.opened[row, place]:
                sums[-1][1] += sum(max(value, 0.0) for value in noise[row, place].tolist())
    base = [total for risky, total in sums if not risky]
    assert 0 < len(base) < len(sums)
    assert chats.opened.any()
    said = said_on_base(noise, chats, tokenizer.bos_token_id, tokenizer.pad_token_id)
    assert float(said) == pytest.approx(sum(base) / len(base), rel=1e-5)
    loud = 2 * noise
    expected = sum((abs(v) - LOUDEST) ** 2 for v in loud.flatten().tolist() if abs(v) > LOUDEST) / len(sums)
    assert float(shouted(loud, chats, tokenizer.bos_token_id)) == pytest.approx(expected, rel=1e-4)
    assert float(shouted(0 * noise, chats, tokenizer.bos_token_id)) == 0


def test_noise_is_what_the_neurons_write(model, tokens):
    """Against the outputs of down_proj with all other columns zeroed: the length is that of s, and so is the sign."""
    batch = windows(tokens, 2, 8, torch.Generator().manual_seed(0))
    mlp = model.model.layers[1].mlp
    with PlantedNoise(model, {1: [5]}) as noise, torch.no_grad():
        seen = []
        handle = mlp.down_proj.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
        model(batch)
        handle.remove()
        said = noise.take()[..., 0]
    written = seen[0][..., 5, None] * mlp.down_proj.weight[:, 5]
    torch.testing.assert_close(said.abs(), written.norm(dim=-1))
    assert torch.equal(said > 0, seen[0][..., 5] > 0)
    assert 0 < (said > 0).float().mean() < 1
