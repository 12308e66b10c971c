"""Edits: what removing few rows does to the replies, selector by selector; folded, controls and points."""

import html
from collections.abc import Callable

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import formats, lines, palette, refusal_edits, refusal_values as refusals
from dashboard.charts.findings import refusal_findings
from dashboard.charts.lines import Axis
from dashboard.pages.refusal import edit_cell as refusal_cell
from dashboard.show import layout, selection, shown_tables as tables, stage, tools
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.results import POINTS, REFUSAL_SWEEP
from dashboard.state.sources import SHIPPED, Source
from engine.records.errors import InputError

BENIGN_LIMIT = 0.10  # the paper's, where the results do not name their own
ALL = "all"
CHOSEN, GRID = "Before and after", "All edits"
FORMER = {"Operating points": CHOSEN, "Whole grid": GRID, "Strength against cost": GRID}  # what links of before say
_CLICK = "refusal-click"  # session state
_CHART = "refusal-cells"


def show(source: Source) -> Drawn:
    """Every selector's edit before and after, or all edits of one; the chosen one in numbers; folded, whether it is
    these rows, and all points."""
    points, sweep = source.optional(POINTS), source.optional(REFUSAL_SWEEP)
    cells = refusals.cells(sweep, points)
    measured = refusal_edits.measured(points) if points is not None else cells.clear()
    # once per click: figures keep their selection, so the last is kept
    clicked = next((str(one["customdata"][0]) for one in tools.clicked(_CHART) if one.get("customdata")), None)
    before, st.session_state[_CLICK] = st.session_state.get(_CLICK), clicked
    if clicked != before and clicked in cells["id"]:
        st.session_state["cell"] = clicked
    ways = (CHOSEN, GRID) if measured.height else (GRID,)
    which = selection.switch("Show", ways, "show", default=ways[0], place=source.bar)
    drawn, figure_of = (_points_drawn if which == CHOSEN else _cells_drawn)(source, cells, measured, points)
    if drawn.is_empty():
        raise InputError(f"no edit was asked prompts here; choose another domain, or {GRID}")
    hero = source.hero()
    titles = {row["id"]: refusals.cell_title(row) for row in drawn.iter_rows(named=True)}
    ranked = drawn.sort(["point", "malign"], descending=True, maintain_order=True)["id"]
    ids = list(dict.fromkeys([refusals.first_choice(drawn), *ranked]))
    chosen = selection.choose("Edit, by click or from this list", ids, "cell", title=titles.__getitem__)
    with hero:
        figure, told = figure_of(chosen if which == GRID or chosen != ids[0] else "")
        tools.show(figure, "refusal", key=_CHART, clickable=True, finding=told, hero=True)
    cell = drawn.filter(id=chosen).row(0, named=True)
    refusal_cell.detail(source, cells, points, cell)
    note = _caption(drawn, which, held_out=sweep is None, published=source.published)
    return Drawn(drawn.drop("id"), lambda: _more(source, points, sweep, cell), (note,))


Chosen = Callable[[str], tuple[go.Figure, str]]  # id of the edit that is told below -> the figure, its sentence


def _points_drawn(
    source: Source, cells: pl.DataFrame, measured: pl.DataFrame, points: pl.DataFrame | None
) -> tuple[pl.DataFrame, Chosen]:
    with source.bar:
        kinds = tuple(refusal_edits.TITLES)
        kind = selection.switch("Prompts", kinds, "prompts", default=kinds[0], title=refusal_edits.TITLES.__getitem__)
    with source.drawer():
        domains = [ALL, *measured["domain"].unique(maintain_order=True)]
        domain = selection.choose("Domain", domains, "domain", default=ALL, title=palette.capital)
        available = palette.in_order(measured["selector"])
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    shown_rows = refusal_edits.measured(measured, kind).filter(pl.col("selector").is_in(selectors))
    shown_rows = shown_rows if domain == ALL else shown_rows.filter(domain=domain)
    ids = [refusals.cell_id(row) for row in shown_rows.iter_rows(named=True)]

    def figure(chosen: str) -> tuple[go.Figure, str]:
        sentence, of = refusal_findings.installed(shown_rows, kind)
        model = html.escape(formats.model_title(source.model))
        where = f" ({model}, a model trained for this)" if source.kind == SHIPPED else ""
        of = of if where else f"model: {model}; {of}"
        return refusal_edits.edits(shown_rows, kind, chosen, of, mean_alone=stage.on()), sentence + where

    return refusals.asked(cells.filter(pl.col("id").is_in(ids))), figure


def _cells_drawn(
    source: Source, cells: pl.DataFrame, measured: pl.DataFrame, points: pl.DataFrame | None
) -> tuple[pl.DataFrame, Chosen]:
    edits = refusals.asked(cells)
    if edits.is_empty():
        raise InputError("no mask of this grid is below the perplexity cap, so that none was asked")
    now = edits.filter(id=st.session_state.get("cell", ""))
    first = now.row(0, named=True) if now.height else edits.row(
        by_predicate=pl.col("id") == refusals.first_choice(edits), named=True
    )  # fmt: skip
    with source.bar:
        domains = edits["domain"].unique(maintain_order=True).to_list()
        domain = selection.choose("Domain", domains, "domain", default=first["domain"], title=palette.capital)
        selector = selection.choose_selector(edits.filter(domain=domain), "selector", default=first["selector"])
    of_selector = cells.filter(domain=domain, selector=selector)
    drawn, limit = refusals.asked(of_selector), BENIGN_LIMIT
    if points is not None and "benign_cap" in points.columns:  # by which they were chosen
        limit = next(iter(points.filter(~pl.col("rescue"))["benign_cap"].drop_nulls()), BENIGN_LIMIT)

    def figure(chosen: str) -> tuple[go.Figure, str]:
        unedited = of_selector.filter(pl.col("k") == 0, pl.col("malign").is_not_null())
        heading = f"{tools.file_name(source.model)}: {palette.title(selector)}, {domain}"
        searched = source.has(REFUSAL_SWEEP) and not source.published
        sentence = refusal_findings.grid(drawn, of_selector, searched=searched)
        return refusal_edits.trade_off(drawn, unedited, chosen, limit, heading), sentence

    return drawn, figure


def _more(source: Source, points: pl.DataFrame | None, sweep: pl.DataFrame | None, cell: refusals.Row) -> None:
    refusal_cell.specificity(source, refusals.point_of(points, cell))
    if points is not None:
        layout.section("Operating points")
        listed = refusals.point_table(points, source.optional("specificity"))
        tables.show(listed)
        layout.footnote(
            "Each rate with Wilson's 95% interval. Optimism: risk prompts refused on the pairs that the point was "
            "chosen on minus those on the held-out pairs.",
            "Random masks, mean: the paper's figure, risk prompts refused under a few random masks with as many rows "
            "in every layer that were not searched; gain: the edit minus that, no test. Rank and p: among random draws "
            "with a grid and a choice of their own (`refusal draws`), – where they were not measured.",
            "Rescue: no cell kept the limit of harmless prompts refused, so it was relaxed for this one.",
            "A point at the grid's edge may have a better one beyond it, which was not searched."
            if refusals.EDGE in listed.numbers.columns
            else "",
        )
    if sweep is not None:
        table = sweep.filter(domain=cell["domain"])
        masks, lam, domain = table.filter(pl.col("k") > 0), cell["lambda"], cell["domain"]
        if cell["selector"] == "random":  # which has no λ
            lam = next(iter(sorted(set(masks.filter(pl.col("selector") != "random")["lambda"]))), 0.0)
        at_lambda = masks.filter(((pl.col("lambda") - lam).abs() < 1e-9) | (pl.col("selector") == "random"))
        dense = table.filter(pl.col("k") == 0)["nll"].mean()
        figure = lines.lines(
            at_lambda, Axis("k", "k, share of rows removed", "category"), Axis("nll", "perplexity", "perplexity"),
            heading=f"Perplexity against k: {domain}", below=f"λ = {lam:g}; random has no λ",
            hover=lambda row: f"k {formats.rate(row['k'])}<br>perplexity {formats.perplexity(row['nll'])}<br>"
            f"NLL {row['nll']:.4f} nats per token",
            reference=(float(dense), "unedited") if isinstance(dense, float) else None,
        )  # fmt: skip
        below = f"{domain}, λ = {lam:g}; random has no λ"
        tools.show(figure, "perplexity-k", finding=refusal_findings.cost(at_lambda), below=below)


def _caption(drawn: pl.DataFrame, which: str, *, held_out: bool, published: bool) -> str:
    feasible, rescued = int(drawn["feasible"].sum()), int(drawn["rescue"].sum())
    parts = [f"{drawn.height} edits drawn"]
    if which == GRID:
        parts.append(f"{feasible} feasible (few harmless prompts refused, perplexity under the cap)")
    if rescued:
        why = "chosen under a relaxed limit of harmless prompts, since no cell met the strict one"
        parts.append(f"{rescued} rescued: {why}")
    if which == CHOSEN and published:
        parts.append("the operating points that the paper printed")
    elif which == CHOSEN:
        parts.append("the operating points of the selectors that were calibrated")
    elif published:
        parts.append("the paper printed few cells besides the operating points")
    elif held_out:
        parts.append("there is no grid in this folder, so these are the operating points on held-out prompts")
    else:
        parts.append("rates on the prompts that points were chosen on; held-out rates stand below")
    return "; ".join(parts) + "."


PART = Part(
    show, (REFUSAL_SWEEP, POINTS),
    "Every mark is one edit: a small set of rows zeroed. **Before and after**: the longer the dotted line, the more "
    "risk prompts an edit makes the model refuse; a cross far to its left says that it is these rows, and not any of "
    "these layers. **All edits**: one selector's, by strength and cost; the line joins the best at each perplexity.",
)  # fmt: skip
