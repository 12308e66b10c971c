"""What the model still says as more and more rows are removed."""

from collections.abc import Iterable

from engine.data.prompts import thinking_record
from engine.measures.generation import BATCH_SIZE
from engine.measures.replies import Replies, Written
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.analysis_plans import RepliesPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.audit.inputs import AuditInputs
from engine.studies.audit.sweep import Point, points_of
from engine.studies.base import AUDIT, Study, Tables, register_study


@register_study(
    "replies", of=AUDIT, plan=RepliesPlan, tables=("sweep_replies",), reads_text=False,
    title="What does the model still say as rows are removed?",
)  # fmt: skip
class SweepReplies(Study[AuditInputs]):
    """`sweep_replies`: greedy replies to the plan's prompts under the edits of the sweep, of a seeded selector those of
    its first seed.

    They show what a perplexity means; they measure nothing. Not in the paper. Thinking is off where the chat template
    has a switch; otherwise a reply begins with what the model thinks."""

    def record(self, audit: AuditInputs) -> Json:
        return dict(thinking_record(audit.loaded.tokenizer))

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[list[Written]]]:
        return (point.cell for point in self._points(audit))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        prompts = audit.plan.replies.replies_prompts
        lines: list[tuple[object, ...]] = []
        for ranking, order, rate, cell in self._points(audit):
            place = (audit.loaded.id, ranking.selector, ranking.seed, order, rate, cell.edit.size)
            said = results[cell]
            lines += [(*place, prompt, one.text, one.finished) for prompt, one in zip(prompts, said, strict=True)]
        return {"sweep_replies": frame("sweep_replies", lines)}

    def _points(self, audit: AuditInputs) -> list[Point]:
        plan = audit.plan
        measure = Replies(plan.replies.replies_prompts, plan.replies.replies_tokens, BATCH_SIZE)
        ranked = map(audit.ranking, plan.scoring.selectors)
        return points_of(audit.loaded, ranked, plan.orders, plan.sweep_rates, measure)
