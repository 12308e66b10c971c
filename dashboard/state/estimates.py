"""What a run takes, in words, before it starts. torch is imported where something is counted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dashboard.state import access
from engine.run.audit_plan import AuditPlan
from engine.run.refusal_plan import RefusalPlan

if TYPE_CHECKING:
    from dashboard.state.remakes import Remake
    from engine.run.estimate import Estimate


KNOWN = "What the store knows already takes no time."
_NO_EDITS = ("calibrate", "structure")  # stages that measure none


def of_remake(made: Remake) -> str:
    """How long a run takes that makes a table; `InputError` where its model or its texts are not to be had."""
    options = dict(made.request.options)
    loading = {name: options[f"--{name}"] for name in ("revision", "dtype") if f"--{name}" in options}
    if isinstance(made.plan, RefusalPlan):
        return of_refusal(made.request.model, made.plan, made.request.words[1], **loading)
    return of_analyses(made.request.model, made.plan, made.analyses, **loading)


def of_analyses(model_id: str, plan: AuditPlan, names: tuple[str, ...], **loading: str) -> str:
    """Scores and cells of analyses. loading: revision and dtype, as `load_sketch` takes them."""
    access.need("loading a model for an estimate")
    from engine.models.loading import load_sketch
    from engine.run.estimate import flops_per_second
    from engine.studies.audit.expected import expected

    sketch = partial(load_sketch, model_id, **loading)
    found = expected(sketch, plan, names)
    some = "at least " if found.at_least else ""
    cells = f" and {some}{found.cells:,} cells" if found.cells else " and cells that scores of other texts decide"
    what = f"Scores{cells if found.cells or found.at_least else ''}"
    return f"{what}: {some}{_time(found.flops, flops_per_second(sketch()), found.of)}. {KNOWN}"


def of_refusal(model_id: str, plan: RefusalPlan, stage: str = "run", **loading: str) -> str:
    """A stage of a refusal experiment by its largest parts: scores, and the replies over the grid."""
    access.need("loading a model for an estimate")
    from engine.models.loading import load_sketch
    from engine.run.estimate import REPLIES, SCORE, estimate, flops_per_second
    from engine.run.preflight import impossible, remaining

    sketch = load_sketch(model_id, **loading)
    speed = flops_per_second(sketch)
    left_out = impossible(sketch, plan.scoring.selectors)
    scoring = replace(plan.scoring, selectors=remaining(plan.scoring.selectors, left_out, named=False))
    found = estimate(sketch, AuditPlan(scoring=scoring), plan, (SCORE, REPLIES))
    flops = {part: sum(one.flops for one in found.work if one.stage == part) for part in (SCORE, REPLIES)}
    said = f"Scores: {_time(flops[SCORE], speed, found)}."
    if stage in _NO_EDITS:
        return f"{said} {KNOWN}"
    grids = 1 + (plan.draws if stage == "draws" else 0)
    edits = grids * len(plan.lambdas) * len(plan.ks) * len(plan.selectors)
    return (
        f"{said} Replies to the calibration prompts under up to {edits:,} edits per domain: "
        f"{_time(edits * flops[REPLIES], speed)} if all of them are asked, which those are not that harm language too "
        f"much. Held-out prompts, controls and a wider grid come on top. {KNOWN}"
    )


def _time(flops: float, speed: float, found: Estimate | None = None) -> str:
    """The time of the products alone, as the command `estimate` says it, and the memory."""
    from engine.run.fits import GIB
    from engine.run.pace import told

    memory = "" if found is None else f" on {found.device}, in truth longer; about {found.peak_bytes / GIB:.1f} GiB"
    return f"{told(flops / speed)} of matrix products{memory}"
