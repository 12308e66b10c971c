"""Is it the rows, or only their depths? Every selector against random rows of its own layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from engine.edits.controls import layer_matched
from engine.edits.ranked_edits import Ranking, rankings
from engine.measures.nll import NegativeLogLikelihood
from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.selectors import compute_scores
from engine.stats.blocks import block_difference
from engine.stats.holm import holm
from engine.stats.layer_matched import Against, against_controls
from engine.stats.limits import BASELINE
from engine.stats.paired import paired_difference
from engine.stats.removal_order import ORDERS
from engine.stats.table_estimates import with_documents
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study
from engine.studies.estimate_words import better_or_worse

_Nll = Cell[NegativeLogLikelihood]


class _Place(NamedTuple):
    """One selector's masks at one rate, in one order."""

    selector: str
    order: str
    rate: float
    own: tuple[tuple[Ranking, _Nll], ...]  # one per ranking
    controls: tuple[tuple[_Nll, ...], ...]  # per ranking one per seed


@register_study(
    "specific",
    of=AUDIT,
    tables=("layer_matched", "specific"),
    title="Is it the rows that a selector picks, or only their depths?",
)
class Specific(Study[AuditInputs]):
    """`layer_matched`, one line per control, and `specific`, one per selector, order and rate.

    A control removes as many rows of every layer (Linear) as the selector's mask, at random: it has the selector's
    depths and knows nothing about rows (the paper, sections 3.2 and 5.3). Every selector of the plan but random, which
    has no depths of its own; the plan's control rates, both orders, `matched_seeds` controls for every ranking. Random
    masks are those of `baseline_seeds`. Numbers and intervals: `engine.stats.layer_matched`; p values are adjusted by
    Holm over the selectors of an order and rate.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for place in _places(audit):
            for (_, cell), controls in zip(place.own, place.controls, strict=True):
                yield cell
                yield from controls
        for rate, order in product(audit.plan.control_rates, ORDERS):
            yield from _random(audit, order, rate)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        seeds, model = audit.plan.matched_seeds, audit.loaded.id
        masks: list[tuple[object, ...]] = []
        found: list[tuple[_Place, Against]] = []
        for place in _places(audit):
            for (ranking, cell), controls in zip(place.own, place.controls, strict=True):
                for seed, control in zip(seeds, controls, strict=True):
                    own, matched = results[cell], results[control]
                    difference = paired_difference(own, matched)[0]
                    where = (model, place.selector, ranking.seed, place.order, place.rate, seed, cell.edit.size)
                    masks.append((*where, matched.nats_per_token, difference, *block_difference(own, matched)))
            against = against_controls(
                [results[cell] for _, cell in place.own],
                [[results[cell] for cell in controls] for controls in place.controls],
                [results[cell] for cell in _random(audit, place.order, place.rate)],
                place.order,
            )
            found.append((place, against))
        tables = {"layer_matched": frame("layer_matched", masks), "specific": frame("specific", _lines(audit, found))}
        return {stem: with_documents(table, audit.evaluation.blocks) for stem, table in tables.items()}


def _places(audit: AuditInputs) -> list[_Place]:
    """The plan's selectors that are no random rankings, at every control rate and in both orders."""
    key = ("specific", audit.plan)
    if key not in audit.made:
        selectors = [name for name in audit.plan.scoring.selectors if name != BASELINE]
        places = product(audit.plan.control_rates, ORDERS, selectors)
        audit.made[key] = [_place(audit, selector, order, rate) for rate, order, selector in places]
    made: list[_Place] = audit.made[key]
    return made


def _place(audit: AuditInputs, selector: str, order: str, rate: float) -> _Place:
    ranked = [one for one in audit.rankings if one.selector == selector]
    edits = [one.edit(order, rate) for one in ranked]
    seeds, rows = audit.plan.matched_seeds, audit.loaded.rows
    controls = [tuple(audit.nll(audit.edit(layer_matched(one.units, rows, seed))) for seed in seeds) for one in edits]
    own = zip(ranked, map(audit.nll, edits), strict=True)
    return _Place(selector, order, rate, tuple(own), tuple(controls))


def _random(audit: AuditInputs, order: str, rate: float) -> list[_Nll]:
    key = ("baseline", audit.plan)
    if key not in audit.made:
        seeds = audit.plan.baseline_seeds
        scores = compute_scores(audit.loaded, [BASELINE], None, seeds=seeds)[BASELINE].numpy()
        audit.made[key] = list(rankings({BASELINE: scores}, seeds, audit.plan.intervention))
    return [audit.nll(one.edit(order, rate)) for one in audit.made[key]]


def _lines(audit: AuditInputs, found: list[tuple[_Place, Against]]) -> Iterator[tuple[object, ...]]:
    adjusted: dict[int, float] = {}
    for rate, order in product(audit.plan.control_rates, ORDERS):
        tested = {
            number: p
            for number, (place, against) in enumerate(found)
            if (place.rate, place.order) == (rate, order) and (p := against.difference.p_differs) is not None
        }
        adjusted |= dict(zip(tested, holm(list(tested.values())), strict=True))
    for number, (place, one) in enumerate(found):
        value, p_holm = one.difference, adjusted.get(number)
        degrees = None if value.stderr == 0 else value.degrees
        yield (
            audit.loaded.id, place.selector, place.order, place.rate, len(place.controls[0]),
            value.value, value.stderr, one.stderr_blocks, one.blocks, degrees, value.low, value.high,
            value.p_differs, p_holm, better_or_worse(value.value, p_holm, place.order),
            len(audit.plan.baseline_seeds), one.advantage.value, one.advantage.low, one.advantage.high,
            one.control_advantage, one.depth_share, *(one.share_interval or (None, None)),
        )  # fmt: skip
