"""Does more calibration text change a selector, and does stability say anything about validity?"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from engine.data.corpora import Windows, calibration_tokens
from engine.edits.ranked_edits import Ranking, rankings
from engine.measures.nll import perplexity
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.audit_plan import StabilityPlan
from engine.run.cell import Cell
from engine.run.preflight import calibration_text
from engine.run.runner import Results
from engine.run.scoring import score_at_sizes
from engine.selectors import get_selector
from engine.stats.paired import defined
from engine.stats.similarity import average_ranks, jaccard, rank_correlations
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

_Nested = dict[str, dict[int, list[Ranking]]]  # selector -> calibration size -> its rankings


@register_study(
    "stability", of=AUDIT, plan=StabilityPlan, tables=("stability",),
    title="Does more calibration text change a selector?",
)  # fmt: skip
class Stability(Study[AuditInputs]):
    """`stability`: every data-dependent selector at every calibration size against the largest one.

    Spearman of the scores, Jaccard of the LeRF masks, and the LeRF NLL at the plan's stability rates; the
    largest size is its own reference (1 and 1). Sizes are nested, the first n calibration windows each, and
    scores of all sizes come from the pass that scores the calibration text. A seeded selector counts by the mean over
    its seeds; perplexity is exp of the mean NLL. Null: Spearman of constant scores. The paper, section 4.2."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        if not all(get_selector(name).data_free for name in audit.plan.scoring.selectors):
            nested_sizes(audit.plan.stability_sizes, len(_calibration(audit).input_ids))

    def before_scores(self, audit: AuditInputs) -> None:
        _nested(audit)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for by_size in _nested(audit).values():
            for ranked in by_size.values():
                yield from audit.grid(ranked, ("lerf",), audit.plan.stability_rates).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines: list[tuple[object, ...]] = []
        for selector, by_size in _nested(audit).items():
            reference = max(by_size)
            whole = by_size[reference]
            ranks = [average_ranks(one.scores, one.order("lerf")) for one in whole]
            for size, ranked in by_size.items():
                here = ranks if size == reference else [average_ranks(one.scores, one.order("lerf")) for one in ranked]
                pairs = zip(here, ranks, strict=True)
                rho = float(np.mean([rank_correlations(np.stack(pair))[0, 1] for pair in pairs]))
                for rate in audit.plan.stability_rates:
                    edits = [(a.edit("lerf", rate), b.edit("lerf", rate)) for a, b in zip(ranked, whole, strict=True)]
                    overlap = float(np.mean([jaccard(a.units, b.units) for a, b in edits]))
                    nll = float(np.mean([results[audit.nll(a)].nats_per_token for a, _ in edits]))
                    found = (defined(rho), defined(overlap), nll, perplexity(nll))
                    lines.append((audit.loaded.id, selector, size, reference, rate, *found))
        return {"stability": frame("stability", lines)}


def _nested(audit: AuditInputs) -> _Nested:
    """The rankings of every data-dependent selector at every size, ascending; scored once per audit."""

    def make() -> _Nested:
        selectors = [name for name in audit.plan.scoring.selectors if not get_selector(name).data_free]
        if not selectors:
            return {}
        tokens = _calibration(audit)
        sizes = nested_sizes(audit.plan.stability_sizes, len(tokens.input_ids))
        scores = score_at_sizes(
            audit.loaded, audit.plan.scoring, selectors, tokens, sizes,
            store=audit.store, progress=audit.progress, kept=audit.kept,
        )  # fmt: skip
        seeds, intervention = audit.plan.scoring.seeds, audit.plan.intervention
        return {
            name: {size: list(rankings({name: scores[size][name]}, seeds, intervention)) for size in sizes}
            for name in selectors
        }

    return audit.once("stability", make)


class TooFewSizes(InputError):
    """There is too little calibration text to compare two sizes."""


def nested_sizes(wanted: Sequence[int], available: int) -> tuple[int, ...]:
    """The sizes to measure, ascending; what is more than there is becomes all there is. Errors: fewer than two."""
    if any(size < 1 for size in wanted):
        raise InputError(f"calibration sizes are numbers of windows from 1, got {list(wanted)}")
    sizes = tuple(sorted({min(size, available) for size in wanted}))
    if len(sizes) < 2:
        raise TooFewSizes(
            f"stability compares at least 2 calibration sizes, got {list(wanted)} with {available} windows "
            "available; give smaller sizes or a longer calibration text"
        )
    return sizes


def _calibration(audit: AuditInputs) -> Windows:
    """The audit's calibration windows, more of them where a size asks for more than its scores use.
    Not more where evaluation reads the same file: what follows in it is evaluation text."""
    scoring, largest = audit.plan.scoring, max(audit.plan.stability_sizes, default=0)
    shared_file = calibration_tokens(audit.plan.eval_corpus, scoring.corpus, 1) > 0
    if largest <= scoring.samples or shared_file:
        return audit.calibration
    return calibration_text(audit.loaded, scoring, samples=largest)
