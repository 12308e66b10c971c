"""Runs, the tab Start: a form for the command, and the job that is under way."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st

from dashboard import formats, jobs, layout, runs, runs_import, selection
from engine.errors import InputError

CURVES, EVERYTHING, CHOSEN = "Curves", "Everything", "Choose"
POLL_S = 1.0
_POLLED = "runs-polled"  # session state: does this page ask for progress?
_FITTING = "runs-fitting-preset"  # session state: the preset that the last model started with
_SIZES = (
    ("Calibration windows", "--samples", "start_samples"),
    ("Tokens per calibration window", "--max-length", "start_length"),
    ("Evaluation windows", "--eval-samples", "start_eval_samples"),
    ("Tokens per evaluation window", "--eval-length", "start_eval_length"),
)
_PRESETS = {
    "quick": "less text, fewer rates",
    "paper": "the paper's settings: hours on a card",
    "demo": "for the shipped model and its own text",
}


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
                "Model", "start_model", default="demo", help_text="A local folder, `demo`, or a Hugging Face id.",
            )  # fmt: skip
        with second:
            known, fitting = list(jobs.PRESETS), "demo" if model == "demo" else "quick"
            if st.session_state.get(_FITTING, fitting) != fitting:
                st.session_state["start_preset"] = fitting  # another model's preset would stay otherwise
            st.session_state[_FITTING] = fitting
            preset = selection.choose(
                "Preset", known, "start_preset", default=fitting,
                title=lambda name: f"{name}: {_PRESETS[name]}",
            )  # fmt: skip
        what = selection.switch("What", (CURVES, EVERYTHING, CHOSEN), "start_what", default=CURVES)
        fixed: dict[str, tuple[str, ...]] = {CURVES: (jobs.SWEEP,), EVERYTHING: ("all",)}
        analyses = fixed.get(what, ())
        if what == CHOSEN:
            analyses = tuple(
                st.pills(
                    "Analyses",
                    jobs.ANALYSES,
                    selection_mode="multi",
                    key="start_analyses",
                    bind="query-params",
                )
            )
        options = _options()
        name = st.text_input(
            "Name of the run", key="start_name", placeholder=runs_import.free_name(Path(model).name, top),
            help="The folder of its tables. The name of an earlier run adds to it.",
        ).strip()  # fmt: skip
    folder = top / (runs_import.slug(name) if name else runs_import.free_name(Path(model).name, top))
    request = jobs.Request(model, analyses, folder, preset, options, runs.store_dir())
    with layout.told():
        st.code(request.command, language=None, wrap_lines=True)
        st.button("Start", key="start", type="primary", on_click=_start, args=(request,))


def _options() -> tuple[tuple[str, str], ...]:
    with st.expander("Text and sizes; empty means the preset's"):
        found = {
            "--corpus": selection.text(
                "Text", "start_corpus", placeholder="wikitext2, c4, demo, a .txt or .jsonl file"
            )
        }
        for column, (label, option, key) in zip(st.columns(len(_SIZES)), _SIZES, strict=True):
            with column:
                value = st.number_input(label, min_value=1, value=None, step=1, key=key, bind="query-params")
                found[option] = "" if value is None else str(value)
        found["--selectors"] = selection.text("Selectors", "start_selectors", placeholder="lrp,ig,random")
    return tuple((option, value) for option, value in found.items() if value)


def _start(request: jobs.Request) -> None:
    try:
        registry().start(request)
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
        st.button(
            "Cancel", key=f"cancel-{job.id}", on_click=registry().cancel, args=(job,), disabled=job.cancelled
        )
        return
    if state == "failed":
        st.error(layout.plain(job.message or "it ended without saying why"))
    for analysis, why in job.skipped.items():
        st.caption(f"Skipped {layout.plain(analysis)}: {layout.plain(why)}")
    with st.container(horizontal=True):
        if state != "done":
            st.button("Resume", key=f"resume-{job.id}", on_click=_resume, args=(job,))
        st.button("Dismiss", key=f"forget-{job.id}", on_click=registry().forget, args=(job,))


def _rounded(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _resume(job: jobs.Job) -> None:
    try:
        registry().resume(job)
    except InputError as error:
        st.toast(layout.plain(str(error)), duration="long")
