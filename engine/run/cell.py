"""A cell: one model, one edit, one measure. It owns its cache key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from engine.edits.edit import AnyEdit
from engine.interventions.kinds import intervention_record
from engine.measures.base import Derived
from engine.models.loading import LoadedModel
from engine.records.hashing import Json, cache_key, canonical, source_record
from engine.run.edited_passes import pass_record

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Cell(Generic[R]):
    """Equal if its key is: who chose the edit is no part of it."""

    loaded: LoadedModel
    edit: AnyEdit
    measure: Any  # Measure[R] or Derived[R]

    @cached_property
    def key(self) -> str:
        """Over weights, dtype and device kind, the edit's content, and all of the measure that can change a number."""
        edit = self.edit.record() | intervention_record(self.loaded, self.edit)
        spec = {"model": self.loaded.numeric_fingerprint, **edit, **self._record}
        return cache_key(self.measure.kind, spec)

    @cached_property
    def _record(self) -> Json:
        passes = pass_record(self.loaded, self.measure)
        return {**self.measure.record(self.loaded), **passes, **source_record(type(self.measure))}

    @cached_property
    def measure_key(self) -> str:
        """Equal for cells of one measure, whatever their edits."""
        return f"{self.measure.kind} {canonical(self._record)}"

    @cached_property
    def base(self) -> Cell[Any] | None:
        """The cell that this one is derived from, None for one that needs the model."""
        return Cell(self.loaded, self.edit, self.measure.base) if isinstance(self.measure, Derived) else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)
