"""The overview: perplexity at one rate over models, how many rows can go before perplexity doubles, and the
leaderboard, every selector on every model in one line of numbers."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, figure_size, formats, matrix, palette, series
from dashboard.charts.lines import finished
from dashboard.charts.sortable import Cell, Row, Sortable, of_rows
from engine.records.errors import InputError
from engine.stats.limits import BASELINE, Thresholds
from engine.studies.estimate_words import RemovalBudget, headline, limit_words, removal_budgets, share_text
from engine.studies.verdict.judged_selectors import against_half

RATE = Thresholds().rate
BUDGET = "Rows that can go"
GAP, HARM, SHARE = "Log gap (nats)", "LeRF harm (nats)", "Harm ÷ random's"
VERDICT, STABLE, DRAWS, NESTED = "Verdict", "Stable", "Same masks, draws", "Same scores, half the text"
SCHEMA = {
    "model": pl.String, "source": pl.String, "selector": pl.String, "budget": pl.Float64,
    "log_gap": pl.Float64, "harm": pl.Float64, "damage": pl.Float64,
    "validity": pl.String, "stability": pl.String, "draw_jaccard": pl.Float64,
    "spearman": pl.Float64, "gap_at_ceiling": pl.Boolean, "harm_at_ceiling": pl.Boolean,
}  # fmt: skip
# What is better stands higher, so that the words sort too.
_VALIDITY = {"not": "not faithful", "partly": "partly", "sufficient": "sufficient", "faithful": "faithful"}
_STABILITY = {"not": "not stable", "unknown": "not known", "not applicable": "no text", "stable": "stable"}
_ROW_PX, _AROUND_PX = 34, 170
_OPEN = {"lerf": "", "morf": "-open"}  # marks: lowest scores first are filled
_BETTER = {
    "lerf": "filled, lowest scores first: further right is better",
    "morf": "open, highest first: further left is better",
}
_FIRST = {"lerf": "lowest scores first", "morf": "highest scores first"}


def over_models(sweeps: Mapping[str, tuple[pl.DataFrame, str]]) -> pl.DataFrame:
    """LeRF at `RATE` over models. sweeps: label -> (curves, model).
    Columns: label, selector, nll, error (`series.whole_error`), printed, destroyed, unmasked_nll; models that were not
    measured at `RATE` are left out."""
    parts = []
    for label, (curves, model) in sweeps.items():
        points = series.points(curves, model, curves["selector"].unique().to_list(), ["lerf"], (RATE, RATE))
        parts.append(
            palette.sorted_by_selector(points).select(
                pl.lit(label).alias("label"), "selector", "nll", series.whole_error().alias("error"), "printed",
                "destroyed", pl.lit(series.unmasked_nll(curves, model), pl.Float64).alias("unmasked_nll"),
            )
        )  # fmt: skip
    if not any(part.height for part in parts):
        raise InputError(f"no model here was measured under LeRF at {RATE:.0%}; run `selector-audit sweep`")
    return pl.concat(parts)


def snapshot(table: pl.DataFrame, below: str) -> go.Figure:
    """LeRF perplexity at one rate, a line per model and a column per selector (`over_models`), the unmasked model last.
    Colours are places within a line: heights of different models do not compare."""
    labels = table["label"].unique(maintain_order=True).to_list()
    selectors = palette.in_order(table["selector"])
    rows = {(row["label"], row["selector"]): row for row in table.iter_rows(named=True)}
    unmasked = dict(table.select("label", "unmasked_nll").iter_rows())
    cells = [[rows.get((label, name)) for name in selectors] for label in labels]
    values = [[row["nll"] if row else None for row in line] + [unmasked[label]]
              for label, line in zip(labels, cells, strict=True)]  # fmt: skip
    return matrix.matrix(
        values, [*map(palette.title, selectors), "Unmasked"], [html.escape(label) for label in labels],
        heading=f"{formats.rate(RATE)} removed, lowest scores first (LeRF)", below=html.escape(below),
        text=formats.perplexity, span=(0.0, 1.0),
        hover=[[_hover(row) if row else "" for row in line] + ["the unmasked model"] for line in cells],
        colour=[matrix.places(line) for line in values],
    )  # fmt: skip


def _hover(row: dict[str, Any]) -> str:
    printed = f" (printed {row['printed']})" if row["printed"] else ""
    return (
        f"<b>{palette.title(row['selector'])}</b>, {html.escape(row['label'])}<br>perplexity "
        f"{formats.perplexity(row['nll'])}{printed}<br>NLL {row['nll']:.4f} nats per token"
    )


def budget_finding(table: pl.DataFrame) -> str:
    """The best selector's budget beside that of random rows."""
    names = {name: palette.title(name) for name in table["selector"].unique()}
    return headline(table).format(**names)


def budgets(table: pl.DataFrame) -> go.Figure:
    """One line per selector, the largest LeRF budget first; rows in a logarithmic scale of their share.
    table: `budget` of one model. Bars: the interval over blocks of text, of several seeds from the least to the
    greatest end. Triangles to the right: at least so much was within the limit; to the left: not one row."""
    by_order = {order: removal_budgets(table, order) for order in _FIRST}
    names = list(by_order["lerf"])
    low = min((one.share for found in by_order.values() for one in found.values() if one.share > 0), default=0.001)
    edge = low / 1.6
    figure = go.Figure()
    for order, found in by_order.items():
        for place, name in enumerate(names):
            if name not in found:
                continue
            budget, look = found[name], palette.style(name)
            symbol = "triangle-right" if budget.beyond_scan else "triangle-left" if budget.share == 0 else look.symbol
            mark = {"color": look.colour, "symbol": symbol + _OPEN[order], "size": 13}
            figure.add_scatter(
                x=[budget.share or edge], y=[place], name=f"{look.title}, {_FIRST[order]}", mode="markers",
                showlegend=False, cliponaxis=False, marker=mark,
                error_x=axes.intervals([(budget.share or None, budget.low, budget.high)], colour=look.colour),
                customdata=[_budget_hover(budget, limit_words(table))],
                hovertemplate=f"<b>{html.escape(look.title)}</b>, {_FIRST[order]}<br>%{{customdata}}<extra></extra>",
            )  # fmt: skip
    for order, symbol in [("lerf", "circle"), ("morf", "circle-open")][: 1 + bool(by_order["morf"])]:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=_FIRST[order],
            marker={"color": palette.REFERENCE, "symbol": symbol, "size": 11},
        )  # fmt: skip
    random = by_order["lerf"].get(BASELINE)
    if random is not None and random.share > 0:
        figure.add_vline(random.share, line=palette.DOTTED)
        # On a logarithmic axis plotly takes a note's place as a logarithm, a line's as it is.
        figure.add_annotation(
            text="random rows", x=math.log10(random.share), yref="paper", y=1, yanchor="bottom", showarrow=False,
            font={"size": figure_size.NOTE_PX, "color": palette.REFERENCE},
        )  # fmt: skip
    figure.update_yaxes(**axes.places([palette.title(name) for name in names]), automargin=True)
    ticks = [value for value in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0) if value >= low / 3]
    figure.update_xaxes(
        axes.titled(f"rows removed when {limit_words(table)}", type="log", tickangle=0, tickvals=ticks,
                    ticktext=[formats.rate(value) for value in ticks], range=[math.log10(edge / 1.3), 0.04])
    )  # fmt: skip
    below = "; ".join(words for order, words in _BETTER.items() if by_order[order])
    height = _AROUND_PX + _ROW_PX * len(names)
    return finished(figure, f"Rows that can go before {limit_words(table)}", below, height, 92)


def _budget_hover(budget: RemovalBudget, limit: str) -> str:
    if budget.share == 0:
        return f"not one row: {limit} with the first"
    interval = ""
    if budget.low is not None:
        high = "open" if budget.high is None else f"{budget.high:.3%}"
        interval = f"<br>95% interval {budget.low:.3%} to {high}"
    return f"{'at least ' if budget.beyond_scan else ''}{budget.share:.3%} of the rows before {limit}{interval}"


@dataclass(frozen=True)
class Entry:
    """What is known of one model of one source. curves: its curves, as pages read them; tables: None where missing."""

    name: str  # of the source and the model, as it is offered
    model: str
    curves: pl.DataFrame
    verdicts: pl.DataFrame | None = None
    stability: pl.DataFrame | None = None


def leaderboard(entries: Sequence[Entry]) -> pl.DataFrame:
    """One line per selector and entry that was measured at `RATE`; columns of `SCHEMA`.
    budget: share of rows that can go before perplexity doubles, lowest scores first. log_gap = NLL(MoRF) - NLL(LeRF),
    harm = NLL(LeRF) - NLL of the unmasked model, both in nats per token, seeds averaged in NLL; damage = harm / harm
    of the random LeRF masks. In gap and damage a loss counts up to where the model is destroyed
    (`engine.stats.limits`); no gap where both orders destroy it. validity, stability: the verdicts' words.
    draw_jaccard: overlap of masks from disjoint draws of calibration text; spearman: of scores from half the text with
    those from all of it (nested sizes). Null for whatever was not measured. gap_at_ceiling, harm_at_ceiling: does the
    number rest on a published cell at a numerical ceiling, so that it only says more or less?"""
    parts = [_lines_of(entry) for entry in entries]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts])


def _lines_of(entry: Entry) -> pl.DataFrame:
    selectors = palette.in_order(entry.curves.filter(model=entry.model)["selector"])
    points = series.points(entry.curves, entry.model, selectors, ["lerf", "morf"], (RATE, RATE))
    at = {(row["selector"], row["order"]): row for row in points.iter_rows(named=True)}
    verdicts = {} if entry.verdicts is None else {row["selector"]: row for row in entry.verdicts.iter_rows(named=True)}
    dense, nested = series.unmasked_nll(entry.curves, entry.model), dict[str, float]()
    if entry.stability is not None and not entry.stability.is_empty():  # it does not depend on the rate
        half = against_half(entry.stability.filter(pl.col("spearman").is_not_null()))
        nested = dict(half.select("selector", "spearman").iter_rows())

    def both(name: str, column: str) -> list[Any]:
        return [at.get((name, order), {}).get(column) for order in ("lerf", "morf")]

    chance = _less(both(BASELINE, "counted")[0], dense)
    lines = []
    for name in (one for one in selectors if {(one, "lerf"), (one, "morf")} & at.keys()):
        counted, ceilings, said = both(name, "counted"), list(map(bool, both(name, "plateau"))), verdicts.get(name, {})
        gap = None if all(both(name, "destroyed")) else _less(counted[1], counted[0])
        loss = _less(counted[0], dense)
        damage = loss / chance if loss is not None and chance is not None and chance > 0 else None
        words = (said.get(column) for column in ("validity", "stability", "draw_jaccard"))
        lines.append((
            formats.model_title(entry.model), entry.name, name, said.get("budget"), gap,
            _less(both(name, "nll")[0], dense), damage, *words, nested.get(name), any(ceilings), ceilings[0],
        ))  # fmt: skip
    return pl.DataFrame(lines, schema=SCHEMA, orient="row")


def _less(value: float | None, other: float | None) -> float | None:
    """Their difference, None where one of them is missing or not finite."""
    if value is None or other is None:
        return None
    difference = value - other
    return difference if abs(difference) < float("inf") else None


def leaderboard_table(lines: pl.DataFrame) -> Sortable:
    """The leaderboard for people: words are sorted by how good they are, what was not measured stands as –."""
    return of_rows(lines.iter_rows(named=True), {
        "Model": itemgetter("model"), "Selector": lambda row: palette.title(row["selector"]),
        BUDGET: (lambda row: "–" if row["budget"] is None else share_text(row["budget"]), itemgetter("budget")),
        GAP: _number("log_gap", "+.2f", "gap_at_ceiling"), HARM: _number("harm", "+.3f", "harm_at_ceiling"),
        SHARE: _number("damage", ".2f"),
        VERDICT: _word("validity", _VALIDITY), STABLE: _word("stability", _STABILITY),
        DRAWS: _number("draw_jaccard", ".2f"), NESTED: _number("spearman", ".3f"), "Source": itemgetter("source"),
    })  # fmt: skip


def _number(column: str, form: str, star: str = "") -> tuple[Cell, Cell]:
    """star: the column that says whether the number is marked."""

    def text(row: Row) -> str:
        shown = "–" if row[column] is None else f"{row[column]:{form}}".replace("-", "−")
        return f"{shown} *" if star and row[star] else shown

    return text, itemgetter(column)


def _word(column: str, words: Mapping[str, str]) -> tuple[Cell, Cell]:
    """words: what each verdict is called, the worst first."""
    places = {verdict: float(place) for place, verdict in enumerate(words)}
    return (lambda row: words.get(row[column], row[column] or "–")), lambda row: places.get(row[column])
