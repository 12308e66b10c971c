"""Is it the rows that a selector picks? Consensus-2 beside its controls; every selector beside random rows of its own
layers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from engine.edits.control_edits import NEEDED, REFERENCE, SMALLER, ControlMask, control_masks, layer_matched
from engine.edits.edit import Ranking, rankings
from engine.measures.nll import NegativeLogLikelihood, perplexity
from engine.results.tables import frame
from engine.run.audit_plan import RandomMasksPlan, SpecificPlan
from engine.run.runner import Cell, Results
from engine.selectors import compute_scores
from engine.stats.blocks import block_difference, paired_difference, with_documents
from engine.stats.layer_matched import Against, against_controls, looks, sure_enough
from engine.stats.limits import BASELINE, both_above, largest_unsaturated
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study
from engine.studies.verdict.judged_selectors import Told, told

Measured = tuple[ControlMask, NegativeLogLikelihood]


@register_study(
    "controls", of=AUDIT, plan=RandomMasksPlan, tables=("controls", "control_differences"),
    title="What else could explain Consensus-2's result?",
)  # fmt: skip
class Controls(Study[AuditInputs]):
    """`controls`, one line per mask, and `control_differences`, every control against consensus2.

    Both removal orders at the plan's control rates. `size_matched_to` names the control whose number of rows a
    reference copies. A difference is the control's NLL minus consensus2's, paired over evaluation windows.
    `reference_rows`: rows that consensus2 removed: as many as the control, and for intersection and vetoes also as many
    as the rate says, as the paper compares them. z is null without a standard error; saturated where both are
    destroyed.

    Errors: InputError where the audit lacks the scores of lrp, ig, consensus2 or random."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        audit.require("the analysis of consensus controls", NEEDED)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        yield from (audit.nll(audit.edit(mask.rows)) for mask in _masks(audit))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        measured = [(one, results[audit.nll(audit.edit(one.rows))]) for one in _masks(audit)]
        return {
            "controls": controls_table(audit.loaded.id, measured),
            "control_differences": differences_table(audit.loaded.id, measured, audit.saturated_above(results)),
        }


def _masks(audit: AuditInputs) -> Iterator[ControlMask]:
    audit.require("the analysis of consensus controls", NEEDED)
    plan, rows = audit.plan, audit.loaded.rows
    for rate, order in product(plan.control_rates, ORDERS):
        yield from control_masks(audit.scores, rows, order, rate, seeds=plan.scoring.seeds, null_seeds=plan.null_seeds)


def controls_table(model: str, measured: Sequence[Measured]) -> pl.DataFrame:
    """One line per mask, in the order given."""
    lines = []
    for one, result in measured:
        nll = result.nats_per_token
        numbers = (one.rows.size, nll, perplexity(nll))
        lines.append((model, one.control, one.order, one.rate, one.seed, *numbers, one.size_matched_to))
    return frame("controls", lines)


def differences_table(model: str, measured: Sequence[Measured], limit: float) -> pl.DataFrame:
    """Every control but consensus2 against consensus2 with as many rows and, where that differs, the rate's rows.
    limit: NLL above which a model is destroyed."""
    consensus = {
        (one.order, one.rate, one.size_matched_to): (one, nll) for one, nll in measured if one.control == REFERENCE
    }
    lines = []
    for one, nll in measured:
        if one.control == REFERENCE or one.size_matched_to is not None:
            continue
        for reference, beside in _references(one, consensus):
            difference, stderr = paired_difference(nll, beside)
            z = difference / stderr if stderr else None
            sizes = (one.rows.size, REFERENCE, reference.rows.size)
            numbers = (difference, stderr, z, *block_difference(nll, beside), both_above(limit, nll, beside))
            lines.append((model, one.control, one.order, one.rate, one.seed, *sizes, *numbers))
    table = frame("control_differences", lines, optional=(*COLUMNS, "saturated"))
    return with_documents(table, measured[0][1].blocks if measured else None)


def _references(one: ControlMask, consensus: Mapping[tuple[str, float, str | None], Measured]) -> Iterator[Measured]:
    full = consensus[one.order, one.rate, None]
    if one.control in SMALLER:
        yield consensus[one.order, one.rate, one.control]
    if one.control not in SMALLER or one.rows.size != full[0].rows.size:
        yield full


_Nll = Cell[NegativeLogLikelihood]


class _Place(NamedTuple):
    """One selector's masks at one rate, in one order."""

    selector: str
    order: str
    rate: float
    own: tuple[tuple[Ranking, _Nll], ...]  # one per ranking
    seeds: tuple[int, ...]  # of the controls
    controls: tuple[tuple[_Nll, ...], ...]  # per ranking one per seed


@register_study(
    "specific", of=AUDIT, plan=SpecificPlan, tables=("layer_matched", "specific"),
    title="Is it the rows that a selector picks, or only their depths?",
)  # fmt: skip
class Specific(Study[AuditInputs]):
    """`layer_matched`, one line per control, and `specific`, one per selector and order.

    A control removes as many rows of every layer (Linear) as the selector's mask, at random (the paper, sections 3.2
    and 5.3). Every selector of the plan but random; both orders, `matched_seeds` controls for every ranking. Compared
    at the largest of `specific_rates` at which the mean NLL of these controls is not saturated
    (`engine.stats.limits`); where there is none, the answer is `saturated` and the line is of the smallest rate.
    The rate is searched by bisection with the first control of every ranking, then confirmed with all of them, at it
    and at the next. With `specific_until` the controls there are doubled until the difference is sure enough
    (`looks`), `specific_most` at most. Random masks are those of `baseline_seeds`. Numbers and intervals:
    `engine.stats.layer_matched`; p values are adjusted by Holm over the selectors of an order."""

    searches = True

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        for selector, order in _asked(audit):
            decision = _decided(audit, selector, order, known)
            yield from decision.missing
            if decision.place is not None:
                yield from (cell for _, cell in decision.place.own)
                yield from _random(audit, order, decision.place.rate)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        model = audit.loaded.id
        masks: list[tuple[object, ...]] = []
        judged: list[_Compared] = []
        for selector, order in _asked(audit):
            place, saturated, _ = _decided(audit, selector, order, results)
            assert place is not None
            for (ranking, cell), controls in zip(place.own, place.controls, strict=True):
                for seed, control in zip(place.seeds, controls, strict=True):
                    own, matched = results[cell], results[control]
                    difference = paired_difference(own, matched)[0]
                    where = (model, place.selector, ranking.seed, place.order, place.rate, seed, cell.edit.size)
                    masks.append((*where, matched.nats_per_token, difference, *block_difference(own, matched)))
            judged.append(_Compared(place, saturated, _against(audit, place, results), _mean_nll(_all(place), results)))
        lines = list(_lines(audit, judged, audit.saturated_above(results)))
        tables = {"layer_matched": frame("layer_matched", masks), "specific": frame("specific", lines, SATURATION)}
        return {stem: with_documents(table, audit.evaluation.blocks) for stem, table in tables.items()}


SATURATION = ("control_nll", "saturated_above", "detectable", "looks")


class _Compared(NamedTuple):
    place: _Place
    saturated: bool
    against: Against
    control_nll: float


class _Decision(NamedTuple):
    """place: where a selector is compared in an order, None while `missing` cells are needed to tell."""

    place: _Place | None
    saturated: bool = False
    missing: tuple[_Nll, ...] = ()


def specific_rates(audit: AuditInputs, known: Results) -> dict[tuple[str, str], float]:
    """Selector and order -> the rate at which they are compared, as far as it is known."""
    decisions = {asked: _decided(audit, *asked, known) for asked in _asked(audit)}
    return {asked: one.place.rate for asked, one in decisions.items() if one.place is not None}


def _asked(audit: AuditInputs) -> list[tuple[str, str]]:
    """The plan's selectors that are no random rankings, in both orders."""
    selectors = [name for name in audit.plan.scoring.selectors if name != BASELINE]
    return [(selector, order) for order in ORDERS for selector in selectors]


def _decided(audit: AuditInputs, selector: str, order: str, known: Results) -> _Decision:
    if audit.dense not in known:
        return _Decision(None, missing=(audit.dense,))
    limit, rates = audit.saturated_above(known), sorted(audit.plan.specific_rates)
    first, missing = len(audit.plan.matched_seeds), list[_Nll]()

    def saturated(place: int, *, probe: bool) -> bool | None:
        """Is the mean NLL of the controls (of the first ones) at a rate above the limit? None while it is not known."""
        at = _place(audit, selector, order, rates[place], first)
        cells = [controls[0] for controls in at.controls] if probe else _all(at)
        missing.extend(cell for cell in cells if cell not in known)
        return None if missing else not _mean_nll(cells, known) <= limit

    place = largest_unsaturated(len(rates), saturated)
    if place is None:
        return _Decision(None, missing=tuple(missing))
    decided = _place(audit, selector, order, rates[max(place, 0)], first)
    if audit.plan.specific_until is not None and place >= 0:
        tests = len(_asked(audit)) // len(ORDERS)
        for count in _looks(audit):
            decided = _place(audit, selector, order, decided.rate, count)
            cells = [*(cell for _, cell in decided.own), *_all(decided), *_random(audit, order, decided.rate)]
            if missing := [cell for cell in cells if cell not in known]:
                return _Decision(None, missing=tuple(missing))
            if sure_enough(_against(audit, decided, known).difference, audit.plan.specific_until, tests):
                break
    return _Decision(decided, place < 0)


def _looks(audit: AuditInputs) -> tuple[int, ...]:
    """The numbers of controls of a ranking at which a difference may be tested."""
    first = len(audit.plan.matched_seeds)
    return (first,) if audit.plan.specific_until is None else looks(first, audit.plan.specific_most)


def _against(audit: AuditInputs, place: _Place, results: Results) -> Against:
    own = [results[cell] for _, cell in place.own]
    controls = [[results[cell] for cell in some] for some in place.controls]
    random = [results[cell] for cell in _random(audit, place.order, place.rate)]
    return against_controls(own, controls, random, place.order, len(_looks(audit)))


def _all(place: _Place) -> list[_Nll]:
    return [cell for controls in place.controls for cell in controls]


def _mean_nll(cells: Iterable[_Nll], results: Results) -> float:
    return fmean(results[cell].nats_per_token for cell in cells)


def _place(audit: AuditInputs, selector: str, order: str, rate: float, count: int) -> _Place:
    """count: controls of every ranking, by the plan's seeds and, beyond these, the whole numbers that follow."""

    def make() -> _Place:
        ranked = [one for one in audit.rankings if one.selector == selector]
        edits = [one.edit(order, rate) for one in ranked]
        given, rows = audit.plan.matched_seeds, audit.loaded.rows
        seeds = (*given, *range(max(given) + 1, max(given) + 1 + count - len(given)))
        controls = [
            tuple(audit.nll(audit.edit(layer_matched(one.units, rows, seed))) for seed in seeds) for one in edits
        ]
        own = tuple(zip(ranked, map(audit.nll, edits), strict=True))
        return _Place(selector, order, rate, own, seeds, tuple(controls))

    return audit.once(f"specific {selector} {order} {rate} {count}", make)


def _random(audit: AuditInputs, order: str, rate: float) -> list[_Nll]:
    def make() -> list[Ranking]:
        seeds = audit.plan.baseline_seeds
        scores = compute_scores(audit.loaded, [BASELINE], None, seeds=seeds)[BASELINE].numpy()
        return list(rankings({BASELINE: scores}, seeds, audit.plan.intervention))

    return [audit.nll(one.edit(order, rate)) for one in audit.once("baseline", make)]


def _lines(audit: AuditInputs, found: list[_Compared], limit: float) -> Iterator[tuple[object, ...]]:
    answers: dict[int, Told] = {}
    for order in ORDERS:
        tested = {
            n: one.against.difference
            for n, one in enumerate(found)
            if (one.place.order, one.saturated) == (order, False)
        }
        answers |= told(tested, order)
    for number, (place, _, against, control_nll) in enumerate(found):
        value, answer = against.difference, answers.get(number, Told(None, "saturated", None))
        yield (
            audit.loaded.id, place.selector, place.order, place.rate, len(place.seeds),
            value.value, value.stderr, against.stderr_blocks, against.blocks,
            None if value.stderr == 0 else value.degrees, value.low, value.high,
            value.p_differs, answer.p_holm, answer.answer,
            len(audit.plan.baseline_seeds), against.advantage.value, against.advantage.low, against.advantage.high,
            against.control_advantage, against.depth_share, *(against.share_interval or (None, None)),
            control_nll, limit, answer.detectable, value.looks,
        )  # fmt: skip
