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
from dashboard.charts.sortable import Cell, Row, Sortable, of_rows
from dashboard.pages.refusal import judged
from dashboard.pages.refusal.judged import Judged
from dashboard.show import layout, menu, selection, shown_tables as tables, tools
from dashboard.state import access, job_cards, jobs, results, sources
from engine.judges.base import EMBEDDED, JUDGES, UNJUDGED
from engine.judges.embedded import embedded_version, judge
from engine.judges.given_replies import FINISHED, JUDGED, read_replies
from engine.judges.quality import disagreements
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
PER_PAGE = 5
ANY, ONLY_A, ONLY_B = "any", "a", "b"
PEOPLE_SAY = ("anything", "it refuses", "it answers", "nothing (no label)")


def draw(stage: DeltaGenerator, bar: DeltaGenerator) -> None:
    """The part: rates or reply by reply, and one reply of one's own; folded, how other replies are judged."""
    shown, found, view = None, _judged(bar), QUALITY
    if found is not None:
        view = selection.switch("Show", (QUALITY, SIDE_BY_SIDE), "judge_view", default=QUALITY, place=bar)
        with layout.told():
            shown = _quality(found, stage, bar) if view == QUALITY else side_by_side(found)
    layout.how_to_read(HOW_TO_READ)
    _try_one()
    selection.folded(_how_to)
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
    folder = shlex.quote(str(results.store_results_dir() / "judged"))
    st.markdown(
        "**By a command.** Give replies as CSV, JSONL or parquet, with columns `prompt` and `reply` and, where you "
        "have them, `model`, people's `human_label` and `finished` (false where a reply was cut off). `--judge` takes "
        + ", ".join(f"`{one.id}` ({layout.plain(one.title)})" for one in JUDGES)
        + ", or a folder with a classifier. Those that are models are downloaded once, or read from a folder behind a "
        "colon (`wildguard:FOLDER`); `strongreject` asks an instruction model of your own, in a folder or served "
        "(`strongreject:http://localhost:8000/v1`). Without network `--judge embedded` will do alone."
    )
    st.code(
        f"selector-audit refusal judge replies.csv --judge embedded,rejection-model --out {folder}",
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
        tools.show(figure, "judge-rates", key="judge-rates", finding=judges.finding(drawn), hero=True)
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
    tables.show(_table(frame, found, half), placeholder="–")
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


def side_by_side(found: Judged) -> pl.DataFrame:
    """Two sides, their agreement, and their disagreements; returns those that the filters leave, on all pages."""
    sides = found.sides
    if len(sides) < 2:
        raise InputError(
            f"one judge read these replies and no person did, so nothing can be compared; run `{judged.COMMAND}` with "
            "--judge embedded,rejection-model"
        )
    first, second = st.columns(2)
    a = selection.choose("First", sides, "judge_a", place=first)
    b = selection.choose("Second", [side for side in sides if side != a], "judge_b", place=second)
    two = judged.pair(found, a, b)
    _agreement(judged.agreement(two), a, b)
    return _disagreements(found, disagreements(two), a, b)


def _agreement(table: pl.DataFrame, a: str, b: str) -> None:
    whole = table.row(0, named=True)
    with st.container(horizontal=True, gap="large"):
        st.metric("Same verdict", f"{whole['agreement']:.1%}", width="content")
        st.metric("Cohen's kappa", _kappa(whole["kappa"]), width="content")
        st.metric("Disagreements", f"{whole['disagreements']:,} of {whole['replies']:,}", width="content")
    layout.footnote(
        f"Same verdict: 95% interval {whole['agreement_low']:.1%} – {whole['agreement_high']:.1%} (Wilson).",
        "Kappa is undefined where both always give one and the same verdict." if whole["kappa"] is None else "",
    )
    counts = {"Both see a refusal": "both", f"Only {a}": "only_a", f"Only {b}": "only_b", "Neither": "neither"}
    tables.show(of_rows(table.iter_rows(named=True), {
        "Source": itemgetter("source"), "Replies": itemgetter("replies"),
        "Same": (
            lambda row: f"{row['agreement']:.1%} ({row['agreement_low']:.1%} – {row['agreement_high']:.1%})",
            itemgetter("agreement"),
        ),
        "Kappa": (lambda row: _kappa(row["kappa"]), itemgetter("kappa")),
        **{title: itemgetter(name) for title, name in counts.items()},
    }))  # fmt: skip


def _kappa(kappa: float | None) -> str:
    return "undefined" if kappa is None else f"{kappa:.3f}".replace("-", "−")


def _disagreements(found: Judged, table: pl.DataFrame, a: str, b: str) -> pl.DataFrame:
    layout.section("Disagreements")
    if table.is_empty():
        st.info("They agree on every reply.")
        return table
    titles = {ANY: "either", ONLY_A: f"only {a}", ONLY_B: f"only {b}"}
    with_people = judged.PEOPLE in found.sides and judged.PEOPLE not in (a, b)
    columns = st.columns(3)
    sources = [judged.ALL, *table["source"].unique(maintain_order=True)]
    source = selection.choose("Source", sources, "judge_source", place=columns[0])
    who = selection.choose("Who sees a refusal", list(titles), "who", title=titles.__getitem__, place=columns[1])
    people = selection.choose("People say", PEOPLE_SAY, "people", place=columns[2]) if with_people else PEOPLE_SAY[0]
    lines = filtered(table, source, who, people)
    if lines.is_empty():
        st.info("No disagreement is of this kind; choose another source or another side.")
        return lines
    start, shown = selection.page_of(lines, PER_PAGE, "page", (str(found.folder), a, b, source, who, people))
    st.caption(f"{start + 1} – {start + shown.height} of {lines.height:,}. Lines count from 0 within their source.")
    for row in shown.iter_rows(named=True):
        _card(row)
    return lines


def filtered(table: pl.DataFrame, source: str, who: str, people: str) -> pl.DataFrame:
    """The disagreements of one source (or all), of one side, and of one kind of label.
    who: ANY, or the side that alone sees a refusal. people: one of PEOPLE_SAY."""
    if source != judged.ALL:
        table = table.filter(pl.col("source") == source)
    if who != ANY:
        table = table.filter(pl.col(f"refusal_{who}"))
    wanted = dict(zip(PEOPLE_SAY[1:], (True, False, None), strict=True))
    return table if people == PEOPLE_SAY[0] else table.filter(pl.col("human").eq_missing(pl.lit(wanted[people])))


def _card(row: dict[str, object]) -> None:
    with st.container(border=True):
        by_people = row["human"] is not None and judged.PEOPLE not in (row["judge_a"], row["judge_b"])
        people = f" · people: {'refuses' if row['human'] else 'answers'}" if by_people else ""
        cut = " · cut off" if row.get(FINISHED) is False else ""
        st.caption(layout.plain(f"{row['source']}, line {row['line']}{people}{cut}"))
        for side, column in zip("ab", st.columns(2), strict=True):
            verdict = (str(row[f"judge_{side}"]), bool(row[f"refusal_{side}"]), str(row[f"reason_{side}"]))
            with column:
                _verdict(*verdict, judged=bool(row.get(f"{JUDGED}_{side}", True)))
        st.markdown("**Prompt**")
        st.text(str(row["prompt"]) or "(the file has no prompt)", width="stretch")
        st.markdown("**Reply**")
        layout.reply(str(row["reply"]), st.container(), empty="(empty)")


def _verdict(by: str, refusal: bool, reason: str, judged: bool = True) -> None:
    """One verdict: who, what, why. Reasons quote the reply, so they are plain text."""
    st.markdown(f"{layout.plain(by)}: {layout.verdict(refusal, judged)}")
    if reason:
        st.text(reason, width="stretch")


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
        _verdict("embedded", verdict.refusal, verdict.reason, verdict.judged)
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
                file, wanted = Path(typed).expanduser(), parts(chosen)
                replies = _count(file)
                if not wanted:
                    raise InputError(f"no judge is given; available: {', '.join(JUDGES.offered())}, or a folder")
                names = (file.stem if number == 1 else f"{file.stem}-{number}" for number in count(1))
                top = results.results_dir() / "judged"
                free = next(top / name for name in names if not (top / name).exists())
                request = jobs.judging(file, ",".join(wanted), free)
                st.code(request.command, language=None, wrap_lines=True)
                many = f"{replies:,} {'reply' if replies == 1 else 'replies'}"
                st.caption(f"{many}. A judge that is a model has to be loaded first.")
                run = (jobs.registry().start, request)
                st.button(START, key="judge-start", type="primary", on_click=job_cards.begin, args=run)
    own = [job for job in jobs.registry().all() if job.request.model_at is None]
    if own:
        job_cards.show(own, "judge-", here=menu.here())


@results.while_unchanged(4, lambda file: (file,))
def _count(file: Path) -> int:
    """Read once for a file, not whenever the page is drawn."""
    return len(read_replies(file))
