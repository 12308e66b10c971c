"""Remove neuron rows from a loaded model and put them back, bit for bit."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.edits.masks import checked_mask
from engine.interventions.saved_rows import kept_on_host, row_bytes, saved_rows
from engine.interventions.uninterrupted import Undone
from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.models.rows import row_index
from engine.records.errors import InputError

_guard = threading.Lock()
_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_masked: weakref.WeakSet[nn.Module] = weakref.WeakSet()


@contextmanager
def zeroed(model: LoadedModel | nn.Module, mask: npt.ArrayLike) -> Iterator[None]:
    """Inside: `W[i,:] = 0` and `b[i] = 0` for every row id i of `mask`. Outside: the exact bits of before.

    In place on the loaded weights: no copy of the model, no hook, nothing left behind. The rows come
    back after an exception, a KeyboardInterrupt or a cancelled generator as well. The paper, section 3.1.

    Memory: the bits of the removed rows, beside their parameters, or on the host where a card is short of it
    (`engine.interventions.saved_rows`). Edits at the outputs (`at_outputs`) keep none. Errors: InputError where there
    is no room for them anywhere, before any row of that Linear has changed.

    The model's lock is held throughout, so that another thread waits instead of seeing the mask; the
    same thread gets an error for a second mask inside the first.

    mask: row ids of the row index, any order, without repeats.
    """
    module = model.model if isinstance(model, LoadedModel) else model
    rows = model.rows if isinstance(model, LoadedModel) else row_index(module)
    row_ids = checked_mask(mask, rows.n_rows)
    lock = model.lock if isinstance(model, LoadedModel) else _lock_of(module)
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


def _lock_of(module: nn.Module) -> threading.RLock:
    with _guard:
        return _locks.setdefault(module, threading.RLock())


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
