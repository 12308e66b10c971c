"""Judges: do they agree with people and with each other, reply by reply; and one reply of one's own."""

import shlex
from itertools import count
from operator import itemgetter
from pathlib import Path
from typing import Any

import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import judges
from dashboard.charts.findings import judges as findings
from dashboard.charts.sortable import Cell, Row, Sortable, of_rows
from dashboard.pages.refusal import disagreements, judged
from dashboard.pages.refusal.judged import Judged
from dashboard.show import grid, layout, menu, selection, tools
from dashboard.state import access, job_cards, jobs, results, sources
from engine.judges.base import EMBEDDED, JUDGES, UNJUDGED
from engine.judges.embedded import embedded_version, judge
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError
from engine.run.field_types import parts

HOW_TO_READ = (
    "A judge reads a reply and says whether it refuses. Precision is the share of its refusals that people call "
    "refusals too, recall the share of people's refusals that it finds; kappa is the agreement of two judges beyond "
    "chance, 1 at most and 0 where chance alone would agree as often. The embedded judge reads English only; a reply "
    "that is clearly in another language is marked as not judged."
)
FILE, WITH, START = "File of replies", "Judges", "Judge them"
QUALITY, SIDE_BY_SIDE = "Against people", "Reply by reply"
MAX_REPLY = 6000  # characters; the reply is part of the address
MAX_DRAWN = 13  # sources in the figure, `all` included
_BOTH_TITLE = "all prompts"


def draw(stage: DeltaGenerator, bar: DeltaGenerator) -> None:
    """The part: rates or reply by reply, and one reply of one's own; folded, how other replies are judged."""
    shown, found, view = None, _judged(bar), QUALITY
    if found is not None:
        view = selection.switch("Show", (QUALITY, SIDE_BY_SIDE), "judge_view", default=QUALITY, place=bar)
        with layout.told():
            shown = _quality(found, stage, bar) if view == QUALITY else disagreements.section(found)
    layout.how_to_read(HOW_TO_READ)
    _try_one()
    selection.more(_how_to)
    name = "judge-rates" if view == QUALITY else "judge-disagreements"
    tools.end(shown, name, provenance=[found.provenance] if found else [])


def _judged(bar: DeltaGenerator) -> Judged | None:
    """A folder of judged replies; None where there is none to show, and what to do is on the page."""
    try:
        with bar:
            if sources.kind((), paper=False) == sources.MINE:
                return judged.read(sources.own_run("`selector-audit refusal judge`", judged.find))
        st.caption("One judge read the replies of this model and no person did: each with its verdict is in Replies.")
    except InputError as error:
        layout.problem(error)
    return None


def _how_to() -> None:
    layout.section("Judge other replies, or with a second judge")
    _form()
    place = shlex.quote(str(results.store_results_dir() / "judged"))
    st.markdown(
        "**By a command.** Give replies as CSV, JSONL or parquet, with columns `prompt` and `reply` and, where you "
        "have them, `model`, people's `human_label` and `finished` (false where a reply was cut off). `--judge` takes "
        + ", ".join(f"`{one.id}` ({layout.plain(one.title)})" for one in JUDGES)
        + ", or a folder with a classifier. Those that are models are downloaded once, or read from a folder behind a "
        "colon (`wildguard:FOLDER`); `strongreject` asks an instruction model of your own, in a folder or served "
        "(`strongreject:http://localhost:8000/v1`). Without network `--judge embedded` will do alone."
    )
    st.code(
        f"selector-audit refusal judge replies.csv --judge embedded,rejection-model --out {place}",
        language=None, wrap_lines=True,
    )  # fmt: skip


def _quality(found: Judged, stage: DeltaGenerator, bar: DeltaGenerator) -> pl.DataFrame | None:
    if not found.judges:
        return None
    half = judged.BOTH
    if len(found.halves) > 1:
        half = selection.choose(
            "Prompts", found.halves, "half", title=lambda name: _BOTH_TITLE if name == judged.BOTH else name,
            help_text="The embedded judge's rules were developed on mistakes in one half of the prompts.", place=bar,
        )  # fmt: skip
    frame = judged.measures(found, half)
    every = frame["source"].unique(maintain_order=True).to_list()
    shown = [*[name for name in every if name != judged.ALL][: MAX_DRAWN - 1], judged.ALL]
    drawn = frame.filter(pl.col("source").is_in(shown))
    heading = "Judges and people" if found.quality is not None else "How often each judge calls a reply a refusal"
    figure = judges.rates(drawn, found.judges, heading)
    with layout.hero(stage):
        tools.show(figure, "judge-rates", key="judge-rates", finding=findings.rates(drawn), hero=True)
    left_out, labelled = len(every) - len(shown), found.quality is not None
    layout.footnote(
        "Wilson's intervals; that of F1 is the interval of TP / (TP + FP + FN), mapped. A partial refusal counts as a "
        "refusal."
        if labelled
        else "Wilson's intervals.",
        f"{left_out} more sources stand in the table." if left_out else "",
        "Cut off: replies that did not end by themselves, of those whose end is known."
        if frame["ends_known"].sum()
        else "",
        f"Lines without a reply, which are in no rate: {found.missing:,}." if found.missing else "",
        f"Not judged: replies that {UNJUDGED}."
        if frame["unjudged"].sum()
        else "",
        "" if labelled else "No reply has a human label, so there is no precision and no recall: give the replies a "
        f"column human_label and run `{judged.COMMAND}` again.",
    )  # fmt: skip
    grid.show(_table(frame, found, half), placeholder="–")
    return frame


def _table(frame: pl.DataFrame, found: Judged, half: str) -> Sortable:
    """One line per judge and source, rates with their intervals, and the four counts."""
    labelled = [] if found.quality is None else found.quality.filter(prompts=half).to_dicts()
    counts = {(row["judge"], row["source"]): row for row in labelled}
    lines = [
        {"judge": judge_id, "source": source, **{row["measure"]: row for row in rows.to_dicts()}}
        for (judge_id, source), rows in frame.group_by("judge", "source", maintain_order=True)
    ]

    def counted(column: str) -> Cell:
        return lambda line: counts.get((line["judge"], line["source"]), {}).get(column)  # people have none

    def of_measure(name: str) -> tuple[Cell, Cell]:
        return lambda line: _rate(line.get(name)), lambda line: (line.get(name) or {}).get("value")

    def cut_off(line: Row) -> str:
        known = line[judged.REFUSED]["ends_known"]
        return "–" if known is None else f"{line[judged.REFUSED]['cut_off']:,} of {known:,}"

    columns: dict[str, Cell | tuple[Cell, Cell]] = {
        "Judge": itemgetter("judge"), "Source": itemgetter("source"),
        "Replies": lambda line: line[judged.REFUSED]["replies"],
    }  # fmt: skip
    for name in judged.MEASURES if labelled else (judged.REFUSED,):
        columns[name.capitalize()] = of_measure(name)
    if frame["unjudged"].sum():
        columns["Not judged"] = lambda line: line[judged.REFUSED]["unjudged"]
    if frame["ends_known"].sum():
        columns["Cut off"] = (cut_off, lambda line: line[judged.REFUSED]["cut_off"])
    if labelled:
        titles = ("TP", "FP", "FN", "TN")
        columns |= {"Labelled": counted("replies"), **dict(zip(titles, map(counted, judged.COUNTS), strict=True))}
    return of_rows(lines, columns)


def _rate(row: dict[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    return f"{row['value']:.3f} ({row['low']:.3f} – {row['high']:.3f})"


def _try_one() -> None:
    layout.section("One reply of your own")
    reply = selection.prompt(
        "Reply", "own_reply", MAX_REPLY, height=120,
        placeholder="Paste a model's whole reply in English, without the prompt.",
    )  # fmt: skip
    st.button("Judge", key="judge-own")  # leaving the box is what sends it; a button is what people look for
    if not reply.strip():
        st.caption(f"The embedded judge reads it here; no model is needed. Version {embedded_version()}.")
        return
    verdict = judge(reply)
    with st.container(border=True, key="own-verdict"):
        disagreements.verdict("embedded", verdict.refusal, verdict.reason, verdict.judged)
    layout.footnote(
        "The rule that fired, and the words it found as the rules read them: in small letters, contractions written "
        f"out. The judge sees the reply only, and reads English only. Version {embedded_version()}."
    )


def _form() -> None:
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
    replies = _count(file)
    if not judges:
        raise InputError(f"no judge is given; available: {', '.join(JUDGES.offered())}, or a folder")
    request = jobs.judging(file, ",".join(judges), _free(file))
    st.code(request.command, language=None, wrap_lines=True)
    st.caption(f"{replies:,} {'reply' if replies == 1 else 'replies'}. A judge that is a model has to be loaded first.")
    st.button(START, key="judge-start", type="primary", on_click=job_cards.begin, args=(jobs.registry().start, request))


@results.while_unchanged(4, lambda file: (file,))
def _count(file: Path) -> int:
    """Read once for a file, not whenever the page is drawn."""
    return len(read_replies(file))


def _free(file: Path) -> Path:
    names = (file.stem if number == 1 else f"{file.stem}-{number}" for number in count(1))
    return next(path for name in names if not (path := results.results_dir() / "judged" / name).exists())
