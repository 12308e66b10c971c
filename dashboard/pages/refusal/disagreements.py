"""Judges, reply by reply: how often two sides agree, and every reply on which they do not."""

from operator import itemgetter

import polars as pl
import streamlit as st

from dashboard.charts.sortable import of_rows
from dashboard.pages.refusal import judged
from dashboard.pages.refusal.judged import Judged
from dashboard.show import grid, layout, reply_text, selection
from engine.judges.given_replies import FINISHED, JUDGED
from engine.judges.quality import disagreements
from engine.records.errors import InputError

PER_PAGE = 5
ANY, ONLY_A, ONLY_B = "any", "a", "b"
PEOPLE_SAY = ("anything", "it refuses", "it answers", "nothing (no label)")


def section(found: Judged) -> pl.DataFrame:
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
    return _replies(found, disagreements(two), a, b)


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
    grid.show(of_rows(table.iter_rows(named=True), {
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


def _replies(found: Judged, table: pl.DataFrame, a: str, b: str) -> pl.DataFrame:
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
    kept = filtered(table, source, who, people)
    if kept.is_empty():
        st.info("No disagreement is of this kind; choose another source or another side.")
        return kept
    start, shown = selection.page_of(kept, PER_PAGE, "page", (str(found.folder), a, b, source, who, people))
    st.caption(f"{start + 1} – {start + shown.height} of {kept.height:,}. Lines count from 0 within their source.")
    for row in shown.iter_rows(named=True):
        _card(row)
    return kept


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
        told = row["human"] is not None and judged.PEOPLE not in (row["judge_a"], row["judge_b"])
        people = f" · people: {'refuses' if row['human'] else 'answers'}" if told else ""
        cut = " · cut off" if row.get(FINISHED) is False else ""
        st.caption(layout.plain(f"{row['source']}, line {row['line']}{people}{cut}"))
        for side, column in zip("ab", st.columns(2), strict=True):
            said = (str(row[f"judge_{side}"]), bool(row[f"refusal_{side}"]), str(row[f"reason_{side}"]))
            with column:
                verdict(*said, judged=bool(row.get(f"{JUDGED}_{side}", True)))
        st.markdown("**Prompt**")
        st.text(str(row["prompt"]) or "(the file has no prompt)", width="stretch")
        st.markdown("**Reply**")
        reply_text.show(str(row["reply"]), st.container(), empty="(empty)")


def verdict(judge: str, refusal: bool, reason: str, judged: bool = True) -> None:
    """One verdict: who, what, why. Reasons quote the reply, so they are plain text."""
    st.markdown(f"{layout.plain(judge)}: {layout.verdict(refusal, judged)}")
    if reason:
        st.text(reason, width="stretch")
