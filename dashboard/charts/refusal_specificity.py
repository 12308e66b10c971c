"""An edit among random draws that were searched like it; and how often noise is called specific. No streamlit here."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, palette
from dashboard.charts.lines import finished
from dashboard.charts.refusal_values import Row, percent

_DRAW = "#C61620"
_LOOKS = {  # of the simulation: name, colour, symbol
    "interval": ("gain over three random masks: its 95% interval is above 0", _DRAW, "x"),
    "p": ("p among draws with their own grid", palette.AFTER, "diamond"),
}


def among_draws(line: Row, draws: pl.DataFrame) -> go.Figure:
    """Malign refusal of the edit, of every draw, and where a further draw would lie.

    line: a row of `specificity`. draws: its rows of `refusal_draws`.
    """
    figure = go.Figure()
    figure.add_scatter(
        x=[line["edited_malign"]], y=[0], mode="markers", name="edit",
        marker={"symbol": "diamond", "size": 12, "color": palette.AFTER},
        hovertemplate=f"the edit: {percent(line['edited_malign'])}<extra></extra>",
    )  # fmt: skip
    axes.joined(figure, (line["draws_low"], line["draws_high"]), 1, color=_DRAW)
    figure.add_scatter(
        x=draws["malign"].to_list(), y=[1] * draws.height, mode="markers", name="draws",
        marker={"symbol": "x", "size": 9, "color": _DRAW},
        customdata=[
            f"draw {row['seed']}: {percent(row['malign'])}" + ("" if row["k"] is not None else ", no point: unedited")
            for row in draws.iter_rows(named=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    axes.level(figure, "unedited", x=line["unedited_malign"])
    figure.update_xaxes(**axes.titled("malign refusal", range=[-0.03, 1.03], tickformat=".0%"))
    figure.update_yaxes(**axes.places(["The edit", "Random draws,<br>searched alike"]))
    figure.update_layout(showlegend=False)
    below = "line: 95% prediction interval of a further draw"
    return finished(figure, "The edit among random draws with their own grid", below, 240, bottom=50)


def told(line: Row) -> str:
    """What a row of `specificity` says, in words."""
    place = f"Rank {line['rank']} of {line['draws'] + 1}"
    excess = percent(line["excess"], line["excess_low"], line["excess_high"])
    if line["p_holm"] <= 0.05:
        reading = "random rows of the same layers do not reach this by search alone."
    elif line["p"] <= 0.05:
        reading = "below .05 by itself, but not over all edits that were tested together."
    else:
        reading = "this does not tell the edit from random rows of the same layers."
    least = line["tests"] / (line["draws"] + 1)
    few = f" With {line['draws']} draws Holm's p cannot be below {min(1.0, least):.2f} here." if least > 0.05 else ""
    return (
        f"{place}, p = {line['p']:.3f}, {line['p_holm']:.3f} by Holm over {line['tests']} edits: {reading} Above a "
        f"further draw by {excess} (95% prediction interval).{few}"
    )


def false_alarms(found: dict[str, Any]) -> go.Figure:
    """Share of selectors of pure noise that are called specific, by cells of the grid. found: of the simulation."""
    grids = found["grids"]
    figure = go.Figure()
    cells = [str(one["cells"]) for one in grids]
    for name, (title, colour, symbol) in _LOOKS.items():
        shares = [one[name] for one in grids]
        figure.add_scatter(
            x=cells, y=[share for share, *_ in shares], mode="lines+markers", name=title,
            line={"color": colour, "width": 2}, marker={"color": colour, "symbol": symbol, "size": 10},
            error_y=axes.intervals(shares, thickness=1.5),
            customdata=[f"{one['cells']} cells: {percent(*one[name])}<br>{one['trials']:,} trials" for one in grids],
            hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    axes.level(figure, f"nominal {grids[0]['level']:.1%}", y=grids[0]["level"])
    figure.update_xaxes(**axes.titled("cells of the grid", type="category"))
    figure.update_yaxes(**axes.titled("called specific", tickformat=".0%", rangemode="tozero"))
    return finished(figure, "Noise that is called specific", "simulated selectors that know nothing", 400, bottom=110)
