"""What a run takes, in words, before it starts. torch is imported where something is counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from dashboard.show import layout
from dashboard.state import access
from dashboard.state.remakes import Remake
from engine.records.errors import InputError
from engine.run.audit_plan import AuditPlan
from engine.run.refusal_plan import RefusalPlan

if TYPE_CHECKING:
    from engine.studies.conduct import Forecast

_SAID = "estimates"  # session state: what was asked about -> what was found
KNOWN = "What the store knows already takes no time."


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
    from engine.studies.audit.audit_inputs import AuditInputs

    found, speed = _forecast(AuditInputs, model_id, plan, names, loading)
    at_least = "at least " if found.partly else ""
    cells = f" and {at_least}{found.cells:,} cells" if found.cells else " and cells that scores of other texts decide"
    what = f"Scores{cells if found.cells or found.partly else ''}"
    return f"{what}: {at_least}{_time(found.of.flops, speed, found)}. {KNOWN}"


def of_refusal(model_id: str, plan: RefusalPlan, stage: str = "run", **loading: str) -> str:
    """A stage of a refusal experiment by its largest parts: scores, and the replies over the grid."""
    access.need("loading a model for an estimate")
    from engine.run.run_estimate import SCORE, SWEEP
    from engine.studies.refusal.refusal_inputs import RefusalInputs

    largest = "sweep" if stage == "run" else stage
    found, speed = _forecast(RefusalInputs, model_id, plan, (largest,), loading)
    sentence = f"Scores: {_time(found.flops(SCORE), speed, found)}."
    if not found.edits:
        return f"{sentence} {KNOWN}"
    return (
        f"{sentence} Replies to the calibration prompts under up to {found.edits:,} edits per domain: "
        f"{_time(found.flops(SWEEP), speed)} if all of them are asked, which those are not that harm language too "
        f"much. Held-out prompts, controls and a wider grid come on top. {KNOWN}"
    )


def _forecast(kind: Any, model_id: str, plan: Any, names: Sequence[str], loading: Any) -> tuple[Forecast, float]:
    """And this device's speed in FLOP/s."""
    from engine.models.loading import load_sketch
    from engine.run.run_estimate import flops_per_second
    from engine.studies.conduct import from_shapes

    sketch = partial(load_sketch, model_id, **loading)
    return from_shapes(kind, sketch, plan, names), flops_per_second(sketch())


def _time(flops: float, speed: float, found: Forecast | None = None) -> str:
    """The time of the products alone, as the command `estimate` says it, and the memory."""
    from engine.run.run_estimate import GIB
    from engine.run.runner import told

    of = found and found.of
    memory = f" on {of.device}, in truth longer; about {of.peak_bytes / GIB:.1f} GiB" if of else ""
    return f"{told(flops / speed)} of matrix products{memory}"


def estimated(key: str, of: Hashable, find: Callable[[], str], *, at_once: bool = False, possible: bool = True) -> None:
    """The estimate of `of`, by `find`, which may take seconds. at_once: without the button `key`.
    Errors: those of `find`, remembered as well."""
    answered: dict[Hashable, str | InputError] = st.session_state.setdefault(_SAID, {})
    asked = at_once or st.button(
        "Estimate", key=key, icon=":material/timer:", disabled=not possible,
        help="Counted on the model's shapes and this machine's speed. Of a model of the hub its small files are "
        "fetched, not its weights.",
    )  # fmt: skip
    known = answered.get(of)
    if asked and (known is None or (not at_once and isinstance(known, InputError))):
        with st.spinner("Counting what it takes …"):
            try:
                known = answered[of] = find()
            except InputError as error:
                known = answered[of] = error
    if isinstance(known, InputError):
        raise known
    if known:
        st.caption(layout.plain(known))
