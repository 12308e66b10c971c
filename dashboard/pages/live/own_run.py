"""Edits of one's own model: the cells of the grid that its refusal run measured; what it lacks is offered, and what an
edit takes before its reply."""

import os
import re
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

import polars as pl
import streamlit as st

from dashboard.charts.refusal_values import percent
from dashboard.chat import live
from dashboard.chat.edits import CALIBRATION_WINDOWS, WINDOW_TOKENS, Edit, cell_name
from dashboard.show import layout, selection
from dashboard.state import access, estimates, job_cards, jobs, results
from dashboard.state.estimates import estimated
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest
from engine.run.audit_plan import SHIPPED, AuditPlan, ScorePlan
from engine.run.refusal_plan import default_plan

PAIRS_HELP = (
    "demo: the shipped pairs. Else a .jsonl file with one JSON object per line, risk and base, or CAST's "
    "condition_multiple.json."
)
_NO_WAIT_S = 10.0
NO_EDIT = Edit("refusal", "")
HELP = "What `selector-audit refusal run MODEL --pairs FILE --out FOLDER` wrote for this model, on its own prompts."


def settings(model_id: str) -> Edit:
    """The cell that is chosen; `NO_EDIT`, and a line that says why, where the folder holds none, and an offer of the
    run where no folder is given."""
    text = selection.text("Folder of its refusal run", "edit_run", placeholder="/path/to/results", help_text=HELP)
    if not text:
        refusal_run(model_id)
        return NO_EDIT
    try:
        folder = results.folder_of(text)
        grid = results.read_table(folder, REFUSAL_SWEEP).frame.drop_nulls(["malign", "benign"])
        edited = grid.filter(pl.col("k") > 0)
        if edited.is_empty():
            raise InputError(f"no cell of the grid in {folder} wrote replies; run `refusal run` with a wider grid")
    except InputError as error:
        layout.problem(error)
        return NO_EDIT
    return _cell(folder, grid, edited)


def _cell(folder: Path, grid: pl.DataFrame, edited: pl.DataFrame) -> Edit:
    columns = st.columns(3)
    domain = selection.choose_domain(edited, "run_domain", place=columns[0])
    of_domain = edited.filter(domain=domain)
    selector = selection.choose_selector(of_domain, "run_selector", place=columns[1])
    best = of_domain.filter(selector=selector).sort("feasible", "malign", descending=True, maintain_order=True)
    cells = {cell_name(row["lambda"], row["k"]): row for row in best.iter_rows(named=True)}
    first = ""
    if (folder / f"{POINTS}.parquet").is_file():
        points = results.read_table(folder, POINTS).frame.filter(selector=selector, domain=domain).drop_nulls("lambda")
        first = cell_name(points["lambda"][0], points["k"][0]) if points.height else ""
    default = first if first in cells else next(iter(cells))
    chosen = selection.choose("Measured cell", list(cells), "run_cell", default=default, place=columns[2])
    row = cells[chosen]
    before = grid.filter(pl.col("k") == 0, domain=domain, selector=selector)
    was = f", without it {percent(before['malign'][0])} and {percent(before['benign'][0])}" if before.height else ""
    st.caption(
        f"On this run's calibration pairs the edit refuses {percent(row['malign'])} of the risk prompts and "
        f"{percent(row['benign'])} of the base prompts{was}."
    )
    return Edit("refusal", selector, domain=domain, lam=row["lambda"], k=row["k"], run=str(folder))


def restore(edit: Edit) -> None:
    state = st.session_state
    state["edit_run"], state["run_domain"], state["run_selector"] = edit.run, edit.domain, edit.selector
    state["run_cell"] = cell_name(edit.lam, edit.k)


def refusal_run(model_id: str) -> None:
    """A refusal run of a model: on which pairs, its command, its estimate where that is asked for, Start, and then
    where it stands; once it is done, its folder is taken."""
    st.caption("A refusal edit of another model needs a refusal run of it. This makes one:")
    pairs = selection.text("Prompt pairs", "edit_pairs", default=SHIPPED, help_text=PAIRS_HELP)
    folder = _folder(model_id)
    request = jobs.refusal(model_id, "run", folder, (("--pairs", pairs),), results.store_dir())
    if not model_id:
        st.code("selector-audit refusal run MODEL --pairs PAIRS.jsonl --out FOLDER", language=None, wrap_lines=True)
        return
    with layout.told():
        st.code(request.command, language=None, wrap_lines=True)
        plan = replace(default_plan(model_id), pairs=pairs)
        estimated("live-estimate", ("run", model_id, pairs), lambda: estimates.of_refusal(model_id, plan))
        job = jobs.registry().of(request)
        if (folder / f"{results.REFUSAL_SWEEP}.parquet").is_file() and not (job and job.active):
            use = {"edit_run": str(folder)}
            st.button("Use this run", key="live-use-run", type="primary", on_click=st.session_state.update, args=(use,))
        if job is not None:
            job_cards.show([job], "live-", here="refusal")
        elif not access.limited():
            st.button(
                "Start", key="live-start-run", icon=":material/play_circle:",
                on_click=job_cards.begin, args=(jobs.registry().start, request),
            )  # fmt: skip


def _folder(model_id: str) -> Path:
    """Where the run goes: a name of the model's own, with a number where another model of that name has it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(model_id).name).strip("-.") or "model"
    tried = (results.results_dir() / f"{name}-refusal{f'-{n}' if n > 1 else ''}" for n in count(1))
    return next(folder for folder in tried if not (folder / MANIFEST).is_file() or _is_of(folder, model_id))


def _is_of(folder: Path, model_id: str) -> bool:
    names = (model_id, os.path.expanduser(model_id))  # a local folder's id is its path with the home spelled out
    try:
        return (read_manifest(folder).get("model") or {}).get("id") in names
    except InputError:
        return False


def scores(model_id: str, selector: str) -> None:
    st.caption("Its scores are computed when you press Run, and kept for as long as the model is in memory.")
    scoring = ScorePlan(selectors=(selector,), corpus=SHIPPED, samples=CALIBRATION_WINDOWS, length=WINDOW_TOKENS)
    with layout.told():
        estimated(
            "live-estimate", ("scores", model_id, selector),
            lambda: estimates.of_analyses(model_id, AuditPlan(scoring=scoring), ()), possible=bool(model_id),
        )  # fmt: skip


def wait(model_id: str) -> str:
    """How long it takes to know what a new edit does to a model in memory, in words; "" where that is no wait.
    From the products of the text and the prompts that `checked_effect` measures, before and after."""
    if model_id not in live.POOL:
        return "The model is loaded first."
    from engine.run.runner import told
    from engine.studies.refusal.effect import REPLY_TOKENS, WINDOW_TOKENS, WINDOWS, shipped_prompts

    read = 1.5 * REPLY_TOKENS * sum(map(len, shipped_prompts().values()))  # with the prompts' own tokens
    text, asked = (2 * tokens / _tokens_per_second(model_id) for tokens in (WINDOWS * WINDOW_TOKENS, read))
    if text + asked < _NO_WAIT_S:
        return ""
    return f"Before comes at once. What a new edit does: {told(text)}, {told(asked)} more if it breaks nothing."


@cache
def _tokens_per_second(model_id: str) -> float:
    """Of a model's products on this machine, measured once."""
    from engine.run.run_estimate import flops_per_second

    with live.POOL.use(model_id) as entry:
        return flops_per_second(entry.loaded) / (2 * sum(one.numel() for one in entry.loaded.model.parameters()))
