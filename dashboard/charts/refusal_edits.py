"""Edits: refused before and after every operating point, and under random rows, a panel per domain; and all edits of
one selector and domain, risk prompts refused against perplexity."""

import html
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, figure_size, formats, lines, palette
from dashboard.charts.formats import LN10
from dashboard.charts.refusal_values import Row, cell_id, percent, rates, strength, strongest_first

_CHOSEN_PX = 19  # of the ring
_FEW = 0.4  # an axis ends there where all is below it
_BELOW = 0.27  # of a line: random rows stand there, or they would lie on the unedited model
TITLES = {"malign": "Risk prompts", "benign": "Harmless prompts"}
_MARK_PX, _RING_PX = 10, 18
_PLAIN = {"type": "scatter", "showlegend": False, "cliponaxis": False}
_UNEDITED = "<b>unedited model</b>"
_HEIGHT, _BELOW_PX = 480, 100  # of the trade-off; below the plot: axis title, legend


def measured(points: pl.DataFrame, kind: str = "malign") -> pl.DataFrame:
    column = f"edited_{kind}"
    return points.filter(pl.col("k").is_not_null() & pl.col(column).is_not_null()) if column in points else points[:0]


def edits(points: pl.DataFrame, kind: str, chosen: str, of: str, *, mean_alone: bool = False) -> go.Figure:
    """A panel per domain, before them one of their mean, and a line per selector: share of prompts refused before,
    after with its interval, and under random rows of the same layers, the mean of their seeds.
    points: `measured` rows of `operating_points`; kind: `malign` or `benign`; chosen: the id of the edit that has a
    ring, "" for none; of: of which prompts and edits it is. The selector whose edits refuse most risk prompts, in the
    mean of the domains, stands first. customdata of what is there after an edit: [cell id, hover text]."""
    domains = points["domain"].unique(maintain_order=True).to_list()
    order = strongest_first(points)
    panels = [(palette.capital(domain), points.filter(domain=domain)) for domain in domains]
    if len(domains) > 1:
        panels = [(f"Mean of {len(domains)} domains", mean_of(points, kind)), *([] if mean_alone else panels)]
    drawn = [f"{side}_{kind}" for side in ("edited", "unedited", "control")] + [f"edited_{kind}_high"]
    few = all((points[name].drop_nulls() <= _FEW).all() for name in drawn if name in points)
    ticks = [0, 0.2, 0.4] if few else [0, 0.5, 1]
    below = f"{of}; bars: 95% intervals"
    if kind == "malign" and order:  # what the edits of the first cost, in the mean of its domains
        own = points.filter(selector=order[0])
        ends = [own[name].mean() if name in own.columns else None for name in ("unedited_benign", "edited_benign")]
        costs = [f"{end:.0%}" for end in ends if isinstance(end, float)]
        if len(costs) == 2:
            below = f"harmless ones: {costs[0]} before, {costs[1]} after; {below}"
    figure, places = dots.panels(
        [title for title, _ in panels], list(map(palette.title, order)), f"{TITLES[kind].lower()} refused", "", below,
        {**dots.SHARE, **({"range": [-0.012, 0.412]} if few else {}), "tickvals": ticks},
    )  # fmt: skip
    drawn_at: list[tuple[dict[str, Any], dict[str, int]]] = []
    for (_, rows), where in zip(panels, places, strict=True):
        by_name = {row["selector"]: row for row in rows.iter_rows(named=True)}
        marks = [(place, by_name[name]) for place, name in enumerate(order) if name in by_name]
        drawn_at += [({**_PLAIN, **one}, where) for one in (*_beside(marks, kind), _after(marks, kind, chosen))]
    edited = "edited (coloured)" + "; large: the one shown below" * bool(chosen and not mean_alone)
    keys = [("unedited", "circle-open", palette.BEFORE), (edited, "square", palette.REFERENCE)]
    if f"control_{kind}" in points and points[f"control_{kind}"].drop_nulls().len():
        keys.append(("random rows of its layers, mean", "x-thin", palette.REFERENCE))
    for name, symbol, colour in keys:
        look = {"symbol": symbol, "size": 11, "color": colour, "line": {"width": 2, "color": colour}}
        drawn_at.append(({"type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": name, "marker": look},
                         places[0]))  # fmt: skip
    at = {f"{name}s": [where[name] for _, where in drawn_at] for name in ("row", "col")}
    figure.add_traces([trace for trace, _ in drawn_at], **at)
    return figure.update_layout(legend={"yref": "container", "y": 1, "yanchor": "top"}, margin_b=48)


def mean_of(points: pl.DataFrame, kind: str) -> pl.DataFrame:
    """A row per selector with an edit in every domain: the means over them, which have other prompts each.

    Interval of the mean of d rates p_i with ends l_i, u_i (MOVER; Newcombe 1998, method 10; Zou and Donner 2008):
    mean − √Σ(p_i − l_i)² / d to mean + √Σ(u_i − p_i)² / d; none where one end is not known."""
    rate, low, high = (f"edited_{kind}{end}" for end in ("", "_low", "_high"))
    wanted = [name for name in (f"unedited_{kind}", rate, f"control_{kind}") if name in points]
    means = [pl.when(pl.col(name).null_count() == 0).then(pl.col(name).mean()).alias(name) for name in wanted]
    if low in points and high in points:
        ends = ((low, -1, pl.col(rate) - pl.col(low)), (high, 1, pl.col(high) - pl.col(rate)))
        means += [
            pl.when(far.null_count() == 0).then(pl.col(rate).mean() + sign * (far**2).sum().sqrt() / pl.len())
            .alias(name) for name, sign, far in ends
        ]  # fmt: skip
    count = points["domain"].n_unique()
    return points.group_by("selector", maintain_order=True).agg(pl.len(), *means).filter(pl.col("len") == count)


def _beside(marks: list[tuple[int, Row]], kind: str) -> list[dict[str, Any]]:
    """What an edit is compared with, and the way from the one to the other."""
    ends = [(place, row[f"edited_{kind}"], row.get(f"unedited_{kind}")) for place, row in marks]
    ways = [(x, y) for y, after, before in ends if before is not None for x in (before, after, None)]
    line = {"color": palette.REFERENCE, "width": 2, "dash": "dot"}
    x, y = [way[0] for way in ways], [way[1] for way in ways]
    traces: list[dict[str, Any]] = [{"x": x, "y": y, "mode": "lines", "hoverinfo": "skip", "line": line}]
    for column, symbol, colour, shift in (
        (f"control_{kind}", "x-thin", palette.REFERENCE, _BELOW),
        (f"unedited_{kind}", "circle-open", palette.BEFORE, 0.0),
    ):
        known = [(place, row) for place, row in marks if row.get(column) is not None]
        traces.append(
            {
                "x": [row[column] for _, row in known], "y": [place + shift for place, _ in known], "mode": "markers",
                "customdata": [_hover(row, kind) for _, row in known],
                "hovertemplate": "%{customdata}<extra></extra>", "name": column,
                "marker": {"symbol": symbol, "size": 9, "color": colour, "line": {"width": 2, "color": colour}},
            }
        )  # fmt: skip
    return traces


def _after(marks: list[tuple[int, Row]], kind: str, chosen: str) -> dict[str, Any]:
    looks = [palette.style(row["selector"]) for _, row in marks]
    after = [rates(row, f"edited_{kind}") for _, row in marks]
    ids = [cell_id(row) if "k" in row else "" for _, row in marks]
    return {
        "x": [rate[0] for rate in after], "y": [place for place, _ in marks], "mode": "markers", "name": "edited",
        "customdata": [[name, _hover(row, kind)] for name, (_, row) in zip(ids, marks, strict=True)],
        "hovertemplate": "%{customdata[1]}<extra></extra>",
        "error_x": axes.intervals(after, thickness=1.5, colour=palette.REFERENCE),
        "marker": {
            "symbol": [look.symbol for look in looks], "color": [look.colour for look in looks], "opacity": 1.0,
            "size": [_CHOSEN_PX if chosen and name == chosen else 12 for name in ids],
            "line": {"width": [3 if chosen and name == chosen else 0 for name in ids], "color": palette.REFERENCE},
        },
        "selected": {"marker": {"opacity": 1.0}}, "unselected": {"marker": {"opacity": 1.0}},
    }  # fmt: skip


def _hover(row: Row, kind: str) -> str:
    names = {f"unedited_{kind}": "before", f"edited_{kind}": "after"}
    texts = [f"{name} {percent(*rates(row, column))}" for column, name in names.items() if row.get(column) is not None]
    if row.get(f"control_{kind}") is not None:
        most = row.get("control_malign_max") if kind == "malign" else None
        tail = f", {percent(most)} at most" if most is not None else ""
        texts.append(f"random rows of the same layers {percent(row[f'control_{kind}'])} in the mean{tail}")
    if row.get("rescue"):
        texts.append("rescued under a relaxed limit of harmless prompts")
    of = f", {html.escape(row['domain'])}</b>, {strength(row)}" if "k" in row else ", mean of the domains</b>"
    title = f"<b>{html.escape(palette.title(row['selector']))}{of}"
    return "<br>".join([title, f"{TITLES[kind].lower()} refused:", *texts])


def trade_off(cells: pl.DataFrame, unedited: pl.DataFrame, chosen: str, benign_limit: float, heading: str) -> go.Figure:
    """Risk prompts refused against perplexity, in the selector's colour: filled where few harmless prompts are refused.
    cells: rows of `refusal_values.cells` with rates, of one selector and domain; unedited: the model's own. The line
    joins the frontier: no filled mark to the left of it is as high. The operating point and the `chosen` cell have a
    ring and Wilson's intervals. customdata of every edit: [cell id, hover text]."""
    figure = go.Figure()
    cells, unedited = _placed(cells), _placed(unedited)
    look = palette.style(cells["selector"][0])
    best = frontier(cells)
    figure.add_scatter(
        x=best["log10_perplexity"].to_list(), y=best["malign"].to_list(), mode="lines", hoverinfo="skip",
        line={"color": look.colour, "width": 2, "shape": "hv"}, name="best at this perplexity or less",
    )  # fmt: skip
    for feasible, name in ((True, f"at most {benign_limit:.0%} of harmless prompts refused"), (False, "not feasible")):
        rows = list(cells.filter(feasible=feasible).iter_rows(named=True))
        if not rows:
            continue
        rings = [row["point"] or row["id"] == chosen for row in rows]
        figure.add_scatter(
            x=[row["log10_perplexity"] for row in rows], y=[row["malign"] for row in rows], mode="markers+text",
            name=name, customdata=[[row["id"], _cell_hover(row)] for row in rows],
            text=["rescue" if row["rescue"] else "operating point" if row["point"] else "" for row in rows],
            textposition="top center", textfont={"size": figure_size.NOTE_PX}, cliponaxis=False,
            marker={
                "symbol": look.symbol if feasible else f"{look.symbol}-open", "color": look.colour,
                "size": [_RING_PX if ring else _MARK_PX for ring in rings],
                "line": {"width": [3 if ring else 1.5 for ring in rings], "color": palette.REFERENCE if feasible else
                         look.colour},
            },
            selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": 1.0}},
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    ringed = list(cells.filter((pl.col("id") == chosen) | pl.col("point")).iter_rows(named=True))
    bars = [(row["malign"], row["malign_low"], row["malign_high"]) for row in ringed]
    figure.add_scatter(
        x=[row["log10_perplexity"] for row in ringed], y=[bar[0] for bar in bars], mode="markers", showlegend=False,
        hoverinfo="skip", marker={"size": 1, "color": palette.REFERENCE},
        error_y=axes.intervals(bars, width=3, colour=palette.REFERENCE),
    )  # fmt: skip
    before = list(unedited.unique(["malign", "nll"], maintain_order=True).iter_rows(named=True))
    if before:
        figure.add_scatter(
            x=[row["log10_perplexity"] for row in before], y=[row["malign"] for row in before], mode="markers",
            name="unedited model",
            marker={"symbol": "asterisk-open", "size": 11, "color": palette.BEFORE, "line": {"width": 2}},
            customdata=[_cell_hover(row) for row in before], hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    places = [*cells["log10_perplexity"].drop_nulls(), *unedited["log10_perplexity"].drop_nulls()]
    figure.update_xaxes(**axes.titled("perplexity", **lines.perplexity_scale(places, share=0.1, least=0.003)))
    figure.update_yaxes(**axes.titled("risk prompts refused", tickformat=".0%", range=[-0.03, 1.08]))
    return lines.finished(figure, heading, "up is stronger, left keeps the language", _HEIGHT, _BELOW_PX)


def frontier(cells: pl.DataFrame) -> pl.DataFrame:
    """The feasible cells that no cheaper one equals: by perplexity, with more and more risk prompts refused."""
    known = cells.filter(pl.col("feasible"), pl.col("malign").is_not_null(), pl.col("nll").is_not_null())
    known = known.sort(["nll", "malign"], descending=[False, True])
    return known.filter(pl.col("malign") > pl.col("malign").cum_max().shift(1).fill_null(-1.0))


def _placed(cells: pl.DataFrame) -> pl.DataFrame:
    """With the logarithm that marks are placed by; null where there is none."""
    nll = pl.col("nll").cast(pl.Float64)
    return cells.with_columns(log10_perplexity=pl.when(nll.is_finite()).then(nll / LN10))


def _cell_hover(row: Row) -> str:
    sentences = [
        f"<b>{palette.title(row['selector'])}, {row['domain']}</b>, {strength(row)}" if row["k"] else _UNEDITED,
        f"risk prompts refused {percent(row['malign'], row['malign_low'], row['malign_high'])}",
        f"harmless ones {percent(row['benign'], row['benign_low'], row['benign_high'])}",
        f"perplexity {formats.perplexity(row['nll'])}",
    ]
    if row["rows_removed"]:
        sentences.append(f"{row['rows_removed']:,} rows removed")
    if row["point"]:
        rescued = ", rescued under a relaxed limit of harmless prompts" if row["rescue"] else ""
        sentences.append(f"operating point{rescued}")
    return "<br>".join(sentences)
