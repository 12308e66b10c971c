"""What the report says about a run, section by section; what was not measured is named with its command."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard import charts, formats, palette, results, schemas, series
from dashboard.report_html import figure, frame, table
from engine.analysis.control_answers import control_answers
from engine.analysis.task_means import chance_sentence

RATE = 0.3  # where the report quotes one number per selector, as the paper does


@dataclass(frozen=True)
class Run:
    """One results folder: its manifest, and the tables that it holds."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def model(self) -> str:
        return str((self.manifest.get("model") or {}).get("id", "unknown model"))

    def table(self, stem: str) -> pl.DataFrame | None:
        """A table, None where this analysis was not run or found nothing to measure. Errors: InputError if damaged."""
        if f"{stem}.parquet" not in self.manifest.get("files", {}):
            return None
        found = results.read_table(self.folder, stem).frame
        return None if found.is_empty() else found


def replication(runs: list[Run]) -> list[str]:
    """LeRF at one rate over the models, relative to the unmasked one."""
    drawn = go.Figure()
    for selector in palette.in_order(
        list({name for run in runs for name in _means(run, "lerf")["selector"].to_list()})
    ):
        look = palette.style(selector)
        values = [dict(_means(run, "lerf").iter_rows()).get(selector) for run in runs]
        drawn.add_trace(
            go.Scatter(
                x=[run.model for run in runs], y=values, name=look.title, mode="lines+markers",
                line={"color": look.colour, "dash": look.dash}, marker={"symbol": look.symbol, "size": 9},
            )
        )  # fmt: skip
    drawn.update_yaxes(title=f"NLL at {RATE:.0%} LeRF, above the unmasked model (nats)")
    text = (
        "<p>One line per selector; lower is better. Orders that hold on one model only are not a finding.</p>"
    )
    unknown = [run.model for run in runs if _unmasked(run) is None]
    left_out = f"Not measured: the unmasked model of {', '.join(unknown)} (rate 0 of the sweep); not drawn."
    return [text, figure(drawn), f'<p class="note">{html.escape(left_out)}</p>' if unknown else ""]


def _means(run: Run, order: str) -> pl.DataFrame:
    """Columns selector, nll above the unmasked model at RATE; seeds averaged. Empty where that was not measured."""
    sweep = run.table(schemas.SWEEP)
    assert sweep is not None
    dense = _unmasked(run)
    if dense is None:
        return pl.DataFrame(schema={"selector": pl.String, "nll": pl.Float64})
    at = sweep.filter(pl.col("order") == order, (pl.col("rate") - RATE).abs() < 1e-9)
    return at.group_by("selector", maintain_order=True).agg(pl.col("nll").mean() - dense)


def _unmasked(run: Run) -> float | None:
    sweep = run.table(schemas.SWEEP)
    assert sweep is not None
    return series.unmasked_nll(sweep, sweep["model"][0])


def protocol(run: Run) -> str:
    """What was measured, on what, how."""
    spec = run.manifest["files"][results.SWEEP]["spec"]
    lines = []
    for name, record in (
        ("Calibration", (spec.get("scores") or {}).get("calibration")),
        ("Evaluation", spec.get("evaluation")),
    ):
        if record:
            lines.append(
                f"{name}: {record.get('samples', '?')} windows of {record.get('length', '?')} tokens of "
                f"{record.get('corpus', 'an unnamed text')}"
            )
    scores = spec.get("scores") or {}
    lines.append(f"Objective of lrp and ig: {scores.get('objective', 'unknown')}")
    lines.append(f"Seeds of random: {', '.join(map(str, scores.get('seeds', [])))}")
    model = run.manifest.get("model") or {}
    lines.append(f"Precision {model.get('dtype', 'unknown')} on {model.get('device', 'unknown')}")
    lines.append(
        "Rows are zeroed once, without fine-tuning, by one global ranking; ties go by row id; weights are restored."
    )
    return "<h3>Protocol</h3><ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"


def verdicts(run: Run) -> list[str]:
    """A line per selector."""
    found = run.table("verdicts")
    if found is None:
        return [_missing("verdicts", run)]
    rows = [
        (
            palette.title(row["selector"]),
            row["validity"] + (" (stable but invalid)" if row["stable_but_invalid"] else ""),
            row["stability"],
            row["reasons"],
        )
        for row in found.iter_rows(named=True)
    ]
    return ["<h3>Verdicts</h3>", table(("Selector", "Faithful", "Stable", "Because"), rows)]


def sufficiency(run: Run) -> list[str]:
    """Both curves, and the values at RATE."""
    sweep = run.table(schemas.SWEEP)
    assert sweep is not None
    model = sweep["model"][0]
    points = series.points(
        results.read_run(run.folder).frame,
        model,
        sweep["selector"].unique().to_list(),
        results.ORDERS,
        (0.0, 1.0),
    )
    dense = series.unmasked_nll(sweep, model)
    figures = [
        figure(charts.perplexity.curves(points, order, baseline=dense))
        for order in results.ORDERS
        if order in sweep["order"]
    ]
    values = series.value_table(points)
    return ["<h3>Sufficiency: what is left can still model the text</h3>", *figures, frame(values)]


def specificity(run: Run) -> list[str]:
    """The gap and the controls."""
    body = ["<h3>Specificity: the gap between the orders, and controls</h3>"]
    gaps = run.table("gap")
    if gaps is None:
        body.append(_missing("gap", run))
    else:
        shown = gaps.group_by("selector", "rate", maintain_order=True).agg(
            pl.col("log_gap").mean(), pl.col("stderr").mean()
        )
        rows = [
            (palette.title(name), formats.rate(rate), f"{gap:+.3f}", "–" if error is None else f"{error:.3f}")
            for name, rate, gap, error in shown.iter_rows()
        ]
        body.append(table(("Selector", "Removed", "Log gap (nats)", "Standard error"), rows))
    differences = run.table("control_differences")
    if differences is None:
        return [*body, _missing("control_differences", run)]
    sentences = [answer.sentence for answer in control_answers(differences)]
    return [*body, "<ul>", *(f"<li>{html.escape(sentence)}</li>" for sentence in sentences), "</ul>"]


def cost(run: Run) -> list[str]:
    """Groups and tasks."""
    body = ["<h3>Cost: dangerous groups and downstream tasks</h3>"]
    groups = run.table("dangerous_summary")
    if groups is None:
        body.append(_missing("dangerous_summary", run))
    else:
        rows = [
            (
                palette.title(row["selector"]),
                f"{row['dangerous_groups']} of {row['groups']}",
                f"{row['rows']:,}",
                f"{row['share']:.1%}",
            )
            for row in groups.iter_rows(named=True)
        ]
        heading = ("Selector", "Groups that alone double the perplexity", "Rows in them", "Share of the mask")
        body.append(table(heading, rows))
    tasks = run.table("downstream")
    if tasks is None:
        return [*body, _missing("downstream", run)]
    means = (
        tasks.group_by("selector", "rate", maintain_order=True)
        .agg(pl.col("accuracy").mean(), pl.col("chance").mean())
        .with_columns(Removed=pl.col("rate").map_elements(formats.rate, return_dtype=pl.String))
    )
    chance = means["chance"][0]
    wide = means.with_columns(pl.col("accuracy").round(3)).pivot(
        "selector", index="Removed", values="accuracy"
    )
    said = f"Mean accuracy over the tasks; guessing gives {chance:.3f}. {chance_sentence(tasks)}"
    return [*body, f"<p>{html.escape(said)}</p>", frame(wide)]


def stability(run: Run) -> list[str]:
    """Scores and masks over the calibration size."""
    found = run.table("stability")
    if found is None:
        return [_missing("stability", run)]
    rate = min(found["rate"].unique().to_list(), key=lambda value: abs(value - RATE))
    at = found.filter(pl.col("rate") == rate)
    rows = [
        (
            palette.title(row["selector"]),
            str(row["size"]),
            _number(row["spearman"]),
            _number(row["jaccard"]),
            formats.perplexity(row["nll"]),
        )
        for row in at.iter_rows(named=True)
    ]
    heading = (
        "Selector",
        "Calibration windows",
        "Spearman",
        f"Jaccard at {rate:.0%}",
        f"LeRF perplexity at {rate:.0%}",
    )
    note = f"<p>Against the scores from {int(str(at['reference_size'].max()))} windows.</p>"
    return ["<h3>Stability over the calibration size</h3>", note, table(heading, rows)]


def agreement(run: Run) -> list[str]:
    """Rank correlations."""
    found = run.table("spearman")
    if found is None:
        return [_missing("spearman", run)]
    rows = [
        (palette.title(first), palette.title(second), _number(value))
        for first, second, value in found.select("selector_a", "selector_b", "spearman").iter_rows()
        if first != second
    ]
    return ["<h3>Agreement of the rankings</h3>", table(("", "", "Spearman over all rows"), rows)]


def provenance(run: Run) -> list[str]:
    """Model, versions, files."""
    model = json.dumps(run.manifest.get("model"), indent=1)
    files = [
        (
            name,
            entry.get("date", ""),
            entry["sha256"][:16],
            str((entry.get("environment") or {}).get("git_commit"))[:18],
        )
        for name, entry in sorted(run.manifest["files"].items())
    ]
    versions = (run.manifest["files"][results.SWEEP].get("environment") or {}).get("libraries")
    return [
        "<h3>Provenance</h3>",
        f"<pre>{html.escape(model)}\n{html.escape(json.dumps(versions))}</pre>",
        table(("File", "Written", "SHA-256", "Commit"), files),
    ]


def _missing(stem: str, run: Run) -> str:
    command = schemas.command(stem, run.model)
    return f'<p class="note">Not measured: {html.escape(stem)} (<code>{html.escape(command)}</code>).</p>'


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _commit(entry: dict[str, Any]) -> str:
    return str((entry.get("environment") or {}).get("git_commit") or "–")[:18]
