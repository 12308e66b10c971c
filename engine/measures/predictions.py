"""What a model says of the next token at every position of some windows, in pieces where all at once are too many.

`in_pieces` decides by the model, the windows' length, the kind of device and a card's size, never by what is in memory,
so that equal runs do the same. A piece takes the model in two halves: the body, which makes hidden states, and what its
own forward makes of them over a body that hands out given states, so that a soft cap, a scale or a bias of logits is
whatever the architecture does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.models.forwards import listener
from engine.models.row_index import RowIndex
from engine.records.errors import is_out_of_memory

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


def kind_of(device: str) -> str:
    """Whose budget counts."""
    return "cuda" if device.startswith("cuda") else "cpu"


def logit_budget(kind: str) -> int:
    """Elements of logits per batch, on a card no more than its memory's size allows."""
    if kind == "cuda" and torch.cuda.is_available():
        return min(LOGIT_BUDGET[kind], torch.cuda.get_device_properties(0).total_memory // CARD_BYTES)
    return LOGIT_BUDGET[kind]


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


class Predictions:
    """Logits of every position but the last of some windows, [B, T - 1, V] or in pieces of positions."""

    def __init__(
        self, values: Tensor, vocabulary: int, logits_of: Callable[[Tensor], Tensor] | None, at_once: int
    ) -> None:
        self._values, self._logits_of, self._at_once = values, logits_of, at_once
        self.vocabulary = vocabulary

    @property
    def whole(self) -> bool:
        return self._logits_of is None

    @property
    def windows(self) -> int:
        return self._values.shape[0]

    @property
    def positions(self) -> int:
        return self._values.shape[1]

    def split(self, windows: int) -> list[Predictions]:
        """So many windows at a time."""
        parts = self._values.split(windows)
        return [Predictions(part, self.vocabulary, self._logits_of, self._at_once) for part in parts]

    def chunks(self) -> Iterator[Tensor]:
        """Logits [n, V] of the positions of all windows in turn, as many as fit under one softmax."""
        size = under_one_softmax(kind_of(str(self._values.device)), self.vocabulary)
        if self._logits_of is None:
            for window in self._values:  # as they lie in memory: the last position of each, which is left out, is there
                yield from window.split(size)
            return
        together = max(1, self._at_once // size) * size
        for some in self._values.flatten(0, 1).split(together):
            yield from self._logits_of(some).split(size)

    def with_chunks(self, values: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """`chunks`, each with the values of its positions. values [B, T - 1]; what is given [n] is on the logits'
        device."""
        flat, start = values.flatten(), 0
        for some in self.chunks():
            yield some, flat[start : start + len(some)].to(some.device)
            start += len(some)


def predictions(
    model: Any, inputs: Mapping[str, Tensor], kind: str | None = None, *, check: bool = True
) -> Predictions:
    """One pass of the model over windows; inputs: `input_ids` [B, T] and what belongs to them. kind: of the device,
    None for that of the input. In pieces, logits differ by rounding, if at all. A model whose second half proves to be
    another function (`halves`) gives all logits at once. check=False: it has no numbers to prove it
    with."""
    ids = inputs["input_ids"]
    kind = kind or kind_of(str(ids.device))
    if in_pieces(model, kind, ids.shape[1]):
        found = halves(model, inputs, check=check)
        if found is not None:
            vocabulary = vocabulary_of(model)
            at_once = max(LEAST, logit_budget(kind) // vocabulary)
            return Predictions(found.states[:, :-1], vocabulary, found.logits_of, at_once)
    logits = model(**inputs, use_cache=False).logits[:, :-1]
    return Predictions(logits, logits.shape[-1], None, 0)


class Halves(NamedTuple):
    """states: hidden states [B, T, d] after the body. logits_of: logits [n, V] of some of them [n, d]."""

    states: Tensor
    logits_of: Callable[[Tensor], Tensor]


def has_two_halves(model: Any) -> bool:
    """Is there a body, then a plain Linear, and a way to ask for the last logits only? Needs no weights."""
    return (
        getattr(model, "base_model", model) is not model
        and isinstance(model.get_output_embeddings(), nn.Linear)
        and _keeps_some_logits(type(model).forward)
    )


def halves(model: Any, inputs: Mapping[str, Tensor], *, check: bool = True) -> Halves | None:
    """The body's states of a batch, from a pass of the whole model, and the second half for them. None where the second
    half's last logits are not, to within rounding, those of the pass. check=False: not compared, as tensors have no
    numbers."""
    said: list[Any] = []
    handle = model.base_model.register_forward_hook(listener(said.append))
    try:
        last = model(**inputs, use_cache=False, logits_to_keep=1).logits
    finally:
        handle.remove()
    if len(said) != 1 or not isinstance(said[0], dict) or said[0].get(_STATES) is None:
        return None
    output = said.pop()
    states = output[_STATES]

    def logits_of(some: Tensor) -> Tensor:
        return _second_half(model, type(output)(**{**output, _STATES: some[None]}), len(some))

    if check and not _same(logits_of, states[:, -1], last[:, -1]):
        return None
    return Halves(states, logits_of)


@cache
def _keeps_some_logits(forward: Callable[..., Any]) -> bool:
    return "logits_to_keep" in inspect.signature(forward).parameters


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
        found = logits_of(states)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return False
    if found.shape != expected.shape:
        return False
    finite = expected.isfinite()
    if not torch.equal(finite, found.isfinite()):
        return False
    one, other = (torch.where(finite, values, 0).float() for values in (found, expected))
    limit = _SAME.get(expected.dtype, _SAME_IN_HALF)
    return bool((one - other).abs().max() <= limit * other.abs().max())
