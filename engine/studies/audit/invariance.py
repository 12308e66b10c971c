"""Exact controls: does a selector rank what the model computes, or how its weights happen to be written?"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, Ranking, rankings
from engine.edits.masks import removed_rows
from engine.interventions.rewrites import Decoys, NoRewriteError, Rewrite, make_rewrite, rewritten
from engine.measures.logit_bits import Bits, LogitBits
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.audit_plan import InvariancePlan, ScorePlan
from engine.run.runner import Cell, LocalRunner, Results
from engine.run.scoring import calibration_text
from engine.selectors import get_selector
from engine.stats.blocks import block_difference, defined, with_documents
from engine.stats.removal_order import average_ranks, jaccard, spearman
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Answer, Study, Tables, TextTable, register_study
from engine.studies.invariance.invariance_verdicts import judge_invariance


@dataclass(frozen=True, eq=False)
class Under:
    """One rewrite of the plan: what it is, whether it left the function, and the rankings under it if it did.
    decoys: row ids of the decoys in these rankings, None for a rewrite that adds no rows."""

    id: str
    units: int | None
    bits: Bits | None
    proven: bool
    reason: str | None
    ranked: tuple[Ranking, ...] = ()
    decoys: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """The rankings of the model as it is, and under every rewrite of the plan."""

    before: tuple[Ranking, ...]
    bits: Bits
    under: tuple[Under, ...]

    @property
    def rescaled(self) -> list[Under]:
        """The proven rewrites that keep the rows."""
        return [one for one in self.under if one.proven and one.decoys is None]

    @property
    def planted(self) -> list[Under]:
        """The proven rewrite that adds rows, if there is one."""
        return [one for one in self.under if one.proven and one.decoys is not None]


@register_study(
    "invariance", of=AUDIT, plan=InvariancePlan,
    tables=("invariance_rewrites", "invariance", "invariance_decoys", "invariance_verdicts"),
    title="Does a selector rank the function, or how its weights are written?",
)  # fmt: skip
class Invariance(Study[AuditInputs]):
    """Every selector before and after rewrites of the weights that leave every logit bit-equal, and with decoys.

    Scores are computed anew under each rewrite, on the first `invariance_samples` calibration windows, as are those
    they are compared with. A rewrite whose logits differ in a single bit on these windows gives no number about
    selectors. The LeRF mask of the scores under a rewrite is measured on the model as it is, which computes the same:
    a row is zero in both or in neither. Beyond the paper.

    `invariance_rewrites`: what was done and proven; `invariance`: Spearman, Jaccard and LeRF NLL before and after;
    `invariance_decoys`: where the decoys rank; `invariance_verdicts`: each selector in words.

    Errors: InputError where no rewrite of the plan is proven to leave the function, with the reasons."""

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        found, rate = measured(audit), audit.plan.invariance.invariance_rate
        for one in (found.before, *(under.ranked for under in found.rescaled)) if found.rescaled else ():
            yield from (audit.nll(ranking.edit("lerf", rate)) for ranking in one)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        outcome = measured(audit)
        compared = frame("invariance", list(_compared(audit, outcome, results)))
        compared = with_documents(compared, audit.evaluation.blocks)
        decoys = frame("invariance_decoys", list(_decoys(audit, outcome)))
        return {
            "invariance_rewrites": frame("invariance_rewrites", _rewrites(audit.loaded.id, outcome)),
            "invariance": compared,
            "invariance_decoys": decoys,
            "invariance_verdicts": judge_invariance(compared, decoys),
        }

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        rows = tables["invariance_verdicts"].select("selector", "invariance", "reasons").rows()
        return Answer((TextTable("exact controls", ("selector", "ranking", "why"), rows),), dict(tables))


def measured(audit: AuditInputs) -> Measured:
    """Scores and logits of the model as it is and under every rewrite of the plan; what the store knows is read there.
    Errors: InputError where nothing is proven."""
    return audit.once("invariance", lambda: _measured(audit))


def _measured(audit: AuditInputs) -> Measured:
    plan, loaded = audit.plan.invariance, audit.loaded
    scoring = audit.plan.scoring
    computed = tuple(name for name in scoring.selectors if not get_selector(name).files)  # under a rewrite as well
    if not computed:
        raise InputError("scores in files cannot be computed under rewritten weights; name other --selectors too")
    scoring = replace(scoring, selectors=computed, score_files=())
    scoring = replace(scoring, samples=min(plan.invariance_samples, scoring.samples))
    text = calibration_text(loaded, scoring)
    before = _rankings(audit, loaded, scoring)
    bits = _bits(audit, loaded, text)
    under = tuple(_under(audit, name, scoring, text, bits) for name in plan.rewrites)
    if not any(one.proven for one in under):
        reasons = "; ".join(f"{one.id}: {one.reason}" for one in under)
        raise InputError(
            f"{loaded.id} ({loaded.architecture}, {loaded.dtype}): no rewrite of its weights is proven to leave its "
            f"logits bit-equal, so that nothing can be said of selectors; {reasons}; choose others with --rewrites"
        )
    return Measured(before, bits, under)


def _under(audit: AuditInputs, name: str, scoring: ScorePlan, text: Windows, before: Bits) -> Under:
    plan = audit.plan.invariance
    try:
        how = {"power": plan.rescaling_power, "decoys": plan.decoys, "decoy_power": plan.decoy_power}
        rewrite: Rewrite = make_rewrite(name, audit.loaded, seed=plan.rewrite_seed, **how)
    except NoRewriteError as error:
        return Under(name, None, None, False, f"cannot be done: {error}")
    with rewritten(audit.loaded, rewrite) as inside:
        bits = _bits(audit, inside, text)
        if not bits.same_function(before):
            why = f"not bit-equal in {audit.loaded.dtype}, so that it proves nothing and no selector was run under it"
            return Under(name, rewrite.units, bits, False, why)
        ranked = _rankings(audit, inside, scoring)
        decoys = rewrite.rows_of(inside.rows) if isinstance(rewrite, Decoys) else None
    reason = f"left as it is: {rewrite.left_out}" if rewrite.left_out else None
    return Under(name, rewrite.units, bits, True, reason, ranked, decoys)


def _bits(audit: AuditInputs, loaded: LoadedModel, text: Windows) -> Bits:
    """The logits of the model as its weights are now."""
    cell = Cell[Bits](loaded, UNEDITED, LogitBits(text, audit.plan.scoring.batch_size))
    return LocalRunner(audit.store).run([cell])[cell]


def _rankings(audit: AuditInputs, loaded: LoadedModel, scoring: ScorePlan) -> tuple[Ranking, ...]:
    scored = audit.score(loaded, scoring)
    scores = {name: values.numpy() for name, values in scored.scores.items()}
    return tuple(rankings(scores, scored.seeds, audit.plan.intervention))


def _rewrites(model: str, found: Measured) -> list[tuple[object, ...]]:
    lines: list[tuple[object, ...]] = []
    for one in found.under:
        equal = difference = None
        if one.bits is not None:
            equal = one.bits.equal_windows(found.bits)
            difference = one.bits.nll_difference(found.bits)
            difference = difference if math.isfinite(difference) else None
        windows_compared = len(found.bits.hashes)
        lines.append((model, one.id, one.units, windows_compared, equal, difference, one.proven, one.reason))
    return lines


def _compared(audit: AuditInputs, found: Measured, results: Results) -> Iterable[tuple[object, ...]]:
    rate = audit.plan.invariance.invariance_rate
    for under in found.rescaled:
        for first, second in zip(found.before, under.ranked, strict=True):
            edits = [one.edit("lerf", rate) for one in (first, second)]
            overlap = defined(jaccard(edits[0].units, edits[1].units))
            equal = float(np.mean(first.scores.view(np.int32) == second.scores.view(np.int32)))
            nll = [results[audit.nll(edit)] for edit in edits]
            moved = nll[1].nats_per_token - nll[0].nats_per_token
            stderr, _ = block_difference(nll[1], nll[0])
            alike = (defined(spearman(first.scores, second.scores)), overlap, equal)
            costs = (nll[0].nats_per_token, nll[1].nats_per_token, moved, stderr)
            yield (audit.loaded.id, under.id, first.selector, first.seed, rate, *alike, *costs)


def _decoys(audit: AuditInputs, found: Measured) -> Iterable[tuple[object, ...]]:
    rate = audit.plan.invariance.invariance_rate
    for under in found.planted:
        rows = under.decoys
        assert rows is not None
        for one in under.ranked:
            top, bottom = (np.isin(rows, removed_rows(one.scores, order, rate)).mean() for order in ("morf", "lerf"))
            last = one.scores.size - 1
            ranks = average_ranks(one.scores, one.order("lerf"))[rows] + last / 2
            numbers = (rows.size, float(top), float(bottom), float(ranks.mean() / last))
            yield (audit.loaded.id, one.selector, one.seed, rate, *numbers)
