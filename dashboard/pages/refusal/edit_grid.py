"""Edits: what removing few rows does to the replies, cell by cell of the grid; folded, controls and points."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import formats, lines, palette, refusal_trade_off, refusal_values as refusals
from dashboard.charts.findings import refusal as refusal_findings
from dashboard.charts.lines import Axis
from dashboard.pages.refusal import cell as refusal_cell, specificity
from dashboard.show import grid, layout, selection, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from dashboard.state.sources import Source
from engine.records.errors import InputError

BENIGN_LIMIT = 0.10  # the paper's, where the results do not name their own
ALL = "all"
GRID, CHOSEN = "Whole grid", "Operating points"
_CLICK = "refusal-click"  # session state
_CHART = "refusal-cells"


def show(source: Source) -> Drawn:
    """The figure of all cells and the chosen one in numbers; folded, whether it is these rows, and all points."""
    points = source.optional(POINTS)
    sweep = source.optional(REFUSAL_SWEEP)
    cells = refusals.cells(sweep, points)
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
    hero = source.hero()
    titles = {row["id"]: refusals.cell_title(row) for row in drawn.iter_rows(named=True)}
    chosen = selection.choose("Cell, by click or from this list", options, "cell", title=lambda name: titles[name])
    with hero:
        heading = f"{tools.file_name(source.model)}: {domain if domain != ALL else 'all domains'}"
        unedited = kept.filter(pl.col("k") == 0, pl.col("malign").is_not_null())
        figure = refusal_trade_off.trade_off(drawn, unedited, chosen, _limit(points), heading)
        told = refusal_findings.grid(drawn, kept, searched=not (sweep is None or source.published))
        tools.show(figure, "refusal", key=_CHART, clickable=True, finding=told, hero=True)
    cell = drawn.filter(id=chosen).row(0, named=True)
    refusal_cell.detail(source, cells, points, cell)
    note = _caption(edits, drawn, held_out=sweep is None, published=source.published)
    return Drawn(edits.drop("id"), lambda: _more(source, points, sweep, cell), (note,))


def _more(source: Source, points: pl.DataFrame | None, sweep: pl.DataFrame | None, cell: refusals.Row) -> None:
    specificity.section(source, refusals.point_of(points, cell))
    if points is not None:
        _points(source, points)
    if sweep is not None:
        _language(sweep.filter(domain=cell["domain"]), cell)


def _points(source: Source, points: pl.DataFrame) -> None:
    layout.section("Operating points")
    table = refusals.point_table(points, source.optional("specificity"))
    grid.show(table)
    layout.footnote(
        "Each rate with Wilson's 95% interval. Optimism: malign refusal on the pairs that the point was chosen on "
        "minus that on the held-out pairs.",
        "Random masks, mean: the paper's figure, malign refusal under a few random masks with as many rows in every "
        "layer that were not searched; gain: the edit minus that, no test. Rank and p: among random draws with a grid "
        "and a choice of their own (`refusal draws`), – where they were not measured.",
        "Rescue: no cell refused at most 10% of the harmless prompts, so the limit was relaxed for this one.",
        "A point at the grid's edge may have a better one beyond it, which was not searched."
        if refusals.EDGE in table.numbers.columns
        else "",
    )


def _language(table: pl.DataFrame, cell: refusals.Row) -> None:
    """What every k costs, at the λ of the chosen cell."""
    masks, lam, domain = table.filter(pl.col("k") > 0), cell["lambda"], cell["domain"]
    if cell["selector"] == "random":  # which has no λ
        lam = next(iter(sorted(set(masks.filter(pl.col("selector") != "random")["lambda"]))), 0.0)
    part = masks.filter(((pl.col("lambda") - lam).abs() < 1e-9) | (pl.col("selector") == "random"))
    dense = table.filter(pl.col("k") == 0)["nll"].mean()
    figure = lines.lines(
        part, Axis("k", "k, share of rows removed", "category"), Axis("nll", "perplexity", "perplexity"),
        heading=f"Perplexity against k: {domain}", below=f"λ = {lam:g}; random has no λ",
        hover=lambda row: f"k {formats.rate(row['k'])}<br>perplexity {formats.perplexity(row['nll'])}<br>"
        f"NLL {row['nll']:.4f} nats per token",
        reference=(float(dense), "unedited") if isinstance(dense, float) else None,
    )  # fmt: skip
    below = f"{domain}, λ = {lam:g}; random has no λ"
    tools.show(figure, "perplexity-k", finding=refusal_findings.cost(part), below=below)


def _ordered(drawn: pl.DataFrame) -> list[str]:
    """Ids of the cells, the operating points first: the choices of the list."""
    first = refusals.first_choice(drawn)
    rest = drawn.sort(["point", "malign"], descending=True, maintain_order=True)["id"].to_list()
    return [first, *(name for name in rest if name != first)]


def _new_click() -> str | None:
    """The cell that was clicked in the figure; once per click. Figures keep their selection, so the last is kept."""
    marks = [str(point["customdata"][0]) for point in tools.clicked(_CHART) if point.get("customdata")]
    before, st.session_state[_CLICK] = st.session_state.get(_CLICK), marks[0] if marks else None
    return marks[0] if marks and marks[0] != before else None


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


PART = Part(
    show, (REFUSAL_SWEEP, POINTS),
    "Every mark is one edit: a small set of rows zeroed. Up means more risk prompts refused, left means that it costs "
    "less: fewer harmless prompts refused (the shaded strip holds the edits that refuse few enough) or, where nearly "
    "all edits refuse the same share of these, a lower perplexity.",
)  # fmt: skip
