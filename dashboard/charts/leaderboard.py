"""The leaderboard: every selector on every model in one line of numbers, and as a table that sorts by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import polars as pl

from dashboard.charts import formats, palette, series
from dashboard.charts.sortable import Cell, Row, Sortable, of_rows
from engine.stats.limits import BASELINE, Thresholds
from engine.studies.verdict.judged_selectors import against_half
from engine.studies.verdict.removal_budgets import share_text

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
    (`engine.stats.saturation`); no gap where both orders destroy it. validity, stability: the verdicts' words.
    draw_jaccard: overlap of masks from disjoint draws of calibration text; spearman: of scores from half the text with
    those from all of it (nested sizes). Null for whatever was not measured. gap_at_ceiling, harm_at_ceiling: does the
    number rest on a published cell at a numerical ceiling, so that it only says more or less?"""
    parts = [_of(entry) for entry in entries]
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts])


def _of(entry: Entry) -> pl.DataFrame:
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
    found = value - other
    return found if abs(found) < float("inf") else None


def table(lines: pl.DataFrame) -> Sortable:
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
