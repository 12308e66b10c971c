"""Curves of perplexity over removed rows, of one model or of several in a grid, their gaps, and which selectors can be
told apart at one rate. Themes are applied by whoever shows a figure."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, cast

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, figure_size, formats, line_ends, lines, matrix, palette, series
from dashboard.charts.formats import LN10
from engine.results.tables import spec
from engine.stats.blocks import all_saturated, between_draws, mean_of_lines
from engine.stats.limits import BASELINE, Thresholds
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import adjusted
from engine.studies.estimate_words import GLOSSARY

HEIGHT, TOP, BOTTOM = 480, 70, 130  # pixels; below the plot: ticks, axis title, up to four lines of legend
_NOTE = 0.06  # of what is drawn: the height of words on stage
_BAND, _ZONE = 0.09, 0.28  # of the axis: the band above it, and the zone in which heights still have an order
_TITLE_Y = 0.95
_FEW_RATES, _SMALL_RATE = 9, 0.02  # so few rates, the first of them so small, are drawn in even steps
_RATES_AXIS = axes.titled("rows removed", tickformat=".0%", tick0=0, nticks=10, tickangle=0)
_MODEL = "under way"  # the model of a run that is not done
_GROWING_PX, _GROWING_BOTTOM = 360, 96  # pixels, of its curves
_MARGIN = 0.05  # of the axis of rates, at both ends
_STAYS = {"marker": {"opacity": 1.0}}  # what was not clicked, beside what was
# Of a grid of models: pixels, letters of the names above one row of panels, and of a line of one of them.
_PANEL_PX, _BETWEEN_PX, _TOP_PX, _BOTTOM_PX, _LINE_PX = 190, 46, 96, 120, 15
_LETTERS, _LEAST_LETTERS = 120, 14
LEVEL = 0.05  # of the adjusted p, as the verdicts ask for
_NUMBERS = ("difference", "stderr", "low", "high", "p_holm")
_DIFFERENCES = {
    "selector_a": pl.String, "selector_b": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64), "saturated": pl.Boolean,
}  # fmt: skip
ORDER_HEADINGS = {
    "lerf": (GLOSSARY["LeRF"], "a good selector stays low"),
    "morf": (GLOSSARY["MoRF"], "a good selector shoots up"),
}


def curves(
    drawn: pl.DataFrame, order: str, *, baseline: float | None, relative: bool = False,
    saturated: float | None = None, seeds: Sequence[pl.DataFrame] = (),
) -> go.Figure:  # fmt: skip
    """Perplexity against the share of removed rows, on a linear axis of log10 that is labelled 10^n.
    drawn: `series.points`. relative: divided by the unmasked model's perplexity (`baseline`,
    nats); where that is not known nothing is drawn then. Values that are not finite cannot be drawn; they
    stand as arrows at the upper edge. Cells at a numerical ceiling do not stretch the axis: those beyond all others
    stand in a band above it. saturated: NLL above which the model is destroyed: the axis ends there, and what is above
    stands in order in a zone over it.
    seeds: `series.points` of one seed each of the random ranking: thin lines in the place of their mean."""
    shift = baseline if relative else 0.0  # what to take from every NLL; None: nothing can be drawn
    both = pl.concat([drawn.filter(pl.col("selector") != BASELINE), *seeds]) if seeds else drawn
    both = both if shift is not None else both.clear()  # both orders have one axis
    rows, alone = both.filter(order=order), [one.filter(order=order) for one in seeds if shift is not None]
    base = shift or 0.0
    heights: list[float] = []
    ceilings: list[float] = []
    for nll, plateau in zip(both["nll"], both["plateau"], strict=True):
        if axes.is_finite(nll):
            beyond = plateau or (saturated is not None and nll > saturated)
            (ceilings if beyond else heights).append((nll - base) / LN10)
    by_selector = (rows.filter(pl.col("selector") != BASELINE) if alone else rows).partition_by(
        "selector", as_dict=True
    )
    names = palette.in_order([selector for (selector,) in by_selector])
    traces = [curve(by_selector[name,], name, base) for name in names]
    for number, one in enumerate(alone):
        thin = curve(one, BASELINE, base) | {"error_y": None, "showlegend": number == 0, "opacity": 0.6}
        thin["legendgroup"] = None if number else BASELINE
        thin |= {"line": {**thin["line"], "width": 1, "dash": "solid"}, "marker": {**thin["marker"], "size": 1}}
        traces.append(thin)
    at_ceiling = rows.filter(pl.col("plateau") & pl.col("nll").is_finite())
    if at_ceiling.height:  # rings around published cells that stand at a numerical ceiling
        ring = {"symbol": "circle-open", "size": 14, "color": palette.REFERENCE, "line": {"width": 1.5}}
        named = {"type": "scatter", "mode": "markers", "name": "at numerical ceiling", "hoverinfo": "skip"}
        y = [(nll - base) / LN10 for nll in at_ceiling["nll"]]
        traces.append({**named, "x": at_ceiling["rate"].to_list(), "y": y, "marker": ring, "unselected": _STAYS})
    looks = lines.layout(*ORDER_HEADINGS[order], HEIGHT, BOTTOM, top=TOP)
    looks["title"]["y"] = _TITLE_Y
    if baseline is not None and shift is not None:
        level = (baseline - shift) / LN10
        words = "unmasked model" if relative else f"unmasked model: {formats.perplexity(baseline)}"
        looks |= axes.level_layout(words, level, figure_size.NOTE_PX)
        heights.append(level - _NOTE * (max([level, *heights]) - min([level, *heights])))  # room for the words
    limit = None if saturated is None or shift is None else (saturated - shift) / LN10
    if limit is not None and max(ceilings, default=limit) > limit:
        heights.append(limit)
    scale = perplexity_scale(heights or ceilings, relative)
    if limit is not None and heights and max(ceilings, default=limit) > limit:
        scale["range"] = [scale["range"][0], limit]
    # At once: plotly looks at the whole figure again for each part that is added to it.
    figure = go.Figure(traces, {**looks, "xaxis": _RATES_AXIS, "yaxis": scale})
    top = float(scale["range"][1])
    if max(ceilings, default=top) > top:
        text = "at or above the ceiling"
        if saturated is not None:
            text = f"destroyed: above {formats.perplexity(saturated)}"
        top = ceiling_band(figure, text, spread=limit is not None)
    for row in rows.filter(~pl.col("nll").is_finite() | pl.col("nll").is_null()).iter_rows(named=True):
        look = palette.style(row["selector"])
        figure.add_scatter(
            x=[row["rate"]], y=[top], mode="markers", showlegend=False, cliponaxis=False,
            marker={"symbol": "arrow-up", "size": 13, "color": look.colour},
            hovertemplate=f"<b>{look.title}</b>, {formats.rate(row['rate'])}: not finite<extra></extra>",
        )  # fmt: skip
    alive = rows.filter(~pl.col("destroyed"), pl.col("rate") <= Thresholds().rate)["rate"]
    told_rate = alive.max() if order == "lerf" else rows.filter(pl.col("rate") > 0)["rate"].min()
    lost = rows.filter("destroyed", pl.col("selector") != BASELINE, pl.col("rate") == pl.lit(told_rate, pl.Float64))
    gone = set() if limit is None else set(map(palette.title, lost["selector"]))  # who destroys the model there
    if order == "lerf":
        by_chance = pl.concat([one for one in alone if one.height] or [rows.filter(selector=BASELINE)])
        doubled = (baseline or 0.0) + math.log(2)
        worse = by_chance.group_by("rate").agg(pl.col("nll").min()).filter(pl.col("nll") > doubled)["rate"].min()
        longer = rows.filter(pl.col("nll") <= doubled, pl.col("rate") == pl.lit(worse, pl.Float64))["selector"]
        gone -= set(map(palette.title, longer))  # these keep the language where random rows no longer do
        figure.for_each_trace(
            lambda trace: trace.update(opacity=line_ends.BACK), selector=lambda trace: trace.name in gone
        )
    elif len(gone) > 2:  # by no more than this can they be told apart
        ends = [trace.y[-1] for trace in figure.data if trace.name in gone]
        figure.for_each_trace(lambda trace: trace.update(showlegend=False), selector=lambda trace: trace.name in gone)
        figure.add_annotation(
            text=f"{len(gone)} scores", x=1, xref="paper", y=sum(ends) / len(ends), xanchor="left", showarrow=False,
            font={"color": palette.REFERENCE}, name="line end",
        )  # fmt: skip
    rates = sorted(set(rows["rate"]))
    if 3 < len(rates) <= _FEW_RATES and rates[1] < _SMALL_RATE:  # on a linear axis small ones lie on each other
        for trace in figure.data:
            trace.x = [str(rate) for rate in trace.x]
        steps = [str(rate) for rate in rates]
        figure.update_xaxes(
            type="category", categoryorder="array", categoryarray=steps, tickvals=steps, tickformat=None,
            ticktext=[formats.rate(rate) for rate in rates], title_text="rows removed, one step per rate",
        )  # fmt: skip
    return figure


def curve(rows: pl.DataFrame, selector: str, base: float) -> dict[str, Any]:
    """A selector's perplexities as a trace. base: taken from every NLL."""
    heights = [(nll - base) / LN10 if axes.is_finite(nll) else None for nll in rows["nll"]]
    return lines.selector_line(
        selector, rows["rate"].to_list(), heights, [_hover(row) for row in rows.iter_rows(named=True)],
        error_y=axes.errors([None if bar is None else bar / LN10 for bar in rows["bar"]]),
        selected={"marker": {"size": 12}}, unselected=_STAYS, legendgroup=selector,
    )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    sentences = [f"removed {formats.rate(row['rate'])}"]
    if row["rows_removed"] is not None:
        sentences[0] += f" = {row['rows_removed']:,} rows"
    published = f" (printed {row['printed']})" if row["printed"] else ""
    sentences.append(f"perplexity {formats.perplexity(row['nll'])}{published}")
    half = "" if row["interval"] is None else f" ± {row['interval']:.4f}"
    sentences.append(f"NLL {row['nll']:.4f}{half} nats per token")
    if row["seeds"] > 1:
        sentences.append(f"mean and spread of {row['seeds']} seeds")
    if row["tokens"]:
        sentences.append(f"{row['tokens']:,} tokens")
    if row["plateau"]:
        sentences.append("at the table's numerical ceiling")
    return "<br>".join(sentences)


def perplexity_scale(heights: Sequence[float], relative: bool) -> dict[str, Any]:
    """Title, range and 10^n ticks of the y axis."""
    scale = lines.perplexity_scale(heights)
    if relative:
        scale["ticktext"] = [f"×{text}" for text in scale["ticktext"]]
    return {"title": {"text": "perplexity ÷ unmasked" if relative else "perplexity"}, **scale}


def ceiling_band(figure: go.Figure, text: str = "at or above the ceiling", *, spread: bool = False) -> float:
    """Puts what lies above the y axis into a band over it, in place; returns the upper end of the new range.
    spread: in order of height, without error bars; else all in its middle."""
    low, high = figure.layout.yaxis.range
    above = [value for trace in figure.data for value in trace.y or () if value is not None and value > high]
    room = (_ZONE if spread else _BAND) * (high - low)
    furthest = max(above, default=high)

    def put(value: float | None) -> float | None:
        if value is None or value <= high:
            return value
        return high + room * ((0.12 + 0.76 * (value - high) / (furthest - high)) if spread else 0.5)

    for trace in figure.data:
        if trace.y is not None:
            if spread and trace.error_y.array is not None:
                bars = zip(trace.y, trace.error_y.array, strict=True)
                trace.error_y.array = [0.0 if value is None or value > high else bar for value, bar in bars]
            trace.y = [put(value) for value in trace.y]
    figure.add_shape(
        type="rect", xref="paper", x0=0, x1=1, y0=high, y1=high + room, fillcolor=palette.REFERENCE, opacity=0.13,
        layer="below", line={"width": 0},
    )  # fmt: skip
    figure.add_annotation(
        text=text, xref="paper", x=0, xanchor="left", y=high + room * (0.9 if spread else 0.5), showarrow=False,
        font={"color": palette.REFERENCE, "size": figure_size.NOTE_PX},
    )  # fmt: skip
    figure.update_yaxes(range=[low, high + room])
    return float(high + room)


def gap(gap_rows: pl.DataFrame) -> go.Figure:
    """Log gap, NLL_MoRF - NLL_LeRF in nats, against the share of removed rows (`series.gaps`).
    Where one of the two NLLs is at a numerical ceiling, the gap does not stretch the axis, as in `curves`."""
    figure = go.Figure()
    for selector in palette.in_order(gap_rows["selector"]):
        rows = gap_rows.filter(pl.col("selector") == selector)
        hover = [
            f"removed {formats.rate(rate)}<br>log gap {log_gap:.3f} nats<br>PPL MoRF − LeRF {text}"
            for rate, log_gap, text in rows.select("rate", "log_gap", "gap").iter_rows()
        ]
        heights = [axes.finite(value) for value in rows["log_gap"]]
        figure.add_trace(lines.selector_line(selector, rows["rate"].to_list(), heights, hover, legendgroup=selector))
    figure.add_hline(y=0, line=palette.DOTTED)
    figure.update_yaxes(title="log gap (nats per token)", zeroline=False)
    drawn = gap_rows.filter(pl.col("log_gap").is_finite())
    apart = [0.0, *drawn.filter(~pl.col("at_ceiling"))["log_gap"]]
    room = max(0.06 * (max(apart) - min(apart)), 0.03)
    if max(drawn["log_gap"], default=0.0) > max(apart) + room:
        figure.update_yaxes(range=[min(apart) - room, max(apart) + room])
        ceiling_band(figure)
    figure.update_xaxes(_RATES_AXIS)
    below = "large is good; below 0 the ranking is inverted"
    return lines.finished(figure, "Gap: NLL(MoRF) − NLL(LeRF)", below, HEIGHT, BOTTOM, top=TOP).update_layout(
        title_y=_TITLE_Y
    )


def growing(so_far: Any) -> dict[str, go.Figure]:
    """Of a run under way: order -> its curves, of the selectors of which rows were removed; all over the same rates.
    so_far: as the progress of a run tells it (`engine.records.progress`), {"table", "columns", "rows"}; what is none is
    no curve."""
    try:
        about = {one.name: one.dtype for one in spec("sweep").columns}
        schema = {name: about[name] for name in so_far["columns"]}
        frame = pl.DataFrame(so_far["rows"], schema=schema, orient="row")
        lacking = {"model": pl.lit(_MODEL), "printed": pl.lit(None, pl.String), "plateau": pl.lit(value=False)}
        lacking["nll_stderr"] = pl.lit(None, pl.Float64)  # over windows: bars of a run that has ended are longer
        frame = frame.with_columns(pl.col("nll").fill_null(math.nan), **lacking)
        selectors = frame["selector"].unique(maintain_order=True).to_list()
        points = series.points(frame, _MODEL, selectors, ORDERS, (0.0, 1.0))
        points = points.filter((pl.col("rate") > 0).any().over("order", "selector"))
        furthest = max(points["rate"], default=0.0)
    except (LookupError, TypeError, ValueError, pl.exceptions.PolarsError):
        return {}
    unmasked = series.unmasked_nll(frame, _MODEL)
    measured = [str(order) for order in ORDERS if order in points["order"]]
    drawn = {order: curves(points, order, baseline=unmasked) for order in measured}
    for figure in drawn.values():
        figure.update_xaxes(range=[-_MARGIN * furthest, (1 + _MARGIN) * furthest])
        figure.update_layout(
            height=_GROWING_PX, margin_b=_GROWING_BOTTOM, legend={"yref": "container", "y": 0, "yanchor": "bottom"}
        )
    return drawn


@dataclass(frozen=True)
class Panel:
    """One model: its name, its points (`series.points`), the NLL of the unmasked model (nats). order: where it is not
    the figure's."""

    name: str
    points: pl.DataFrame
    baseline: float | None
    order: str = ""


def multiples(panels: Sequence[Panel], order: str, *, columns: int, relative: bool) -> go.Figure:
    """One panel per model under one order ("": each panel's own); the legend stands once.
    Published cells at a numerical ceiling do not stretch the shared axis; those above it, like values that are not
    finite, are not drawn. relative: as in `curves`; a panel whose unmasked model is not known is empty then."""
    rows = math.ceil(len(panels) / columns)
    names = [wrap(panel.name, max(_LEAST_LETTERS, _LETTERS // columns)) or [""] for panel in panels]
    more = _LINE_PX * (max(map(len, names)) - 1)  # for names in several lines
    between = _BETWEEN_PX + more
    plots = rows * _PANEL_PX + (rows - 1) * between
    figure = make_subplots(
        rows=rows, cols=columns, shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.04,
        vertical_spacing=between / plots if rows > 1 else 0,
        subplot_titles=["<br>".join(map(html.escape, of_panel)) for of_panel in names],
    )  # fmt: skip
    heights: list[float] = []
    named: set[str] = set()
    for place, panel in enumerate(panels):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        shift = panel.baseline if relative else 0.0
        if shift is None:
            continue
        points = panel.points.filter(order=panel.order or order)
        for selector in palette.in_order(points["selector"]):
            own = points.filter(selector=selector)
            trace = curve(own, selector, shift) | {"showlegend": selector not in named}
            named.add(selector)  # in the legend only the first time; a click there hides it in every panel
            figure.add_trace(trace, **at)
            below = own.filter(~pl.col("plateau"), pl.col("nll").is_finite())["nll"]
            heights += [(nll - shift) / LN10 for nll in below]
        if panel.baseline is not None:
            heights.append((panel.baseline - shift) / LN10)
            figure.add_hline(y=heights[-1], line=palette.DOTTED, **at)
    scale = perplexity_scale(heights, relative)
    figure.update_yaxes(scale | {"title": None})
    figure.update_yaxes(title=scale["title"], col=1)
    figure.update_xaxes(tickformat=".0%", tick0=0, nticks=6 if columns < 4 else 4, tickangle=0, zeroline=False)
    for note in figure.layout.annotations:
        note.font.size = figure_size.NOTE_PX + 1
    first, second = ORDER_HEADINGS.get(order, ("", ""))
    lines.finished(figure, first, second, plots + _TOP_PX + more + _BOTTOM_PX, _BOTTOM_PX, top=_TOP_PX + more)
    return figure.update_layout(title_yref="container", legend_y=-36 / plots)


def over_seeds(
    differences: pl.DataFrame, kind: str, rate: float, draw_sweep: pl.DataFrame | None = None
) -> pl.DataFrame:
    """The table `differences` at one rate, seeds averaged (`mean_of_lines`).
    kind: `lerf`, NLL of a minus NLL of b under LeRF; `gap`, NLL_MoRF minus NLL_LeRF, a and b the same selector.
    Columns: selector_a, selector_b, difference (nats per token), stderr, low and high (95%, Student's t), p_holm:
    two-sided, adjusted by Holm over all lines; null without an error, and where `saturated`: both masks destroy the
    model. draw_sweep: the calibration text's part."""
    of_kind = differences.filter(pl.col("kind") == kind, (pl.col("rate") - rate).abs() < 1e-9)
    found, destroyed = {}, set()
    for key, own in of_kind.group_by("selector_a", "selector_b", maintain_order=True):
        a, b = cast("tuple[str, str]", key)
        orders = ("morf", "lerf") if kind == "gap" else ("lerf", "lerf")
        draws = between_draws(draw_sweep, rate, (a, orders[0]), (b, orders[1]))
        seeds = ["seed_a"] if kind == "gap" else ["seed_a", "seed_b"]
        found[a, b] = mean_of_lines(own, "difference", seeds, draws)
        if all_saturated(own):
            destroyed.add((a, b))
    p_values = {pair: one.p_differs for pair, one in found.items() if pair not in destroyed}
    p_holm = adjusted({pair: p for pair, p in p_values.items() if p is not None})
    rows = [
        (*pair, one.value, one.stderr, one.low, one.high, p_holm.get(pair), pair in destroyed)
        for pair, one in found.items()
    ]
    return pl.DataFrame(rows, schema=_DIFFERENCES, orient="row")


def apart(row: dict[str, Any]) -> bool:
    """Is this difference told apart from none?"""
    return row["p_holm"] is not None and row["p_holm"] <= LEVEL


def pairs(found: pl.DataFrame, rate: float) -> go.Figure:
    """A cell per pair of selectors: NLL of its row's mask minus its column's; in brackets what is not told apart."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found.iter_rows(named=True):
        a, b = row["selector_a"], row["selector_b"]
        back = {"difference": -row["difference"]}
        back |= {"low": None, "high": None} if row["low"] is None else {"low": -row["high"], "high": -row["low"]}
        cells[a, b], cells[b, a] = row, row | back
    selectors = palette.in_order([*found["selector_a"], *found["selector_b"]])
    values = [[cells.get((a, b), {}).get("difference") for b in selectors] for a in selectors]
    hover = [[_pair_hover(a, b, cells.get((a, b))) for b in selectors] for a in selectors]
    titles = [html.escape(palette.title(name)) for name in selectors]
    figure = matrix.matrix(
        values, titles, titles, heading=f"NLL of the row's LeRF mask minus the column's at {formats.rate(rate)}",
        below="nats per token, below zero: the row's does less harm; in brackets: not told apart; colours by rank",
        text=matrix.number, hover=hover, span=(-1.0, 1.0), scale=matrix.DIVERGING,
        colour=matrix.signed_places([value for line in values for value in line]),
    )  # fmt: skip
    for note in figure.layout.annotations:
        if not apart(cells[selectors[int(note.y)], selectors[int(note.x)]]):
            note.text = f"({note.text})"
    return figure


def difference_table(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(
        *(formats.texts(found[name], palette.title).alias(name) for name in ("selector_a", "selector_b")),
        pl.col(*_NUMBERS).round(4),
    )


def _pair_hover(a: str, b: str, row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    error = "no error is known"
    if row["low"] is not None:
        p = "both destroyed" if row["p_holm"] is None else f"p {row['p_holm']:.2g} after Holm"
        error = f"{row['low']:+.4f} to {row['high']:+.4f}, {p}"
    return html.escape(f"{palette.title(a)} − {palette.title(b)}: {row['difference']:+.4f} nats per token ({error})")
