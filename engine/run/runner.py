"""Cells (one model, one edit, one measure; each owns its cache key), and runners: take cells, answer from the store
what is known, compute the rest, keep each result at once; the runner of a shard has its share measured, no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from engine.data.corpora import Windows
from engine.edits.edit import AnyEdit, edit_of
from engine.interventions.earlier_blocks import first_edited_block, outputs_kept
from engine.interventions.kinds import intervention_record
from engine.measures.base import Derived, TokenMeasure
from engine.measures.nll import NegativeLogLikelihood, Nll
from engine.models.loading import LoadedModel
from engine.records.hashing import Json, cache_key, canonical, source_record
from engine.records.progress import CELLS, Progress
from engine.records.registry import plug_in_code
from engine.results.store import Store
from engine.run.edited_passes import edits_together, measured, pass_record
from engine.run.share import Measured, Shard

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
        return cache_key(self.measure.kind, {"model": self.loaded.numeric_fingerprint, **edit, **self._record})

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


class Pace:
    """Seconds per unit of work, by kind of measure. A measure's `size` is its work: prompts to answer, windows to read.
    What an edited model writes may be longer or shorter than what was timed, so that sums are estimates."""

    def __init__(self) -> None:
        self._timed: dict[str, tuple[float, float]] = {}  # kind -> (seconds, work)

    def __contains__(self, measure: Any) -> bool:
        return measure.kind in self._timed

    def add(self, measure: Any, edits: int, elapsed_s: float) -> None:
        """A measure was taken under so many edits."""
        seconds, work = self._timed.get(measure.kind, (0.0, 0.0))
        self._timed[measure.kind] = seconds + elapsed_s, work + edits * measure.size

    def seconds(self, measures: Iterable[Any]) -> float | None:
        """For taking each of them under one edit; None where a kind among them was never timed."""
        total = 0.0
        for measure in measures:
            if measure not in self:
                return None
            seconds, work = self._timed[measure.kind]
            total += seconds / work * measure.size
        return total


def told(seconds: float) -> str:
    """`about 40 s`, `about 12 min`, `about 3.5 h`."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    return f"about {seconds / 60:.0f} min" if seconds < 90 * 60 else f"about {seconds / 3600:.1f} h"


Group = tuple[Cell[Any], ...]  # computed in one pass


class Results:
    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def __getitem__(self, cell: Cell[R]) -> R:
        return self._found[cell.key]

    def __contains__(self, cell: Cell[Any]) -> bool:
        return cell.key in self._found

    def keep(self, cell: Cell[R], result: R) -> None:
        self._found[cell.key] = result

    def of(self, kind: type[R]) -> list[R]:
        """Every result of this type, once."""
        return [result for result in self._found.values() if isinstance(result, kind)]


@dataclass(frozen=True)
class Count:
    """How many cells of a command are there already, how many are to be computed, and in how long at the pace so far.
    seconds: None where nothing of their kind was timed yet."""

    known: int
    to_compute: int
    seconds: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        total = self.known + self.to_compute
        time_left = f", {told(self.seconds)} at the pace so far" if self.seconds and self.to_compute else ""
        return f"{total:,} cells: {self.known:,} known, {self.to_compute:,} to compute{time_left}"


class LocalRunner:
    """One edit after another in the weights, or several as rows of one batch, as each measure's own rule says.
    announce: called with the count of what is known and what is to compute. An interrupt costs the cells under way."""

    whole = True

    def __init__(
        self, store: Store, progress: Progress | None = None, announce: Callable[[Count], None] | None = None
    ) -> None:
        self.results = Results()
        self.pace = Pace()
        self._store = store
        self._progress = progress
        self._announce = announce
        self._expected: set[str] = set()
        self._done: set[str] = set()
        self._at_most = 0

    @property
    def shared(self) -> LocalRunner:
        return self

    def expect(self, cells: Iterable[Cell[Any]]) -> Count:
        """Cells that the command will want: the bar is over all of them, and known ones count as done."""
        new = [cell for cell in dict.fromkeys(cells) if cell.key not in self._expected]
        count = self.count(new)
        self._expected.update(cell.key for cell in new)
        self._done.update(cell.key for cell in new if cell in self.results)
        if new:
            if self._announce is not None:
                self._announce(count)
            self._report()
        return count

    def count(self, cells: Iterable[Cell[Any]]) -> Count:
        """Known and to be computed among cells that need not all be wanted in the end."""
        cells = list(dict.fromkeys(cells))
        missing = [cell for cell in cells if not self._known(cell)]
        bases = dict.fromkeys(cell.base or cell for cell in missing)
        seconds = self.pace.seconds(cell.measure for cell in bases if not self._known(cell))
        return Count(len(cells) - len(missing), len(missing), seconds)

    def bar_over(self, at_most: int) -> None:
        """The bar is over so many cells, where they can be told before they are known; 0: over those that came up."""
        self._at_most = at_most
        self._report()

    def probe(self, cells: Iterable[Cell[Any]]) -> None:
        """Computes these cells, so that `pace` knows their kinds; where the store knows them all, one of each kind is
        measured again and the answer dropped."""
        cells = list(cells)
        self.run(cells)
        for cell in (cell.base or cell for cell in cells):
            if cell.measure not in self.pace:
                self.pace.add(cell.measure, 1, measured_now((cell,))[1])

    def run(self, cells: Iterable[Cell[Any]]) -> Results:
        """`results`, with these cells among them."""
        cells = list(dict.fromkeys(cells))
        self.expect(cells)
        missing = [cell for cell in cells if cell not in self.results]
        bases = {cell: cell.base for cell in missing if cell.base is not None}
        wanted = [bases.get(cell, cell) for cell in missing]
        self._compute_all(_groups([cell for cell in dict.fromkeys(wanted) if not self._known(cell)]), bases)
        for cell, base in bases.items():
            if cell not in self.results:  # not derived on the way: its base was known
                self._derive(cell, base)
        if bases:
            self._report()
        return self.results

    def _compute_all(self, groups: Iterable[Group], bases: dict[Cell[Any], Cell[Any]]) -> None:
        with outputs_kept():
            for group in groups:
                found, seconds = measured_now(group)
                self.pace.add(group[0].measure, len(group), seconds)
                self._keep_group(group, found, bases)

    def _keep_group(self, group: Group, found: list[Any], bases: dict[Cell[Any], Cell[Any]]) -> None:
        """Keeps the results of a group, and what is derived of them. The bar moves once: whoever shows it looks no more
        often than every half second, and would say the group's first cell until the next group."""
        for cell, result in zip(group, found, strict=True):
            self._keep(cell, result)
        for cell, base in bases.items():
            if base in group:
                self._derive(cell, base)
        self._report()

    def _derive(self, cell: Cell[Any], base: Cell[Any]) -> None:
        self._keep(cell, cell.measure.derive(self.results[base]))

    def _keep(self, cell: Cell[R], result: R) -> None:
        self._store.put(cell.key, cell.measure.encode(result))
        self.results.keep(cell, result)
        if cell.key in self._expected:
            self._done.add(cell.key)

    def _known(self, cell: Cell[Any]) -> bool:
        """Is the result here or in the store? What another version stored in another form is not."""
        if cell not in self.results:
            stored = self._store.get(cell.key)
            if stored is None:
                return False
            try:
                self.results.keep(cell, cell.measure.decode(stored))
            except (LookupError, TypeError, ValueError, AttributeError):
                return False
        return True

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(CELLS, len(self._done), max(len(self._expected), self._at_most))


def measured_now(group: Group) -> tuple[list[Any], float]:
    """The results of cells that are measured in one pass, and how many seconds that took."""
    first = group[0]
    with plug_in_code("measure", first.measure.kind):
        start = time.monotonic()
        results = measured(first.loaded, first.measure, [cell.edit for cell in group])
        return results, time.monotonic() - start


def _groups(cells: Iterable[Cell[Any]]) -> Iterator[Group]:
    """Cells that are computed in one go: of one model and measure, as many as the measure takes together."""
    for _, members in groupby(cells, key=lambda cell: (id(cell.loaded), cell.measure_key)):
        yield from cut(_in_turn(tuple(members)))


def _in_turn(alike: Group) -> Group:
    """Cells of one model and measure in the order in which they are computed: edits that begin at one block together,
    where that spares the blocks before it (`engine.interventions.earlier_blocks`)."""
    if not isinstance(alike[0].measure, TokenMeasure):
        return alike
    return tuple(sorted(alike, key=lambda cell: first_edited_block(cell.loaded, [cell.edit])))


def cut(alike: Group) -> Iterator[Group]:
    """Cells of one model and measure by as many as are computed in one pass."""
    together = edits_together(alike[0].loaded, alike[0].measure)
    for start in range(0, len(alike), together):
        yield alike[start : start + together]


def masked_nll(
    loaded: LoadedModel, mask: npt.ArrayLike, windows: Windows, *, store: Store, batch_size: int | None = None
) -> NegativeLogLikelihood:
    """NLL with the rows of `mask` removed, from the store where it is known: one cell."""
    cell = Cell[NegativeLogLikelihood](loaded, edit_of(mask, loaded.rows.n_rows), Nll(windows, batch_size))
    return LocalRunner(store).run([cell])[cell]


class ShardRunner:
    """Deals the cells of a command to all shards in turn; the share of this one goes to `shared`.

    As they come up, the cells of each measure are cut into groups that are measured in one pass; these, measure by
    measure and in the order of their first key, go to shard 1, 2, …, n, 1, … So no shard has more than one group above
    another, of a measure or of all. What is derived from another cell (a verdict on replies) goes with it.

    All shards deal the same list where they know the same. Where they do not (one was begun with an older store), two
    may measure a cell, or none: the run without a shard then measures it."""

    whole = False

    def __init__(self, shared: LocalRunner, shard: Shard) -> None:
        self.shared = shared
        self.shard = shard
        self._mine: dict[str, bool] = {}  # key of every cell that came up: is it of this share?
        self._dealt: dict[str, bool] = {}  # the same of what was dealt: of derived cells what they are made of
        self._turn = 0  # groups dealt so far
        self._known = 0
        self._left: set[str] = set()

    @property
    def results(self) -> Results:
        return self.shared.results

    def expect(self, cells: Iterable[Cell[Any]]) -> Count:
        """Deals those that did not come up before; the count is of this share."""
        cells = list(dict.fromkeys(cells))
        new = [cell for cell in cells if cell.key not in self._mine]
        self._deal(new)
        self.shared.count(new)  # takes from the store what it knows of the other shares too
        self._known += sum(self._mine[cell.key] and cell in self.results for cell in new)
        return self.shared.expect(cell for cell in cells if self._mine[cell.key])

    def run(self, cells: Iterable[Cell[Any]]) -> Results:
        """Errors: Measured where other shards have cells that are not known here."""
        cells = list(dict.fromkeys(cells))
        self.expect(cells)
        self.shared.run(cell for cell in cells if self._mine[cell.key])
        left = {cell.key for cell in cells if cell not in self.results}
        self._left |= left
        if left:
            raise Measured
        return self.results

    def record(self) -> Json:
        """What was measured, for machines."""
        share = sum(self._mine.values())
        return {
            "shard": str(self.shard), "cells": len(self._mine), "share": share, "known_before": self._known,
            "measured": share - self._known, "left_to_other_shards": len(self._left),
        }  # fmt: skip

    def _deal(self, cells: list[Cell[Any]]) -> None:
        by_measure: dict[str, list[Cell[Any]]] = {}
        for cell in cells:
            of = cell.base or cell
            if of.key not in self._dealt:  # with what it is made of, or with what is made of it
                by_measure.setdefault(of.measure_key, []).append(of)
        for members in by_measure.values():
            groups = [
                group
                for _, some in groupby(dict.fromkeys(members), lambda one: id(one.loaded))
                for group in cut(tuple(some))
            ]
            for group in sorted(groups, key=lambda some: some[0].key):
                mine = self._turn % self.shard.total == self.shard.number - 1
                self._turn += 1
                self._dealt |= dict.fromkeys((one.key for one in group), mine)
        for cell in cells:
            self._mine[cell.key] = self._dealt[(cell.base or cell).key]


# What studies ask for results; these never depend on which it was. whole: False for one that measures a share of the
# cells only. Then no file is written, and whoever makes tables raises `Measured` in their place. shared: measures all
# that it is asked for; the runner itself where it is whole.
Runner = LocalRunner | ShardRunner
