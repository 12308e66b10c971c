"""Refusal: what removing few rows does to the replies, cell by cell of the grid, with controls and structure."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import palette, refusal_trade_off, refusal_values as refusals
from dashboard.charts.findings import refusal as refusal_findings
from dashboard.pages.refusal import cell as refusal_cell, more as refusal_more
from dashboard.show import layout, selection, tools
from dashboard.state import sources
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from engine.records.errors import InputError

BENIGN_LIMIT = 0.10  # the paper's, where the results do not name their own
HOW_TO_READ = (
    "Every mark is one edit: a small set of rows zeroed. Up means more risk prompts refused, left means that it costs "
    "less: fewer harmless prompts refused (the shaded strip holds the edits that refuse few enough) or, where nearly "
    "all edits refuse the same share of these, a lower perplexity."
)
LINE = "Every mark is a small set of rows zeroed: up, more risk prompts refused; left, cheaper."
ALL = "all"
GRID, CHOSEN = "Whole grid", "Operating points"
_CLICKS = "refusal-clicks"  # session state
_CHART = "refusal-cells"


def render() -> None:
    """The page."""
    source = sources.pick(layout.heading("Refusal", LINE), (REFUSAL_SWEEP, POINTS))
    if source is None:
        return
    shown = None
    with layout.told():
        points = source.table(POINTS) if source.has(POINTS) else None
        sweep = source.table(REFUSAL_SWEEP) if source.has(REFUSAL_SWEEP) else None
        cells = refusals.cells(sweep, points)
        shown = _grid(source, cells, points, held_out=sweep is None)
    with layout.told():
        refusal_more.sections(source)
    tools.end(shown, f"refusal-{tools.file_name(source.model)}", *source.provenance)


def _grid(source: sources.Source, cells: pl.DataFrame, points: pl.DataFrame | None, *, held_out: bool) -> pl.DataFrame:
    clicked = _new_click()
    domains = cells["domain"].unique(maintain_order=True).to_list()
    available = palette.in_order(cells["selector"].unique().to_list())
    with source.bar:
        domain = selection.choose("Domain", [*domains, ALL], "domain", default=domains[0], title=palette.capital)
        which = selection.switch("Show", (GRID, CHOSEN), "show", default=GRID)
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    kept = cells.filter(pl.col("selector").is_in(selectors))
    if domain != ALL:
        kept = kept.filter(domain=domain)
    edits = refusals.edited(kept)
    if which == CHOSEN:
        edits = edits.filter("point")
    drawn = edits.filter(pl.col("malign").is_not_null(), pl.col("benign").is_not_null())
    if drawn.is_empty():
        raise InputError("nothing is left to show; choose more selectors, the whole grid, or another domain")
    options = _ordered(drawn)
    if clicked in options:
        st.session_state["cell"] = clicked
    hero, below = source.hero(), st.container()
    titles = {row["id"]: refusals.cell_title(row) for row in drawn.iter_rows(named=True)}
    chosen = selection.choose("Cell, by click or from this list", options, "cell", title=lambda name: titles[name])
    with hero:
        heading = f"{tools.file_name(source.model)}: {domain if domain != ALL else 'all domains'}"
        unedited = kept.filter(pl.col("k") == 0, pl.col("malign").is_not_null())
        figure = refusal_trade_off.trade_off(drawn, unedited, chosen, _limit(points), heading)
        told = refusal_findings.grid(drawn, kept, searched=not (held_out or source.published))
        tools.show(figure, "refusal", key=_CHART, clickable=True, finding=told, hero=True)
    with below:
        layout.how_to_read(HOW_TO_READ)
        layout.footnote(_caption(edits, drawn, held_out=held_out, published=source.published))
    refusal_cell.detail(source, cells, points, drawn.filter(id=chosen).row(0, named=True))
    return edits.drop("id")


def _ordered(drawn: pl.DataFrame) -> list[str]:
    """Ids of the cells, the operating points first: the choices of the list."""
    first = refusals.first_choice(drawn)
    rest = drawn.sort(["point", "malign"], descending=True, maintain_order=True)["id"].to_list()
    return [first, *(name for name in rest if name != first)]


def _new_click() -> str | None:
    """The cell that was clicked, in the large figure or among the neighbours below it; once per click.

    Figures keep their selection, so what was seen is remembered.
    """
    seen = st.session_state.setdefault(_CLICKS, {})
    new = None
    for key in (_CHART, refusal_cell.CHART):
        marks = [str(point["customdata"][0]) for point in tools.clicked(key) if point.get("customdata")]
        now = marks[0] if marks else None
        if now is not None and now != seen.get(key):
            new = now
            if key == refusal_cell.CHART and st.session_state.get("show") == CHOSEN:
                st.session_state["show"] = GRID  # a neighbour is one of the whole grid
        seen[key] = now
    return new


def _limit(points: pl.DataFrame | None) -> float:
    """The benign limit that the operating points were chosen by, the paper's where they do not say."""
    if points is not None and "benign_cap" in points.columns:
        own = points.filter(~pl.col("rescue"))["benign_cap"].drop_nulls()
        if own.len():
            return float(own[0])
    return BENIGN_LIMIT


def _caption(edits: pl.DataFrame, drawn: pl.DataFrame, *, held_out: bool, published: bool) -> str:
    parts = [f"{drawn.height} of {edits.height} cells drawn"]
    if edits.height > drawn.height:
        parts[0] += "; the others are above the perplexity cap and wrote no replies"
    feasible = int(drawn["feasible"].sum())
    parts.append(f"{feasible} feasible (few harmless prompts refused, perplexity under the cap)")
    rescued = int(drawn["rescue"].sum())
    if rescued:
        parts.append(f"{rescued} rescued: chosen under a relaxed benign limit, since no cell met the strict one")
    parts.append("a ring marks an operating point, bars are Wilson's 95% intervals")
    if published:
        parts.append("the paper printed few cells besides the operating points")
    elif held_out:
        parts.append("there is no grid in this folder, so these are the operating points on held-out prompts")
    else:
        parts.append("rates on the prompts that points were chosen on; held-out rates stand below")
    return "; ".join(parts) + "."
