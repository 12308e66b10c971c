"""Does a verdict survive the choice of protocol? Interventions, units, metrics and orders, and what holds under all."""

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.edits.edit import UNEDITED, Ranking
from engine.interventions.kinds import INTERVENTIONS, seeded
from engine.measures.fidelity import Fidelity, WindowFidelity
from engine.measures.predictions import vocabulary_of
from engine.models.units import UNITS, Units, without
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.audit_plan import ProtocolsPlan
from engine.run.runner import Cell, Results
from engine.stats.blocks import with_documents
from engine.stats.limits import BASELINE, saturated_above
from engine.stats.protocol_harm import Area, Harm, area, compare, integrated, text_part
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Answer, Study, Tables, TextTable, register_study
from engine.studies.protocols.protocol_claims import claims, summary as protocols_summary

STEMS = ("protocols", "protocols_areas", "protocols_pairs", "protocols_claims", "protocols_units")


class _Way(NamedTuple):
    """How units are edited and chosen: a protocol without its metric."""

    intervention: str
    kind: str
    order: str
    rate: float


@register_study(
    "protocols", of=AUDIT, plan=ProtocolsPlan, tables=STEMS,
    title="Which claims hold whatever the protocol, and which one overturns?",
)  # fmt: skip
class Protocols(Study[AuditInputs]):
    """`protocols`, the matrix intervention x unit x metric x order x rate of every ranking; `protocols_areas`, one
    number per selector; `protocols_pairs` and `protocols_claims`, who is before whom, protocol by protocol and in
    words; `protocols_units`, what the model has.

    One edit gives all metrics from one pass (`Fidelity`) on the plan's first evaluation windows. A unit's score is the
    sum of its rows' scores (`engine.models.units`), ranked and cut as rows are: round(rate * units) of a kind. Kinds
    that the model does not have are left out, with the reason in `protocols_units`. Two selectors whose models are both
    destroyed under a protocol (`engine.stats.limits`) are not compared by it. Beyond the paper.

    Errors: InputError where there is no kind of unit left, or fewer than two selectors to put in order."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        _check_several(audit.plan.scoring.selectors)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        wanted = _wanted(audit)
        yield wanted.unedited
        yield from (cell for cells in wanted.cells.values() for draws in cells.values() for cell in draws)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        wanted, model, plan = _wanted(audit), audit.loaded.id, audit.plan.protocols
        optional = ("resample_sd",) if plan.resample_draws > 1 else ()
        lines: dict[str, list[tuple[object, ...]]] = {stem: [] for stem in STEMS}
        unedited = harm_of([[results[wanted.unedited]]], "nll").per_token
        limit = saturated_above(unedited, vocabulary_of(audit.loaded.model))
        destroyed = {
            way: {name for name, nll in _by_selector(cells, results, "nll").items() if not nll.per_token <= limit}
            for way, cells in wanted.cells.items()
        }
        for metric in plan.protocol_metrics:
            dense = harm_of([[results[wanted.unedited]]], metric)
            harms = {way: _by_selector(cells, results, metric) for way, cells in wanted.cells.items()}
            for way, found in harms.items():
                where = (model, way.intervention, way.kind, metric, way.order, way.rate)
                units = wanted.units[way.kind]
                for ranking, draws in wanted.cells[way].items():
                    harm = harm_of([[results[cell] for cell in draws]], metric)
                    count = draws[0].edit.size // units.ids.shape[1]
                    spread = _between([harm_of([[results[cell]]], metric).per_token for cell in draws])
                    values = (*_value(harm, metric), *spread[: len(optional)])
                    lines["protocols"].append((*where, ranking.selector, ranking.seed, count, *values))
                for pair in compare(found, way.order, destroyed=destroyed[way]):
                    both = (found[pair.a].per_token, found[pair.b].per_token)
                    sure = pair.sure  # with an error of 0, equal in every window, there is nothing to be unsure of
                    degrees = sure.degrees if sure.stderr else None
                    numbers = (sure.value, sure.stderr, degrees, sure.p_differs, pair.p, pair.first)
                    saturated = {pair.a, pair.b} <= destroyed[way]
                    lines["protocols_pairs"].append((*where, pair.a, pair.b, *both, *numbers, saturated))
            for intervention, kind, areas in _areas(harms, dense):
                for selector, one_area in areas.items():
                    lines["protocols_areas"].append((model, intervention, kind, metric, selector, *one_area))
        for kind, units in wanted.all_units.items():
            lines["protocols_units"].append((model, kind, units.count, without(audit.loaded, kind) or None))
        more = {"protocols": optional, "protocols_pairs": ("saturated",)}
        tables = {stem: frame(stem, some, optional=more.get(stem, ())) for stem, some in lines.items()}
        for stem in ("protocols", "protocols_pairs"):
            tables[stem] = with_documents(tables[stem], results[wanted.unedited].blocks)
        tables["protocols_claims"] = claims(tables["protocols_pairs"])
        return tables

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table = tables["protocols_claims"]
        rows = table.select("claim_verdict", "claim").rows()
        text = (TextTable("claims over all protocols", ("verdict", "claim"), rows), protocols_summary(table))
        return Answer(text, dict(tables))


class _Wanted(NamedTuple):
    """The cells of an audit's protocols: way -> ranking of rows -> cells, of an intervention that draws at random one
    per draw. all_units: of the plan's kinds; units: those that the model has."""

    all_units: dict[str, Units]
    units: dict[str, Units]
    unedited: Cell[WindowFidelity]
    cells: dict[_Way, dict[Ranking, tuple[Cell[WindowFidelity], ...]]]


def _wanted(audit: AuditInputs) -> _Wanted:
    return audit.once("protocols", lambda: _make(audit))


def _make(audit: AuditInputs) -> _Wanted:
    plan, loaded, text = audit.plan.protocols, audit.loaded, audit.evaluation
    _check_several({ranking.selector for ranking in audit.rankings})
    all_units = {kind: UNITS[kind](loaded) for kind in plan.protocol_units}
    units = {kind: some for kind, some in all_units.items() if some.count}
    if not units:
        reasons = "; ".join(f"{kind}: {without(loaded, kind)}" for kind in all_units)
        raise InputError(f"{loaded.id} has no units of --protocol-units ({reasons}); choose row")
    measure = Fidelity(text.first(min(plan.protocol_windows, len(text.sample_ids))))
    cells: dict[_Way, dict[Ranking, tuple[Cell[WindowFidelity], ...]]] = {}
    for intervention, (kind, some) in product(plan.protocol_interventions, units.items()):
        audit.ready(intervention)
        draws = [intervention]  # the ids of its draws
        if INTERVENTIONS.get(intervention).make.reads_tokens:
            draws += [seeded(intervention, seed) for seed in plan.resample_seeds[1:]]
        ranked = [(ranking, [ranking.over(some, draw) for draw in draws]) for ranking in audit.rankings]
        for order, rate in product(plan.protocol_orders, plan.protocol_rates):
            cells[_Way(intervention, kind, order, rate)] = {
                ranking: tuple(Cell[WindowFidelity](loaded, one.edit(order, rate), measure) for one in drawn)
                for ranking, drawn in ranked
            }
    return _Wanted(all_units, units, Cell(loaded, UNEDITED, measure), cells)


def _check_several(selectors: Collection[str]) -> None:
    if len(selectors) < 2:
        raise InputError(f"protocols puts selectors in order, got {', '.join(selectors)} alone; name more")


def harm_of(results: Sequence[Sequence[WindowFidelity]], metric: str) -> Harm:
    """Harm by a metric, one line per seed of the ranking: the mean over the draws of what stands in for its units,
    window by window. Every window has draws of its own, so that the errors over windows hold them."""
    sums = [np.mean([_sums(one, metric) for one in draws], axis=0) for draws in results]
    first = results[0][0]
    return Harm(np.array(sums, dtype=np.float64), first.window_tokens, first.blocks)


def _between(values: Sequence[float]) -> tuple[float | None]:
    """Column resample_sd: the standard deviation of the value over the draws; None for one draw or no number."""
    return (statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None,)


def _sums(one: WindowFidelity, metric: str) -> Sequence[float]:
    if metric == "top1":
        return [tokens - same for tokens, same in zip(one.window_tokens, one.window_same, strict=True)]
    return {"nll": one.window_nats, "kl": one.window_kl}[metric]


def _by_selector(
    cells: Mapping[Ranking, Sequence[Cell[WindowFidelity]]], results: Results, metric: str
) -> dict[str, Harm]:
    measured: dict[str, list[list[WindowFidelity]]] = {}
    for ranking, draws in cells.items():
        measured.setdefault(ranking.selector, []).append([results[cell] for cell in draws])
    return {selector: harm_of(some, metric) for selector, some in measured.items()}


def _value(harm: Harm, metric: str) -> tuple[float, float | None]:
    """Columns value and harm_stderr."""
    of_text = text_part(harm)
    value = 1 - harm.per_token if metric == "top1" else harm.per_token
    return value, None if of_text is None else of_text.variance**0.5


def _areas(harms: Mapping[_Way, Mapping[str, Harm]], dense: Harm) -> Iterator[tuple[str, str, dict[str, Area]]]:
    """Every intervention and kind of unit that was measured in both orders, at a rate above 0."""
    for intervention, kind in dict.fromkeys((way.intervention, way.kind) for way in harms):
        here = {way: found for way, found in harms.items() if (way.intervention, way.kind) == (intervention, kind)}
        rates = sorted({way.rate for way in here if way.rate > 0})
        if {way.order for way in here} != {"lerf", "morf"} or not rates:
            continue

        def curve(selector: str, order: str, here: Mapping[_Way, Mapping[str, Harm]] = here) -> Harm:
            by_rate = {way.rate: some[selector] for way, some in here.items() if way.order == order and way.rate > 0}
            return integrated(list(by_rate), list(by_rate.values()), dense)

        selectors = list(next(iter(here.values())))
        curves = {name: (curve(name, "lerf"), curve(name, "morf")) for name in selectors}
        if BASELINE in curves:
            lerf, morf = curves[BASELINE]
            chance = Harm((lerf.sums + morf.sums) / 2, lerf.tokens, lerf.blocks)
            yield intervention, kind, {name: area(*both, chance) for name, both in curves.items()}
        else:
            yield intervention, kind, dict.fromkeys(selectors, Area(None, None, None))
