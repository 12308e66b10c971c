"""Edits at the outputs: each sequence of a batch carries its own edit, and the weights stay as they are.

Zeroing row i of W and b equals zeroing channel i of the Linear's output, bit for bit wherever the input is finite.
Edits of columns (`Edit.side`) act in the same way at the inputs of their Linears. `applied` carries out one edit for
every sequence, in the weights or at the outputs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from engine.edits.edit import AnyEdit, Edit, Steering
from engine.edits.masks import checked_mask
from engine.interventions.compaction import compacted
from engine.interventions.in_weights import zeroed
from engine.interventions.kinds import Intervention, intervention_info, intervention_of
from engine.interventions.uninterrupted import Undone, uninterrupted
from engine.models.forwards import listener
from engine.models.loading import LoadedModel, input_device
from engine.models.row_index import Layer, RowIndex, Side
from engine.models.rows_of_modules import decoder_blocks
from engine.models.units import column_index
from engine.records.errors import InputError
from engine.records.locks import OnWait, held, patient

EDITS_AT_ONCE = 16  # masks on the device at a time where many edits meet few prompts,
MASK_BYTES = 2**28  # or more, up to so many bytes of them

T = TypeVar("T")
_Hook = Callable[[nn.Module, tuple[Any, ...], Any], Any]
_Hooks = list[tuple[nn.Module, _Hook]]
_Before = Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...] | None]
_sees_sequences: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()


def edited_outputs(loaded: LoadedModel, edits: Sequence[AnyEdit]) -> AbstractContextManager[Outputs]:
    """Inside: passes within `outputs.sequences([0, 0, 1, 2])` give each sequence of the batch its own edit.

        with edited_outputs(loaded, edits) as outputs:
            with outputs.sequences([0, 1]):
                loaded.model(input_ids)  # [2, T]: the first sequence under edits[0], the second under edits[1]

    Only the thread that is within `sequences` sees an edit. The model's lock is held for each `sequences`, so for
    one pass as a rule, never for the length of a reply; `zeroed` of another thread holds it for its whole length, so
    that no pass meets another's zeroed weights. Nothing is saved or restored; the hooks are gone when the block is
    left, whatever ends it. Within `zeroed` of the same thread both edits count.

    Memory: one byte per edit and row, and one per sequence of a pass and row, of the Linears that any of the edits
    touches, on their devices. No rows are copied.

    Where two Linears share one weight, only the one that an edit names is edited (`zeroed` changes both).

    A `Steering` among the edits adds its vectors to the outputs of whole blocks."""
    outputs = Outputs(loaded, edits)
    return hooked(outputs, outputs.hooks, outputs.before)


class Outputs:
    """What `edited_outputs` gives."""

    def __init__(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> None:
        self.edits = len(edits)
        sides = {edit.side for edit in edits if isinstance(edit, Edit) and edit.size}
        at_outputs = list(_parts_of_layers(loaded, edits, loaded.rows, "output")) if "output" in sides else []
        at_inputs = list(_parts_of_layers(loaded, edits, column_index(loaded), "input")) if "input" in sides else []
        self.hooks: _Hooks = []
        if any(part.intervention.reads_tokens for _, parts in at_outputs + at_inputs for part in parts):
            self.hooks.append((loaded.model.get_input_embeddings(), self._read_tokens))
        self.hooks += [
            (loaded.model.get_submodule(layer.name), partial(self._edit, layer, parts)) for layer, parts in at_outputs
        ]
        self.before: list[tuple[nn.Module, _Before]] = [
            (loaded.model.get_submodule(layer.name), partial(self._edit_input, layer, parts))
            for layer, parts in at_inputs
        ]
        self.hooks += [(block, partial(self._steer, added)) for block, added in _added_to_blocks(loaded, edits)]
        self._lock = loaded.lock
        self._here = threading.local()  # .now: what the sequences of this thread's passes carry

    @contextmanager
    def sequences(self, which: Sequence[int], on_wait: OnWait = patient) -> Iterator[None]:
        """Inside: sequence i of every batch that this thread passes carries edit `which[i]`. One number alone, or the
        same several times, is for batches of any size. `on_wait(seconds)`: while another thread holds the model; may
        raise."""
        with held(self._lock, on_wait):
            before = getattr(self._here, "now", None)
            self._here.now = _Now(which)
            try:
                yield
            finally:
                self._here.now = before

    @property
    def _now(self) -> _Now | None:
        return getattr(self._here, "now", None)

    def _edit(self, layer: Layer, parts: list[_Part], _module: nn.Module, _args: Any, output: Tensor) -> Tensor | None:
        return None if self._now is None else self._now.edited(output, parts, layer)

    def _edit_input(self, layer: Layer, parts: list[_Part], _module: nn.Module, args: Any) -> tuple[Any, ...] | None:
        return None if self._now is None else (self._now.edited(args[0], parts, layer), *args[1:])

    def _read_tokens(self, _module: nn.Module, args: tuple[Any, ...], _output: Any) -> None:
        if self._now is not None:
            self._now.tokens, self._now.sources = args[0], {}

    def _steer(self, added: _Added, _module: nn.Module, _args: Any, output: Any) -> Any:
        now = self._now
        if now is None or not any(added.touched[edit] for edit in now.distinct):
            return None
        if isinstance(output, tuple):  # some architectures give attention weights or a cache beside the stream
            return (added.to(output[0], now), *output[1:])
        return added.to(output, now)


@dataclass(eq=False)
class _Added:
    """What is added to the output of one block."""

    vectors: Tensor  # [edits, d] float32, 0 for an edit that adds nothing; goes to the device of the block's output
    touched: list[bool]  # [edits]: does the edit add anything here?

    def to(self, stream: Tensor, now: _Now) -> Tensor:
        """stream [B, T, d]; sequences that nothing is added to keep their bits."""
        self.vectors = self.vectors.to(stream.device)
        vectors = self.vectors.to(stream.dtype)
        if len(now.distinct) == 1:
            return stream + vectors[now.distinct[0]]
        which = now.index(stream, "a block")
        touched = torch.tensor(self.touched, device=stream.device)[which]
        return torch.where(touched[:, None, None], stream + vectors[which][:, None, :], stream)


@dataclass(eq=False)
class _Part:
    """One intervention's units in one Linear."""

    intervention: Intervention
    edited: Tensor  # [edits, rows] bool; goes to the device of the Linear's output
    touched: list[bool]  # [edits]: has the edit any unit here?
    # Which edits a pass's sequences carried last, and their units: the passes of a reply share them.
    of_sequences: tuple[list[int], Tensor] | None = None


class _Now:
    """Which edit each sequence of the batch carries."""

    def __init__(self, which: Sequence[int]) -> None:
        self.which = list(which)
        self.distinct = sorted(set(which))
        self._index: dict[torch.device, Tensor] = {}
        self.tokens: Tensor | None = None  # [B, T] that this pass was given
        self.sources: dict[int, Tensor] = {}  # of each intervention that reads them

    def edited(self, values: Tensor, parts: list[_Part], layer: Layer) -> Tensor:
        """What a Linear says or reads, under the edits of its sequences."""
        for part in parts:
            if any(part.touched[edit] for edit in self.distinct):
                units = self.units(part, values, layer)
                if part.intervention.reads_tokens:
                    new = part.intervention.apply_from(values, units, layer, self._sources(part.intervention))
                else:
                    new = part.intervention.apply(values, units, layer)
                if not isinstance(new, Tensor) or new.shape != values.shape:
                    raise InputError(
                        f"the intervention {type(part.intervention).__name__} gave "
                        f"{list(new.shape) if isinstance(new, Tensor) else type(new).__name__} for the output of "
                        f"{layer.name}; expected a tensor of its shape, {list(values.shape)}"
                    )
                values = new.to(values.dtype)
        return values

    def _sources(self, intervention: Any) -> Tensor:
        if self.tokens is None:
            raise InputError("this intervention reads the tokens of a pass, and the pass was given embeddings instead")
        if id(intervention) not in self.sources:
            self.sources[id(intervention)] = intervention.sources(self.tokens)
        return self.sources[id(intervention)]

    def units(self, part: _Part, output: Tensor, layer: Layer) -> Tensor:
        """The units to edit, bool, of as many dimensions as `output`: [B or 1, 1, rows]."""
        part.edited = part.edited.to(output.device)
        between = [1] * (output.ndim - 2)
        if len(self.distinct) == 1:
            return part.edited[self.distinct[0]].view(1, *between, -1)
        if part.of_sequences is None or part.of_sequences[0] != self.which:
            part.of_sequences = self.which, part.edited[self.index(output, layer.name)]
        return part.of_sequences[1].view(len(self.which), *between, -1)

    def index(self, output: Tensor, name: str) -> Tensor:
        """Which edit each sequence carries, [B] on the output's device."""
        if output.ndim < 3 or output.shape[0] != len(self.which):
            raise InputError(
                f"{name} gives outputs of shape {list(output.shape)}, not [{len(self.which)}, tokens, rows], so "
                "the sequences of a batch cannot carry different edits; give one edit at a time"
            )
        device = output.device
        if device not in self._index:
            self._index[device] = torch.tensor(self.which, device=device)
        return self._index[device]


def _added_to_blocks(loaded: LoadedModel, edits: Sequence[AnyEdit]) -> Iterator[tuple[nn.Module, _Added]]:
    """The blocks that any steering changes, with what each edit adds there."""
    steerings = {number: edit for number, edit in enumerate(edits) if isinstance(edit, Steering) and edit.size}
    blocks = decoder_blocks(loaded.model) if steerings else ()
    for block in sorted({block for edit in steerings.values() for block in edit.vectors}):
        if not 0 <= block < len(blocks):
            raise InputError(f"steering names block {block}, but this model has {len(blocks)} blocks, from 0")
        in_block = {number: edit for number, edit in steerings.items() if block in edit.vectors}
        width = {edit.vectors[block].size for edit in in_block.values()}
        expected = int(loaded.model.config.get_text_config().hidden_size)
        if width != {expected}:
            raise InputError(
                f"vectors for block {block} have {sorted(width)} numbers; this model's stream has {expected}"
            )
        vectors = torch.zeros(len(edits), expected)
        for number, edit in in_block.items():
            vectors[number] = edit.coefficient * torch.from_numpy(edit.vectors[block])
        yield blocks[block], _Added(vectors, [number in in_block for number in range(len(edits))])


def _parts_of_layers(
    loaded: LoadedModel, edits: Sequence[AnyEdit], index: RowIndex, side: Side
) -> Iterator[tuple[Layer, list[_Part]]]:
    """The Linears that any edit touches on this side, with each intervention's units there."""
    whole: list[tuple[Intervention, Tensor]] = []
    masks = {number: edit for number, edit in enumerate(edits) if isinstance(edit, Edit) and edit.side == side}
    for name in dict.fromkeys(edit.intervention for edit in masks.values() if edit.size):
        edited = np.zeros((len(edits), index.n_rows), dtype=np.bool_)
        for number, edit in masks.items():
            if edit.intervention == name:
                edited[number, checked_mask(edit.units, index.n_rows)] = True
        intervention = intervention_of(loaded, name)
        intervention.fill(loaded)
        whole.append((intervention, torch.from_numpy(edited)))
    for layer in index.layers if whole else ():
        inside = [(kind, edited[:, layer.start : layer.start + layer.rows]) for kind, edited in whole]
        parts = [_Part(kind, edited, edited.any(dim=1).tolist()) for kind, edited in inside if edited.any()]
        if parts:
            yield layer, parts


def edit_batches(
    loaded: LoadedModel, edits: Sequence[AnyEdit], lengths: Sequence[int], batch_size: int
) -> Iterator[tuple[range, list[list[tuple[int, int]]]]]:
    """Every edit with every item, as batches in which items of similar length meet: some edits, which fit into memory
    together, and their batches of (edit, item). Where sequences cannot carry different edits, every edit is alone with
    its items. Errors: InputError for a batch size below 1."""
    if batch_size < 1:
        raise InputError(f"the batch size must be at least 1, got {batch_size}")
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    at_once = EDITS_AT_ONCE if mixable(loaded, edits) else 1
    if 1 < at_once < len(edits):
        filling = -(-batch_size // max(len(lengths), 1))
        at_once = max(at_once, min(filling, MASK_BYTES // loaded.rows.n_rows))
    for first in range(0, len(edits), at_once):
        group = range(first, min(first + at_once, len(edits)))
        pairs = [(edit, item) for item in by_length for edit in group]
        yield group, [pairs[start : start + batch_size] for start in range(0, len(pairs), batch_size)]


def mixable(loaded: LoadedModel, edits: Sequence[AnyEdit]) -> bool:
    """Can the sequences of a batch carry different ones of these edits?"""
    return len(edits) == 1 or not any(edit.size for edit in edits) or sees_sequences(loaded)


def sees_sequences(loaded: LoadedModel) -> bool:
    """Do all Linears see [B, T, d], so that sequences can carry different edits? A property of the model, found by a
    pass of six tokens. A mixture of experts gives its Linears the tokens of all sequences in one: [tokens, d]."""
    model = loaded.model
    if model not in _sees_sequences:
        shapes: set[tuple[int, ...]] = set()
        note = listener(lambda output: shapes.add(tuple(output.shape[:-1])))
        ids = torch.zeros(2, 3, dtype=torch.long, device=input_device(model))
        hooks: _Hooks = [(model.get_submodule(layer.name), note) for layer in loaded.rows.layers]
        with loaded.lock, torch.no_grad(), hooked(None, hooks):
            model(input_ids=ids, use_cache=False)
        _sees_sequences[model] = shapes == {(2, 3)}
    return _sees_sequences[model]


@contextmanager
def hooked(given: T, hooks: _Hooks, before: Sequence[tuple[nn.Module, _Before]] = ()) -> Iterator[T]:
    """Inside: the forward hooks are there, and `before` those that see what a module is given. Outside: they are not,
    also after an interrupt at any instant."""
    if not hooks and not before:
        yield given
        return

    def put() -> None:
        steps.extend(module.register_forward_hook(hook).remove for module, hook in hooks)
        steps.extend(module.register_forward_pre_hook(hook).remove for module, hook in before)

    with Undone() as steps, steps:
        uninterrupted(put)
        yield given


@contextmanager
def applied(loaded: LoadedModel, edit: AnyEdit, *, skip_dead: bool = False) -> Iterator[None]:
    """Inside: this thread's passes are those of the edited model. Outside: the model as it was.

    Zero rows go into the weights; all else is done at the outputs (or inputs). The model's lock is held throughout.
    skip_dead: leave out dead MLP neurons (`compacted`); the last bits may be others."""
    if isinstance(edit, Edit) and goes_into_weights(edit):
        with zeroed(loaded, edit.units), compacted(loaded, edit.units) if skip_dead else nullcontext():
            yield
    else:
        with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
            yield


def goes_into_weights(edit: AnyEdit) -> bool:
    """Does `applied` change the weights for it?"""
    return isinstance(edit, Edit) and edit.side == "output" and intervention_info(edit.intervention).in_weights
