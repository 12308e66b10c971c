"""Runs, the tab Start: a form for the command, and the job that is under way."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.charts import formats
from dashboard.pages.runs import catalogue as runs, importing as runs_import, jobs
from dashboard.show import layout, selection
from engine.records.errors import InputError
from engine.run import plans
from engine.run.field_types import Setting, settings_of
from engine.studies.base import ANALYSES

CURVES, EVERYTHING, CHOSEN = "Curves", "Everything", "Choose"
POLL_S = 1.0
_COLUMNS = 3
_POLLED = "runs-polled"  # session state: does this page ask for progress?
_FITTING = "runs-fitting-preset"  # session state: the preset that the last model started with
_WHAT: dict[str, tuple[str, ...]] = {CURVES: ("sweep",), EVERYTHING: ("all",)}


@cache
def registry() -> jobs.Jobs:
    """The jobs of this server, shared by all sessions."""
    return jobs.Jobs()


def form(top: Path) -> None:
    """What to run, and the button. The command that it stands for is shown, to be typed elsewhere."""
    with st.container(border=True):
        first, second = st.columns(2)
        with first:
            model = selection.text(
                "Model", "start_model", default=plans.SHIPPED,
                help_text="A local folder, `demo`, or a Hugging Face id.",
            )  # fmt: skip
        with second:
            fitting = plans.default_preset(model, first_look=True)
            if st.session_state.get(_FITTING, fitting) != fitting:
                st.session_state["start_preset"] = fitting  # another model's preset would stay otherwise
            st.session_state[_FITTING] = fitting
            preset = selection.choose(
                "Preset", list(plans.PRESETS), "start_preset", default=fitting,
                title=lambda name: f"{name}: {plans.PRESETS[name].note}",
            )  # fmt: skip
        what = selection.switch("What", (*_WHAT, CHOSEN), "start_what", default=CURVES)
        analyses = _WHAT.get(what, ())
        if what == CHOSEN:
            analyses = tuple(
                st.pills(
                    "Analyses", ANALYSES.offered(), selection_mode="multi", key="start_analyses", bind="query-params"
                )
            )
        options = _options(plans.for_model(plans.preset(preset), model))
        name = st.text_input(
            "Name of the run", key="start_name", placeholder=runs_import.free_name(Path(model).name, top),
            help="The folder of its tables. The name of an earlier run adds to it.",
        ).strip()  # fmt: skip
    folder = top / (runs_import.slug(name) if name else runs_import.free_name(Path(model).name, top))
    request = jobs.Request(model, analyses, folder, preset, options, runs.store_dir())
    with layout.told():
        st.code(request.command, language=None, wrap_lines=True)
        st.button("Start", key="start", type="primary", on_click=_begin, args=(registry().start, request))


def _options(plan: plans.AuditPlan) -> tuple[tuple[str, str], ...]:
    """A widget for every option of `analyze` that is a setting of the plan; what is empty is left to the command."""
    found: list[tuple[str, str]] = []
    with st.expander("Text and sizes; empty means what stands there in grey"):
        for group in plans.OF_ANALYZE:
            settings = [one for one in settings_of(plans.AuditPlan) if one.option and one.group == group]
            st.caption(group.capitalize())
            for i in range(0, len(settings), _COLUMNS):
                for column, setting in zip(st.columns(_COLUMNS), settings[i : i + _COLUMNS], strict=False):
                    with column:
                        found.append((setting.option, _typed(setting, plan)))
    return tuple((option, value) for option, value in found if value)


def _typed(setting: Setting, plan: plans.AuditPlan) -> str:
    """What was typed, empty for nothing."""
    key, default, more = f"start_{setting.field}", setting.default(plan), setting.described
    if setting.kind is int:
        least = None if setting.least is None else int(setting.least)
        number = st.number_input(
            setting.title, min_value=least, value=None, step=1, key=key, bind="query-params", placeholder=default,
            help=more,
        )  # fmt: skip
        return "" if number is None else str(number)
    if setting.choices:
        chosen = st.selectbox(
            setting.title, setting.choices, index=None, key=key, bind="query-params", placeholder=default, help=more
        )  # fmt: skip
        return chosen or ""
    return selection.text(setting.title, key, placeholder=default, help_text=more)


def _begin(run: Callable[[Any], jobs.Job], what: jobs.Request | jobs.Job) -> None:
    try:
        run(what)
    except InputError as error:
        st.toast(layout.plain(str(error)), duration="long")


def under_way() -> None:
    """Jobs of this server, if there are any. The page stays as it is while one is polled."""
    found = registry().all()
    if found:
        # Polling stops with the last job: an idle page asks for nothing.
        polled = st.session_state[_POLLED] = any(job.active for job in found)
        st.fragment(_show, run_every=POLL_S if polled else None)()


def _show() -> None:
    found = registry().all()
    for job in reversed(found):
        with st.container(border=True, key=f"job-{job.id}"):
            _job(job)
    if any(job.active for job in found) != st.session_state[_POLLED]:
        st.rerun()  # the whole page: what ended is listed, and polling ends or begins


def _job(job: jobs.Job) -> None:
    state = job.state
    name = layout.plain(job.request.folder.name)
    said = {
        "running": "under way", "cancelling": "is being stopped", "done": "is done", "failed": "failed",
        "cancelled": "was cancelled; what was finished is kept",
    }[state]  # fmt: skip
    st.markdown(f"**{name}** {said}, {formats.seconds(job.elapsed_s)}")
    if job.active:
        progress = job.progress
        if progress is None or not progress["total"]:
            st.progress(0.0, "Loading the model and the text")
        else:
            left = progress["seconds_left"]
            rest = "" if left is None else f", about {_rounded(left)} left of this stage"
            text = f"{progress['stage']}: {progress['done']} of {progress['total']}{rest}"
            st.progress(min(progress["done"] / progress["total"], 1.0), layout.plain(text))
        st.button("Cancel", key=f"cancel-{job.id}", on_click=registry().cancel, args=(job,), disabled=job.cancelled)
        return
    if state == "failed":
        st.error(layout.plain(job.message or "it ended without saying why"))
    for analysis, why in job.skipped.items():
        st.caption(f"Skipped {layout.plain(analysis)}: {layout.plain(why)}")
    with st.container(horizontal=True):
        if state != "done":
            st.button("Resume", key=f"resume-{job.id}", on_click=_begin, args=(registry().resume, job))
        st.button("Dismiss", key=f"forget-{job.id}", on_click=registry().forget, args=(job,))


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
