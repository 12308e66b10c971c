"""Runs: what is in the store, start one, bring one in, delete one, look at any table."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st

import precomputed
from dashboard.charts import formats
from dashboard.chat import edits, live
from dashboard.pages.runs import catalogue as runs, importing
from dashboard.show import layout, selection, shown_tables as tables, tools
from dashboard.state import access, estimates, job_cards, jobs, results, shipped_models as shipped
from engine.cli import build_parser
from engine.commands.analyze import audit_plan
from engine.data.texts import available_corpora
from engine.records.errors import InputError
from engine.results.folders import table_names
from engine.results.running import Running, running, stop
from engine.results.store import default_store_dir
from engine.results.tables import TABLES, command
from engine.run import audit_plan as plans
from engine.run.audit_plan import SCORES, AuditPlan, for_model
from engine.run.field_types import Names, Setting, corpus, rates, rates_or_sweep, settings_of
from engine.selectors import own_scores
from engine.selectors.base import REGISTRY
from engine.studies.base import ANALYSES, AUDIT, all_analyses, analyze_groups, plan_type, whole_plan

HOW_TO_READ = (
    "Each line is a folder that a command wrote; its manifest says which model was measured how, and its checksums say "
    "whether the files are still the same."
)
TITLES = ("Kept", "Start", "Import", "Tables")
FOLDER, ZIP = "A folder on this machine", "A zip file"
WHERE_LIMITED = ("Kept", "Tables")
LIMITED = f"Starting, importing and deleting runs is {access.HOW}."
_DELETE = "runs-delete"  # session state: the run that is asked about
CURVES, VERDICT, EVERYTHING, CHOSEN = "Curves", "Verdict", "Everything", "Choose"
OTHER = "Another model"
_COLUMNS = 3
_FITTING = "runs-fitting-preset"  # session state: the preset that the last model started with
_USUAL = "runs-usual-analyses"  # session state: what "What" stood at before anyone chose
# Groups of settings beyond an analysis's own. Written out: asking the registry would load torch before the first run.
_ALSO_READS = {
    "sweep": (plans.SWEEP, plans.CURVES), "verdict": ("specific", "draws"), "joint": ("singles",),
    "claims-of": ("singles", "specific"),
}  # fmt: skip
_WHAT: dict[str, tuple[str, ...]] = {CURVES: ("sweep",), VERDICT: ("verdict", "sweep"), EVERYTHING: ("all",)}


def render() -> None:
    layout.heading("Runs", HOW_TO_READ)
    top = results.results_dir()
    st.caption(f"Folder: {layout.plain(str(top))}")
    every_run = runs.listed(top)
    above = st.container()
    titles = WHERE_LIMITED if access.limited() else TITLES
    if access.limited():
        st.caption(LIMITED)
    tabs = st.tabs(titles, key="runs_view", bind="query-params")
    frame: pl.DataFrame | None = None
    name, lines = "runs", list[str]()
    shown = next((place for place, tab in enumerate(tabs) if tab.open), 0)
    if titles[shown] != "Start":  # there they stand where one presses Start
        with above:
            _under_way()
    with layout.told(), tabs[shown]:
        match titles[shown]:
            case "Kept":
                frame = _kept(every_run)
            case "Start":
                _form(top, every_run)
            case "Import":
                _import(top)
            case "Tables":
                frame, name, lines = _table(every_run)
    tools.end(frame, name, *lines)


def _kept(found: Sequence[runs.Run]) -> pl.DataFrame | None:
    if not found:
        st.info("No run is kept here yet. Start one, or import a folder that was made elsewhere.")
        if not access.limited():
            with st.container(horizontal=True):
                go, start, bring = st.session_state.update, {"runs_view": "Start"}, {"runs_view": "Import"}
                st.button("Start one", key="empty-start", type="primary", on_click=go, args=(start,))
                st.button("Import a folder", key="empty-import", on_click=go, args=(bring,))
        return None
    lines = [
        (run.name, run.model, len(run.tables), run.measured, run.size_bytes, run.problem or "whole") for run in found
    ]
    table = pl.DataFrame(lines, schema=["run", "model", "tables", "measured", "bytes", "state"], orient="row")
    _sized(table, "Runs with their model, number of tables, date, size and state")
    for run in found:
        if run.problem:
            st.warning(layout.worded(f"{run.name}: {run.problem}"))
    chosen = selection.choose("Run", [run.name for run in found], "kept_run")
    _details(next(run for run in found if run.name == chosen))
    return table


def _sized(table: pl.DataFrame, alt: str) -> None:
    size = st.column_config.NumberColumn("size", format="bytes")
    st.dataframe(table, hide_index=True, alt=alt, column_config={"bytes": size})


def _details(run: runs.Run) -> None:
    with layout.told():
        _sized(runs.files(run), f"Files of {run.name}")
        with st.expander("Provenance: the manifest as it was written"):
            st.json(runs.provenance(run), expanded=1)
    if access.limited():
        return
    if st.session_state.get(_DELETE) != run.name:
        st.button("Delete this run", key="delete", on_click=_ask, args=(run.name,))
        return
    st.warning(
        f"Delete {layout.plain(run.name)}? Its {len(run.files)} files go for good. Cells in the store stay, so the "
        "same command makes the tables again quickly."
    )
    with st.container(horizontal=True):
        st.button("Yes, delete it", key="delete-yes", type="primary", on_click=_delete, args=(run,))
        st.button("Keep it", key="delete-no", on_click=_ask, args=(None,))


def _ask(name: str | None) -> None:
    st.session_state[_DELETE] = name


def _delete(run: runs.Run) -> None:
    _ask(None)
    try:
        left = runs.delete(run.folder, results.results_dir())
    except (InputError, OSError) as error:
        st.toast(layout.worded(str(error)), duration="long")
        return
    st.session_state.pop("kept_run", None)
    rest = f", but left what is not its own: {', '.join(left)}" if left else ""
    st.toast(layout.plain(f"Deleted {run.name}{rest}."), duration="long")


def _import(top: Path) -> None:
    st.caption(
        "The files that the manifest lists are copied and checked against their checksums; nothing else is read, and "
        "nothing in them is run."
    )
    kind = selection.switch("From", (FOLDER, ZIP), "import_from", default=FOLDER)
    upload, path = None, ""
    if kind == ZIP:
        upload = st.file_uploader("Zip of one results folder", type="zip", key="import_zip")
        st.caption("Larger ones: unpack the zip on this machine and import the folder.")
    else:
        path = st.text_input("Folder", key="import_path", placeholder="/path/to/results").strip()
    wanted = Path(upload.name).stem if upload is not None else Path(path).name if path else ""
    name = st.text_input("Name", key="import_name", placeholder="the name of the folder or the zip").strip()
    if not st.button("Import", key="import", type="primary", disabled=not wanted):
        return
    try:
        name = name or importing.free_name(wanted, top)
        if upload is not None:
            importing.import_zip(upload, top, name)
        else:
            importing.import_folder(results.folder_of(path), top, name)
    except InputError as error:
        layout.problem(error)
        return
    st.success(f"Imported as {layout.plain(name)}. It stands under “Kept”, and under “My results” on the other pages.")


def _title(stem: str) -> str:
    return f"{stem}: {TABLES.get(stem).title}" if stem in TABLES else stem


def _table(found: Sequence[runs.Run]) -> tuple[pl.DataFrame, str, list[str]]:
    """The choice and the table. returns its values, a name for their file, and where they come from.
    Errors: InputError for a folder without tables, and for a table that cannot be read."""
    folders = {run.name: run.folder for run in found if results.shown(run.folder) == str(run.folder)}
    paper = sorted(path.parent for path in precomputed.paper_runs_dir().glob("*/manifest.json"))
    offered = folders | shipped.folders() | {f"Paper: {one.name}": one for one in paper}
    left, right = st.columns(2)
    name = selection.choose("Tables of", list(offered), "tables_of", place=left)
    stems = table_names(offered[name])
    if not stems:
        raise InputError(f"{name} holds no tables; run `selector-audit analyze MODEL all --out {offered[name]}`")
    stem = selection.choose("Table", stems, "run_table", title=_title, place=right)
    table = results.read_table(offered[name], stem)
    known = f"{TABLES.get(stem).title}. Written by `{command(stem)}`" if stem in TABLES else "Not in the registry"
    st.caption(f"{known}. Lines: {table.frame.height:,}.")
    tables.described(table.frame, layout.plain(_title(stem)), tables.columns_of(stem, table.frame.columns))
    return table.frame, stem, [table.provenance]


def _form(top: Path, found: Sequence[runs.Run]) -> None:
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
        usual = VERDICT if st.session_state.get("start_own_files") else CURVES
        if st.session_state.get("start_what") == st.session_state.setdefault(_USUAL, usual) != usual:
            st.session_state["start_what"] = usual
        st.session_state[_USUAL] = usual
        what = selection.switch("What", (*_WHAT, CHOSEN), "start_what", default=usual)
        analyses = _WHAT.get(what, ())
        if what == CHOSEN:
            offered: dict[str, Any] = {"selection_mode": "multi", "key": "start_analyses", "bind": "query-params"}
            analyses = tuple(st.pills("Analyses", ANALYSES.offered(), **offered))
        own: tuple[tuple[str, str], ...] | None = None
        with layout.told():
            own = _own_scores()
        given = [value.partition("=")[0] for _, value in own or ()]
        read = {SCORES, plans.TEXT, *analyses, *(one for name in analyses for one in _ALSO_READS.get(name, ()))}
        groups = [group for group in analyze_groups() if "all" in analyses or group in read]
        options = (*(own or ()), *_options(whole_plan(for_model(plans.preset(preset), model), AUDIT), groups, given))
        name = st.text_input(
            "Name of the run", key="start_name", placeholder=importing.free_name(Path(model).name, top),
            help="The folder of its tables. The name of an earlier run adds to it.",
        ).strip()  # fmt: skip
    folder = top / (importing.slug(name) if name else importing.free_name(Path(model).name, top))
    with layout.told():
        if own is None:
            raise InputError("scores of your own: what is wrong stands below their files; put it right to start")
        request = jobs.analysis(model, analyses, folder, preset, options, results.store_dir())
        st.code(request.command, language=None, wrap_lines=True)
        _check(options)
        with st.container(horizontal=True, vertical_alignment="center"):
            start = st.empty()
            with layout.told():
                find = partial(_estimate, request)
                estimates.estimated("start-estimate", request.command, find, at_once=model in live.POOL and not own)
        start.button(
            "Start", key="start", type="primary", on_click=job_cards.begin, args=(jobs.registry().start, request)
        )
    _under_way()


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


def _under_way() -> None:
    """Jobs of this server, if there are any, and what other processes run on the store."""
    every_job = jobs.registry().all()
    if every_job:
        job_cards.show(every_job, "")
    store = results.store_dir() or default_store_dir()
    own = {job.process.pid for job in every_job}
    for other in running(store):
        if other.pid not in own:
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
    """Scores that are uploaded, kept in the store by their hash: the option that names them. Errors: InputError."""
    with st.expander("Scores of your own: a verdict on captum's, or a notebook's"):
        st.caption(
            "A safetensors or npz file with a tensor of scores for every Linear under its module's name, or a table "
            "with row_id and score; higher means more important. Several files are its draws from disjoint "
            "calibration texts, five for a word on stability. Larger files: their place on this machine, below."
        )
        name = selection.text("Name of the scores", "start_own_name", default="mine")
        files = st.file_uploader("Score files", own_scores.ENDINGS, accept_multiple_files=True, key="start_own_files")
        store = results.store_dir() or default_store_dir()
        kept_files = [own_scores.keep(store, one.name, one.getvalue()) for one in files]
        for path in kept_files:
            own_scores.check_name(name)
            own_scores.read_scores(path, st.session_state.get("start_scores_reduce"))
        return tuple(("--scores", f"{name}={path}") for path in kept_files)


def _options(plan: AuditPlan, groups: Sequence[str], own: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """A widget for every option of `analyze` that is a setting of these groups of the plan; what is empty is left to
    the command. own: names of scores that are selectors, too."""
    options: dict[str, str] = {}
    with st.expander("Text and sizes; empty means what stands there in grey"):
        for group in groups:
            settings = [one for one in settings_of(type(plan)) if one.option and one.group == group]
            st.caption(group.capitalize())
            for i in range(0, len(settings), _COLUMNS):
                for column, setting in zip(st.columns(_COLUMNS), settings[i : i + _COLUMNS], strict=False):
                    with column:
                        options[setting.option] = _typed(setting, plan, own)
    return tuple((option, value) for option, value in options.items() if value)


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
