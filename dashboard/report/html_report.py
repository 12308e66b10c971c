"""A run as one self-contained HTML file: protocol, verdicts, figures, numbers, provenance. Opens without a network.

`report.html.jinja` says what stands there, section by section; what was not measured is named with its command.
Everything from files is escaped."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
import polars as pl
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from dashboard.charts import curves as curve_chart, figure_size, formats, palette, series, typeface
from dashboard.charts.in_words import as_text
from dashboard.state import results
from engine.data.window_starts import start_in_words
from engine.records.errors import InputError
from engine.records.manifest import read_manifest, shortfalls
from engine.records.model_names import model_name, model_to_type
from engine.results.folders import read_table
from engine.results.tables import command as command_of, with_domain_names
from engine.stats.blocks import has_blocks, log_gaps
from engine.studies.claims.ledger import ledger, needed
from engine.studies.estimate_words import chance_sentence, control_answers, units_in_words
from engine.studies.protocols.protocol_claims import summary as protocols_summary
from engine.studies.verdict import verdict_moves
from engine.studies.verdict.judged_selectors import as_judged_now, with_draws

RATE = 0.3  # where the report quotes one number per selector, as the paper does


@dataclass(frozen=True)
class Run:
    """One results folder: its manifest, and the tables that it holds."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def model(self) -> str:
        return model_name(self.manifest.get("model") or {})

    @property
    def model_to_type(self) -> str:
        return model_to_type(self.manifest.get("model") or {})

    @property
    def curves(self) -> pl.DataFrame:
        """The sweep, `results.CURVE_SCHEMA`."""
        return results.read_run(self.folder).frame

    @property
    def unmasked(self) -> float | None:
        """NLL of the unmasked model, None where it was not measured."""
        return series.unmasked_nll(self.curves, self.curves["model"][0])

    def table(self, stem: str) -> pl.DataFrame | None:
        """A table, None where this analysis was not run or found nothing to measure. Errors: InputError if damaged."""
        if f"{stem}.parquet" not in self.manifest.get("files", {}):
            return None
        table = with_domain_names(read_table(self.folder, stem))
        if stem == "verdicts":
            table = as_judged_now(table)
        return None if table.is_empty() else table


def build(folders: Sequence[Path]) -> str:
    """The report on one or several runs.
    Errors: InputError for a folder without a sweep or with no number in it, for a damaged one, and for tables that
    are each what their names say and yet cannot be of one run."""
    try:
        return _built(folders)
    except InputError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"no report can be made of {', '.join(map(str, folders))}: its tables do not go together "
            f"({type(error).__name__}: {reason[:200]}); another program wrote one of them: run "
            "`selector-audit analyze MODEL all` again, or --debug to see which step failed"
        ) from error


def _built(folders: Sequence[Path]) -> str:
    runs = [Run(folder, read_manifest(folder)) for folder in folders]
    for run in runs:
        for entry in run.manifest.get("files", {}).values():
            results.learn_titles(entry)
        if run.table(results.SWEEP) is None:
            raise InputError(
                f"{run.folder} holds no sweep, which a report begins with; "
                f"run `selector-audit analyze {run.model_to_type} all`"
            )
        if not run.curves["nll"].is_finite().any():
            raise InputError(
                f"{run.folder}: nll of {results.SWEEP}.parquet is nowhere a number, so there is nothing to report; "
                f"run `{command_of(results.SWEEP, run.model_to_type)}` again, in another --dtype"
            )
    several = len(runs) > 1
    plotly = Markup(get_plotlyjs())  # nosec B704 # a file of the installed plotly
    face = Markup(typeface.css())  # nosec B704 # a file of ours, in base64
    return _template().render(
        runs=runs, plotly=plotly, typeface=face, replication=_replication(runs) if several else None,
        unmeasured=[run.model for run in runs if run.unmasked is None] if several else [],
    )  # fmt: skip


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.ChainableUndefined, keep_trailing_newline=True,  # a manifest need not name everything
    )  # fmt: skip
    environment.filters |= {
        "selector": palette.title,
        "rate": formats.rate,
        "perplexity": formats.perplexity,
        "number": lambda value: "–" if value is None else f"{value:.3f}",
        "chance": lambda tasks: f"{_means(tasks, ['selector', 'rate'], ['chance'])['chance'][0]:.3f}",
    }
    environment.globals |= {
        "command": command_of, "control_answers": control_answers, "protocols_summary": protocols_summary,
        "claim_ledger": _claims, "moved": partial(verdict_moves.sentences, title=palette.title),
        "chance_sentence": partial(chance_sentence, title=formats.task_title),
        "task_names": lambda tasks: [formats.task_title(task) for task in tasks["task"].unique(maintain_order=True)],
        "shortfalls": shortfalls, "start_in_words": start_in_words, "sufficiency": _sufficiency, "gaps": _gaps,
        "with_draws": with_draws, "errors_words": _errors_words, "accuracies": _accuracies, "nearest": _nearest,
        "json": lambda value, indent=1: json.dumps(value or None, indent=indent),
    }  # fmt: skip
    return environment.get_template("report.html.jinja")


def _figure(drawn: go.Figure) -> Markup:
    """A figure that draws itself with the page's one copy of plotly."""
    figure_size.sized(drawn)
    drawn.update_layout(template="plotly_white", font_family=typeface.FAMILY)
    drawn = as_text(drawn)
    options = {"displaylogo": False, "responsive": True}
    html = drawn.to_html(full_html=False, include_plotlyjs=False, config=options)
    return Markup(html)  # nosec B704 # `as_text` has been through all texts of the figure


def _means(table: pl.DataFrame, keys: list[str], values: list[str]) -> pl.DataFrame:
    return table.group_by(keys, maintain_order=True).agg(pl.col(values).mean())


def _gaps(gap: pl.DataFrame, draw_sweep: pl.DataFrame | None) -> pl.DataFrame:
    """Columns selector, rate, log_gap, stderr, low, high: means over seeds, with what the draw of the seed and, where
    it was measured, that of the calibration text add to the error."""
    gaps = log_gaps(gap, draw_sweep)
    lines = [(*where, one.value, one.stderr, one.low, one.high) for where, one in gaps.items()]
    numbers = dict.fromkeys(("rate", "log_gap", "stderr", "low", "high"), pl.Float64)
    return pl.DataFrame(lines, schema={"selector": pl.String, **numbers}, orient="row")


def _errors_words(table: pl.DataFrame, draw_sweep: pl.DataFrame | None) -> str:
    if not has_blocks(table):
        return (
            "Errors take evaluation windows as independent (an earlier version measured them), which makes them too "
            "small."
        )
    drawn = ", and between disjoint draws of the calibration text at the rates at which these were measured"
    if draw_sweep is None:
        drawn = "; the draw of the calibration text was not measured and is not in them"
    return f"Errors are over {units_in_words(table, numbers=True)} and over seeds{drawn}; intervals are Student's t."


def _replication(runs: list[Run]) -> Markup:
    """LeRF at RATE over the models, relative to the unmasked one; seeds averaged, a gap where that is not known."""
    added = []
    for run in runs:
        at = run.curves.filter(pl.col("order") == "lerf", (pl.col("rate") - RATE).abs() < 1e-9)
        means, dense = _means(at, ["selector"], ["nll"]), run.unmasked
        added.append({} if dense is None else {name: nll - dense for name, nll in means.iter_rows()})
    names = [run.model for run in runs]  # where two are called the same, each with its results folder
    names = [f"{run.model} ({run.folder.name})" if names.count(run.model) > 1 else run.model for run in runs]
    drawn = go.Figure()
    for selector in palette.in_order(list({name for one in added for name in one})):
        look = palette.style(selector)
        line, marker = {"color": look.colour, "dash": look.dash}, {"symbol": look.symbol, "size": 9}
        y = [one.get(selector) for one in added]
        drawn.add_scatter(x=names, y=y, name=look.title, mode="lines+markers", line=line, marker=marker)
    drawn.update_yaxes(title=f"NLL at {RATE:.0%} LeRF, above the unmasked model (nats)")
    return _figure(drawn)


def _sufficiency(run: Run) -> tuple[list[Markup], pl.DataFrame]:
    points, orders = _points(run)
    figures = [_figure(curve_chart.curves(points, order, baseline=run.unmasked)) for order in orders]
    return figures, series.value_table(points).shown


def _points(run: Run) -> tuple[pl.DataFrame, list[str]]:
    sweep = run.curves
    selectors = sweep["selector"].unique().to_list()
    points = series.points(sweep, sweep["model"][0], selectors, results.ORDERS, (0.0, 1.0))
    return points, [order for order in results.ORDERS if order in sweep["order"]]


def curves_figure(folder: Path) -> go.Figure:
    """Perplexity over removed rows, a panel for each order, on the same axes. Errors: InputError without a sweep."""
    run = Run(folder, read_manifest(folder))
    points, orders = _points(run)
    panels = [curve_chart.Panel(curve_chart.ORDER_HEADINGS[one][0], points, run.unmasked, one) for one in orders]
    figure = curve_chart.multiples(panels, "", columns=len(panels), relative=False)
    return as_text(figure.update_layout(title_text=f"Perplexity of {run.model} as rows are removed"))


def _claims(run: Run) -> pl.DataFrame:
    needed_tables = {stem: run.table(stem) for stem in needed()}
    return ledger({stem: table for stem, table in needed_tables.items() if table is not None})


def _accuracies(tasks: pl.DataFrame) -> pl.DataFrame:
    means = _means(tasks, ["selector", "rate"], ["accuracy"])
    means = means.with_columns(pl.col("accuracy").round(3), Removed=formats.texts(means["rate"], formats.rate))
    return means.pivot("selector", index="Removed", values="accuracy")


def _nearest(table: pl.DataFrame) -> pl.DataFrame:
    rate = min(table["rate"].unique().to_list(), key=lambda value: abs(value - RATE))
    return table.filter(pl.col("rate") == rate)
