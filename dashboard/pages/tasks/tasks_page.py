"""Tasks: what the model can still do, task by task, as rows are removed."""

from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import formats, lines as lines_chart, palette, series, task_dots as tasks_chart
from dashboard.charts.findings.curve_findings import above_chance, accuracy, rate_told
from dashboard.charts.formats import task_title
from dashboard.charts.line_ends import stand_back
from dashboard.charts.lines import Axis
from dashboard.show import layout, selection, stage, tools
from dashboard.state import page_parts as parts, shipped_models as shipped, sources
from dashboard.state.page_parts import Drawn, Part
from engine.studies.estimate_words import NEAR_CHANCE, chance_sentence, downstream_mean, nothing_to_lose, pairs_sentence

TITLE = "Tasks"
MEAN = "Mean over tasks"
ONE_RATE, CURVES = "At one rate", "As rows go"
RATE = Axis("rate", "rows removed", "share")
GOOD = {
    "lerf": "LeRF: lowest scores go first; a good selector stays high",
    "morf": "MoRF: highest scores go first; a good selector falls at once",
}


def render() -> None:
    area = layout.heading(TITLE, "What can the model still do, task by task, as rows are removed?")
    parts.draw(area, layout.bar(area), TITLE, PART)


def show(source: sources.Source) -> Drawn:
    """Every task and their mean at one rate; or over all rates the mean or one task."""
    table = source.table("downstream")
    notes = _notes(source, table)
    available = palette.in_order(table["selector"])
    tasks = table["task"].unique(maintain_order=True).to_list()
    with source.bar:
        first = CURVES if "task" in st.query_params else ONE_RATE  # links of before lead to curves
        view = selection.switch("Show", (ONE_RATE, CURVES), "tasks_view", default=first)
        everyone = pl.col("selector").n_unique().over("rate") == table["selector"].n_unique()
        rates = table.filter(pl.col("rate") > 0, everyone)["rate"]
        rate = selection.rate(rates, "rate") if view == ONE_RATE and rates.len() else None
        what = selection.choose("Task", [MEAN, *tasks], "task", title=task_title) if rate is None else MEAN
        orders = [order for order in ("lerf", "morf") if order in set(table["order"])]
        order = orders[0]
        if len(orders) > 1:
            order = selection.switch("Order", orders, "order", default="lerf", title=series.ORDER_TITLES.__getitem__)
    with source.drawer():
        selectors = selection.choose_several("Selectors", available, "selectors", title=palette.title)
    chosen = table.filter(pl.col("selector").is_in(selectors), pl.col("order") == order)
    if chosen.is_empty():
        st.info("Nothing is chosen: choose at least one selector.")
        return Drawn(table, notes=notes)
    heading = f"Mean of {len(tasks)} tasks" if what == MEAN else task_title(what)
    shown = chosen if what == MEAN else chosen.filter(pl.col("task") == what)
    points = over_seeds(downstream_mean(shown) if what == MEAN else shown)
    if rate is None:
        figure, below = _curves(points, heading, order)
        name = f"downstream-{tools.file_name(heading)}-{order}"
        source.show(figure, name, finding=accuracy(points, heading), below=below)
        return Drawn(shown, notes=notes)
    panels = {heading: points} if len(tasks) > 1 else {}
    each = () if panels and stage.on() else tasks  # there is no room for them in its type
    panels |= {palette.capital(task_title(task)): over_seeds(chosen.filter(pl.col("task") == task)) for task in each}
    bars = "" if points["error"].null_count() else "; filled: above chance; hollow: could be guessing"
    asked = chosen.unique("task")["items"].sum()
    bars += f"; {asked:,} questions" * bool(asked)
    figure = tasks_chart.at_rate(panels, rate, GOOD[order] + bars, _hover)
    source.show(figure, f"downstream-{order}", finding=accuracy(points, heading, rate))
    return Drawn(chosen, notes=notes)


def _notes(source: sources.Source, table: pl.DataFrame) -> tuple[str, ...]:
    if not source.published:
        return (
            chance_sentence(table, task_title),
            pairs_sentence(source.table("downstream_pairs"), "all", 0.3) if source.has("downstream_pairs") else "",
            "Error bars of curves: 95% intervals over a task's items; of the mean, tasks count as independent; of "
            "random the standard deviation over its seeds. At one rate: what chance has to be cleared by.",
            "Chance: one over the number of choices; the more frequent answer where all items have the same choices, "
            "such as yes and no, so that giving the rarer one lies below it; 0 where the answer is to be written.",
        )
    notes = ["No standard errors and no chance levels were printed. The unmasked model stands at 0%."]
    if sources.shipped_says_nothing(shipped.demo_results_dir(), "downstream", nothing_to_lose):
        notes.append(
            f"The shipped model is above chance by {NEAR_CHANCE:g} standard errors on none of its tasks, so this "
            "page does not open on it."
        )
    return tuple(notes)


def over_seeds(table: pl.DataFrame) -> pl.DataFrame:
    """Mean over seeds; the error is then their standard deviation, otherwise the standard error over items, which
    stands under item_error too; bar: `series.spread_or_interval` of it."""
    spread = pl.when(pl.len() > 1).then(pl.col("accuracy").std()).otherwise(pl.col("stderr").first())
    return table.group_by("selector", "rate", maintain_order=True).agg(
        pl.col("accuracy").mean(),
        spread.alias("error"),
        series.spread_or_interval(spread).alias("bar"),
        pl.col("stderr").mean().alias("item_error"),
        pl.len().alias("seeds"),
        pl.col("chance", "items", "rows_removed").first(),
    )


def _curves(points: pl.DataFrame, heading: str, order: str) -> tuple[go.Figure, str]:
    """The curves, those that are not above chance pale, and what stands below their sentence."""
    chance = points["chance"].drop_nulls()
    figure = lines_chart.lines(
        points, RATE, Axis("accuracy", "accuracy", "share"), heading=heading,
        below=GOOD[order], error="bar", hover=_hover,
        reference=(float(chance[0]), "chance") if chance.len() else None,
    )  # fmt: skip
    told, _ = rate_told(points)
    if told is not None:
        figure.add_vline(told, line=palette.DOTTED, opacity=0.6)
    over = above_chance(points)["selector"].to_list() if chance.len() else []
    return figure, GOOD[order] + stand_back(figure, {*points["selector"]} - {*over} if over else ())


def _hover(row: dict[str, Any]) -> str:
    removed = f" = {row['rows_removed']:,} rows" if row["rows_removed"] is not None else ""
    bar = f" ± {row['bar']:.4f}" if row["bar"] is not None else ""
    lines = [f"removed {formats.rate(row['rate'])}{removed}", f"accuracy {row['accuracy']:.4f}{bar}"]
    if row["seeds"] > 1:
        lines.append(f"mean and spread of {row['seeds']} seeds")
    if row["items"]:
        lines.append(f"{row['items']:,} items")
    return "<br>".join(lines)


PART = Part(
    show, ("downstream",),
    "Accuracy on downstream tasks against the share of removed rows. The dotted line is what an answer gets that "
    "does not read the item: a curve that is not above it says nothing, and a low perplexity is worth little there.",
    nothing_to_lose,
)  # fmt: skip
