"""What does a single unit matter, and what the parts of a mask? Exact effects, and who ranks units rightly."""

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Windows
from engine.edits.edit import ZERO, Edit
from engine.edits.masks import mask_parts
from engine.measures.nll import NegativeLogLikelihood
from engine.models.units import ROW, UNITS, Units
from engine.results.tables import frame
from engine.run.audit_plan import JointPlan, PartsPlan, SinglesPlan
from engine.run.runner import Cell, Results
from engine.stats import single_units
from engine.stats.blocks import block_difference, defined, paired_difference, with_documents
from engine.stats.limits import BASELINE, Thresholds
from engine.stats.uncertainty import CONFIDENCE, student_t
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

RATE = Thresholds().rate  # of the LeRF masks that stand beside single units
Numbers = npt.NDArray[np.float64]


@register_study(
    "singles", of=AUDIT, plan=SinglesPlan, tables=("singles", "singles_units", "singles_selectors", "singles_recall"),
    title="What does a single row or neuron matter, and who ranks them rightly?",
)  # fmt: skip
class Singles(Study[AuditInputs]):
    """`singles`, the effect of every sampled unit; `singles_units`, what the sample says of all units;
    `singles_selectors` and `singles_recall`, every ranking against the effects.

    A unit is a row, or a neuron of a gated MLP: its gate and its up row in one edit, which makes its input of down_proj
    zero. effect = NLL with the unit alone edited - NLL of the unedited model, on the plan's first evaluation windows;
    many units share a pass, each sequence under its own edit, where the measure's cost rule says so. One sample serves
    all selectors: every unit has the same chance, whatever its scores (`stratified_sample`; groups are the Linears,
    tenths are of the weights' norm). A neuron's score is the sum of its two rows' scores. The LeRF NLL beside them is
    the sweep's; none is measured here.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for sample in _samples(audit):
            yield from (sample.dense, *sample.effects.values())
        # A sweep's cells that are known: the store has them.
        yield from (cell for cell in _lerf(audit).values() if cell in known or audit.store.get(cell.key) is not None)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        samples, model = _samples(audit), audit.loaded.id
        # Tables of the first intervention have no such column, as sweeps have none.
        more = {} if audit.plan.intervention == ZERO else {"intervention": audit.plan.intervention}
        dense = results[samples[0].dense]
        lerf = {number: results[cell].nats_per_token for number, cell in _lerf(audit).items() if cell in results}
        lines: dict[str, list[tuple[object, ...]]] = {
            stem: [] for stem in ("singles", "singles_units", "singles_selectors", "singles_recall")
        }
        for sample in samples:
            measured, chosen = [results[cell] for cell in sample.effects.values()], np.array(list(sample.effects))
            errors = [block_difference(one, dense) for one in measured]
            paired = [
                (paired_difference(one, dense)[0], error) for one, (error, _) in zip(measured, errors, strict=True)
            ]
            effects = np.array([effect for effect, _ in paired])
            places = _places(audit, sample)
            lines["singles"] += [(model, *place, *pair) for place, pair in zip(places, paired, strict=True)]
            kind = (model, sample.units.kind)
            asked = (sample.units.count, len(chosen), audit.plan.singles_seed)
            text = (len(dense.window_nats), dense.tokens, dense.nats_per_token)
            about = (*_about(sample, paired, [blocks for _, blocks in errors]), *_split_half(measured, dense))
            lines["singles_units"].append((*kind, *asked, *text, *about))
            for number, ranking in enumerate(audit.rankings):
                scores = sample.units.scores(ranking.scores)
                who = (model, ranking.selector, ranking.seed, sample.units.kind)
                line = (*who, len(chosen), *_against(scores[chosen], effects), bool((scores < 0).any()))
                lines["singles_selectors"].append((*line, lerf.get(number)))
                for top in audit.plan.singles_tops:
                    recall = single_units.recall_of_top(scores, chosen, effects, top)
                    if recall is not None:
                        numbers = (recall.threshold, recall.above, recall.found, recall.value, *recall.interval)
                        lines["singles_recall"].append((*who, top, *numbers, recall.missed_high))
        tables = {
            stem: frame(stem, [(*line, *more.values()) for line in some], optional=tuple(more))
            for stem, some in lines.items()
        }
        return tables | {"singles": with_documents(tables["singles"], dense.blocks)}


class SampledUnits(NamedTuple):
    """The sample of one kind of units, ascending: its text, the unedited model on it, the cell of each unit alone."""

    text: Windows
    dense: Cell[NegativeLogLikelihood]
    units: Units
    effects: dict[int, Cell[NegativeLogLikelihood]]


def sampled_units(audit: AuditInputs, kind: str) -> SampledUnits | None:
    """None for a kind of which the plan, or the model, has none."""
    return next((one for one in _samples(audit) if one.units.kind == kind), None)


def sampled_rows(audit: AuditInputs) -> SampledUnits:
    rows = sampled_units(audit, ROW)
    assert rows is not None  # the plan has one at least
    return rows


def _samples(audit: AuditInputs) -> list[SampledUnits]:
    """Drawn once per audit: norms of all weights take a pass over them. A model without gated MLPs has no neurons."""

    def make() -> list[SampledUnits]:
        plan, evaluation = audit.plan, audit.evaluation
        text = evaluation.first(min(plan.singles_windows, len(evaluation.sample_ids)))
        dense, samples = audit.nll(audit.edit([]), text), []
        for number, (kind, count) in enumerate((("row", plan.singles_rows), ("neuron", plan.singles_neurons))):
            units = UNITS[kind](audit.loaded)
            chosen = single_units.stratified_sample(units.layer, units.norm, count, (plan.singles_seed, number))
            effects = {int(unit): audit.nll(audit.edit(units.rows[unit]), text) for unit in chosen}
            samples.append(SampledUnits(text, dense, units, effects))
        return [one for one in samples if one.effects]

    return audit.once("singles", make)


def _lerf(audit: AuditInputs) -> dict[int, Cell[NegativeLogLikelihood]]:
    """The cell of the LeRF mask at `RATE` of every ranking, by the ranking's place."""
    return {number: audit.nll(ranking.edit("lerf", RATE)) for number, ranking in enumerate(audit.rankings)}


def _places(audit: AuditInputs, sample: SampledUnits) -> Iterator[tuple[object, ...]]:
    """Columns unit_kind to row of every sampled unit."""
    kind, layers = sample.units.kind, audit.loaded.rows.layers
    for unit in sample.effects:
        row_id, layer = int(sample.units.rows[unit, 0]), layers[sample.units.layer[unit]]
        projection = layer.projection if kind == "row" else None
        yield kind, row_id, layer.block, layer.sublayer, projection, row_id - layer.start


def _about(sample: SampledUnits, paired: list[tuple[float, float | None]], blocks: list[int]) -> tuple[object, ...]:
    """Columns helps to larger_high. blocks: of evaluation text, behind the errors."""
    effects = np.array([effect for effect, _ in paired])
    helps = single_units.helping(effects)
    clear = single_units.clearly_helping(effects.tolist(), [error for _, error in paired], blocks)
    size = np.abs(effects)
    bound = single_units.larger_high(len(paired), sample.units.count)
    return helps.value, *helps.interval, clear, float(np.median(size)), float(size.max()), bound


def _split_half(
    measured: list[NegativeLogLikelihood], dense: NegativeLogLikelihood
) -> tuple[float | None, float | None]:
    """Spearman of the effects from the first, third, … windows with those from the second, fourth, …: signed, absolute.

    What of the ranking is the text's. None for a single window.
    """
    if len(dense.window_nats) < 2:
        return None, None
    nats = np.array([one.window_nats for one in measured]) - np.array(dense.window_nats)
    halves = [nats[:, start::2].sum(axis=1) for start in (0, 1)]
    absolute = [np.abs(half) for half in halves]
    return single_units.spearman_interval(*halves)[0], single_units.spearman_interval(*absolute)[0]


def _against(scores: Numbers, effects: Numbers) -> tuple[object, ...]:
    """Columns signed_spearman to sign_high of one ranking."""
    found: list[object] = []
    for truth in (effects, np.abs(effects)):
        rho, interval = single_units.spearman_interval(scores, truth)
        found += [defined(rho), *(interval or (None, None))]
    signs = single_units.sign_agreement(scores, effects)
    return (*found, *((signs.value, *signs.interval) if signs else (None, None, None)))


@register_study(
    "parts", of=AUDIT, plan=PartsPlan, tables=("parts",), title="Which projections and blocks of a mask do its harm?"
)
class Parts(Study[AuditInputs]):
    """`parts`, one line per projection and block of every mask of the plan's orders and rates, random left out.

    nll_alone: only the mask's rows in that part are removed; nll_without: all but these. restored = (NLL of the mask -
    nll_without) / (NLL of the mask - NLL of the unedited model), the share of the mask's harm that goes when the part's
    rows are put back; null where the mask does no harm. Shares of several parts need not add up to 1. Measured on the
    first `parts_windows` evaluation windows. Beyond the paper."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield _cell(audit, audit.edit([]))
        for *_, edits in _parts(audit):
            yield from (_cell(audit, edit) for edit in edits)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        dense, lines = results[_cell(audit, audit.edit([]))], []
        for *where, edits in _parts(audit):
            whole, alone, without = (results[_cell(audit, edit)] for edit in edits)
            harm = whole.nats_per_token - dense.nats_per_token
            difference = whole.nats_per_token - without.nats_per_token
            lines.append((
                audit.loaded.id, *where, edits[1].size, alone.nats_per_token, without.nats_per_token,
                whole.nats_per_token, dense.nats_per_token, difference / harm if harm > 0 else None,
                *block_difference(whole, without),
            ))  # fmt: skip
        return {"parts": with_documents(frame("parts", lines), dense.blocks)}


def _cell(audit: AuditInputs, edit: Edit) -> Cell[Any]:
    evaluation = audit.evaluation
    return audit.nll(edit, evaluation.first(min(audit.plan.parts_windows, len(evaluation.sample_ids))))


def _parts(audit: AuditInputs) -> Iterator[tuple[Any, ...]]:
    """selector, seed, order, rate, part, its name, and three edits: the mask, its rows in one projection or one block,
    and all its other rows."""
    for ranking in audit.rankings:
        if ranking.selector == BASELINE:
            continue
        for order in audit.plan.parts_orders:
            for rate in audit.plan.parts_rates:
                mask = ranking.edit(order, rate).units
                for part, name, inside in mask_parts(mask, audit.loaded.rows):
                    edits = (audit.edit(mask), audit.edit(mask[inside]), audit.edit(mask[~inside]))
                    yield ranking.selector, ranking.seed, order, rate, part, name, edits


LEAST = 10  # sampled rows of a mask


@register_study(
    "joint", of=AUDIT, plan=JointPlan, reads=(SinglesPlan,), tables=("joint",),
    title="Do the rows of a mask do together what each does alone?",
)  # fmt: skip
class Joint(Study[AuditInputs]):
    """`joint`, one line per ranking and rate: harm of its LeRF mask and the sum of its rows' single harms.

    harm = NLL of the mask - NLL of the unedited model, nats per token, on the windows of `singles`; single_sum = rows
    of the mask x mean single harm of those that the sample of `singles` holds, which is a random sample of the mask
    too. Its 95% interval is Student's t over these rows (their errors of measurement are in their spread); null for
    fewer than 10. First-order scores rank rows by what each does alone. `saturated`:
    the mask destroys the model, so that its harm has no size (`engine.stats.limits`). Beyond the paper."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        sample = sampled_rows(audit)
        yield sample.dense
        yield from sample.effects.values()
        yield from _masks(audit).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        sample, lines = sampled_rows(audit), []
        dense = results[sample.dense]
        limit = audit.saturated_above_on(sample.dense, results)
        single = {row: results[cell].nats_per_token - dense.nats_per_token for row, cell in sample.effects.items()}
        for (place, rate), cell in _masks(audit).items():
            ranking, nll = audit.rankings[place], results[cell].nats_per_token
            rows = ranking.edit("lerf", rate).units
            harms = [single[row] for row in np.intersect1d(rows, list(single)).tolist()]
            lines.append((
                audit.loaded.id, ranking.selector, ranking.seed, "lerf", rate, rows.size, nll, dense.nats_per_token,
                nll - dense.nats_per_token, len(harms), *_sum(harms, rows.size), not nll <= limit,
            ))  # fmt: skip
        return {"joint": with_documents(frame("joint", lines), dense.blocks)}


def _sum(harms: list[float], rows: int) -> tuple[float | None, float | None, float | None]:
    """The sum over all rows of a mask with its interval, from some of them."""
    if len(harms) < LEAST or not all(map(math.isfinite, harms)):
        return None, None, None
    mean = statistics.fmean(harms)
    half = student_t(len(harms) - 1, CONFIDENCE) * statistics.stdev(harms) / math.sqrt(len(harms))
    return rows * mean, rows * (mean - half), rows * (mean + half)


def _masks(audit: AuditInputs) -> dict[tuple[int, float], Cell[Any]]:
    """By the ranking's place and rate."""
    text = sampled_rows(audit).text
    return {
        (place, rate): audit.nll(ranking.edit("lerf", rate), text)
        for place, ranking in enumerate(audit.rankings)
        for rate in audit.plan.joint_rates
    }
