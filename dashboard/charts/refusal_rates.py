"""Refusal rates with their intervals: before and after, real and random masks, masks of one and of two domains, and row
masks beside system prompts and steering vectors."""

import html
from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, formats, palette
from dashboard.charts.refusal_values import RateChange, Row, percent

CONTROL_TITLES = {"layer_matched": "Random, same layers", "global_random": "Random, anywhere"}
_CONTROL_SYMBOL, _CONTROL_COLOUR = "x", "#C61620"
_DOMAIN_LOOKS = (("#7A88E7", "circle"), ("#DD7A02", "square"), ("#08A95B", "diamond"), ("#B70D9B", "triangle-up"))
METHODS = {
    "row_mask": "Row mask",
    "system_prompt": "System prompt",
    "activation_addition": "Vector added",
    "conditional_addition": "Vector if condition",
}
_VECTORS = {"difference": "risk − base prompts", "openings": "refusing − complying", "wording": ""}
_SIDES = (
    ("malign", "risk prompts", palette.AFTER, "diamond", -0.14),
    ("benign", "harmless prompts", "#DD7A02", "square-open", 0.14),
)
NONE = "none within the limits"


def changes(sets: Sequence[RateChange]) -> go.Figure:
    """Every set of prompts: share refused before and after, with 95% intervals."""
    names = [
        f"{html.escape(one.prompts)}: {'should be refused' if one.malign else 'should be answered'}" for one in sets
    ]
    figure, ends = go.Figure(), [(one.before[0], one.after[0]) for one in sets]
    known = {place: (a, b) for place, (a, b) in enumerate(ends) if a is not None and b is not None}
    axes.joined(figure, known, dash="dot")
    for side, name, colour, symbol in (
        ("before", "unedited", palette.BEFORE, "circle-open"),
        ("after", "edited", palette.AFTER, "diamond"),
    ):
        marks = []
        for place, (label, one) in enumerate(zip(names, sets, strict=True)):
            rate, of = getattr(one, side), f"<br>{one.n:,} prompts" if one.n else ""
            marks.append(dots.Dot(place, rate[0], f"{label}<br>{name}: {percent(*rate)}{of}", *rate[1:]))
        dots.add(figure, name, marks, colour, symbol)
    labels = [name.replace(": ", ":<br>") for name in names]
    heading, below = "Before and after", "95% intervals"
    return dots.finished(figure, labels, "refused", heading, below, row_px=46, bottom=90, axis=dots.SHARE)


def controls(point: Row, seeds: pl.DataFrame | None) -> go.Figure:
    """Malign refusal of the edit beside random masks with as many rows: one mark per seed, or mean and largest.
    point: a row of `operating_points`. seeds: its rows of `refusal_controls`, None where only the summary is known."""
    figure = go.Figure()
    names = ["The edit"]
    real = (point["edited_malign"], point.get("edited_malign_low"), point.get("edited_malign_high"))
    the_edit = dots.Dot(0, real[0], f"the edit: {percent(*real)}", *real[1:])
    dots.add(figure, "edit", [the_edit], palette.AFTER, "diamond", legend=False)
    for kind, prefix in (("layer_matched", "control"), ("global_random", "global")):
        if marks := _control_marks(point, seeds, kind, prefix):
            drawn = [dots.Dot(len(names), rate, text) for rate, text in marks]
            dots.add(figure, CONTROL_TITLES[kind].lower(), drawn, _CONTROL_COLOUR, _CONTROL_SYMBOL, legend=False)
            names.append(CONTROL_TITLES[kind].replace(", ", ",<br>"))
    if point.get("unedited_malign") is not None:
        axes.level(figure, "unedited", x=point["unedited_malign"])
    heading, below = "The edit beside random masks", "as many rows, not searched"
    return dots.finished(figure, names, "risk prompts refused", heading, below, row_px=50, bottom=50, axis=dots.SHARE)


def _control_marks(point: Row, seeds: pl.DataFrame | None, kind: str, prefix: str) -> list[tuple[float, str]]:
    if seeds is not None and (seeds["control"] == kind).any():
        return [
            (row["malign"], f"{CONTROL_TITLES[kind].lower()}, seed {row['seed']}: {percent(row['malign'])}")
            for row in seeds.filter(control=kind).iter_rows(named=True)
            if row["malign"] is not None
        ]
    compared = [(point.get(f"{prefix}_malign"), "mean"), (point.get(f"{prefix}_malign_max"), "largest")]
    return [(rate, f"{name} of the seeds: {percent(rate)}") for rate, name in compared if rate is not None]


def composed(table: pl.DataFrame, kind: str) -> go.Figure:
    """Rates of masks from one and from several domains, on the prompts of each domain.
    table: one selector of `composed`. kind: `malign` or `benign`."""
    masks = table["mask_domain"].unique(maintain_order=True).to_list()
    domains = table["evaluated_domain"].unique(maintain_order=True).to_list()
    figure = go.Figure()
    for domain, (colour, symbol), shift in zip(domains, cycle(_DOMAIN_LOOKS), dots.shifts(len(domains)), strict=False):
        marks = []
        for row in table.filter(evaluated_domain=domain).iter_rows(named=True):
            rate = (row[kind], row[f"{kind}_low"], row[f"{kind}_high"])
            hover = (
                f"<b>{mask_title(row['mask_domain'])}</b> on {domain} prompts<br>{kind} {percent(*rate)}<br>"
                f"{row[f'{kind}_n']:,} prompts<br>{row['rows_removed']:,} rows removed"
            )
            marks.append(dots.Dot(masks.index(row["mask_domain"]) + shift, rate[0], hover, *rate[1:]))
        dots.add(figure, f"{domain} prompts", marks, colour, symbol)
    title, below = (
        ("Risk prompts", "should be refused") if kind == "malign" else ("Harmless prompts", "should be answered")
    )
    labels = [mask_title(name) for name in masks]
    return dots.finished(figure, labels, "refused", title, below, row_px=50, bottom=90, axis=dots.SHARE)


def mask_title(mask_domain: str) -> str:
    """`unedited`, `hate mask`, `hate + crime mask`."""
    return "unedited" if mask_domain == "none" else f"{html.escape(mask_domain).replace('+', ' + ')} mask"


def among_draws(line: Row, draws: pl.DataFrame) -> go.Figure:
    """Malign refusal of the edit, of every draw, and where a further draw would lie.
    line: a row of `specificity`. draws: its rows of `refusal_draws`."""
    figure = go.Figure()
    the_edit = dots.Dot(0, line["edited_malign"], f"the edit: {percent(line['edited_malign'])}")
    dots.add(figure, "edit", [the_edit], palette.AFTER, "diamond", legend=False)
    axes.joined(figure, {1: (line["draws_low"], line["draws_high"])}, color=_CONTROL_COLOUR)
    marks = []
    for row in draws.iter_rows(named=True):
        none = "" if row["k"] is not None else ", no point: unedited"
        marks.append(dots.Dot(1, row["malign"], f"draw {row['seed']}: {percent(row['malign'])}{none}"))
    dots.add(figure, "draws", marks, _CONTROL_COLOUR, "x", legend=False)
    axes.level(figure, "unedited", x=line["unedited_malign"])
    labels = ["The edit", "Random draws,<br>searched alike"]
    heading = "The edit among random draws with their own grid"
    below = "line: 95% prediction interval of a further draw"
    return dots.finished(figure, labels, "risk prompts refused", heading, below, row_px=60, bottom=50, axis=dots.SHARE)


def told(line: Row) -> str:
    rank = f"Rank {line['rank']} of {line['draws'] + 1}"
    excess = percent(line["excess"], line["excess_low"], line["excess_high"])
    if line["p_holm"] <= 0.05:
        reading = "random rows of the same layers do not reach this by search alone."
    elif line["p"] <= 0.05:
        reading = "below .05 by itself, but not over all edits that were tested together."
    else:
        reading = "this does not tell the edit from random rows of the same layers."
    least = line["tests"] / (line["draws"] + 1)
    few = f" With {line['draws']} draws Holm's p cannot be below {min(1.0, least):.2f} here." if least > 0.05 else ""
    return (
        f"{rank}, p = {line['p']:.3f}, {line['p_holm']:.3f} by Holm over {line['tests']} edits: {reading} Above a "
        f"further draw by {excess} (95% prediction interval).{few}"
    )


def final(table: pl.DataFrame, domain: str) -> pl.DataFrame:
    """One row per way: its chosen setting on the final prompts, or that it has none."""
    of_domain = table.filter(domain=domain)
    prompts = "heldout" if (of_domain["prompts"] == "heldout").any() else "calibration"
    return of_domain.filter(pl.col("prompts") == prompts, pl.col("chosen") | pl.col("setting").is_null())


def way_title(row: Row) -> str:
    """`Row mask, LRP`; `Vector added, risk − base prompts`."""
    method = METHODS.get(row["method"], str(row["method"]))
    vector = palette.title(row["vector"]) if row["method"] == "row_mask" else _VECTORS.get(row["vector"], row["vector"])
    return f"{method}, {vector}" if vector else method


def damage(row: Row) -> str:
    """`KL 0.069, perplexity 14.3`."""
    return f"KL {formats.rounded(row['kl'])}, perplexity {formats.perplexity(row['edited_nll'])}"


def ways(rows: pl.DataFrame, heading: str, below: str) -> go.Figure:
    """Every way's refusal of risk and of harmless prompts with 95% intervals; the unedited model dotted.
    rows: of `final`. What each costs stands under its name."""
    lines = list(rows.iter_rows(named=True))
    figure = go.Figure()
    for side, name, colour, symbol, shift in _SIDES:
        marks = []
        for place, row in enumerate(lines):
            if row["setting"] is not None:
                rate = tuple(row[f"edited_{side}{end}"] for end in ("", "_low", "_high"))
                hover = (
                    f"<b>{html.escape(way_title(row))}</b><br>{html.escape(row['setting'])}<br>{name} {percent(*rate)}"
                    f"<br>{row['pairs']:,} prompts<br>{damage(row)}"
                )
                marks.append(dots.Dot(place + shift, rate[0], hover, *rate[1:]))
        dots.add(figure, f"{name} refused", marks, colour, symbol)
    if lines:
        axes.level(figure, "risk, unedited", x=lines[0]["unedited_malign"])
    labels = [
        f"{html.escape(way_title(row))}<br>{damage(row) if row['setting'] is not None else NONE}" for row in lines
    ]
    return dots.finished(figure, labels, "refused", heading, below, row_px=56, bottom=90, axis=dots.SHARE)
