"""Single units against sets: who ranks the effects of single rows rightly, whose masks of many rows do least harm."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, palette
from dashboard.charts.lines import finished

RULERS = {"Signed": "signed", "Absolute": "absolute"}
KINDS = {"row": "rows", "neuron": "neurons"}
Row = Mapping[str, Any]


def marks(table: pl.DataFrame, ruler: str) -> pl.DataFrame:
    """One row per selector with a rank correlation: selector, single, low, high, lerf_nll, seeds; means over seeds.
    table: `singles_selectors` of one kind of unit; ruler: of the values of `RULERS`. low, high, lerf_nll: null where
    one seed's is."""
    names = {"single": f"{ruler}_spearman", "low": f"{ruler}_low", "high": f"{ruler}_high", "lerf_nll": "lerf_nll"}
    means = [pl.when(pl.col(column).null_count() == 0).then(pl.col(column).mean()) for column in names.values()]
    by_selector = table.group_by("selector", maintain_order=True).agg(
        *(mean.alias(name) for mean, name in zip(means, names, strict=True)), seeds=pl.len()
    )
    return palette.sorted_by_selector(by_selector.filter(pl.col("single").is_not_null()))


def finding(found: pl.DataFrame, kind: str) -> str:
    """What the two rulers say together, as a heading. found: as `marks` gives it; kind: of `KINDS`.
    They disagree where the interval of the selector that is best on sets lies wholly below that of the selector that is
    best on single units, which is rarely so by chance."""
    if found.is_empty():
        return f"No ranking of single {KINDS[kind]} could be compared"
    single = found.sort("single", descending=True, maintain_order=True).row(0, named=True)
    best = palette.title(single["selector"])
    if single["low"] is None or single["low"] <= 0:
        return f"No ranking of single {KINDS[kind]} is told from chance"
    measured = found.filter(pl.col("lerf_nll").is_finite())
    if measured.is_empty():
        return f"{best} ranks single {KINDS[kind]} best"
    sets = measured.sort("lerf_nll", maintain_order=True).row(0, named=True)
    if sets["selector"] == single["selector"]:
        return f"{best} is best on single {KINDS[kind]} and on sets"
    both = f"{best} on single {KINDS[kind]}, {palette.title(sets['selector'])} on sets"
    apart = sets["high"] is not None and sets["high"] < single["low"]
    return f"Rulers disagree: {both}" if apart else f"{both}: not told apart"


def scatter(found: pl.DataFrame, heading: str, ruler: str, kind: str) -> go.Figure:
    """One mark per selector whose LeRF mask was measured: right is valid for single units, up for sets."""
    figure = go.Figure()
    drawn = found.filter(pl.col("lerf_nll").is_finite())
    for row in drawn.iter_rows(named=True):
        look, said = palette.style(row["selector"]), f"LeRF {row['lerf_nll']:.4f} nats per token"
        mark = dots.Dot(
            row["lerf_nll"], row["single"], f"<b>{look.title}</b><br>{_hover(row, said)}", row["low"], row["high"]
        )
        dots.add(figure, look.title, [mark], look.colour, look.symbol, size=13)
    figure.add_vline(0, line=palette.DOTTED)
    figure.update_xaxes(**axes.titled(_title(ruler, kind)))
    figure.update_yaxes(title="LeRF mask at 30% (nats), falling", autorange="reversed", zeroline=False)
    below = f"right: single {KINDS[kind]} are ranked better; up: the mask does less harm"
    return finished(figure, heading, below, 470)


def intervals(found: pl.DataFrame, heading: str, ruler: str, kind: str) -> go.Figure:
    """The rank correlations alone, one line of the figure per selector: where no mask was measured."""
    figure, titles = dots.by_selector(
        found, lambda row: (row["single"], _hover(row, "no LeRF mask was measured"), row["low"], row["high"])
    )
    figure.add_vline(0, line=palette.DOTTED)
    return dots.finished(figure, titles, _title(ruler, kind), heading, "bars: 95% intervals")


def _title(ruler: str, kind: str) -> str:
    truth = "effect" if ruler == "signed" else "abs(effect)"
    return f"Spearman of score and {truth}, single {KINDS[kind]}"


def _hover(row: Row, said: str) -> str:
    ends = "" if row["low"] is None or row["high"] is None else f" ({row['low']:.3f} to {row['high']:.3f})"
    lines = [f"Spearman {row['single']:.3f}{ends}", said]
    return "<br>".join(lines + ([f"means over {row['seeds']} seeds"] if row["seeds"] > 1 else []))
