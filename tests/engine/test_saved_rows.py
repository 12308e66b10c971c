"""Removed rows leave a card that is short of memory, and come back bit by bit although it has none to spare.

There is no card here: what is one, and what is free on it, is forced.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import numpy as np
import pytest
import torch
from same_bits import assert_same_bits, bits
from tiny_models import tiny_model
from torch import Tensor

import engine.interventions.in_weights as in_weights
import engine.interventions.in_weights as module
from engine.interventions.in_weights import RESERVE, SavedRows, kept_on_host, saved_rows, zeroed
from engine.models import memory
from engine.models.loading import LoadedModel
from engine.models.memory import Room
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError

OOM = "CUDA out of memory. Tried to allocate 2.00 GiB"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[SavedRows]:
    """Every device is a card with no room; gives the rows that are saved meanwhile."""
    monkeypatch.setattr(module, "has_own_memory", lambda _: True)
    monkeypatch.setattr(module, "room_on", lambda _: Room(0, 100))
    monkeypatch.setattr(module, "PIECE_BYTES", 200)  # several pieces for most parameters
    saved: list[SavedRows] = []

    def noting(*args: Any, **more: Any) -> SavedRows:
        saved.append(saved_rows(*args, **more))
        return saved[-1]

    monkeypatch.setattr(in_weights, "saved_rows", noting)
    return saved


def a_mask(n_rows: int, share: float = 0.9) -> np.ndarray:
    return np.sort(np.random.default_rng(1).choice(n_rows, round(share * n_rows), replace=False))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gpt_neox"])  # the last two have biases
def test_rows_on_the_host_come_back_bit_by_bit(short: list[SavedRows], family: str, dtype: torch.dtype) -> None:
    model = tiny_model(family).to(dtype).requires_grad_(False)
    rows, before = row_index(model), bits(model)
    mask = a_mask(rows.n_rows)
    with zeroed(model, mask):
        first = rows.layers[0]
        dead = mask[mask < first.rows]
        assert not model.get_submodule(first.name).weight[dead].any()
    assert_same_bits(model, before)
    assert short
    assert all(one.on_host and one.bits.device.type == "cpu" for one in short)
    assert sum(one.bits.numel() for one in short if one.parameter.ndim == 2) == sum(
        int(((mask >= layer.start) & (mask < layer.start + layer.rows)).sum())
        * model.get_submodule(layer.name).in_features
        for layer in rows.layers
    )


@pytest.mark.parametrize("on_host", [True, False])
def test_a_restore_for_which_there_is_no_room_goes_row_by_row(monkeypatch: pytest.MonkeyPatch, on_host: bool) -> None:
    """Whatever index_put asks for is refused: the rows are copied into the parameter itself."""
    parameter = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    before, rows = parameter.clone(), torch.tensor([1, 2, 6])
    saved = saved_rows(parameter, rows, on_host=on_host)
    parameter[rows] = 0
    put, refused = Tensor.__setitem__, []

    def refusing(tensor: Tensor, index: Any, value: Any) -> None:
        if isinstance(index, Tensor):
            refused.append(1)
            raise RuntimeError("CUDA error: out of memory")
        put(tensor, index, value)

    monkeypatch.setattr(Tensor, "__setitem__", refusing)
    saved.put_back()
    saved.put_back()  # twice does no harm
    assert refused
    assert torch.equal(parameter, before)


def refusing_gathers(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Copies of rows by a tensor of their numbers find no room; slices and single rows are views, which need none."""
    get = Tensor.__getitem__

    def refusing(tensor: Tensor, index: Any) -> Tensor:
        if isinstance(index, Tensor) and index.dtype == torch.int64 and index.ndim:
            raise error
        return get(tensor, index)

    monkeypatch.setattr(Tensor, "__getitem__", refusing)


def test_rows_for_which_the_card_has_no_room_after_all_go_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.randn(6, 4)
    before, rows = parameter.clone(), torch.tensor([0, 5])
    with monkeypatch.context() as patch:
        refusing_gathers(patch, torch.OutOfMemoryError(OOM))
        saved = saved_rows(parameter, rows, on_host=False)
    assert saved.on_host
    assert torch.equal(saved.bits, before[rows])
    with monkeypatch.context() as patch:
        refusing_gathers(patch, RuntimeError("an illegal memory access was encountered"))
        with pytest.raises(RuntimeError, match="illegal"):
            saved_rows(parameter, rows, on_host=False)


def test_no_room_anywhere_is_one_line_and_nothing_has_changed(
    tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls = bits(tiny_llama.model), []
    copy = module._host_copy

    def no_room(*given: Any) -> Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError
        return copy(*given)

    monkeypatch.setattr(module, "has_own_memory", lambda _: True)
    monkeypatch.setattr(module, "room_on", lambda _: Room(0, 100))
    monkeypatch.setattr(module, "_host_copy", no_room)
    with (
        pytest.raises(InputError, match=r"no room for 0\.00 GiB of removed rows.*lower the rate"),
        zeroed(tiny_llama, a_mask(tiny_llama.rows.n_rows)),
    ):
        pytest.fail("the block must not run")
    assert len(calls) == 4
    assert_same_bits(tiny_llama.model, before)
    monkeypatch.undo()
    with zeroed(tiny_llama, [0]):  # and the model can be masked again
        pass


def test_ctrl_c_during_a_restore_from_the_host_does_not_stop_it(
    tiny_llama: LoadedModel, short: list[SavedRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    before, original, sent = bits(tiny_llama.model), SavedRows.put_back, []

    def interrupted(saved: SavedRows) -> None:
        if len(sent) < 3:
            sent.append(1)
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.02)
        original(saved)

    monkeypatch.setattr(SavedRows, "put_back", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt), zeroed(tiny_llama, a_mask(tiny_llama.rows.n_rows)):
            pass
    finally:
        signal.signal(signal.SIGINT, handler)
    assert len(sent) == 3
    assert_same_bits(tiny_llama.model, before)


CARD, OTHER, HOST = torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cpu")


@pytest.mark.parametrize(("size", "stay"), [(0, True), (24, True), (25, True), (26, False), (50, False), (90, False)])
def test_the_rule_leaves_a_share_of_the_card_free(monkeypatch: pytest.MonkeyPatch, size: int, stay: bool) -> None:
    rooms = {CARD: Room(50, 100), OTHER: Room(100, 100)}
    monkeypatch.setattr(module, "room_on", lambda device: rooms[device])
    assert kept_on_host({CARD: size, OTHER: 10, HOST: 10**12}) == (set() if stay else {CARD})
    assert (rooms[CARD].free - size >= RESERVE * 100) == stay


def test_what_a_failed_pass_held_is_given_back_on_a_card_too(monkeypatch: pytest.MonkeyPatch) -> None:
    emptied: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))

    def fails() -> int:
        raise RuntimeError("CUDA error: out of memory")

    assert memory.none_without_memory(fails) is None
    assert emptied == [1]
