"""Remove neuron rows from a loaded model and put them back, bit for bit."""

import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.edits.masks import checked_mask
from engine.interventions.uninterrupted import Undone
from engine.models.loading import LoadedModel
from engine.models.memory import has_own_memory, none_without_memory, room_on
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError, is_out_of_memory, memory_needed

_guard = threading.Lock()
_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_masked: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@contextmanager
def zeroed(model: LoadedModel | nn.Module, mask: npt.ArrayLike) -> Iterator[None]:
    """Inside: `W[i,:] = 0` and `b[i] = 0` for every row id i of `mask`. Outside: the exact bits of before, also after
    an exception, a KeyboardInterrupt or a cancelled generator. The paper, section 3.1. mask: any order, without
    repeats.

    In place on the loaded weights: no copy of the model, no hook. Memory: the bits of the removed rows, beside their
    parameters, or on the host where a card is short of it. Errors: InputError where there is no room for them anywhere,
    before any row of that Linear has changed, and for a second mask of the same thread inside the first; another thread
    waits, since the model's lock is held throughout."""
    module = model.model if isinstance(model, LoadedModel) else model
    rows = model.rows if isinstance(model, LoadedModel) else row_index(module)
    row_ids = checked_mask(mask, rows.n_rows)
    with _guard:
        lock = model.lock if isinstance(model, LoadedModel) else _locks.setdefault(module, threading.RLock())
    with lock, Undone() as steps, steps:
        with _guard:
            if module in _masked:
                raise RuntimeError("this model already carries a mask; leave the first `zeroed` before the second")
            steps.append(partial(_masked.discard, module))  # taken back last: only a whole model is unmarked
            _masked.add(module)
        _zero(module, rows, row_ids, steps)
        yield


def is_masked(module: nn.Module) -> bool:
    """Are rows of this model zero now?"""
    with _guard:
        return module in _masked


def _zero(module: nn.Module, rows: RowIndex, row_ids: npt.NDArray[np.int64], steps: Undone) -> None:
    """Zero the rows, leaving in `steps` how to put them back; each entry is made before its rows change."""
    chosen = list(_chosen(module, rows, row_ids))
    wanted: dict[torch.device, int] = {}
    for parameter, local in chosen:
        wanted[parameter.device] = wanted.get(parameter.device, 0) + len(local) * row_bytes(parameter)
    short = kept_on_host(wanted)
    with torch.no_grad():
        for parameter, local in chosen:
            steps.append(saved_rows(parameter, local, on_host=parameter.device in short).put_back)
            parameter[local] = 0


def _chosen(module: nn.Module, rows: RowIndex, row_ids: npt.NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor]]:
    """Every weight and bias that has such rows, with their numbers in it."""
    for layer in rows.layers:
        first, last = np.searchsorted(row_ids, [layer.start, layer.start + layer.rows])
        if first == last:
            continue
        linear = module.get_submodule(layer.name)
        for parameter in (linear.weight, linear.bias):
            if parameter is None:
                continue
            assert isinstance(parameter, Tensor)
            if parameter.is_meta:
                raise InputError(
                    f"the weights of {layer.name} are offloaded and cannot be edited in place; "
                    "load the model onto devices that hold all of it"
                )
            yield parameter, torch.from_numpy(row_ids[first:last] - layer.start)


# Of a card's memory: what saved rows leave free there, for the passes. A choice; with fewer the rows go to the host,
# which costs two copies over the bus per edit and no bit.
RESERVE = 0.25
PIECE_BYTES = 2**26  # of rows that travel between a card and the host at a time


@dataclass(frozen=True, eq=False)
class SavedRows:
    """The original bits of some rows of one parameter. Putting them back twice does no harm."""

    parameter: Tensor
    rows: Tensor  # [n] int64, on the host
    bits: Tensor  # [n, ...] a copy
    on_host: bool  # not beside the parameter

    @torch.no_grad()
    def put_back(self) -> None:
        """The exact bits. Where the device has no room even for a piece, row after row: that takes none."""
        if not self.on_host:
            try:
                self.parameter[self.rows] = self.bits
                return
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
        for piece in _pieces(self.parameter, len(self.rows)):
            rows, bits = self.rows[piece], self.bits[piece]
            try:
                self.parameter[rows] = bits.to(self.parameter.device)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                for row, one in zip(rows.tolist(), bits, strict=True):
                    self.parameter[row].copy_(one)  # into the parameter itself


def kept_on_host(wanted: Mapping[torch.device, int]) -> set[torch.device]:
    """The cards on which rows of so many bytes would leave less than `RESERVE` of the free memory: the host keeps them
    instead, which changes no number."""
    short = set()
    for device, size in wanted.items():
        if has_own_memory(device):
            room = room_on(device)
            if room.free - size < RESERVE * room.total:
                short.add(device)
    return short


def saved_rows(parameter: Tensor, rows: Tensor, *, on_host: bool) -> SavedRows:
    """A copy of these rows, rows [n] int64 on the host. Beside the parameter unless `on_host`, or without room there.
    Errors: InputError where the host has no room either; the parameter is as it was."""
    if not on_host:
        copied = none_without_memory(lambda: SavedRows(parameter, rows, parameter[rows], False))  # indexing copies
        if copied is not None:
            return copied

    def told(_: BaseException) -> InputError:
        size = row_bytes(parameter) * len(rows) / 2**30
        return InputError(
            f"there is no room for {size:.2f} GiB of removed rows, on the device or on the host, and without a copy "
            "they could not be put back; free memory, lower the rate, or use --dtype bfloat16"
        )

    with memory_needed(told):
        return SavedRows(parameter, rows, _host_copy(parameter, rows), True)


def row_bytes(parameter: Tensor) -> int:
    """Bytes of one row, of a bias one number."""
    return parameter.element_size() * parameter.shape[1:].numel()


def _host_copy(parameter: Tensor, rows: Tensor) -> Tensor:
    bits = torch.empty((len(rows), *parameter.shape[1:]), dtype=parameter.dtype)
    for piece in _pieces(parameter, len(rows)):
        try:
            bits[piece] = parameter[rows[piece]].cpu()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            for place, row in zip(bits[piece], rows[piece].tolist(), strict=True):
                place.copy_(parameter[row])
    return bits


def _pieces(parameter: Tensor, count: int) -> Iterator[slice]:
    step = max(1, PIECE_BYTES // max(1, row_bytes(parameter)))
    return (slice(start, start + step) for start in range(0, count, step))
