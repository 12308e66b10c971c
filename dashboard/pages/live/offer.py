"""What another model lacks for a live edit, offered: what makes it, how long that takes, and the command."""

import os
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import streamlit as st

from dashboard.chat import estimates
from dashboard.show import layout, selection
from dashboard.show.estimated import estimated
from dashboard.state import access, estimates as run_estimates, job_cards, jobs, results
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, read_manifest
from engine.run.refusal_plan import default_plan
from engine.run.score_plan import SHIPPED

RUN_NEEDED = "A refusal edit of another model needs a refusal run of it. This makes one:"
PAIRS_HELP = (
    "demo: the shipped pairs. Else a .jsonl file with one JSON object per line, risk and base, or CAST's "
    "condition_multiple.json."
)
SCORES_NEEDED = "Its scores are computed when you press Run, and kept for as long as the model is in memory."


def refusal_run(model_id: str) -> None:
    """A refusal run of a model: on which pairs, its command, its estimate where that is asked for, Start, and then
    where it stands; once it is done, its folder is taken."""
    st.caption(RUN_NEEDED)
    pairs = selection.text("Prompt pairs", "edit_pairs", default=SHIPPED, help_text=PAIRS_HELP)
    folder = _folder(model_id)
    request = jobs.refusal(model_id, "run", folder, (("--pairs", pairs),), results.store_dir())
    if not model_id:
        st.code("selector-audit refusal run MODEL --pairs PAIRS.jsonl --out FOLDER", language=None, wrap_lines=True)
        return
    with layout.told():
        st.code(request.command, language=None, wrap_lines=True)
        plan = replace(default_plan(model_id), pairs=pairs)
        estimated("live-estimate", ("run", model_id, pairs), lambda: run_estimates.of_refusal(model_id, plan))
        job = jobs.registry().of(request)
        if (folder / f"{results.REFUSAL_SWEEP}.parquet").is_file() and not (job and job.active):
            use = {"edit_run": str(folder)}
            st.button("Use this run", key="live-use-run", type="primary", on_click=st.session_state.update, args=(use,))
        if job is not None:
            job_cards.show([job], "live-", here="refusal")
        elif not access.limited():
            st.button(
                "Start", key="live-start-run", icon=":material/play_circle:",
                on_click=job_cards.begun, args=(jobs.registry().start, request),
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
    st.caption(SCORES_NEEDED)
    with layout.told():
        estimated(
            "live-estimate", ("scores", model_id, selector), lambda: estimates.of_scores(model_id, selector),
            possible=bool(model_id),
        )  # fmt: skip
