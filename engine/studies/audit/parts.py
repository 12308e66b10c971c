"""Which projections and blocks of a mask do its harm, and is it that of its single rows together?"""

import math
import statistics
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from engine.edits.edit import Edit
from engine.edits.masks import mask_parts
from engine.edits.ranked_edits import Ranking
from engine.results.tables import frame
from engine.run.audit_plan import JointPlan, PartsPlan, SinglesPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.intervals import student_t
from engine.stats.limits import BASELINE
from engine.stats.table_estimates import with_documents
from engine.stats.uncertainty import CONFIDENCE
from engine.studies.audit.inputs import AuditInputs
from engine.studies.audit.singles import sampled_rows
from engine.studies.base import AUDIT, Study, Tables, register_study


class _Part(NamedTuple):
    """The rows of a mask in one projection or one block, and all its other rows."""

    ranking: Ranking
    order: str
    rate: float
    part: str
    name: str
    whole: Edit
    alone: Edit
    without: Edit


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
        for part in _parts(audit):
            yield from (_cell(audit, edit) for edit in (part.whole, part.alone, part.without))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        dense, lines = results[_cell(audit, audit.edit([]))], []
        for part in _parts(audit):
            whole, alone, without = (results[_cell(audit, edit)] for edit in (part.whole, part.alone, part.without))
            harm = whole.nats_per_token - dense.nats_per_token
            difference = whole.nats_per_token - without.nats_per_token
            lines.append((
                audit.loaded.id, part.ranking.selector, part.ranking.seed, part.order, part.rate, part.part, part.name,
                part.alone.size, alone.nats_per_token, without.nats_per_token, whole.nats_per_token,
                dense.nats_per_token, difference / harm if harm > 0 else None, *block_difference(whole, without),
            ))  # fmt: skip
        return {"parts": with_documents(frame("parts", lines), dense.blocks)}


def _cell(audit: AuditInputs, edit: Edit) -> Cell[Any]:
    evaluation = audit.evaluation
    return audit.nll(edit, evaluation.first(min(audit.plan.parts_windows, len(evaluation.sample_ids))))


def _parts(audit: AuditInputs) -> Iterator[_Part]:
    for ranking in audit.rankings:
        if ranking.selector == BASELINE:
            continue
        for order in audit.plan.parts_orders:
            for rate in audit.plan.parts_rates:
                mask = ranking.edit(order, rate).units
                for part, name, inside in mask_parts(mask, audit.loaded.rows):
                    edits = (audit.edit(mask), audit.edit(mask[inside]), audit.edit(mask[~inside]))
                    yield _Part(ranking, order, rate, part, name, *edits)


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
    the mask destroys the model, so that its harm has no size (`engine.stats.saturation`). Beyond the paper."""

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
