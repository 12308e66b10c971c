"""An audit of a tiny model on a tiny text, for the tests of the analyses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

from engine.edits.edit import AnyEdit
from engine.measures.base import TokenMeasure
from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.records.progress import Progress
from engine.results.store import Store
from engine.run import runner
from engine.run.audit_plan import AuditPlan, ScorePlan
from engine.run.runner import LocalRunner
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import ANALYSES, Tables, conduct


def tiny_audit(
    loaded: LoadedModel, text: Path, store: Store, *, progress: Progress | None = None,
    scoring: dict[str, Any] | None = None, **settings: Any,
) -> AuditInputs:  # fmt: skip
    """Six calibration windows and five evaluation windows of 16 tokens; `scoring` and `settings` replace entries."""
    plan = AuditPlan(
        scoring=ScorePlan(**{"corpus": str(text), "samples": 6, "length": 16} | (scoring or {})),
        **{"eval_corpus": str(text), "eval_samples": 5, "eval_length": 16} | settings,
    )
    return AuditInputs(loaded, plan, store, progress)


def count_edits(monkeypatch: pytest.MonkeyPatch, fail_after: int | None = None) -> list[int]:
    """One entry for every edit that is measured on text from now on; after so many an interrupt is raised."""
    seen: list[int] = []
    measured = runner.measured

    def counted(loaded: LoadedModel, measure: Any, edits: Sequence[AnyEdit]) -> list[Any]:
        if isinstance(measure, TokenMeasure):
            if fail_after is not None and len(seen) >= fail_after:
                raise KeyboardInterrupt
            seen.extend([1] * len(edits))
        return measured(loaded, measure, edits)

    monkeypatch.setattr(runner, "measured", counted)
    return seen


def nll_of(audit: AuditInputs, mask: npt.ArrayLike) -> NegativeLogLikelihood:
    """NLL of the audit's evaluation text with these rows removed."""
    cell = audit.nll(audit.edit(mask))
    return LocalRunner(audit.store).run([cell])[cell]


def tables_of(name: str, audit: AuditInputs) -> Tables:
    """All tables of one analysis."""
    return conduct(ANALYSES.get(name).make(audit), audit, LocalRunner(audit.store, audit.progress))


agreement, controls, dangerous = (partial(tables_of, name) for name in ("agreement", "controls", "dangerous"))
depth, differences, domain = (partial(tables_of, name) for name in ("depth", "differences", "domain"))
downstream, gap, rank_distribution = (partial(tables_of, name) for name in ("downstream", "gap", "rank-distribution"))
seeds, stability, sweep, verdicts = (partial(tables_of, name) for name in ("seeds", "stability", "sweep", "verdict"))
invariance, protocols, specific, draws = (
    partial(tables_of, name) for name in ("invariance", "protocols", "specific", "draws")
)


def lowest(scores: list[float], count: int) -> list[int]:
    """The rows that LeRF removes, by Python's own sort: lowest first, ties by row id."""
    return sorted(sorted(range(len(scores)), key=lambda row: (scores[row], row))[:count])
