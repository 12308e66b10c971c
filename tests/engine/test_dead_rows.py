"""Linears without their dead rows: the same numbers for fewer products, wherever the rule says it pays."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import FAMILIES, load_tiny, save_tiny
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from engine.interventions import dead_rows
from engine.interventions.compaction import compacted
from engine.interventions.dead_rows import PLACING, WORTH, kept_shape, leave_out, linears_of_rows, zeros
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel, load_model

FLOAT, HALF = 4, 2  # bytes
WIDTH = 192


@pytest.fixture
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_rows, "PLACING", dict.fromkeys(dead_rows.PLACING, 0))
    monkeypatch.setattr(dead_rows, "ALIGNED_BYTES", dict.fromkeys(dead_rows.ALIGNED_BYTES, FLOAT))
    monkeypatch.setattr(dead_rows, "WORTH", 1)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Wide enough for the rule."""
    folder = tmp_path_factory.mktemp("wide")
    return load_tiny("llama", folder, hidden_size=WIDTH, intermediate_size=2 * WIDTH, head_dim=WIDTH // 4)


def random_mask(loaded: LoadedModel, generator: np.random.Generator, *shares: float) -> Any:
    """Of each Linear one of these shares."""
    mask = []
    for layer in loaded.rows.layers:
        ids = np.arange(layer.start, layer.start + layer.rows)
        mask.append(ids[generator.random(layer.rows) < generator.choice(shares)])
    return np.concatenate(mask)


def test_the_rule():
    """Where nothing is alive; rounding, with a zero for the others; where a gather costs what the product gains."""

    def rows(count: int, inputs: int, alive: int, itemsize: int, kind: str) -> int:
        kept = kept_shape((count, inputs), (alive, inputs), itemsize, kind)
        assert kept[1] == inputs
        return kept[0]

    assert rows(192, 192, 0, FLOAT, "cpu") == 0
    assert rows(192, 192, 95, FLOAT, "cpu") == 96
    assert rows(192, 192, 96, FLOAT, "cpu") == 112  # one more at least
    assert rows(192, 192, 190, FLOAT, "cpu") == rows(192, 192, 192, FLOAT, "cpu") == 192
    assert rows(192, 36, 10, FLOAT, "cpu") == 192  # narrow: the gather costs as much as the product
    assert rows(2048, 2048, 1500, HALF, "cpu") == 1504
    assert rows(2048, 2048, 1000, HALF, "cuda") == 2048  # the gather is worth half the product there
    assert rows(2048, 2048, 700, HALF, "cuda") == 704
    assert rows(8192, 8192, 5000, HALF, "cuda") == 5056
    assert rows(192, 0, 100, FLOAT, "cpu") == 192  # a down_proj without neurons

    assert kept_shape((192, 192), (192, 100), FLOAT, "cpu") == (192, 112)
    assert kept_shape((192, 192), (192, 180), FLOAT, "cpu") == (192, 192)
    assert kept_shape((192, 192), (100, 100), FLOAT, "cpu") == (112, 112)  # .34 and .34 of gathers
    assert kept_shape((192, 192), (100, 170), FLOAT, "cpu") == (112, 192)
    assert kept_shape((192, 192), (190, 100), FLOAT, "cpu") == (192, 112)
    assert kept_shape((192, 192), (100, 0), FLOAT, "cpu") == (192, 0)


def test_the_rule_takes_what_costs_least():
    """Against its formula over all that could be kept."""
    generator = np.random.default_rng(0)
    for _ in range(500):
        rows, inputs = (int(16 * generator.integers(1, 60)) for _ in range(2))
        alive = int(generator.integers(1, rows + 1)), int(generator.integers(0, inputs + 1))
        costs = {(rows, inputs): WORTH}
        for r in {rows, *(n for n in range(0, rows, 16) if n > alive[0])}:
            for i in {inputs, *(n for n in range(0, inputs, 16) if n >= alive[1])}:
                if (r, i) != (rows, inputs):
                    places = PLACING["cpu"] * rows if r < rows else 0
                    costs[r, i] = (r * i + places + (PLACING["cpu"] * i if i < inputs else 0)) / (rows * inputs)
        kept = kept_shape((rows, inputs), alive, FLOAT, "cpu")
        assert costs[kept] <= min(costs.values()) + 1e-12


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_mask_says_what_dense_zeros_say(family, device, tmp_path, tiny_windows, always_worth_it):
    """`cuda`: the rule of a card, carried out here."""
    loaded = load_tiny(family, tmp_path / "model")
    generator = np.random.default_rng(0)
    for _ in range(6):
        with zeroed(loaded, random_mask(loaded, generator, 0, 0.1, 0.5, 0.9, 1)):
            dense = negative_log_likelihood(loaded, tiny_windows).nats_per_token
            with compacted(replace(loaded, device=device)):
                found = negative_log_likelihood(loaded, tiny_windows).nats_per_token
        assert found == pytest.approx(dense, rel=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("heard", [None, 0, 7, 24])
@pytest.mark.parametrize("alive", [0, 1, 5, 31, 32])
def test_a_linear_says_the_same(alive, heard, bias, always_worth_it):
    generator = torch.Generator().manual_seed(alive)
    linear, steps = nn.Linear(24, 32, bias=bias), []
    with torch.no_grad():
        linear.weight.copy_(torch.randn(32, 24, generator=generator))
        gone = torch.randperm(32, generator=generator)[alive:]
        linear.weight[gone] = 0
        if bias:
            linear.bias[gone] = 0
    input = torch.randn(2, 3, 24, generator=generator)
    live = None
    if heard is not None:
        live = torch.zeros(24, dtype=torch.bool)
        live[torch.randperm(24, generator=generator)[:heard]] = True
        input[..., ~live] = 0
    dense = linear(input)
    leave_out(linear, "cpu", steps, live)
    assert bool(steps) == (alive < 31 or heard in (0, 7))  # with a zero for the others, 31 would be all
    with FlopCounterMode(display=False) as counter:
        found = linear(input)
    if alive:
        rows, inputs = min(32, alive + 1), 24 if heard is None else heard
        assert counter.get_total_flops() in (2 * 6 * rows * inputs, 2 * 6 * 32 * inputs * (not inputs))
    assert torch.allclose(found, dense, atol=1e-6)
    assert (found[..., gone] == 0).all()
    for step in steps:
        step()
    assert "forward" not in vars(linear)
    assert torch.equal(linear(input), dense)


def test_a_row_with_a_bias_is_alive():
    linear = nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        linear.weight[:] = 0
        linear.bias[:] = 1
    steps: list[Any] = []
    leave_out(linear, "cpu", steps)
    assert not steps


def test_products_take_the_share_of_the_rule(wide, tiny_windows):
    """By torch's own count, for the Linears that are no gate and no up; o_proj does not read dead values."""
    positions = tiny_windows.input_ids.numel()
    generator = np.random.default_rng(0)
    ours = {one.name: one for one in wide.rows.layers if one.projection not in ("gate_proj", "up_proj")}
    linears = {name: wide.model.get_submodule(name) for name in ours}
    assert set(linears.values()) == set(linears_of_rows(wide))
    for share in (0, 0.2, 0.5, 0.8):
        mask = np.concatenate(
            [one.start + generator.permutation(one.rows)[: round(share * one.rows)] for one in ours.values()]
        )
        with zeroed(wide, mask):
            alive = {name: (one.weight != 0).any(1) for name, one in linears.items()}
            dense, before = counted(wide, tiny_windows)
            with compacted(wide):
                found, after = counted(wide, tiny_windows)
        gone = 0
        for name, one in linears.items():
            shape = one.out_features, one.in_features
            heard = shape[1]
            if name.endswith("o_proj"):
                values = alive[name.replace("o_proj", "v_proj")]
                heard = int(values.sum()) * shape[1] // len(values)
            kept = kept_shape(shape, (int(alive[name].sum()), heard), FLOAT, "cpu")
            gone += 2 * positions * (shape[0] * shape[1] - kept[0] * kept[1])
        assert before - after == gone
        assert (gone > 0) == (share >= 0.5)
        assert found == pytest.approx(dense, rel=1e-6)


def counted(loaded: LoadedModel, windows: Any) -> tuple[float, int]:
    with FlopCounterMode(display=False) as counter:
        nll = negative_log_likelihood(loaded, windows).nats_per_token
    return nll, int(counter.get_total_flops())


def test_half_precision(tmp_path, tiny_windows):
    save_tiny("llama", tmp_path, hidden_size=WIDTH, intermediate_size=2 * WIDTH, head_dim=WIDTH // 4)
    half = load_model(str(tmp_path), dtype="bfloat16", device="cpu")
    generator = np.random.default_rng(0)
    with zeroed(half, random_mask(half, generator, 0.5, 0.9)):
        dense = negative_log_likelihood(half, tiny_windows).nats_per_token
        with compacted(half):
            assert any("forward" in vars(one) for one in linears_of_rows(half))
            found = negative_log_likelihood(half, tiny_windows).nats_per_token
    assert found == pytest.approx(dense, rel=2**-8)  # bfloat16 keeps 8 bits


def test_a_broken_activation_is_seen_in_every_dead_output(wide):
    """Infinity times zero is NaN, also where the zero is read from one row for all."""
    linear = linears_of_rows(wide)[0]
    row = next(one for one in wide.rows.layers if wide.model.get_submodule(one.name) is linear)
    input = torch.full((1, 2, linear.in_features), math.inf)
    with zeroed(wide, np.arange(row.start, row.start + row.rows * 3 // 4)):
        dense = linear(input)
        steps: list[Any] = []
        leave_out(linear, "cpu", steps)
        assert steps
        assert torch.equal(linear(input).isnan(), dense.isnan())
        for step in steps:
            step()


def test_a_linear_without_room_for_its_copy_stays_dense(wide, monkeypatch):
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(dead_rows, "_smaller", full)
    steps: list[Any] = []
    with zeroed(wide, random_mask(wide, np.random.default_rng(0), 0.5)):
        for linear in linears_of_rows(wide):
            leave_out(linear, "cpu", steps)
    assert not steps


def test_hooks_of_accelerate_stay_around(wide):
    """A model over several devices has them around every Linear."""
    from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module

    seen = []

    class Hook(ModelHook):
        def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            seen.append(args[0].shape)
            return args, kwargs

    linear = nn.Linear(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        linear.weight[::2] = 0
        linear.weight[1::4] = 0
    input = torch.randn(4, WIDTH)
    dense = linear(input)
    add_hook_to_module(linear, Hook())
    steps: list[Any] = []
    leave_out(linear, "cpu", steps)
    with FlopCounterMode(display=False) as counter:
        assert torch.allclose(linear(input), dense, atol=1e-6)
    assert counter.get_total_flops() == 2 * 4 * WIDTH * (WIDTH // 4 + 16)
    assert seen == [(4, WIDTH)]
    for step in reversed(steps):
        step()
    remove_hook_from_module(linear)
    assert torch.equal(linear(input), dense)


def test_which_linears(wide, tiny_llama):
    def suffixes(loaded: LoadedModel) -> set[str]:
        names = {id(module): name for name, module in loaded.model.named_modules()}
        return {names[id(one)].rpartition(".")[2] for one in linears_of_rows(loaded)}

    assert suffixes(wide) == {"q_proj", "k_proj", "v_proj", "o_proj", "down_proj"}
    assert not linears_of_rows(replace(wide, device="mps"))
    assert linears_of_rows(replace(wide, device="cuda:1"))
    assert zeros(nn.Linear(3, 5), torch.ones(2, 3)).tolist() == [[0] * 5] * 2


def test_not_beyond_the_limit(wide, monkeypatch):
    monkeypatch.setattr(dead_rows, "_LIMIT_BYTES", 1000)
    assert not linears_of_rows(wide)
