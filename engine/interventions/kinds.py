"""The registry of interventions: what is done to the output of an edited unit.

To add one, write a file with a class and register it under its id:

    from engine.interventions import Intervention, register_intervention

    @register_intervention("negate", title="Negate")
    class Negate(Intervention):
        \"\"\"y_i = -y_i.\"\"\"

        def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
            return torch.where(units, -output, output)

Inside this repository the file goes beside `zero.py` and its id into `INTERVENTIONS`. In a package of its own an
entry point does the same, `[project.entry-points."selector_audit.interventions"]` with `negate = "package.module"`.
An `Edit` names it by its id; `applied` and `edited_outputs` then carry it out.

What it may have beyond `apply` (calibration text, random draws, what hangs on a sequence's own tokens) is in
`Intervention`, with the defaults of one that has none of it.

`optimal` ablation (arXiv 2409.09951) is not built: it would take a constant per unit fitted by gradient descent on the
loss under each edit, so an optimisation for every cell of a sweep where the others read one text once."""

from __future__ import annotations

import copy
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from engine.edits.edit import ZERO, AnyEdit, Steering
from engine.records.errors import InputError
from engine.records.hashing import Json, source_hash
from engine.records.registry import Registry, modules

if TYPE_CHECKING:
    from torch import Tensor

    from engine.data.corpora import Windows
    from engine.models.loading import LoadedModel
    from engine.models.row_index import Layer


class Intervention(ABC):
    """What a registered class inherits from."""

    reads_text: ClassVar[bool] = False  # does it need calibration text? A study then calls `prepare` before it measures
    reads_tokens: ClassVar[bool] = False  # is `apply_from` called in the place of `apply`?
    # What is drawn at random comes from it, None where nothing is; `seeded(id, seed)` then names a further draw beside
    # the first, which shares what `fill` keeps.
    seed: int | None = None

    def prepare(self, loaded: LoadedModel, windows: Windows) -> None:  # noqa: B027 - most need none
        """Keep on the instance what is needed of the calibration text."""

    def record(self) -> Json:
        """All of what was prepared that can change a number (the text's hash), for cache keys."""
        return {}

    def fill(self, loaded: LoadedModel) -> None:  # noqa: B027
        """Passes of the model over the calibration text. Called before the first edit is carried out: where all results
        are in the store, none is run."""

    def sources(self, input_ids: Tensor) -> Tensor:
        """Of every sequence what replaces it, by its own tokens. input_ids [B, T]; returns [B]"""
        raise NotImplementedError

    def apply_from(self, values: Tensor, units: Tensor, layer: Layer, sources: Tensor) -> Tensor:
        """As `apply`; sources [B] of `sources`."""
        raise NotImplementedError

    @abstractmethod
    def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
        """The Linear's output with the edited units changed, every other element as it was.

        output [B, T, rows] (an expert's: [tokens, rows]) of the Linear `layer`, any float dtype and device; its input
        where `layer.side` is `input` (neurons and heads: `engine.models.units`).
        units bool, True where a unit is edited, of as many dimensions as `output`: [B or 1, 1, rows]. Sequences of
        a batch may carry different edits, so what is done to one must not depend on the others."""


@dataclass(frozen=True)
class InterventionInfo:
    """What menus and documents say about an intervention."""

    id: str  # stored in results: never renamed
    title: str
    in_weights: bool  # the same function as zero rows of W and b, which is what can be put into the weights
    note: str  # the first line of the class's docstring: the formula
    cache_id: str  # names the formula in cache keys: other numbers, other id
    make: type[Intervention]


class Given(NamedTuple):
    """What `prepare` was given."""

    windows: Windows
    seed: int
    more: tuple[int, ...]


_InterventionClass = TypeVar("_InterventionClass", bound=type[Intervention])
_BUILT_IN = modules("engine.interventions", [ZERO, "mean", "resample"])
INTERVENTIONS: Registry[InterventionInfo] = Registry("intervention", _BUILT_IN)
_prepared: weakref.WeakKeyDictionary[Any, dict[str, Intervention]] = weakref.WeakKeyDictionary()
_prepared_with: weakref.WeakKeyDictionary[Any, dict[str, Given]] = weakref.WeakKeyDictionary()
_guard = threading.Lock()
_SEED = "#"  # no part of an id that tables can hold


def register_intervention(
    intervention_id: str, *, title: str = "", in_weights: bool = False, version: int = 1
) -> Callable[[_InterventionClass], _InterventionClass]:
    """Class decorator: make the class available under an id. Errors: InputError for a taken id.
    in_weights: is it the same as setting row i of W and b to zero? `applied` then does that, which is quicker.
    version: raise it when the intervention does something else than before, so that cached numbers are not used."""

    def register(make: _InterventionClass) -> _InterventionClass:
        if not issubclass(make, Intervention):
            raise InputError(
                f"the intervention {intervention_id!r} is no {Intervention.__name__}; let its class inherit from "
                "engine.interventions.Intervention"
            )
        for name in ("sources", "apply_from"):
            if make.reads_tokens and getattr(make, name) is getattr(Intervention, name):
                raise InputError(
                    f"the intervention {intervention_id!r} reads tokens and has no `{name}`; write it, or leave "
                    "`reads_tokens` out"
                )
        note = (make.__doc__ or "").strip().partition("\n")[0]
        cache_id = f"{intervention_id}/{version}{source_hash(make)}"
        info = InterventionInfo(intervention_id, title or intervention_id, in_weights, note, cache_id, make)
        INTERVENTIONS.add(intervention_id, info, make)
        return make

    return register


def seeded(intervention_id: str, seed: int) -> str:
    """The id of another draw of an intervention, for edits: one that `prepare` has made with this seed among `more`."""
    return f"{intervention_id}{_SEED}{seed}"


def intervention_info(intervention_id: str) -> InterventionInfo:
    """What is registered under the id, or under the id that it is another draw of."""
    return INTERVENTIONS.get(intervention_id.partition(_SEED)[0])


def prepare(
    loaded: LoadedModel, intervention_id: str, windows: Windows, *, seed: int = 0, more: Iterable[int] = ()
) -> None:
    """Make an intervention ready for this model: those that need calibration text are given it here. The last text and
    seed count. more: further seeds, each of them an intervention of its own (`seeded`) that may be measured beside the
    first."""
    intervention = INTERVENTIONS.get(intervention_id).make()
    given = Given(windows, seed, tuple(more))
    drawn = intervention.seed is not None
    if drawn:
        intervention.seed = seed
    intervention.prepare(loaded, windows)
    if intervention.reads_text or drawn:
        with _guard:
            known = _prepared.setdefault(loaded.model, {})
            known[intervention_id] = intervention
            for other in given.more:
                twin = copy.copy(intervention)
                twin.seed = other
                known[seeded(intervention_id, other)] = twin
            _prepared_with.setdefault(loaded.model, {})[intervention_id] = given


def prepared_with(loaded: LoadedModel, intervention_id: str) -> Given | None:
    """What `prepare` was given last for this model; None where none was needed."""
    with _guard:
        return _prepared_with.get(loaded.model, {}).get(intervention_info(intervention_id).id)


def intervention_of(loaded: LoadedModel, intervention_id: str) -> Intervention:
    """The intervention, ready for this model. Errors: InputError for one that was not prepared, or is unknown."""
    info = intervention_info(intervention_id)
    with _guard:
        known = _prepared.get(loaded.model, {}).get(intervention_id)
    intervention = known or info.make()
    if known is None and intervention.reads_text:
        raise InputError(
            f"the intervention {intervention_id!r} needs calibration text and has read none for this model; call "
            f"engine.interventions.kinds.prepare(loaded, {intervention_id!r}, windows) before"
        )
    return intervention


def intervention_record(loaded: LoadedModel, edit: AnyEdit) -> Json:
    """What a key says about the intervention beyond `edit.record()`: its formula, and what it was prepared with. Empty
    for `zero`, for an edit of no units, whose keys stay those of masks, and for steering, which says it all."""
    if isinstance(edit, Steering) or edit.intervention == ZERO or not edit.size:
        return {}
    intervention = intervention_of(loaded, edit.intervention)
    more = intervention.record()
    if not more and intervention.seed is not None:
        more = {"seed": intervention.seed}
    return {"intervention": intervention_info(edit.intervention).cache_id, **more}
