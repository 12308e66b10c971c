"""Operating points: refused before and after every edit, and under random rows, a panel per domain."""

import html
import math

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.charts import axes, dots, lines, palette
from dashboard.charts.refusal_values import Row, cell_id, percent, strength, strongest_first

COLUMNS = 3
_LINE_PX, _BETWEEN_PX, _BOTTOM_PX, _TOP_PX = 34, 58, 84, 24
_CHOSEN_PX = 19  # of the ring
_FEW = 0.4  # an axis ends there where all is below it
_BELOW = 0.27  # of a line: random rows stand there, or they would lie on the unedited model
TITLES = {"malign": "Risk prompts", "benign": "Harmless prompts"}


def measured(points: pl.DataFrame, kind: str = "malign") -> pl.DataFrame:
    column = f"edited_{kind}"
    return points.filter(pl.col("k").is_not_null() & pl.col(column).is_not_null()) if column in points else points[:0]


def edits(points: pl.DataFrame, kind: str, chosen: str, heading: str) -> go.Figure:
    """A panel per domain and a line per selector: share of prompts refused before, after with its interval, and under
    random rows of the same layers, the mean of their seeds.
    points: `measured` rows of `operating_points`; kind: `malign` or `benign`; chosen: the id of the edit that has a
    ring. The selector whose edits refuse most risk prompts, in the mean of the domains, stands first. customdata of
    what is there after an edit: [cell id, hover text]."""
    domains = points["domain"].unique(maintain_order=True).to_list()
    order = strongest_first(points)
    columns = min(COLUMNS, len(domains))
    rows, panel = math.ceil(len(domains) / columns), _LINE_PX * max(len(order), 2)
    plots = rows * panel + (rows - 1) * _BETWEEN_PX
    figure = make_subplots(
        rows=rows, cols=columns, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=_BETWEEN_PX / plots if rows > 1 else 0,
        subplot_titles=[palette.capital(html.escape(domain)) for domain in domains],
    )  # fmt: skip
    for number, domain in enumerate(domains):
        part = {row["selector"]: row for row in points.filter(domain=domain).iter_rows(named=True)}
        marks = [(place, part[name]) for place, name in enumerate(order) if name in part]
        for trace in (*_beside(marks, kind), _after(marks, kind, chosen)):
            figure.add_trace(trace, row=number // columns + 1, col=number % columns + 1)
    figure.update_traces(showlegend=False, cliponaxis=False)
    keys = [
        ("unedited", "circle-open", palette.BEFORE),
        ("edited, in its selector's mark", "square", palette.REFERENCE),
    ]
    if f"control_{kind}" in points and points[f"control_{kind}"].drop_nulls().len():
        keys.append(("random rows of the same layers, mean", "x-thin", palette.REFERENCE))
    for name, symbol, colour in keys:
        look = {"symbol": symbol, "size": 11, "color": colour, "line": {"width": 2, "color": colour}}
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=look)
    labels = [html.escape(palette.title(name)) for name in order]
    figure.update_yaxes(**axes.places(labels), automargin=True)
    drawn = [f"{side}_{kind}" for side in ("edited", "unedited", "control")] + [f"edited_{kind}_high"]
    few = all((points[name].drop_nulls() <= _FEW).all() for name in drawn if name in points)
    ticks = [0, 0.2, 0.4] if few else [0, 0.5, 1]
    figure.update_xaxes(**dots.SHARE | {"range": [-0.012, 0.412]} if few else dots.SHARE, tickvals=ticks)
    figure.update_xaxes(zeroline=False)
    titled = axes.titled(f"{TITLES[kind].lower()} refused")
    for number in range(max(0, len(domains) - columns), len(domains)):
        figure.update_xaxes(**titled, row=number // columns + 1, col=number % columns + 1)
    top = lines.TOP + _TOP_PX
    price = _price(points, order[0]) if kind == "malign" and order else ""
    below = f"{price}bars: 95% intervals; large mark: the edit below"
    return lines.finished(figure, heading, below, top + plots + _BOTTOM_PX, _BOTTOM_PX, top=top)


def _price(points: pl.DataFrame, selector: str) -> str:
    """What the edits of a selector cost: harmless prompts refused before and after, in the mean of its domains."""
    own = points.filter(selector=selector)
    ends = [own[name].mean() if name in own.columns else None for name in ("unedited_benign", "edited_benign")]
    told = [f"{end:.0%}" for end in ends if isinstance(end, float)]
    title = palette.title(selector)
    return f"harmless prompts: {told[0]} before, {told[1]} after {title}'s; " if len(told) == 2 else ""


def _beside(marks: list[tuple[int, Row]], kind: str) -> list[go.Scatter]:
    """What an edit is compared with, and the way from the one to the other."""
    ends = [(place, row[f"edited_{kind}"], row.get(f"unedited_{kind}")) for place, row in marks]
    ways = [(x, y) for y, after, before in ends if before is not None for x in (before, after, None)]
    line = {"color": palette.REFERENCE, "width": 2, "dash": "dot"}
    x, y = [way[0] for way in ways], [way[1] for way in ways]
    traces = [go.Scatter(x=x, y=y, mode="lines", hoverinfo="skip", line=line)]
    for column, symbol, colour, shift in (
        (f"control_{kind}", "x-thin", palette.REFERENCE, _BELOW),
        (f"unedited_{kind}", "circle-open", palette.BEFORE, 0.0),
    ):
        known = [(place, row) for place, row in marks if row.get(column) is not None]
        traces.append(
            go.Scatter(
                x=[row[column] for _, row in known], y=[place + shift for place, _ in known], mode="markers",
                customdata=[_hover(row, kind) for _, row in known],
                hovertemplate="%{customdata}<extra></extra>", name=column,
                marker={"symbol": symbol, "size": 9, "color": colour, "line": {"width": 2, "color": colour}},
            )
        )  # fmt: skip
    return traces


def _after(marks: list[tuple[int, Row]], kind: str, chosen: str) -> go.Scatter:
    looks = [palette.style(row["selector"]) for _, row in marks]
    rates = [(row[f"edited_{kind}"], *(row.get(f"edited_{kind}_{end}") for end in ("low", "high"))) for _, row in marks]
    ids = [cell_id(row) for _, row in marks]
    return go.Scatter(
        x=[rate[0] for rate in rates], y=[place for place, _ in marks], mode="markers", name="edited",
        customdata=[[name, _hover(row, kind)] for name, (_, row) in zip(ids, marks, strict=True)],
        hovertemplate="%{customdata[1]}<extra></extra>",
        error_x=axes.intervals(rates, thickness=1.5, colour=palette.REFERENCE),
        marker={
            "symbol": [look.symbol for look in looks], "color": [look.colour for look in looks],
            "size": [_CHOSEN_PX if name == chosen else 12 for name in ids],
            "line": {"width": [3 if name == chosen else 0 for name in ids], "color": palette.REFERENCE},
        },
        selected={"marker": {"opacity": 1.0}}, unselected={"marker": {"opacity": 1.0}},
    )  # fmt: skip


def _hover(row: Row, kind: str) -> str:
    names = {f"unedited_{kind}": "before", f"edited_{kind}": "after"}
    told = [
        f"{name} {percent(row[column], row.get(f'{column}_low'), row.get(f'{column}_high'))}"
        for column, name in names.items() if row.get(column) is not None
    ]  # fmt: skip
    if row.get(f"control_{kind}") is not None:
        most = row.get("control_malign_max") if kind == "malign" else None
        tail = f", {percent(most)} at most" if most is not None else ""
        told.append(f"random rows of the same layers {percent(row[f'control_{kind}'])} in the mean{tail}")
    if row["rescue"]:
        told.append("rescued under a relaxed limit of harmless prompts")
    title = f"<b>{html.escape(palette.title(row['selector']))}, {html.escape(row['domain'])}</b>, {strength(row)}"
    return "<br>".join([title, f"{TITLES[kind].lower()} refused:", *told])
