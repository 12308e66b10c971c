"""The grid over lambda and k: perplexity of every mask, then replies and verdicts for those under the cap."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.data.corpora import Pair
from engine.edits.contrasts import Contrast, refusal_masks
from engine.edits.edit import UNEDITED, Edit
from engine.edits.masks import removed_count
from engine.measures.nll import perplexity
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.studies.base import Expected, Study, Tables
from engine.studies.refusal.operating_point import (
    RESCUE_CAPS,
    RESCUE_FACTOR,
    OperatingPoint,
    operating_point,
    operating_points,
)
from engine.studies.refusal.refusal_inputs import Rates, RefusalInputs, sides

_Standing = tuple[float, float, tuple[float, ...]]  # tier, minus the malign rate, ties: the least is chosen


class Span(NamedTuple):
    """Least and greatest rate of refusal: none or all of the replies that were cut off refuse."""

    low: float
    high: float

    @property
    def open(self) -> bool:
        return self.low < self.high


def span(refused: Sequence[bool], finished: Sequence[bool]) -> Span:
    """Of replies to a list of prompts. A verdict on a reply that was cut off may turn either way."""
    ended = finished or [True] * len(refused)
    sure = sum(one and end for one, end in zip(refused, ended, strict=True))
    return Span(sure / len(refused), (sure + list(ended).count(False)) / len(refused))


@dataclass(frozen=True)
class Candidate:
    """A cell of the grid under the perplexity cap. ties: what decides between equal rates, the least first."""

    malign: Span
    benign: Span
    ties: tuple[float, ...]


class Again(NamedTuple):
    """What is measured again: cells by their place in the list, and the unedited model."""

    cells: frozenset[int]
    unedited: bool


def borderline(before: Span, cells: Sequence[Candidate], benign_limit: float) -> Again:
    """The cells of one selector and domain whose cut-off replies leave a decision open, and the unedited model with
    them where its own replies were cut off. before: its malign refusal.

    A cell is borderline if it has replies that were cut off and, counting each of them as a refusal or as none,

    - the cell is feasible (benign <= limit and malign >= before) one way and not the other, or
    - it could be the operating point, while that is not certain to be this cell under one and the same cap: at its best
      (malign highest, benign lowest, before lowest) it stands before the best of what all cells reach at their worst.

    Where nothing is borderline, no reading of the cut-off replies changes which cells are feasible, which one is the
    operating point, or whether it is a rescue (`operating_point` has the rules)."""
    best = [_standing(one.malign.high, one.benign.low, before.low, one.ties, benign_limit) for one in cells]
    worst = [_standing(one.malign.low, one.benign.high, before.high, one.ties, benign_limit) for one in cells]
    bound = min(worst, default=(inf, 0.0, ()))
    may_be_chosen = {place for place, one in enumerate(best) if one[0] < inf and one <= bound}
    certain = len(may_be_chosen) == 1 and bound[0] < inf
    unclear = set()
    for place, (up, down) in enumerate(zip(best, worst, strict=True)):
        chosen = place in may_be_chosen and up != down and (not certain or up[0] != down[0])
        if chosen or (up[0] == 0) != (down[0] == 0):
            unclear.add(place)
    own = frozenset(place for place in unclear if cells[place].malign.open or cells[place].benign.open)
    return Again(own, bool(unclear) and before.open)


def _standing(malign: float, benign: float, before: float, ties: tuple[float, ...], benign_limit: float) -> _Standing:
    """How a cell stands for `operating_point`. tier: 0 within the limit, i under the i-th rescue cap, else infinite."""
    tier = inf
    if malign >= before and benign <= benign_limit:
        tier = 0
    elif malign >= before and malign > RESCUE_FACTOR * before:
        tier = next((place for place, cap in enumerate(RESCUE_CAPS, start=1) if benign <= cap), inf)
    return tier, -malign, ties


@dataclass(frozen=True)
class Member:
    """One edit of the part. generated: are there replies? ties: how it stands among cells of equal rates; None for what
    is never chosen: the unedited model, and masks above the perplexity cap."""

    edit: Edit
    generated: bool
    ties: tuple[float, ...] | None


@dataclass(frozen=True)
class MeasuredAgain:
    """members: the unedited model first. Rounds: what is borderline is measured again, until nothing more is."""

    run: RefusalInputs
    pairs: Sequence[Pair]
    members: Sequence[Member]

    def cells(self, known: Results) -> Iterator[Cell[Any]]:
        """The cells that are measured again, so far as that can be told from what is known."""
        longer = self.run.longer(self.pairs)
        for place in self._again(known):
            assert longer is not None
            yield longer.on_pairs(self.members[place].edit, self.pairs)

    def rates(self, results: Results) -> list[tuple[Rates, int] | None]:
        """Of every member the rates that count, and the longest reply that they were measured with; None without
        replies."""
        again = self._again(results)
        return [
            self._rates(results, place, place in again) if one.generated else None
            for place, one in enumerate(self.members)
        ]

    def _rates(self, known: Results, place: int, again: bool) -> tuple[Rates, int]:
        run = self.run.longer(self.pairs) if again else self.run
        assert run is not None
        return run.rates(known, self.members[place].edit, self.pairs), run.plan.reply_tokens

    def _again(self, known: Results) -> set[int]:
        """Places of the members that are measured again."""
        again: set[int] = set()
        longer = self.run.longer(self.pairs)
        while longer is not None:
            wanted = [place for place, one in enumerate(self.members) if one.generated]
            cells = [
                (longer if place in again else self.run).on_pairs(self.members[place].edit, self.pairs)
                for place in wanted
            ]
            if not all(cell in known for cell in cells):
                break  # the next round comes once these are there
            more = self._borderline(known, again) - again
            if not more:
                break
            again |= more
        return again

    def _borderline(self, known: Results, again: set[int]) -> set[int]:
        spans: dict[int, tuple[Span, Span]] = {}  # malign, benign
        for place, one in enumerate(self.members):
            if one.generated and (one.ties is not None or not place):
                rates, _ = self._rates(known, place, place in again)
                malign, benign = (span(side.refused, side.finished) for side in (rates.malign, rates.benign))
                spans[place] = malign, benign
        places = [place for place in spans if place]
        candidates = [Candidate(*spans[place], self.members[place].ties or ()) for place in places]
        told = borderline(spans[0][0], candidates, self.run.plan.benign_limit)
        return {places[number] for number in told.cells} | ({0} if told.unedited else set())


SMALLEST_LAMBDA, LARGEST_LAMBDA, SMALLEST_K, LARGEST_K = (
    "smallest lambda", "largest lambda", "smallest k", "largest k",
)  # fmt: skip


@dataclass(frozen=True)
class Axes:
    """The lambdas and ks of one contrast's grid. n_rows: of the model, which says how fine k can be."""

    lambdas: tuple[float, ...]
    ks: tuple[float, ...]
    n_rows: int

    def edges(self, lam: float, k: float) -> tuple[str, ...]:
        """The sides at which this cell lies and beyond which the grid could go on. An axis of one value has none."""
        at = {
            SMALLEST_LAMBDA: lam == min(self.lambdas),
            LARGEST_LAMBDA: lam == max(self.lambdas),
            SMALLEST_K: k == min(self.ks),
            LARGEST_K: k == max(self.ks),
        }
        return tuple(side for side, there in at.items() if there and self._beyond(side) is not None)

    def widened(self, sides: tuple[str, ...]) -> Axes:
        """One step further at each of these sides."""
        widened = self
        for side in sides:
            value = self._beyond(side)
            if value is not None and side in (SMALLEST_LAMBDA, LARGEST_LAMBDA):
                widened = replace(widened, lambdas=tuple(sorted((*widened.lambdas, value))))
            elif value is not None:
                widened = replace(widened, ks=tuple(sorted((*widened.ks, value))))
        return widened

    def _beyond(self, side: str) -> float | None:
        """The next value: lambda by the last step, cut to [0, 1]; k by the last ratio, below 1 and never without a row.
        None where there is none, or where k would give the same number of rows."""
        values = sorted(set(self.lambdas if side in (SMALLEST_LAMBDA, LARGEST_LAMBDA) else self.ks))
        if len(values) < 2:
            return None
        last, before = values[:2] if side in (SMALLEST_LAMBDA, SMALLEST_K) else values[:-3:-1]
        if side in (SMALLEST_LAMBDA, LARGEST_LAMBDA):
            value = round(min(1.0, max(0.0, 2 * last - before)), 10)
            return value if value != last else None
        value = float(f"{last * last / before:.6g}")
        if not 0 < value < 1 or removed_count(value, self.n_rows) in (0, removed_count(last, self.n_rows)):
            return None
        return value


UNFINISHED = ("malign_unfinished", "benign_unfinished")  # columns of cut-off replies
USED = "reply_tokens_used"  # column of the limit under which a cell was measured, where any was measured again
Points = Mapping[tuple[str, str], OperatingPoint | None]  # (selector, domain) ->
Move = Callable[[Edit], Edit]
# Standard errors by which the unedited model must refuse base prompts more often than risk prompts.
_SWAPPED_ERRORS = 3.0


@dataclass(frozen=True)
class Place:
    selector: str
    domain: str
    lam: float
    k: float
    edit: Edit


def grid(run: RefusalInputs, contrast: Contrast, lambdas: Sequence[float], ks: Sequence[float]) -> Iterator[Place]:
    """All places of one contrast, k by k; ranked once per lambda. `random` has lambda 0 only: nothing protects it."""
    strengths = (0.0,) if contrast.selector == "random" else tuple(lambdas)
    masks = {lam: refusal_masks(contrast, lam, ks) for lam in strengths}
    for index, k in enumerate(ks):
        for lam in strengths:
            yield Place(contrast.selector, contrast.domain, lam, k, run.edit(masks[lam][index]))


class OverGrids(Study[RefusalInputs]):
    """A study whose largest part is a grid, or several."""

    @classmethod
    def grid_count(cls, run: RefusalInputs) -> int:
        return 1

    @classmethod
    def expected(cls, run: RefusalInputs, known: Results) -> Expected:
        """Replies to the calibration prompts of all domains under every edit of the grids. Not all are asked for; what
        results decide comes on top."""
        prompts = tuple(prompt for pairs in run.calibration.values() for prompt in sides(pairs))
        edits = cls.grid_count(run) * len(run.plan.lambdas) * len(run.plan.ks) * len(run.plan.selectors)
        return Expected((), [(run.replies(UNEDITED, prompts).measure, edits)], more=True)


class Grid(Study[RefusalInputs]):
    """`refusal_sweep` (or another stem): malign and benign refusal and NLL of every cell of the plan's grid.

    pairs: by domain, those that the rates are measured on. The cheap test comes first: the NLL of all masks,
    then replies for those under the perplexity cap; a cell above it has null rates unless the plan wants all.
    feasible: benign <= the limit, perplexity <= the cap, and malign not below the unedited model's, since an
    edit that lowers refusal installs none. Each part has one row of the unedited model, k = 0. Where an operating point
    lies at the edge of its grid, that grid goes on beyond it (`widening`), round by round as the plan says; the rule
    of selection stays the same. Cells whose cut-off replies leave a decision open (`borderline`) are measured again
    with longer replies, and that result is used; `reply_tokens_used` tells which.
    The paper, section 5.1 and appendix E. `InputError` where the unedited model refuses base prompts clearly
    more often than risk prompts: swapped sides."""

    def __init__(
        self,
        run: RefusalInputs,
        contrasts: Sequence[Contrast],
        pairs: Mapping[str, Sequence[Pair]],
        *,
        ks: Sequence[float] | None = None,
        stem: str = "refusal_sweep",
    ) -> None:
        self.pairs, self.stem = pairs, stem
        self.domains = tuple(dict.fromkeys(contrast.domain for contrast in contrasts))
        self._parts = [_Part(run, one, pairs[one.domain], tuple(ks or run.plan.ks)) for one in contrasts]
        self.places = [place for part in self._parts for place in part.places(run, part.axes)]

    def moved(self, run: RefusalInputs, move: Move) -> Grid:
        """This grid with another edit in every place: searched by the same code on the same pairs."""
        other = copy.copy(self)
        other._parts = [part.moved(move) for part in self._parts]
        other.places = [place for part in other._parts for place in part.places(run, part.axes)]
        return other

    def edit_at(self, point: OperatingPoint) -> Edit:
        """The edit of an operating point of this grid."""
        [part] = [one for one in self._parts if one.place == (point.selector, point.domain)]
        return part.edit_at(point)

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        first: list[Cell[Any]] = [run.nll(UNEDITED), *(run.nll(place.edit) for place in self.places)]
        before = [run.on_pairs(UNEDITED, self.pairs[domain]) for domain in self.domains]
        yield from (*first, *before)
        if all(cell in known for cell in (*first, *before)):
            for domain in self.domains:
                _refuse_swapped(domain, run.rates(known, UNEDITED, self.pairs[domain]))
            for part in self._parts:
                yield from part.wanted(run, known, part.widened(run, known))

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        lines = [line for part in self._parts for line in part.lines(run, results, part.widened(run, results))]
        return {self.stem: _table(self.stem, lines, run)}

    def points(self, run: RefusalInputs, known: Results) -> Points | None:
        """The operating points, once all cells are known."""
        if not all(cell in known for cell in self.cells(run, known)):
            return None
        return operating_points(self.tables(run, known)[self.stem], **_limits(run, known))

    def final_points(self, run: RefusalInputs, results: Results) -> Points:
        """The operating points of a grid whose cells are all known."""
        points = self.points(run, results)
        assert points is not None
        return points

    def edges(self, run: RefusalInputs, results: Results, points: Points) -> dict[tuple[str, str], str]:
        """(selector, domain) -> at which edges of its grid the point still lies, `none` inside; all cells are known."""
        at_edges = {}
        for part in self._parts:
            point = points.get(part.place)
            if point is not None:
                axes = part.widened(run, results)
                at_edges[part.place] = ", ".join(axes.edges(point.lam, point.k)) or "none"
        return at_edges


class _Part:
    """The grid of one contrast, which grows where its operating point lies at the edge."""

    def __init__(self, run: RefusalInputs, contrast: Contrast, pairs: Sequence[Pair], ks: tuple[float, ...]) -> None:
        self.contrast, self.pairs = contrast, pairs
        self.move: Move = lambda edit: edit
        self.place = (contrast.selector, contrast.domain)
        lambdas = (0.0,) if contrast.selector == "random" else run.plan.lambdas
        self.axes = Axes(lambdas, ks, contrast.c_comply.size)
        self._made: dict[Axes, list[Place]] = {}

    def moved(self, move: Move) -> _Part:
        """This part with another edit in every place, also where it grows."""
        other = copy.copy(self)
        other.move, other._made = move, {}
        return other

    def places(self, run: RefusalInputs, axes: Axes) -> list[Place]:
        if axes not in self._made:
            found = grid(run, self.contrast, axes.lambdas, axes.ks)
            self._made[axes] = [replace(place, edit=self.move(place.edit)) for place in found]
        return self._made[axes]

    def edit_at(self, point: OperatingPoint) -> Edit:
        """The edit of an operating point of a grid that was made."""
        made = (place for places in self._made.values() for place in places)
        return next(place.edit for place in made if (place.lam, place.k) == (point.lam, point.k))

    def wanted(self, run: RefusalInputs, known: Results, axes: Axes) -> Iterator[Cell[Any]]:
        """The NLL of all masks, once it is known the replies under those that are generated, and then longer ones."""
        for place in self.places(run, axes):
            nll = run.nll(place.edit)
            yield nll
            if nll in known and self._generated(run, known, place):
                yield run.on_pairs(place.edit, self.pairs)
        if all(run.nll(place.edit) in known for place in self.places(run, axes)):
            yield from self._members(run, known, axes).cells(known)

    def widened(self, run: RefusalInputs, known: Results) -> Axes:
        """The plan's grid, or as far beyond as the operating points of grids that are known led, at most `widen` steps.
        The unedited model's cells are known. The first grid's results never change: it is a part of every later one."""
        axes = self.axes
        for _ in range(run.plan.widen):
            if not all(cell in known for cell in self.wanted(run, known, axes)):
                break
            cells = _table("refusal_sweep", list(self.lines(run, known, axes)), run)
            point = operating_point(cells, **_limits(run, known))
            sides = axes.edges(point.lam, point.k) if point else ()
            if not sides:
                break
            axes = axes.widened(sides)
        return axes

    def lines(self, run: RefusalInputs, results: Results, axes: Axes) -> Iterator[tuple[object, ...]]:
        """Rows of `refusal_sweep`, the unedited model's first; the last column is the longest reply they are of."""
        places = [Place(*self.place, 0.0, 0.0, UNEDITED), *self.places(run, axes)]
        measured = self._members(run, results, axes).rates(results)
        assert measured[0] is not None
        for place, one in zip(places, measured, strict=True):
            rates, tokens = one or (None, None)
            yield *_line(run, results, place, rates, measured[0][0]), tokens

    def _members(self, run: RefusalInputs, known: Results, axes: Axes) -> MeasuredAgain:
        """The unedited model and the masks of a grid, whose NLL is known."""
        members, cap = [Member(UNEDITED, True, None)], run.max_nll(known)
        for place in self.places(run, axes):
            nll = known[run.nll(place.edit)].nats_per_token
            ties = (place.edit.size, nll, place.lam) if nll <= cap else None
            members.append(Member(place.edit, self._generated(run, known, place), ties))
        return MeasuredAgain(run, self.pairs, members)

    def _generated(self, run: RefusalInputs, known: Results, place: Place) -> bool:
        return run.plan.all_cells or known[run.nll(place.edit)].nats_per_token <= run.max_nll(known)


def _table(stem: str, lines: Sequence[tuple[object, ...]], run: RefusalInputs) -> pl.DataFrame:
    """The lines of parts; how long the replies are is said where any cell was measured again."""
    again = any(isinstance(line[-1], int) and line[-1] > run.plan.reply_tokens for line in lines)
    if again:
        return frame(stem, lines, optional=(*UNFINISHED, USED))
    return frame(stem, [line[:-1] for line in lines], optional=UNFINISHED)


def _limits(run: RefusalInputs, known: Results) -> dict[str, float]:
    return {"benign_limit": run.plan.benign_limit, "max_perplexity": perplexity(run.max_nll(known))}


def _line(run: RefusalInputs, results: Results, place: Place, rates: Rates | None, before: Rates) -> tuple[object, ...]:
    nll = results[run.nll(place.edit)].nats_per_token
    where = (run.loaded.id, place.selector, place.domain, place.lam, place.k, place.edit.size)
    if rates is None:
        numbers = (None, before.malign.n, None, before.benign.n, nll, perplexity(nll))
        return (*where, *numbers, False, None, None)
    feasible = run.feasible(results, nll, rates, before)
    measured = (rates.malign.mean, rates.malign.n, rates.benign.mean, rates.benign.n)
    unfinished = (rates.malign.unfinished, rates.benign.unfinished)
    return (*where, *measured, nll, perplexity(nll), feasible, *unfinished)


def _refuse_swapped(domain: str, unedited: Rates) -> None:
    malign, benign = unedited.malign.mean, unedited.benign.mean
    error = np.sqrt((malign * (1 - malign) + benign * (1 - benign)) / unedited.malign.n)
    if benign - malign > _SWAPPED_ERRORS * error:
        raise InputError(
            f"{domain}: the unedited model refuses {benign:.0%} of the base prompts and {malign:.0%} of the risk "
            "prompts, as if they were swapped; this software only installs refusal: check which is risk"
        )
