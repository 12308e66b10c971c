"""Runs, the tab Start: a form for the command, and below its button the runs that were started."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.charts import formats
from dashboard.chat import edits, live
from dashboard.pages.runs import catalogue as runs
from dashboard.show import layout, selection
from dashboard.state import access, estimates, job_cards, jobs, shipped
from dashboard.state.estimates import estimated
from engine.cli import build_parser
from engine.commands.analyze import audit_plan
from engine.data.texts import available_corpora
from engine.records.errors import InputError
from engine.results.running import Running, running, stop
from engine.results.store import default_store_dir
from engine.run import audit_plan as plans
from engine.run.audit_plan import AuditPlan, for_model
from engine.run.field_types import Names, Setting, corpus, rates, rates_or_sweep, settings_of
from engine.run.score_plan import SCORES
from engine.selectors import own_scores
from engine.selectors.base import REGISTRY
from engine.selectors.score_files import ENDINGS
from engine.studies.base import ANALYSES, AUDIT, all_analyses, analyze_groups, plan_type, whole_plan

CURVES, EVERYTHING, CHOSEN = "Curves", "Everything", "Choose"
OTHER = "Another model"
_COLUMNS = 3
_FITTING = "runs-fitting-preset"  # session state: the preset that the last model started with
# Groups of settings beyond an analysis's own. Written out: asking the registry would load torch before the first run.
_ALSO_READS = {
    "sweep": (plans.SWEEP, plans.CURVES), "verdict": ("specific", "draws"), "joint": ("singles",),
    "claims-of": ("singles", "specific"),
}  # fmt: skip
_WHAT: dict[str, tuple[str, ...]] = {CURVES: ("sweep",), EVERYTHING: ("all",)}


def form(top: Path, found: Sequence[runs.Run]) -> None:
    """What to run, what it takes, and the button. The command that it stands for is shown, to be typed elsewhere.
    found: the runs of the folder, whose models are offered."""
    with st.container(border=True):
        first, second = st.columns(2)
        with first:
            model = _model(found)
        fitting = plans.default_preset(model, first_look=True)
        if st.session_state.get(_FITTING, fitting) != fitting:
            st.session_state["start_preset"] = fitting  # another model's preset would stay otherwise
        st.session_state[_FITTING] = fitting
        preset = selection.choose(
            "Preset", list(plans.PRESETS), "start_preset", default=fitting, place=second,
            title=lambda name: f"{name}: {plans.PRESETS[name].note}",
        )  # fmt: skip
        what = selection.switch("What", (*_WHAT, CHOSEN), "start_what", default=CURVES)
        analyses = _WHAT.get(what, ())
        if what == CHOSEN:
            offered: dict[str, Any] = {"selection_mode": "multi", "key": "start_analyses", "bind": "query-params"}
            analyses = tuple(st.pills("Analyses", ANALYSES.offered(), **offered))
        own: tuple[tuple[str, str], ...] = ()
        with layout.told():
            own = _own_scores()
        given = [value.partition("=")[0] for _, value in own]
        options = (*own, *_options(whole_plan(for_model(plans.preset(preset), model), AUDIT), _groups(analyses), given))
        name = st.text_input(
            "Name of the run", key="start_name", placeholder=runs.free_name(Path(model).name, top),
            help="The folder of its tables. The name of an earlier run adds to it.",
        ).strip()  # fmt: skip
    folder = top / (runs.slug(name) if name else runs.free_name(Path(model).name, top))
    with layout.told():
        request = jobs.analysis(model, analyses, folder, preset, options, runs.store_dir())
        st.code(request.command, language=None, wrap_lines=True)
        _check(options)
        with st.container(horizontal=True, vertical_alignment="center"):
            start = st.empty()
            with layout.told():
                find = partial(_estimate, request)
                estimated("start-estimate", request.command, find, at_once=model in live.POOL and not own)
        start.button(
            "Start", key="start", type="primary", on_click=job_cards.begin, args=(jobs.registry().start, request)
        )
    under_way()


def _model(found: Sequence[runs.Run]) -> str:
    recent = [one.model_id for one in found if one.model_id and one.model_id not in shipped.TITLES]
    typed = "start_model" in st.query_params
    which = selection.choose(
        "Model", [*shipped.models(), *dict.fromkeys(recent), OTHER], "start_which", default=OTHER if typed else None,
        title=lambda one: f"{shipped.title_of(one)} ({one})" if one in shipped.TITLES else one,
    )  # fmt: skip
    if which != OTHER:
        return which
    return selection.text(
        "Folder, GGUF file or Hugging Face id", "start_model", placeholder="/path/to/model or organisation/name"
    )


def _estimate(request: jobs.Request) -> str:
    arguments = build_parser().parse_args(request.arguments())
    names = tuple(all_analyses()) if "all" in request.words else request.words[2:]
    return estimates.of_analyses(request.model, audit_plan(arguments), names)


def under_way() -> None:
    """Jobs of this server, if there are any, and what other processes run on the store."""
    found = jobs.registry().all()
    if found:
        job_cards.show(found, "")
    store = runs.store_dir() or default_store_dir()
    own = {job.process.pid for job in found}
    for other in running(store):
        if other.pid not in own:
            _other(store, other)


def _other(store: Path, other: Running) -> None:
    with st.container(border=True, key=f"other-{other.pid}"):
        by = "another app" if other.by_app else "a terminal or a script"
        st.markdown(f"**Under way, started by {by}**: process {other.pid}, since {layout.plain(other.since)}")
        st.code(other.command, language=None, wrap_lines=True)
        if not access.limited():
            st.button("Stop it", key=f"stop-{other.pid}", on_click=_stop, args=(store, other))


def _stop(store: Path, other: Running) -> None:
    try:
        stop(store, other)
        st.toast(f"Process {other.pid} is asked to stop; what it has finished is kept.")
    except InputError as error:
        st.toast(layout.worded(str(error)), duration="long")


def _check(options: Sequence[tuple[str, str]]) -> None:
    """`InputError` for the first value that its setting does not take: an unknown id, a number out of its range."""
    settings = {one.option: one for one in settings_of(plan_type(AUDIT)) if one.option}
    with REGISTRY.only_here():
        for name, value in sorted(options, key=lambda one: one[0] != "--scores"):  # whose names others use
            setting = settings[name]
            try:
                setting.of(setting.kind(value) if setting.kind in (int, float) else value)
            except ValueError as error:  # as what `float` raises, an `InputError` is one
                raise InputError(f"{setting.title}: {error}") from None


def _own_scores() -> tuple[tuple[str, str], ...]:
    """Scores that are uploaded, kept in the store by their hash: the option that names them."""
    with st.expander("Scores of your own: a verdict on captum's, or a notebook's"):
        st.caption(
            "A safetensors or npz file with a tensor of scores for every Linear under its module's name, or a table "
            "with row_id and score; higher means more important. Several files are its draws from disjoint "
            "calibration texts, five for a word on stability. Larger files: their place on this machine, below."
        )
        name = selection.text("Name of the scores", "start_own_name", default="mine")
        endings = [ending[1:] for ending in ENDINGS]
        files = st.file_uploader("Files of scores", endings, accept_multiple_files=True, key="start_own_files")
        store = runs.store_dir() or default_store_dir()
        kept = [own_scores.keep(store, one.name, one.getvalue()) for one in files]
        return tuple(("--scores", f"{name}={path}") for path in kept)


def _groups(analyses: Sequence[str]) -> list[str]:
    if "all" in analyses:
        return list(analyze_groups())
    read = {SCORES, plans.TEXT, *analyses, *(one for name in analyses for one in _ALSO_READS.get(name, ()))}
    return [group for group in analyze_groups() if group in read]


def _options(plan: AuditPlan, groups: Sequence[str], own: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """A widget for every option of `analyze` that is a setting of these groups of the plan; what is empty is left to
    the command. own: names of scores that are selectors, too."""
    found: dict[str, str] = {}
    with st.expander("Text and sizes; empty means what stands there in grey"):
        for group in groups:
            settings = [one for one in settings_of(type(plan)) if one.option and one.group == group]
            st.caption(group.capitalize())
            for i in range(0, len(settings), _COLUMNS):
                for column, setting in zip(st.columns(_COLUMNS), settings[i : i + _COLUMNS], strict=False):
                    with column:
                        found[setting.option] = _typed(setting, plan, own)
    return tuple((option, value) for option, value in found.items() if value)


def _typed(setting: Setting, plan: AuditPlan, own: Sequence[str]) -> str:
    """What was chosen or typed, as the command takes it; empty for nothing."""
    title, key, default, more = setting.title, f"start_{setting.field}", setting.default(plan), setting.described
    asked: dict[str, Any] = {"key": key, "bind": "query-params", "placeholder": default, "help": more}
    if setting.kind is int:
        least = None if setting.least is None else int(setting.least)
        number = st.number_input(title, min_value=least, value=None, step=1, **asked)
        return "" if number is None else str(number)
    if isinstance(setting.read, Names) and not setting.read.single:
        names = [*setting.read.available(), *(own if setting.field == "selectors" else ())]
        return ",".join(st.multiselect(title, names, **asked))
    if setting.read in (rates, rates_or_sweep):
        offered = [formats.rate(rate) for rate in edits.RATES]
        return ",".join(st.multiselect(title, offered, accept_new_options=True, **asked))
    if setting.read is corpus or setting.field == "corpus":
        asked["placeholder"] = f"{default}, or the path of your file"
        return st.selectbox(title, available_corpora(), index=None, accept_new_options=True, **asked) or ""
    if setting.choices:
        return st.selectbox(title, setting.choices, index=None, **asked) or ""
    return selection.text(title, key, placeholder=default, help_text=more)
