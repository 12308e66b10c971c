"""Which part of a mask does what the mask does: what goes when a part's rows are put back."""

from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, formats, palette
from dashboard.charts.lines import finished
from engine.stats.uncertainty import student_t
from engine.studies.estimate_words import ORDER_TITLES

_ROW_PX, _AROUND_PX, _MOST = 26, 130, 12  # the parts that restore most are drawn


def finding(lines: pl.DataFrame) -> str:
    """The part whose rows do most of the harm. lines: one selector, order, rate and kind of part of `parts`."""
    first, where = _first(lines)
    return (
        f"{first['restored']:.0%} of the harm of {palette.title(first['selector'])}'s mask "
        f"({ORDER_TITLES[first['order']]}, {formats.rate(first['rate'])}) goes when its rows of {where} are put back"
    )


def of_edit(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines of `refusal_parts` as those of `parts`: what goes is a share of what the edit adds to the margin."""
    return lines.with_columns(restored="margin_lost", stderr_blocks=pl.lit(None, pl.Float64))


def finding_of_edit(lines: pl.DataFrame) -> str:
    """The part whose rows carry most of the margin. lines: of one edit and kind of part, from `of_edit`."""
    first, where = _first(lines)
    return f"{first['restored']:.0%} of what the edit adds to the margin goes when its rows of {where} are put back"


def _first(lines: pl.DataFrame) -> tuple[dict[str, Any], str]:
    first = _ranked(lines)[0]
    return first, first["name"] if first["part"] == "projection" else f"block {first['name']}"


def restored(lines: pl.DataFrame, what: str = "harm") -> go.Figure:
    """A bar per part, the largest first; error bars: 95% intervals over blocks of evaluation windows."""
    ranked = _ranked(lines)[:_MOST]
    harm = ranked[0]["nll"] - ranked[0]["dense_nll"]
    kind = ranked[0]["part"]
    figure = go.Figure()
    figure.add_bar(
        x=[row["restored"] for row in ranked], y=list(range(len(ranked))), orientation="h", showlegend=False,
        marker={"color": palette.style(ranked[0]["selector"]).colour},
        error_x=axes.errors([_half(row, harm) for row in ranked]),
        customdata=[_hover(row) for row in ranked], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    labels = [row["name"] if kind == "projection" else f"block {row['name']}" for row in ranked]
    figure.update_yaxes(**axes.places(labels), automargin=True)
    figure.update_xaxes(axes.titled(f"share of the {what} that goes when it is put back", tickformat=".0%"))
    rest = lines.height - len(ranked)
    below = f"the {len(ranked)} that restore most, of {lines.height}" if rest else ""
    return finished(figure, f"By {kind}", below, _AROUND_PX + _ROW_PX * len(ranked), 60)


def _half(row: dict[str, Any], harm: float) -> float | None:
    error = row["stderr_blocks"]
    return None if error is None or row["blocks"] < 2 else student_t(row["blocks"] - 1) * error / harm


def _ranked(lines: pl.DataFrame) -> list[dict[str, Any]]:
    return lines.drop_nulls("restored").sort("restored", descending=True, maintain_order=True).to_dicts()


def _hover(row: dict[str, Any]) -> str:
    return (
        f"<b>{row['name']}</b>, {row['rows_removed']:,} of the mask's rows<br>removed alone: NLL {row['nll_alone']:.4f}"
        f"<br>put back: NLL {row['nll_without']:.4f}<br>whole mask: {row['nll']:.4f}, unedited: {row['dense_nll']:.4f}"
    )
