"""An audit of a tiny model on a tiny text, for the tests of the analyses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.analysis.audit import Audit
from engine.analysis.plan import AuditPlan
from engine.models import LoadedModel
from engine.scores import ProgressCallback, ScorePlan
from engine.store import Store


def tiny_audit(
    loaded: LoadedModel,
    text: Path,
    store: Store,
    *,
    progress: ProgressCallback | None = None,
    scoring: dict[str, Any] | None = None,
    **settings: Any,
) -> Audit:
    """Six calibration windows and five evaluation windows of 16 tokens; `scoring` and `settings` replace entries."""
    plan = AuditPlan(
        scoring=ScorePlan(**{"corpus": str(text), "samples": 6, "length": 16} | (scoring or {})),
        **{"eval_corpus": str(text), "eval_samples": 5, "eval_length": 16} | settings,
    )
    return Audit(loaded, plan, store, progress)


def lowest(scores: list[float], count: int) -> list[int]:
    """The rows that LeRF removes, by Python's own sort: lowest first, ties by row id."""
    return sorted(sorted(range(len(scores)), key=lambda row: (scores[row], row))[:count])
