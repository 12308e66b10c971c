"""The pages of a site, each made of the app's own figures and sentences."""

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from dashboard.charts import (
    believed as believed_chart,
    curves as curve_chart,
    formats,
    overview,
    palette,
    refusal_edits,
    refusal_structure,
    refusal_values,
    series,
    verdict_chips,
)  # fmt: skip
from dashboard.charts.findings import belief_findings as believed, curve_findings as findings, refusal_findings
from dashboard.pages.curves import curves_page
from dashboard.pages.overview import overview_page
from dashboard.pages.reference import published
from dashboard.pages.refusal.edit_grid import BENIGN_LIMIT
from dashboard.site.site_blocks import Block, Page, Run, Section, optional, table
from dashboard.state.results import ORDERS, POINTS, REFUSAL_SWEEP, read_published
from engine.records.manifest import read_manifest
from engine.stats.limits import Thresholds
from engine.studies.claims.ledger import ledger, needed
from engine.studies.verdict.judged_selectors import judged_lines, with_draws
from precomputed.paper_tables import describe, load_table

KINDS = "The strongest kind of evidence first: proof, corrected test, single interval, descriptive number."


def overview_of(page: Page, run: Run, runs: Sequence[Run]) -> Iterator[Block]:
    """The answer, the verdicts, and how many rows can go, or where that was not measured all models at one rate."""
    verdicts, budgets = run.table("verdicts"), run.table("budget")
    if verdicts is not None:
        yield Block("answer", f"{verdict_chips.answer(verdicts)}.")
    if verdicts is not None and not run.published:
        yield _chips(run, verdicts)
    if budgets is not None:
        yield page.figure(overview.budgets(budgets), overview.budget_finding(budgets))
    elif not run.sweep.is_empty():
        beside = {one.title: (one.sweep, one.model) for one in (run, *(one for one in runs if one is not run))}
        shown = overview.over_models(beside)
        harm = findings.harm(shown.filter(label=run.title), "lerf", f"with {formats.rate(overview.RATE)} removed")
        below = f"first row: {run.title}; {overview_page.BELOW}"
        yield page.figure(overview.snapshot(shown, below), harm, below)


def _chips(run: Run, verdicts: pl.DataFrame) -> Block:
    reasons = dict(verdicts.select("selector", "reasons").iter_rows())
    lines = [
        {
            "title": "✓ " * line.faithful + palette.title(line.selector),
            "chips": [(one.sign, one.colour, one.word) for one in line.chips],
            "reason": reasons[line.selector] or "", "invalid": line.stable_but_invalid,
        }
        for line in verdict_chips.lines(verdicts, run.table("invariance_verdicts"))
    ]  # fmt: skip
    asked = verdict_chips.questions(verdicts, run.table("invariance_verdicts"))
    head = [(question, overview_page.GLOSS[question]) for question in asked]
    return Block("chips", {"head": head, "lines": lines}, "Verdicts", overview_page.VERDICT_WORDS)


def curves_of(page: Page, run: Run) -> Iterator[Block]:
    """Both orders, the gap between them, and their values."""
    sweep, whole = run.sweep, run.curves
    if sweep.is_empty():
        return
    points = series.points(sweep, run.model, sweep["selector"].unique().to_list(), ORDERS, (0.0, 1.0))
    for order in (name for name in ORDERS if name in points["order"]):
        drawn = curve_chart.curves(
            points, order, baseline=series.unmasked_nll(sweep, run.model),
            saturated=None if run.published else whole.saturated_above,
        )  # fmt: skip
        yield page.figure(drawn, findings.curve(points, order), "; ".join(curve_chart.ORDER_HEADINGS[order]))
    gaps = series.gaps(points)
    if gaps.height:
        yield page.figure(curve_chart.gap(gaps), findings.gap(gaps), curves_page.BELOW_GAP)
    if points["destroyed"].any():
        yield Block("text", curves_page.DESTROYED_NOTE)
    yield table(series.value_table(points).shown, "Perplexity at every rate", "* at a numerical ceiling as printed")


def verdicts_of(page: Page, run: Run) -> Iterator[Block]:
    """Verdicts with their reasons, what they rest on, and every claim with its evidence."""
    verdicts, limits = run.table("verdicts"), Thresholds()
    if verdicts is not None:
        if not run.published:
            yield _chips(run, verdicts)
        drawn = "draw_jaccard" in verdicts.columns and verdicts["draw_jaccard"].is_not_null().any()
        figure = believed_chart.quadrant(
            verdicts, "draw_jaccard" if drawn else "jaccard", limits.jaccard, limits, run.table("draws")
        )
        yield page.figure(figure, believed.judged(verdicts))
    specific = run.table("specific")
    if specific is not None:
        specific = with_draws(judged_lines(specific, limits), run.table("draw_sweep"))
        specific = specific.filter(pl.col("answer") != "saturated")
        for (order,), chosen in specific.group_by("order", maintain_order=True):
            yield page.figure(believed_chart.own_depths(chosen, str(order)), believed.own_depths(chosen, str(order)))
    draws = run.table("draws")
    if draws is not None:
        rate = min(set(draws["rate"]), key=lambda one: abs(one - limits.rate))
        chosen, at = draws.filter(rate=rate), formats.rate(rate)
        figure = believed_chart.between_draws(chosen, limits.jaccard, heading="")
        below = f"LeRF masks at {at} from disjoint calibration text; further right: more alike"
        yield page.figure(figure, believed.between_draws(chosen, limits.jaccard), below)
    claims = ledger({stem: found for stem in needed() if (found := run.table(stem)) is not None})
    if claims.height:
        selectors = formats.texts(claims["selector"], palette.title).alias("Selector")
        names = ("Claim", "Evidence", "Number", "Unit", "Control", "Test")
        columns = ("claim", "tier", "number", "unit", "control", "test")
        shown = claims.select(selectors, *(pl.col(old).alias(new) for old, new in zip(columns, names, strict=True)))
        yield table(shown, "Every claim and its evidence", KINDS)


def refusal_of(page: Page, run: Run) -> Iterator[Block]:
    """Edits before and after, their grid by selector and domain, and the points in numbers."""
    points, sweep = run.table(POINTS), run.table(REFUSAL_SWEEP)
    if points is None and sweep is None:
        return
    for kind in refusal_edits.TITLES:
        measured = pl.DataFrame() if points is None else refusal_edits.measured(points, kind)
        if measured.height:
            sentence, of = refusal_findings.installed(measured, kind)
            yield page.figure(refusal_edits.edits(measured, kind, "", of), sentence)
    cells = refusal_values.cells(sweep, points)
    asked, grids = refusal_values.asked(cells).sort("domain"), {}
    for (selector, domain), drawn in asked.group_by("selector", "domain", maintain_order=True):
        if drawn.height > 1 and selector != "random":
            title = f"{palette.capital(str(domain))}, {palette.title(str(selector))}"
            measured = cells.filter(domain=domain, selector=selector)
            before = measured.filter(pl.col("k") == 0, pl.col("malign").is_not_null())
            first = refusal_values.first_choice(drawn)
            figure = refusal_edits.trade_off(drawn, before, first, BENIGN_LIMIT, "")
            grids[title] = page.figure(figure, refusal_findings.grid(drawn, measured, searched=sweep is not None))
    if grids:
        yield Block("choice", grids, "Strength against cost", "All edits of one selector and domain")
    if points is not None:
        shown = refusal_values.point_table(points, run.table("specificity")).shown
        yield table(shown, "Operating points", "Each rate with Wilson's 95% interval.")


def across_models(page: Page, runs: Sequence[Run]) -> Iterator[Block]:
    """Refusal by LRP's and IG's edits over the given models and the paper's."""
    own = [
        refusal_values.lrp_and_ig(found)
        for run in runs
        if not run.published and (found := run.table(POINTS)) is not None
    ]
    whole = pl.concat([*own, refusal_values.lrp_and_ig(read_published(POINTS).frame)])
    figures = {}
    for domain in whole["domain"].unique(maintain_order=True):
        figure, told = refusal_structure.reversal(whole, domain), refusal_findings.reversal(whole, domain)
        figures[palette.capital(domain)] = page.figure(figure, told)
    yield Block("choice", figures, "Across models", "The paper's models as printed")


def pages(runs: Sequence[Run]) -> list[Page]:
    """All pages with results, in the order of the menu."""
    made = []
    for name, title, line, part in (
        ("index", overview_page.TITLE, overview_page.LINE, partial(overview_of, runs=runs)),
        ("curves", "Curves", curves_page.LINE, curves_of),
        ("verdicts", "Verdicts", "Which scores can be believed, and on what that rests.", verdicts_of),
        ("refusal", "Refusal", "Zeroed: a few rows that a score finds behind answering risk prompts", refusal_of),
    ):  # fmt: skip
        page = Page(name, title, line)
        for number, run in enumerate(runs):
            blocks = optional(partial(part, page, run))
            if blocks:
                page.sections.append(Section(f"run-{number}", run.title, blocks))
        if name == "refusal" and any(run.published for run in runs):
            page.sections.append(Section("models", "Across models", optional(partial(across_models, page, runs))))
        made.append(page)
    if any(run.published for run in runs):
        line = "Every number stands as the paper printed it; where it contradicts itself, the list says so."
        tables = [
            table(published.to_read(name).shown, (title := describe(name).title),
                  published.caption(name).removeprefix(f"{title}. "))
            for name in published.tables()
        ]  # fmt: skip
        points = load_table(published.POINTS).select("severity", "topic", "statement")
        names = {"severity": "How grave", "topic": "About", "statement": "What disagrees"}
        ordered = points.sort(pl.col("severity").cast(pl.Enum(published.SEVERITIES)), maintain_order=True).rename(names)
        below = "With itself, its tables, or public configurations, in our own words"
        disagreements = table(ordered, "Where the paper disagrees", below)
        sections = [Section("tables", "Tables", tables), Section("disagreements", "Disagreements", [disagreements])]
        made.append(Page("paper", "Paper", line, sections))
    return made


def provenance(runs: Sequence[Run]) -> list[Section]:
    sections = []
    for number, run in enumerate(runs):
        manifest = read_manifest(run.folder)
        model = {name: str(value) for name, value in (manifest.get("model") or {}).items() if value is not None}
        blocks = [table(pl.DataFrame({"Of the model": list(model), "Recorded": list(model.values())}))] if model else []
        files = [
            {"File": name, "Written": str(entry.get("date", ""))[:16], "SHA-256": str(entry.get("sha256", ""))[:16]}
            for name, entry in sorted(manifest["files"].items())
        ]
        blocks.append(table(pl.DataFrame(files), "Files of results"))
        line = run.curves.provenance if (run.folder / "sweep.parquet").is_file() else ""
        sections.append(Section(f"run-{number}", run.title, [*([Block("text", line)] if line else []), *blocks]))
    return sections
