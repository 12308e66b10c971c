"""What is measured under an edit: what a measure reads of a model's passes, and what it makes of it.

To add one that reads what the model predicts at every token of the evaluation text, write a file with a class:

    from engine.measures import TokenMeasure, register_measure

    @register_measure("accuracy", title="Top-1 accuracy", unit="fraction of tokens", lower_is_better=False)
    class Accuracy(TokenMeasure):
        \"\"\"Share of the tokens that the model holds for the likeliest.\"\"\"

        kind = "accuracy"

        def of_tokens(self, logits, tokens, unedited):
            return (logits.argmax(-1) == tokens).float()

It then stands in `sweep --measures`, in the table `sweep_measures` and on the page Curves. The text is passed for it as
for the built-in ones (`engine.run.edited_passes`): edits in the weights, without what they kill, from the first edited
block on, in batches that fit. A measure of anything else inherits from `Measure`, and says in `passes` what it costs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.registry import Registry, modules
from engine.stats.blocks import Blocks, ratio_stderr

if TYPE_CHECKING:
    from torch import Tensor

    from engine.data.corpora import Windows
    from engine.edits.edit import AnyEdit
    from engine.models.loading import LoadedModel

R = TypeVar("R")
Factory = TypeVar("Factory", bound=Callable[..., Any])


class Passes(NamedTuple):
    """What a measure passes through a model under one edit: `sequences` of `length` tokens, and behind each of them
    `steps` more, one at a time. at_once: sequences in a pass at most, None: as many as fit. logits: of how many last
    positions, 0 for all."""

    sequences: int
    length: int
    steps: int = 0
    at_once: int | None = None
    logits: int = 0


class Stored(ABC, Generic[R]):
    """What a cell's key and the store ask of a measure. kind: part of the key, stored, never renamed."""

    kind: ClassVar[str]

    def passes(self, loaded: LoadedModel) -> tuple[Passes, ...]:
        """What it costs under one edit, for an estimate; nothing where that cannot be told. Reads no weights."""
        return ()

    @abstractmethod
    def record(self, loaded: LoadedModel) -> Json:
        """All of the measure that can change the number, for the key."""

    @abstractmethod
    def encode(self, result: R) -> Json:
        """The result as the store keeps it."""

    @abstractmethod
    def decode(self, stored: Json) -> R:
        """Back from the store. KeyError, TypeError or ValueError: of another version, to be measured again."""


class Measure(Stored[R]):
    """A measure that passes the model itself: replies, tasks, hidden states.
    It has `measure`, or `measure_each` where `together` may be above 1, or both."""

    skips_dead: ClassVar[bool] = False  # may passes leave out what an edit in the weights kills? The key then says so

    @property
    def size(self) -> int:
        """How much work it is under one edit: prompts to answer, windows to read."""
        return 1

    def together(self, loaded: LoadedModel) -> int:
        """How many edits `measure_each` takes at once; 1: one after another, by `measure`. It depends on the model and
        the measure only, never on the load, since it may change last bits."""
        return 1

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> R:
        """Of the model as it is now: the runner has applied `edit`."""
        raise NotImplementedError(f"{type(self).__name__} measures by `measure_each`")

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[R]:
        """Under each edit, as rows of a batch (`engine.interventions.at_outputs`); the weights stay as they are."""
        raise NotImplementedError(f"{type(self).__name__} measures by `measure`")


class Derived(Stored[R]):
    """Made of another measure's result under the same edit, without the model: a verdict on replies."""

    base: Stored[Any]

    @abstractmethod
    def derive(self, base: Any) -> R: ...


@dataclass(frozen=True)
class Average:
    """A ratio of sums over independent units (windows, prompts): `value` = sum(sums) / sum(counts). blocks: what errors
    take as units instead (`engine.stats.blocks`), None: by the number of units; not stored."""

    sums: tuple[float, ...]
    counts: tuple[int, ...]
    blocks: Blocks | None = field(default=None, compare=False)

    @property
    def value(self) -> float:
        return math.fsum(self.sums) / self.tokens

    @property
    def stderr(self) -> float | None:
        """That ratio's standard error; None for a single unit."""
        return ratio_stderr(self.sums, self.counts)

    @property
    def tokens(self) -> int:
        return sum(self.counts)

    def stored(self) -> Json:
        return {"sums": self.sums, "counts": self.counts}


def stored_average(stored: Json, blocks: Blocks | None = None) -> Average:
    """`Average.stored`, back."""
    return Average(tuple(map(float, stored["sums"])), tuple(map(int, stored["counts"])), blocks)


class AverageMeasure(Measure[Average]):
    """A measure whose results are averages over its prompts."""

    def encode(self, result: Average) -> Json:
        return result.stored()

    def decode(self, stored: Json) -> Average:
        return stored_average(stored)


@dataclass(frozen=True)
class TokenMeasure(Measure[R]):
    """A measure that reads the logits at every predicted token of some windows, and nothing else. It passes nothing
    itself (`engine.measures.predictions`, `engine.run.edited_passes`).

    beside_unedited: does it compare with the unedited model on the same tokens? Then edits are made at the outputs,
    several in turn beside one set of passes of the unedited model."""

    windows: Windows
    batch_size: int | None = None  # windows per pass; None: from the size of their logits
    beside_unedited: ClassVar[bool] = False
    called: ClassVar[str] = "value"  # in the error where it is not finite

    @abstractmethod
    def of_tokens(self, logits: Tensor, tokens: Tensor, unedited: Any) -> Tensor:
        """Of some tokens, each for itself. logits [n, V] that predict `tokens` [n]; unedited: what `of_unedited` gave.
        returns [n], or [k, n] for k values of every token, on the logits' device"""

    def of_unedited(self, logits: Tensor) -> Any:
        """What `of_tokens` is to compare with, of the unedited model's logits [n, V]; kept for all edits."""
        return None

    def result(self, sums: Sequence[Sequence[float]], counts: tuple[int, ...]) -> R:
        """Of the sums of every value over each window, [k][windows], and the windows' predicted tokens."""
        return Average(tuple(sums[0]), counts, self.windows.blocks)  # type: ignore[return-value]

    def record(self, loaded: LoadedModel) -> Json:
        return {"tokens": self.windows.token_hash}

    def encode(self, result: R) -> Json:
        return result.stored()  # type: ignore[attr-defined]

    def decode(self, stored: Json) -> R:
        return stored_average(stored, self.windows.blocks)  # type: ignore[return-value]

    @property
    def size(self) -> int:
        return len(self.windows.sample_ids)

    def passes(self, loaded: LoadedModel) -> tuple[Passes, ...]:
        """Those of the edited model; who compares with the unedited one shares its passes among edits."""
        at_once = min(self.batch_size, self.size) if self.batch_size else None
        return (Passes(self.size, self.windows.read_ids.shape[1], at_once=at_once),)


class Given(NamedTuple):
    """What a sweep has for measures to read: evaluation text, and prompts to answer."""

    windows: Windows
    batch_size: int | None
    prompts: tuple[str, ...]
    reply_tokens: int


@dataclass(frozen=True)
class MeasureInfo:
    """What menus and documents say about a measure. make: for what a sweep gives."""

    id: str
    title: str
    unit: str
    lower_is_better: bool
    make: Callable[[Given], Stored[Any]]
    note: str  # the first line of its docstring


MEASURES: Registry[MeasureInfo] = Registry(
    "measure",
    {**modules("engine.measures", ["nll"]), **dict.fromkeys(("kl", "top1"), "engine.measures.fidelity")}
    | modules("engine.measures", ["margin", "fluency"]),
)


def register_measure(
    measure_id: str,
    *,
    title: str = "",
    unit: str = "",
    lower_is_better: bool = True,
    reads: Literal["windows", "prompts"] = "windows",
) -> Callable[[Factory], Factory]:
    """Decorator: make a measure available under an id. Errors: InputError for a taken id.

    The class or function is called with `Windows` and a batch size (None: from the size of their logits), or, if it
    reads prompts, with these and the longest reply in tokens. Results have `value`, `stderr` (None for none) and
    `tokens`, as `Average`."""

    def register(factory: Factory) -> Factory:
        def make(given: Given) -> Stored[Any]:
            measure = factory(*(given[:2] if reads == "windows" else given[2:]))
            if not isinstance(measure, Stored):
                raise InputError(
                    f"the measure {measure_id!r} is a {type(measure).__name__}, which is neither a TokenMeasure nor a "
                    "Measure; inherit from one of them (engine.measures)"
                )
            return measure

        note = (factory.__doc__ or "").strip().partition("\n")[0]
        info = MeasureInfo(measure_id, title or measure_id, unit, lower_is_better, make, note)
        MEASURES.add(measure_id, info, factory)
        return factory

    return register
