"""An edit among random draws that were searched like it; and how often noise is called specific. No streamlit here."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, palette
from dashboard.charts.refusal_values import Row, percent

_DRAW = "#C61620"


def among_draws(line: Row, draws: pl.DataFrame) -> go.Figure:
    """Malign refusal of the edit, of every draw, and where a further draw would lie.
    line: a row of `specificity`. draws: its rows of `refusal_draws`."""
    figure = go.Figure()
    the_edit = dots.Dot(0, line["edited_malign"], f"the edit: {percent(line['edited_malign'])}")
    dots.add(figure, "edit", [the_edit], palette.AFTER, "diamond", legend=False)
    axes.joined(figure, (line["draws_low"], line["draws_high"]), 1, color=_DRAW)
    marks = []
    for row in draws.iter_rows(named=True):
        none = "" if row["k"] is not None else ", no point: unedited"
        marks.append(dots.Dot(1, row["malign"], f"draw {row['seed']}: {percent(row['malign'])}{none}"))
    dots.add(figure, "draws", marks, _DRAW, "x", legend=False)
    axes.level(figure, "unedited", x=line["unedited_malign"])
    labels = ["The edit", "Random draws,<br>searched alike"]
    heading = "The edit among random draws with their own grid"
    below = "line: 95% prediction interval of a further draw"
    return dots.finished(figure, labels, "risk prompts refused", heading, below, row_px=60, bottom=50, axis=dots.SHARE)


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
