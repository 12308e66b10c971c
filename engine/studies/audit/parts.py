"""Parts: which projections and blocks of a mask do its harm."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from engine.edits.edit import Edit
from engine.edits.masks import mask_parts
from engine.edits.ranked_edits import Ranking
from engine.results.tables import frame
from engine.run.audit_plan import PartsPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.blocks import block_difference
from engine.stats.limits import BASELINE
from engine.stats.table_estimates import with_documents
from engine.studies.audit.inputs import AuditInputs
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
    first `parts_windows` evaluation windows. Beyond the paper.
    """

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
