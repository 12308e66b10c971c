"""Every selector beside random rows of its own layers: the difference, and the share that depths explain."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import dots, palette

Row = dict[str, Any]
MOST_DRAWN = (-1.0, 2.0)  # of an interval of a share


def shares(specific: pl.DataFrame) -> go.Figure:
    """The share of the advantage over random that depths explain, with its interval; 100%: all of it.
    specific: one order and rate of the table. Selectors without a clear advantage have no share and no mark. An
    advantage that is hardly clear leaves the share open over any range: a bar is cut at -100% and 200%."""
    columns = ("depth_share", "depth_share_low", "depth_share_high")
    known = specific.drop_nulls(columns)
    values, ends = known["depth_share"].to_list(), [*known["depth_share_low"], *known["depth_share_high"]]
    low = min([0.0, *values, *(max(end, MOST_DRAWN[0]) for end in ends)])
    high = max([1.0, *values, *(min(end, MOST_DRAWN[1]) for end in ends)])
    cut = any(not low <= end <= high for end in ends)
    below = f"further left: more than its depths{'; a bar that meets the edge goes on' if cut else ''}"
    figure = _marks(specific, columns, 1.0, "share explained by depth", "Explained by depth", below)
    room = 0.04 * (high - low)
    return figure.update_xaxes(tickformat=".0%", range=[low - room, high + room])


def differences(specific: pl.DataFrame, order: str) -> go.Figure:
    """NLL of the selector's mask minus its layer-matched controls', with its interval. One order and rate."""
    better = "left of 0: less harm than random rows of its layers" if order == "lerf" else "right of 0: more harm"
    return _marks(specific, ("difference", "low", "high"), 0.0, "nats per token from its own controls",
                  "Against its own layer-matched controls", better)  # fmt: skip


def _marks(
    specific: pl.DataFrame, columns: tuple[str, str, str], unmoved: float, title: str, heading: str, below: str
) -> go.Figure:
    value, low, high = columns
    figure, titles = dots.by_selector(specific, lambda row: (row[value], _hover(row), row[low], row[high]))
    figure.add_vline(unmoved, line=palette.DOTTED)
    return dots.finished(figure, titles, title, heading, below)


def _hover(row: Row) -> str:
    lines = [f"{row['difference']:+.4f} nats per token from its controls: {row['answer']}"]
    if row["low"] is not None:
        lines.append(f"95% interval {row['low']:+.4f} to {row['high']:+.4f}, p {row['p_holm']:.2g} after Holm")
    lines.append(f"advantage over random {row['advantage']:+.4f}, its controls' {row['control_advantage']:+.4f}")
    if row["depth_share"] is not None:
        ends = f"{row['depth_share_low']:.0%} to {row['depth_share_high']:.0%}"
        lines.append(f"{row['depth_share']:.0%} explained by depth ({ends})")
    return "<br>".join(lines)
