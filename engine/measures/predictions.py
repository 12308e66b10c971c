"""What a model says of the next token at every position of some windows, in pieces where all at once are too many; and
passes over text for `TokenMeasure`s: in batches that fit, in halves where memory runs out, summed over windows.

`in_pieces` decides by the model, the windows' length, the kind of device and a card's size, never by what is in memory,
so that equal runs do the same. A piece takes the model in two halves: the body, which makes hidden states, and what its
own forward makes of them over a body that hands out given states, so that a soft cap, a scale or a bias of logits is
whatever the architecture does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from engine.data.corpora import Windows
from engine.measures.base import TokenMeasure
from engine.models.forwards import last_logits_only, listener
from engine.models.loading import LoadedModel, input_device
from engine.models.memory import in_parts, none_without_memory, on_a_card
from engine.models.row_index import RowIndex
from engine.records.errors import is_out_of_memory
from engine.records.progress import passing

# Elements of logits per batch. The cpu's stays near its cache; the cuda's are 32 windows of 512 tokens at a vocabulary
# of 128,256, with which a cell of Llama-3.2-1B has about the kernels of a plain loop at that batch.
LOGIT_BUDGET = {"cpu": 16_000_000, "cuda": 2_110_000_000}
CARD_BYTES = 40  # of a card's memory per element, so that a card of 24 GiB takes 9 of these windows
# Elements of logits under one softmax; the cpu's stay in its cache, the cuda's are few kernels (511 such positions).
SOFTMAX_BUDGET = {"cpu": 250_000, "cuda": 66_000_000}
LEAST_ROWS = 16  # under one softmax, so that every core has some
LEAST = 256  # positions in a piece: a product of fewer spends its time on reading the head's weights again and again
VERSION = 1  # of how pieces are made; in the keys of what is measured in pieces
_STATES = "last_hidden_state"
_SAME = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative, since a product of other shapes sums in another order
_SAME_IN_HALF = 0.05
R = TypeVar("R")
WINDOWS = "windows"  # what is halved where memory runs out
Sequences = Sequence[tuple[int, int]]  # of a batch: number of the edit, number of the window
Under = Callable[[Sequence[int], Tensor], AbstractContextManager[Any]]  # edits and token ids of a pass -> around it


def kind_of(device: str) -> str:
    """Whose budget counts."""
    return "cuda" if device.startswith("cuda") else "cpu"


def logit_budget(kind: str) -> int:
    """Elements of logits per batch, on a card no more than its memory's size allows."""
    return on_a_card(LOGIT_BUDGET[kind], CARD_BYTES) if kind == "cuda" else LOGIT_BUDGET[kind]


def vocabulary_of(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


def under_one_softmax(kind: str, vocabulary: int) -> int:
    """Positions whose softmax over a vocabulary is made at once. Each has its own, so that no NLL hangs on how many."""
    return max(LEAST_ROWS if kind == "cpu" else 1, SOFTMAX_BUDGET[kind] // vocabulary)


def logits_that_fit(kind: str, length: int, vocabulary: int) -> int:
    """Sequences of this length in the budget of logits of a kind of device, at least one."""
    return max(1, logit_budget(kind) // (length * vocabulary))


def in_pieces(model: Any, kind: str, length: int) -> bool:
    """Are logits of windows of this length made in pieces? Where fewer than two windows' fit, if the model lets them be
    made apart from its body (`halves`)."""
    return 2 * length * vocabulary_of(model) > logit_budget(kind) and has_two_halves(model)


def sequences_that_fit(model: Any, rows: RowIndex, kind: str, length: int) -> int:
    """Windows of this length in one pass, at least one: by the size of their logits, or, where these are made in
    pieces, of the widest Linear's outputs."""
    widest = max(layer.rows for layer in rows.layers) if in_pieces(model, kind, length) else vocabulary_of(model)
    return logits_that_fit(kind, length, widest)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """On the device; a card is not waited for, which has its own copy of what the host may change then."""
    return values.to(device, non_blocking=device.type == "cuda")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits of every position but the last of some windows: values [B, T - 1, V], or states [B, T - 1, d] of which
    `logits_of` makes them, of `at_once` positions at a time."""

    values: Tensor
    vocabulary: int
    logits_of: Callable[[Tensor], Tensor] | None = None
    at_once: int = 0

    def split(self, windows: int) -> list[Predictions]:
        """So many windows at a time."""
        return [replace(self, values=part) for part in self.values.split(windows)]

    def chunks(self) -> Iterator[Tensor]:
        """Logits [n, V] of the positions of all windows in turn, as many as fit under one softmax."""
        for some in self._made_at_once(self.values):
            yield from (some if self.logits_of is None else self.logits_of(some)).split(self._under_one)

    def with_chunks(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """`chunks`, each with the values of its positions. values [B, T - 1]; what is given [n] is on the logits'
        device."""
        of_chunks = (chunk for some in self._made_at_once(values) for chunk in some.split(self._under_one))
        return ((logits, one.to(logits.device)) for logits, one in zip(self.chunks(), of_chunks, strict=True))

    @property
    def _under_one(self) -> int:
        return under_one_softmax(kind_of(str(self.values.device)), self.vocabulary)

    def _made_at_once(self, values: Tensor) -> Sequence[Tensor]:
        """values [B, T - 1, ...] of the positions whose logits are made together: of each window as they lie in memory,
        where the last position, which is left out, is there; or of so many in turn."""
        if self.logits_of is None:
            return values.unbind()
        return values.flatten(0, 1).split(max(1, self.at_once // self._under_one) * self._under_one)


def predictions(
    model: Any, inputs: Mapping[str, Tensor], kind: str | None = None, *, check: bool = True
) -> Predictions:
    """One pass of the model over windows; inputs: `input_ids` [B, T] and what belongs to them. kind: of the device,
    None for that of the input. In pieces, logits differ by rounding, if at all. A model whose second half proves to be
    another function (`halves`) gives all logits at once. check=False: it has no numbers to prove it
    with."""
    passing()
    ids = inputs["input_ids"]
    kind = kind or kind_of(str(ids.device))
    if in_pieces(model, kind, ids.shape[1]):
        split_model = halves(model, inputs, check=check)
        if split_model is not None:
            vocabulary = vocabulary_of(model)
            at_once = max(LEAST, logit_budget(kind) // vocabulary)
            return Predictions(split_model.states[:, :-1], vocabulary, split_model.logits_of, at_once)
    logits = model(**inputs, use_cache=False).logits[:, :-1]
    return Predictions(logits, logits.shape[-1])


class Halves(NamedTuple):
    """states: hidden states [B, T, d] after the body. logits_of: logits [n, V] of some of them [n, d]."""

    states: Tensor
    logits_of: Callable[[Tensor], Tensor]


def has_two_halves(model: Any) -> bool:
    """Is there a body, then a plain Linear, and a way to ask for the last logits only? Needs no weights."""
    return (
        getattr(model, "base_model", model) is not model
        and isinstance(model.get_output_embeddings(), nn.Linear)
        and bool(last_logits_only(model))
    )


def halves(model: Any, inputs: Mapping[str, Tensor], *, check: bool = True) -> Halves | None:
    """The body's states of a batch, from a pass of the whole model, and the second half for them. None where the second
    half's last logits are not, to within rounding, those of the pass. check=False: not compared, as tensors have no
    numbers."""
    outputs: list[Any] = []
    handle = model.base_model.register_forward_hook(listener(outputs.append))
    try:
        last = model(**inputs, use_cache=False, logits_to_keep=1).logits
    finally:
        handle.remove()
    if len(outputs) != 1 or not isinstance(outputs[0], dict) or outputs[0].get(_STATES) is None:
        return None
    output = outputs.pop()
    states = output[_STATES]

    def logits_of(some: Tensor) -> Tensor:
        return _second_half(model, type(output)(**{**output, _STATES: some[None]}), len(some))

    if check and not _same(logits_of, states[:, -1], last[:, -1]):
        return None
    return Halves(states, logits_of)


def _second_half(model: Any, output: Any, count: int) -> Tensor:
    """Logits [n, V]: the model's forward, its body answered for by `output`."""
    stand_in = _StandIn(model, output)
    ids = torch.zeros(1, count, dtype=torch.int64, device=output[_STATES].device)  # for who looks at their shape
    logits: Tensor = type(model).forward(stand_in, input_ids=ids, use_cache=False).logits
    if not stand_in._asked:
        raise AttributeError(f"{type(model).__name__} does not ask its {model.base_model_prefix}")
    return logits[0]


class _StandIn:
    """The model to its own forward, but for the body. Nothing of the model is changed, so threads do not meet."""

    def __init__(self, model: Any, output: Any) -> None:
        self._whole, self._output, self._asked = model, output, False

    def __getattr__(self, name: str) -> Any:  # of what is not set here
        return self._answer if name == self._whole.base_model_prefix else getattr(self._whole, name)

    def _answer(self, *_: Any, **__: Any) -> Any:
        self._asked = True
        return self._output


def _same(logits_of: Callable[[Tensor], Tensor], states: Tensor, expected: Tensor) -> bool:
    try:
        made_apart = logits_of(states)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return False
    if made_apart.shape != expected.shape:
        return False
    finite = expected.isfinite()
    if not torch.equal(finite, made_apart.isfinite()):
        return False
    one, other = (torch.where(finite, values, 0).float() for values in (made_apart, expected))
    limit = _SAME.get(expected.dtype, _SAME_IN_HALF)
    return bool((one - other).abs().max() <= limit * other.abs().max())


def windows_that_fit(loaded: LoadedModel, windows: Windows) -> int:
    """As many windows of this length as the budget allows, at least one (`sequences_that_fit`)."""
    return sequences_that_fit(loaded.model, loaded.rows, kind_of(loaded.device), windows.read_ids.shape[1])


def evaluation_batch_size(loaded: LoadedModel, windows: Windows) -> int:
    """From their sizes: the same on every run of a model and device."""
    return min(windows_that_fit(loaded, windows), len(windows.input_ids))


def as_it_is(_edits: Sequence[int], _ids: Tensor) -> AbstractContextManager[Any]:
    """Around a pass of the model as it is."""
    return nullcontext()


@torch.inference_mode()
def token_values(
    loaded: LoadedModel, measure: TokenMeasure[Any], sequences: Sequences, at_once: int, under: Under = as_it_is
) -> list[Tensor]:
    """Values of every predicted token, of each pass [k, sequences, length - 1] on the device: no pass waits for
    another. `at_once` sequences are passed together, or, where memory runs out, halves of them."""

    def passed(batch: Sequences) -> Tensor:
        return values_of(measure, *_predictions(loaded, measure.windows, batch, under))

    found = []
    for start in range(0, len(sequences), at_once):
        for _, values in in_parts(loaded.model, WINDOWS, sequences[start : start + at_once], passed):
            found.append(values)
    return found


@torch.inference_mode()
def values_beside_unedited(
    loaded: LoadedModel, measure: TokenMeasure[Any], edits: int, copies: int, under: Under
) -> list[list[Tensor]]:
    """For each edit what `token_values` gives, with what the unedited model says of the same tokens. Edit 0 of `under`
    is the unedited model. Passes have the same shape, so that an edit of nothing gives equal logits, and hold their
    windows `copies` times however many edits there are, so that equal runs give equal bits."""

    def of_windows(batch: Sequence[int], copies: int) -> list[Tensor]:
        def passed(group: Sequence[int]) -> tuple[list[Predictions], Tensor]:
            sequences = [(edit, window) for edit in group for window in batch]
            said, ids = _predictions(loaded, measure.windows, sequences, under)
            return said.split(len(batch)), ids[: len(batch)]

        unedited = passed([0] * copies)[0][0]
        of_unedited = list(map(measure.of_unedited, unedited.chunks())) if unedited.logits_of is None else None
        values: dict[int, Tensor] = {}
        for first in range(1, edits + 1, copies):
            group = [min(first + number, edits) for number in range(copies)]
            by_edit, ids = passed(group)
            for edit, said in dict(zip(group, by_edit, strict=True)).items():
                # Where logits are made in pieces, the unedited model's are made again for each edit.
                beside = map(measure.of_unedited, unedited.chunks()) if of_unedited is None else of_unedited
                values[edit] = values_of(measure, said, ids, beside)
        return list(values.values())

    def fewer_at_once(batch: Sequence[int]) -> list[Tensor]:
        values = none_without_memory(partial(of_windows, batch, copies)) if copies > 1 else None
        return values or of_windows(batch, 1)

    windows, at_once = range(measure.size), evaluation_batch_size(loaded, measure.windows)
    batches = (windows[start : start + at_once] for start in windows[::at_once])
    parts = [values for batch in batches for _, values in in_parts(loaded.model, WINDOWS, batch, fewer_at_once)]
    return [list(of_edit) for of_edit in zip(*parts, strict=True)]


def sums_of(values: Sequence[Tensor]) -> list[list[float]]:
    """[k][windows], of passes over all windows. On the CPU, since not every device (MPS) has float64."""
    return torch.cat(list(values), -2).cpu().double().sum(-1).tolist()


def result_of(measure: TokenMeasure[R], sums: Sequence[Sequence[float]]) -> R:
    """The windows' first tokens are not predicted."""
    count, length = measure.windows.input_ids.shape
    return measure.result(sums, (length - 1,) * count)


def of_model(loaded: LoadedModel, measure: TokenMeasure[R]) -> R:
    """Of the model as it is now, whatever its weights are."""
    sequences = [(0, window) for window in range(measure.size)]
    return result_of(measure, sums_of(token_values(loaded, measure, sequences, batch_of(loaded, measure))))


def batch_of(loaded: LoadedModel, measure: TokenMeasure[Any]) -> int:
    """Windows per pass of the measure."""
    return measure.batch_size or evaluation_batch_size(loaded, measure.windows)


def _predictions(loaded: LoadedModel, windows: Windows, batch: Sequences, under: Under) -> tuple[Predictions, Tensor]:
    """Of one pass, and its token ids [B, T] on the device."""
    ids = windows.read_ids[[window for _, window in batch]]
    with under([edit for edit, _ in batch], ids):
        sent_ids = sent(ids, input_device(loaded.model))
        return predictions(loaded.model, {"input_ids": sent_ids}), sent_ids


def values_of(
    measure: TokenMeasure[Any], said: Predictions, ids: Tensor, unedited: Iterable[Any] | None = None
) -> Tensor:
    """[k, windows, length - 1] of a pass over ids [windows, T]; what stands before the windows does not count."""
    chunks = zip(said.with_chunks(ids[:, 1:]), repeat(None) if unedited is None else unedited, strict=False)
    parts = [measure.of_tokens(logits, tokens, beside) for (logits, tokens), beside in chunks]
    values = torch.cat(parts, -1).view(-1, *said.values.shape[:2])
    return values[..., len(measure.windows.prefix) :]
