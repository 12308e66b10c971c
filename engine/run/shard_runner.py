"""The runner of a shard: of all cells that a command wants it has its share measured, and ends before the tables."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from engine.records.hashing import Json
from engine.run.cell import Cell
from engine.run.runner import Count, LocalRunner, Results, cut
from engine.run.share import Measured, Shard


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
