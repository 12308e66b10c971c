"""A file of replies is judged from here. The command, what it takes, Start, and how far it has come."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.show import layout, menu
from dashboard.state import access, job_cards, jobs, results
from engine.judges.base import EMBEDDED, JUDGES
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError
from engine.run.field_types import parts

FILE, WITH, START = "File of replies", "Judges", "Judge them"


def form() -> None:
    """Nothing where the app may start no run."""
    if access.limited():
        return
    with st.container(border=True, key="judge-form"):
        first, second = st.columns(2)
        typed = first.text_input(
            FILE, key="judge_file", placeholder="replies.csv",
            help="On this machine: CSV, JSONL or parquet with a column `reply`, and where you have them `prompt`, "
            "`model`, people's `human_label` and `finished`.",
        ).strip()  # fmt: skip
        chosen = second.text_input(
            WITH, EMBEDDED, key="judge_with",
            help=f"Of {', '.join(JUDGES.offered())}, or a folder with a classifier; two, separated by a comma, are "
            "compared. A judge that asks a model takes it behind a colon, as in `strongreject:FOLDER`.",
        )  # fmt: skip
        if typed:
            with layout.told():
                _ready(Path(typed).expanduser(), parts(chosen))
    own = [job for job in jobs.registry().all() if job.request.model_at is None]
    if own:
        job_cards.show(own, "judge-", here=menu.here())


def _ready(file: Path, judges: list[str]) -> None:
    """The command, what it takes, and the button. `InputError` where there is nothing to judge, or nobody."""
    count = _count(file)
    if not judges:
        raise InputError(f"no judge is given; available: {', '.join(JUDGES.offered())}, or a folder")
    request = jobs.judging(file, ",".join(judges), _free(file))
    st.code(request.command, language=None, wrap_lines=True)
    st.caption(f"{count:,} {'reply' if count == 1 else 'replies'}. A judge that is a model has to be loaded first.")
    st.button(START, key="judge-start", type="primary", on_click=job_cards.begin, args=(jobs.registry().start, request))


@results.while_unchanged(4, lambda file: (file,))
def _count(file: Path) -> int:
    """Read once for a file, not whenever the page is drawn."""
    return len(read_replies(file))


def _free(file: Path) -> Path:
    """A folder beside the runs that is not there yet."""
    top, name, number = results.results_dir() / "judged", file.stem, 1
    while (top / name).exists():
        number += 1
        name = f"{file.stem}-{number}"
    return top / name
