"""Watch it break: two removal orders race over the picked model's rows."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import polars as pl
import streamlit as st

from dashboard.charts import palette, watch
from dashboard.pages.agreement import rankings
from dashboard.show import selection
from dashboard.show.watch import play
from dashboard.state import results, sources

REPLIES = "sweep_replies"
_PREFERRED = ("consensus2", "lrp", "ig")  # what races first, where it was scored


def show(picked: sources.Source, sweep: pl.DataFrame) -> None:
    """The stage, where the picked results hold scores; nothing where they do not (the paper's)."""
    if picked.published or not (picked.folder / rankings.SCORES).is_file():
        return
    racers = _racers(sweep)
    if not racers:
        return
    st.subheader("Watch it break", anchor=False)
    st.caption(
        "Every pixel is a row of the model, block by block; bright ones go last. Both sides lose equally many rows. "
        "Perplexity is measured at the rates of the curves and lies on a straight line of its logarithm between them."
    )
    left, right = st.columns(2)
    with left:
        one = selection.choose("First", racers, "watch_a", default=_default(racers, "lerf"), title=_title)
    with right:
        other = selection.choose("Second", racers, "watch_b", default=_default(racers, "morf"), title=_title)
    rows = rankings.read_rows(picked.folder)
    replies = picked.table(REPLIES) if picked.has(REPLIES) else None
    lanes = [
        watch.Lane(
            selector,
            order,
            _places(picked.folder, selector, order, results.stamp(picked.folder / rankings.SCORES)),
            watch.curve(sweep, selector, order),
            watch.said(replies, selector, order),
        )
        for selector, order in (one.split(), other.split())
    ]
    play(watch.payload(rows, lanes), key="watch")


@lru_cache(maxsize=8)
def _places(folder: Path, selector: str, order: str, _stamp: object) -> str:
    return watch.encoded(rankings.read_scores(folder, selector), order)


def _racers(sweep: pl.DataFrame) -> list[str]:
    """ "lrp lerf", "lrp morf", … in the order in which selectors stand everywhere."""
    there = set(sweep.select("selector", "order").unique().rows())
    return [
        f"{name} {order}"
        for name in palette.in_order(sorted({name for name, _ in there}))
        for order in watch.ORDER_WORDS
        if (name, order) in there
    ]


def _default(racers: list[str], order: str) -> str:
    return next((f"{name} {order}" for name in _PREFERRED if f"{name} {order}" in racers), racers[0])


def _title(racer: str) -> str:
    selector, order = racer.split()
    return f"{palette.title(selector)}, {watch.ORDER_WORDS[order]}"
