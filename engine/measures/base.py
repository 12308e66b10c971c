"""What is measured under an edit. A measure owns what of itself belongs into a cell's key, and its result's form.

To add one, write a file with a class and register a way to make it from evaluation text:

    from engine.measures import register_measure

    @register_measure("top1", title="Top-1 accuracy", unit="fraction", lower_is_better=False)
    def top1(windows: Windows, batch_size: int | None) -> TextMeasure:
        ...

It then stands in `sweep --measures`, in the table `sweep_measures` and on the page Curves. Measures of other things
than text (replies, tasks) need no registration: a study makes the cells that it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from engine.records.hashing import Json
from engine.records.registry import Registry, modules

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.edits.steering import AnyEdit
    from engine.models.loading import LoadedModel

R = TypeVar("R")


class Measure(Protocol[R]):
    """What a runner asks of a measure. kind: part of the key, stored, never renamed."""

    kind: ClassVar[str]

    def record(self, loaded: LoadedModel) -> Json:
        """All of the measure that can change the number, for the key."""
        ...

    def encode(self, result: R) -> Json:
        """The result as the store keeps it."""
        ...

    def decode(self, stored: Json) -> R:
        """Back from the store. KeyError, TypeError or ValueError: of another version, to be measured again."""
        ...

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> R:
        """Of the model as it is now, which carries `edit`: in its weights as a rule."""
        ...


class Together(Measure[R], Protocol):
    """A measure that can take several edits in one pass, as rows of a batch (`engine.interventions.at_outputs`)."""

    def together(self, loaded: LoadedModel) -> int:
        """How many edits are measured in one pass; 1: one after another, in the weights.

        The cost rule: it depends on the model and the measure only, never on the load, since it may change last bits.
        """
        ...

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[R]:
        """Under each edit; the weights stay as they are."""
        ...


class Derived(Protocol[R]):
    """Made of another measure's result under the same edit, without the model: a verdict on replies."""

    kind: ClassVar[str]
    base: Measure[Any]

    def record(self, loaded: LoadedModel) -> Json: ...

    def encode(self, result: R) -> Json: ...

    def decode(self, stored: Json) -> R: ...

    def derive(self, base: Any) -> R: ...


MakeTextMeasure = Callable[["Windows", "int | None"], Measure[Any]]


@dataclass(frozen=True)
class MeasureInfo:
    """What menus and documents say about a measure of text."""

    id: str
    title: str
    unit: str
    lower_is_better: bool
    make: MakeTextMeasure
    note: str  # the first line of its docstring


MEASURES: Registry[MeasureInfo] = Registry("measure", modules("engine.measures", ["nll"]))


def register_measure(
    measure_id: str, *, title: str = "", unit: str = "", lower_is_better: bool = True
) -> Callable[[MakeTextMeasure], MakeTextMeasure]:
    """Decorator: make a measure of evaluation text available under an id. Errors: InputError for a taken id.

    Its results have `value` per token, `stderr` (None where there is none) and `tokens`.
    """

    def register(make: MakeTextMeasure) -> MakeTextMeasure:
        note = (make.__doc__ or "").strip().partition("\n")[0]
        MEASURES.add(measure_id, MeasureInfo(measure_id, title or measure_id, unit, lower_is_better, make, note), make)
        return make

    return register
