"""Watch it break: two removal orders race over the picked model's rows."""

import math
from pathlib import Path

import polars as pl
import streamlit as st

from dashboard.charts import palette, row_picture, watch
from dashboard.show import layout, selection, stage
from dashboard.show.watch import play
from dashboard.state import results, scores as stored, sources
from engine.records.errors import InputError

REPLIES = "sweep_replies"
_COMPARED_TO = 0.3  # the largest rate at which selectors are compared


def show(picked: sources.Source, sweep: pl.DataFrame) -> bool:
    """The race, where the picked results hold scores; nothing, and False, where they do not (the paper's)."""
    if picked.published or not scored(picked.folder):
        return False
    racers = racers_of(sweep)
    if not racers:
        return False
    first, second = defaults(racers, sweep)
    with picked.bar if stage.on() else picked.stage.container(horizontal=True):
        left = selection.choose("Left", racers, "watch_a", default=first, title=_title)
        rest = [racer for racer in racers if racer != left]
        default = second if second != left else first
        right = selection.choose("Right", rest, "watch_b", default=default, title=_title) if rest else ""
    replies = None
    with layout.told():  # they are no reason to show no picture
        replies = picked.table(REPLIES) if picked.has(REPLIES) else None
    lanes = [lane(picked.folder, sweep, replies, *racer.split()) for racer in (left, right) if racer]
    picture = picture_of(picked.folder)
    with picked.stage:
        play(watch.payload(picture, lanes), key="watch")
    st.caption(f"**Watch it break.** {layout.plain(watch.legend(picture, lanes))}")
    return True


def alone(folder: Path, sweep: pl.DataFrame, selector: str, order: str, title: str) -> None:
    """One ranking by itself, at the place of the call, with its legend. sweep: of one model."""
    replies = None
    with layout.told():
        if (folder / f"{REPLIES}.parquet").is_file():
            replies = results.read_table(folder, REPLIES).frame
    lanes = [lane(folder, sweep, replies, selector, order, title)]
    picture = picture_of(folder)
    play(watch.payload(picture, lanes), key=f"watch-{selector}")
    st.caption(layout.plain(watch.legend(picture, lanes)))


def scored(folder: Path) -> bool:
    """Does a results folder hold what the picture is made of?"""
    return (folder / stored.SCORES).is_file()


def lane(
    folder: Path, sweep: pl.DataFrame, replies: pl.DataFrame | None, selector: str, order: str, title: str = ""
) -> watch.Lane:
    """One ranking of a results folder, its curve and its replies. sweep, replies: of one model."""
    curve, said = watch.curve(sweep, selector, order), watch.said(replies, selector, order)
    return watch.Lane(
        selector, order, _places(folder, selector, order), curve, said, watch.draws(sweep, selector), title
    )


@results.while_unchanged(8, lambda folder: (folder / f"{results.ROWS}.parquet",))
def picture_of(folder: Path) -> row_picture.Picture:
    """Where every row of a results folder stands in the picture. Errors: InputError for a list without rows."""
    rows = stored.read_rows(folder)
    if rows.is_empty():
        raise InputError(f"{folder} lists no rows in rows.parquet; run `{results.remake(folder, results.ROWS)}` again")
    return row_picture.picture(rows)


@results.while_unchanged(8, lambda folder, *_: (folder / stored.SCORES, folder / f"{results.ROWS}.parquet"))
def _places(folder: Path, selector: str, order: str) -> str:
    picture, scores = picture_of(folder), stored.read_scores(folder, selector)
    if scores.size != picture.rows:
        raise InputError(
            f"{folder / stored.SCORES} has scores of {scores.size:,} rows, rows.parquet lists {picture.rows:,}; "
            f"run `{results.remake(folder, results.ROWS)}` again"
        )
    return watch.encoded(scores, order, watch.steps(picture.group))


def racers_of(sweep: pl.DataFrame) -> list[str]:
    """ "lrp lerf", "lrp morf", … in the order in which selectors stand everywhere."""
    rankings = set(sweep.select("selector", "order").unique().rows())
    return [
        f"{name} {order}"
        for name in palette.in_order(sorted({name for name, _ in rankings}))
        for order in watch.ORDER_WORDS
        if (name, order) in rankings
    ]


def defaults(racers: list[str], sweep: pl.DataFrame) -> tuple[str, str]:
    """The best selector least relevant first beside the same most relevant first; where it has one order only, the best
    two rankings. The best: own scores and plug-ins, which were asked about, then the others, random ones last, each by
    its mean NLL least first over the measured rates up to `_COMPARED_TO`."""
    line = sweep.filter(pl.col("order") == "lerf", pl.col("rate") <= _COMPARED_TO)
    harm = dict(line.group_by("selector").agg(pl.col("nll").mean().fill_nan(math.inf)).rows())

    def place(racer: str) -> tuple[bool, bool, float]:
        selector = racer.split()[0]
        return selector in palette.STYLES, selector == "random", harm.get(selector, math.inf)

    ordered = sorted(racers, key=place)
    both = [f"{ordered[0].split()[0]} {order}" for order in watch.ORDER_WORDS]
    first, second = both if set(both) <= set(racers) else (ordered * 2)[:2]
    return first, second


def _title(racer: str) -> str:
    selector, order = racer.split()
    return f"{palette.title(selector)}, {watch.ORDER_WORDS[order]}"
