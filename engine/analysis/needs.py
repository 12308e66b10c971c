"""Analyses that are about certain selectors say so before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from engine.analysis.audit import Audit
from engine.errors import InputError


def require_selectors(audit: Audit, analysis: str, needed: Sequence[str]) -> None:
    """Errors: InputError naming the selectors that an analysis needs and the plan does not have."""
    missing = [name for name in needed if name not in audit.plan.scoring.selectors]
    if missing:
        raise InputError(
            f"{analysis} needs the scores of {', '.join(needed)}, and this audit has no {', no '.join(missing)}; "
            "add to --selectors what this model's architecture allows (lrp and consensus2 need lxt's rules for it)"
        )
