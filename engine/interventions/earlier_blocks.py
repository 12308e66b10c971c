"""Blocks before the first one that an edit changes say what they say unedited: many edits need them run only once.

What goes into the first edited block is kept for the next edit that begins there. No bit of a result changes by it,
and no key."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from engine.edits.edit import AnyEdit, Steering
from engine.interventions.at_outputs import hooked
from engine.interventions.uninterrupted import Undone, uninterrupted
from engine.models.forwards import listener
from engine.models.loading import LoadedModel, input_device
from engine.models.memory import has_own_memory, none_without_memory, room_on
from engine.models.rows_of_modules import decoder_blocks
from engine.models.units import column_index

KEPT_BYTES = 2**30  # of outputs of one block, at most
_here = threading.local()  # .kept: the `KeptOutputs` of this thread
_proven: weakref.WeakKeyDictionary[nn.Module, dict[int, bool]] = weakref.WeakKeyDictionary()


def first_edited_block(loaded: LoadedModel, edits: Sequence[AnyEdit]) -> int:
    """The first block in which any of the edits changes something, 0 where none does."""
    return min((_first(loaded, edit) for edit in edits if edit.size), default=0)


@contextmanager
def outputs_kept(kept: KeptOutputs | None = None) -> Iterator[None]:
    """Inside: passes of this thread within `FromFirstEdited` keep what goes into the first edited block, and begin
    there where it is known. Only edits may change the model meanwhile. Outside: no pass does.

    kept: of an earlier such context with the same model, None to begin with nothing and keep it no longer.

    Kept are the outputs of one block at a time, up to `KEPT_BYTES`: measure edits in the order of their first blocks.
    """
    before = getattr(_here, "kept", None)
    _here.kept = kept or KeptOutputs()
    try:
        yield
    finally:
        _here.kept = before


class FromFirstEdited:
    """Passes of a model under edits of which none changes a block before `first_edited_block`. Within `outputs_kept`
    the blocks before it are left out where their output for these tokens is known; elsewhere passes are as ever.

    compacted: within `engine.interventions.compaction`, which may round differently. Made while no sequences of
    `edited_outputs` are set: it proves once per model and block that every block runs once per pass, in order, and that
    a pass that begins late has the same logits, bit for bit."""

    def __init__(self, loaded: LoadedModel, edits: Sequence[AnyEdit], *, compacted: bool = False) -> None:
        self._model = loaded.model
        self._compacted = compacted
        self._kept: KeptOutputs | None = getattr(_here, "kept", None)
        first = 0 if self._kept is None else first_edited_block(loaded, edits)
        self._first = first if first and _may_begin_at(loaded, first) else 0

    def over(self, input_ids: Tensor) -> AbstractContextManager[None]:
        """Inside: one pass over these token ids [B, T]."""
        if self._kept is None or not self._first:
            return nullcontext()
        outputs, blocks = self._kept.of(self._model, self._first), list(decoder_blocks(self._model))
        told = repr((tuple(input_ids.shape), self._compacted)).encode() + input_ids.cpu().numpy().tobytes()
        key = hashlib.sha256(told).digest()
        if key in outputs:
            return _instead(blocks[: self._first], outputs[key])
        return hooked(None, [(blocks[self._first - 1], listener(partial(self._kept.add, key)))])


class KeptOutputs:
    """Outputs of the block before the first edited one, by the tokens of the pass."""

    def __init__(self) -> None:
        self._whose: tuple[int, int] | None = None
        self._bytes = 0
        self._outputs: dict[bytes, Any] = {}

    def of(self, model: nn.Module, first: int) -> dict[bytes, Any]:
        """Those for passes that begin there; what is kept of another block or model is dropped."""
        if self._whose != (id(model), first):
            self._whose, self._bytes, self._outputs = (id(model), first), 0, {}
        return self._outputs

    def add(self, key: bytes, output: Any) -> None:
        """Keep a copy, where there is room for it."""
        stream: Tensor = output[0] if isinstance(output, tuple) else output
        size = stream.nbytes
        fits = self._bytes + size <= KEPT_BYTES
        if fits and has_own_memory(stream.device):  # a card's is for passes first
            fits = size <= room_on(stream.device).free // 4
        copy = none_without_memory(lambda: _copied(output)) if fits else None
        if copy is not None:
            self._outputs[key] = copy
            self._bytes += size


def _first(loaded: LoadedModel, edit: AnyEdit) -> int:
    if isinstance(edit, Steering):
        return min(edit.vectors)
    index = loaded.rows if edit.side == "output" else column_index(loaded)
    return index.layers[int(index.layer_of(edit.units[0]))].block  # ids go block by block


def _may_begin_at(loaded: LoadedModel, first: int) -> bool:
    """Proven by passes of six tokens, once for a model and block."""
    known = _proven.setdefault(loaded.model, {})
    if first not in known:
        known[first] = _begins_alike(loaded, first)
    return known[first]


@torch.inference_mode()
def _begins_alike(loaded: LoadedModel, first: int) -> bool:
    model, blocks = loaded.model, list(decoder_blocks(loaded.model))
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    ids, others = ((torch.arange(6).view(2, 3) + more) % vocabulary for more in (0, 1))
    calls: list[nn.Module] = []
    found: list[Any] = []

    def logits(tokens: Tensor) -> Tensor:
        return model(input_ids=tokens.to(input_device(model)), use_cache=False).logits

    def heard(block: nn.Module, output: Any) -> None:
        calls.append(block)
        if block is blocks[first - 1]:
            found.append(_copied(output))

    with loaded.lock:
        with hooked(None, [(block, listener(partial(heard, block))) for block in blocks]):
            plain = logits(ids)
        if calls != blocks or not _replayable(found[0], ids):
            return False
        logits(others)  # what a block has left behind for a later one is another's now
        try:
            with _instead(blocks[:first], found[0]):
                return torch.equal(plain, logits(ids))
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError):
            return False  # a later block reads more of an earlier one than its output


def _replayable(output: Any, ids: Tensor) -> bool:
    """Is it a stream [B, T, d], alone or with nothing beside it?"""
    beside = output[1:] if isinstance(output, tuple) else ()
    stream = output[0] if isinstance(output, tuple) and output else output
    return isinstance(stream, Tensor) and stream.shape[:-1] == ids.shape and all(one is None for one in beside)


def _copied(output: Any) -> Any:
    """A copy, since some architectures add to the stream in place. What is no stream is given back as it is."""
    if isinstance(output, tuple):
        return (output[0].clone(), *output[1:]) if output and isinstance(output[0], Tensor) else output
    return output.clone() if isinstance(output, Tensor) else output


@contextmanager
def _instead(blocks: Sequence[nn.Module], output: Any) -> Iterator[None]:
    """Inside: each of these blocks gives `output` to this thread and does nothing. Outside: as they were."""
    own = threading.get_ident()

    def put() -> None:
        for block in blocks:
            old = vars(block).get("forward")  # accelerate keeps one on the instance
            back = partial(delattr, block, "forward") if old is None else partial(setattr, block, "forward", old)
            forward = partial(_given, own, block.forward, output)
            steps.append(back)
            block.forward = forward

    with Undone() as steps, steps:
        uninterrupted(put)
        yield


def _given(own: int, before: Callable[..., Any], output: Any, *args: Any, **more: Any) -> Any:
    return _copied(output) if threading.get_ident() == own else before(*args, **more)
