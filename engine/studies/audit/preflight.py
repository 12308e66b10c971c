"""What of an audit can be known to be wrong before any weight is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.models.loading import LoadedModel
from engine.records.errors import unknown
from engine.results.store import Store
from engine.run.audit_plan import AuditPlan
from engine.run.preflight import LeftOut, fitting as fitting_scores
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import ANALYSES
from engine.studies.conduct import possible


class Fit(NamedTuple):
    """What can be done. left_out: selector -> reason. skipped: analysis -> reason."""

    plan: AuditPlan
    analyses: list[str]
    left_out: LeftOut
    skipped: dict[str, str]


def fitting(
    sketch: LoadedModel, plan: AuditPlan, names: Sequence[str], store: Store, *, named: bool, skip: bool = False
) -> Fit:
    """The plan with the selectors that this model allows, and the analyses that can be done with these.

    sketch: the model without its weights. named: the selectors were asked for by name. skip: leave out analyses that
    cannot be done; else the first one is an error. Errors: InputError for that, and where nothing can be done.
    """
    for name in names:
        if name not in ANALYSES:
            raise unknown("analysis", name, ANALYSES.names())
    scoring, left_out = fitting_scores(sketch, plan.scoring, named=named)
    plan = replace(plan, scoring=scoring)
    audit = AuditInputs(sketch, plan, store)
    audit.check_intervention()
    left, skipped = possible(audit, [info for info in ANALYSES if info.id in names], skip=skip)
    return Fit(plan, [info.id for info in left], left_out, skipped)
