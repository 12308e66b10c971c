"""How judges compare with people and with each other: rates and kappa with their intervals. No streamlit here."""

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, palette
from dashboard.charts.lines import TOP, finished

ALL = "all"  # sources together
REFUSED, PRECISION, RECALL, F1 = "refused", "precision", "recall", "f1"
TITLES = {
    REFUSED: "Refused, share of the replies",
    PRECISION: "Precision: called a refusal, and is one",
    RECALL: "Recall: is a refusal, and called one",
    F1: "F1",
}
MEASURES = tuple(TITLES)
_LOOKS = (("#7A88E7", "circle"), ("#DD7A02", "square"), ("#08A95B", "diamond"), ("#B70D9B", "triangle-up"))
_PEOPLE = (palette.REFERENCE, "x")
_SOURCE_PX, _GAP_PX, _BOTTOM_PX = 40, 52, 80
Row = dict[str, Any]
_LABEL = 24  # characters of a source's name beside the axis; the whole name is in the hover


def look(judge: str, judges: Sequence[str]) -> tuple[str, str]:
    """Colour and symbol of a judge: by its place in the folder, so that they stay when sources are left out."""
    return _LOOKS[judges.index(judge) % len(_LOOKS)] if judge in judges else _PEOPLE


def rates(frame: pl.DataFrame, judges: Sequence[str], heading: str) -> go.Figure:
    """A dot with its interval for every judge, source and measure. frame: columns source, judge, measure (MEASURES),
    value, low, high, replies, cases."""
    sources = frame["source"].unique(maintain_order=True).to_list()
    shown = [name for name in MEASURES if name in set(frame["measure"])]
    plot = len(shown) * _SOURCE_PX * len(sources) + (len(shown) - 1) * _GAP_PX
    figure = make_subplots(
        rows=len(shown), cols=1, subplot_titles=[TITLES[name] for name in shown],
        vertical_spacing=_GAP_PX / plot if len(shown) > 1 else 0,
    )  # fmt: skip
    figure.update_annotations(x=0, xanchor="left")
    sides = frame["judge"].unique(maintain_order=True).to_list()
    for panel, measure in enumerate(shown, 1):
        of_measure = frame.filter(pl.col("measure") == measure)
        for place, side in enumerate(sides):
            rows = list(of_measure.filter(pl.col("judge") == side).drop_nulls("value").iter_rows(named=True))
            if rows:
                shift = 0.22 * (place - (len(sides) - 1) / 2) * min(1.0, 3 / len(sides))
                trace = _marks(rows, side, look(side, judges), [sources.index(row["source"]) + shift for row in rows])
                trace.showlegend = not any(other.name == trace.name for other in figure.data)
                figure.add_trace(trace, row=panel, col=1)
    figure.update_xaxes(range=[-0.02, 1.02], tickformat=".0%", zeroline=False)
    figure.update_yaxes(**axes.places([_short(source) for source in sources]), showgrid=True)
    top = TOP + 24  # the first panel's own title
    finished(figure, heading, "bars: 95% intervals", top + plot + _BOTTOM_PX, _BOTTOM_PX)
    return figure.update_layout(margin={"t": top}, legend={"y": -40 / plot})


def _marks(rows: list[Row], side: str, looks: tuple[str, str], heights: list[float]) -> go.Scatter:
    colour, symbol = looks
    name = html.escape(side)
    return go.Scatter(
        x=[row["value"] for row in rows], y=heights, mode="markers", name=name, legendgroup=name,
        marker={"color": colour, "symbol": symbol, "size": 10},
        error_x=axes.intervals(
            [(row["value"], row["low"], row["high"]) for row in rows], thickness=1.5, colour=colour
        ),
        customdata=[
            f"{html.escape(row['source'])}<br>{row['measure']} {row['value']:.4f} ({row['low']:.4f} – "
            f"{row['high']:.4f})<br>" + (f"{row['cases']:,} of " if row["cases"] is not None else "")
            + f"{row['replies']:,} replies"
            for row in rows
        ],
        hovertemplate=f"<b>{name}</b>: %{{customdata}}<extra></extra>",
    )  # fmt: skip


def _short(source: str) -> str:
    if source == ALL:
        return "<b>all</b>"
    return html.escape(source if len(source) <= _LABEL else f"{source[: _LABEL - 1]}…")


def finding(frame: pl.DataFrame) -> str:
    """What `rates` draws, in one sentence; "" where it draws nothing.

    frame: columns source, judge, measure, value, low, high. Where replies have human labels: whose F1 over all of them
    is highest. Else, of several judges: who calls most replies refusals; of one: of which source. Where the intervals
    of the highest and the lowest overlap, the sentence says that instead."""
    frame = frame.drop_nulls("value")
    labelled = frame.filter(pl.col("measure") == F1, pl.col("source") == ALL)
    refused = frame.filter(pl.col("measure") == REFUSED)
    together, apart = refused.filter(pl.col("source") == ALL), refused.filter(pl.col("source") != ALL)
    if labelled.height:
        least, most = _ends(labelled)
        if labelled.height > 1 and _overlap(least, most):
            return f"{labelled.height} judges are about as near to people: F1 {_span(least, most, '.2f')}"
        first = f"The judge {most['judge']} is nearest to people, F1 {most['value']:.2f}"
        return first if labelled.height == 1 else f"{first}; {_named(least, '.2f')}, furthest"
    if together.height > 1:
        least, most = _ends(together)
        if _overlap(least, most):
            return f"{together.height} judges call about as many replies refusals: {_span(least, most, '.1%')}"
        return f"Most replies are refusals to {_named(most, '.1%')}; fewest to {_named(least, '.1%')}"
    if apart.is_empty():
        shares = together.select("judge", "value").iter_rows()
        return "".join(f"The judge {judge} calls {value:.1%} of the replies refusals" for judge, value in shares)
    least, most = _ends(apart)
    if apart.height > 1 and _overlap(least, most):
        return f"The judge {most['judge']} calls about as much of every source refusals: {_span(least, most, '.1%')}"
    first = f"The judge {most['judge']} calls {most['value']:.1%} of “{most['source']}” refusals"
    fewest = f"the most of all sources, and {least['value']:.1%} of “{least['source']}”, the fewest"
    return first if apart.height == 1 else f"{first}, {fewest}"


def _ends(rows: pl.DataFrame) -> tuple[Row, Row]:
    ordered = rows.sort("value", maintain_order=True)
    return ordered.row(0, named=True), ordered.row(-1, named=True)


def _overlap(least: Row, most: Row) -> bool:
    return bool(least["high"] >= most["low"])


def _span(least: Row, most: Row, form: str) -> str:
    return f"{least['value']:{form}} to {most['value']:{form}}, and their intervals overlap"


def _named(row: Row, form: str) -> str:
    return f"{row['judge']}, {row['value']:{form}}"
