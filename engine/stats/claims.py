"""The ledger of claims: every sentence that a results folder supports, with its number, control, test and evidence.

A kind of claim is one function and its registration:

    @register_claim("stability", needs=("verdicts",))
    def _stability(tables: Mapping[str, pl.DataFrame]) -> Iterator[Claim]: ...

It reads tables that were measured already, so that a folder of an earlier version has a ledger too: a kind whose tables
are not there, or lack a column, gives no line. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame
from engine.stats import two_texts
from engine.stats.control_answers import control_answers
from engine.stats.exact_controls import EXACT, MOVED, UNKNOWN
from engine.stats.verdict import BASELINE, Thresholds

PROOF, CORRECTED, INTERVAL, DESCRIPTIVE = "proof", "corrected test", "single interval", "descriptive"
# The strongest first; what each says and does not say.
TIERS = {
    PROOF: "holds for every input that was checked bit by bit, without statistics",
    CORRECTED: "a test with a stated level, corrected for how many of its kind were made",
    INTERVAL: "one interval or a number of standard errors, not corrected for how many were looked at",
    DESCRIPTIVE: "a number as it was measured, without an error",
}
Tables = Mapping[str, pl.DataFrame]


class Claim(NamedTuple):
    """One sentence. case: what tells it from others of its kind and selector; p: adjusted where the tier says so."""

    selector: str
    case: str
    sentence: str
    number: float | None
    unit: str
    control: str
    test: str
    p: float | None
    tier: str


class Kind(NamedTuple):
    """Where the claims of a kind come from: tables, all of which must be there."""

    needs: tuple[str, ...]
    make: Callable[[Tables], Iterator[Claim]]


KINDS: dict[str, Kind] = {}


def register_claim(
    kind: str, *, needs: tuple[str, ...]
) -> Callable[[Callable[[Tables], Iterator[Claim]]], Callable[[Tables], Iterator[Claim]]]:
    """Decorator: claims of this kind stand in every ledger whose tables allow it. Errors: InputError for a taken id."""

    def register(make: Callable[[Tables], Iterator[Claim]]) -> Callable[[Tables], Iterator[Claim]]:
        if kind in KINDS:
            raise InputError(f"claims of the kind {kind!r} are registered already; choose another id")
        KINDS[kind] = Kind(needs, make)
        return make

    return register


def needed() -> list[str]:
    """Tables that any kind reads."""
    return list(dict.fromkeys(stem for kind in KINDS.values() for stem in kind.needs))


def ledger(tables: Tables) -> pl.DataFrame:
    """The table `claims` of one model: kind by kind, the strongest tier first within a selector's kind.

    tables: stem -> table of the results folder. Errors: InputError for a tier that is none of `TIERS`.
    """
    lines = []
    for kind, about in KINDS.items():
        if not all(stem in tables and tables[stem].height for stem in about.needs):
            continue
        model = tables[about.needs[0]]["model"][0]
        for claim in about.make(tables):
            if claim.tier not in TIERS:
                raise InputError(f"a claim of the kind {kind} has the tier {claim.tier!r}, expected {', '.join(TIERS)}")
            lines.append((model, claim.selector, kind, *claim[1:]))
    return frame("claims", lines)


def _rows(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return table.iter_rows(named=True)


@register_claim("harm", needs=("verdicts",))
def _harm(tables: Tables) -> Iterator[Claim]:
    """What LeRF does against random removal."""
    limits = Thresholds()
    for row in _rows(tables["verdicts"]):
        if row["selector"] != BASELINE and row.get("damage") is not None:
            yield Claim(
                row["selector"], f"{limits.rate:.0%}",
                f"Removing its lowest {limits.rate:.0%} of the rows adds {row['damage']:.0%} of the NLL that removing "
                "random rows adds.",
                row["damage"], "fraction", "random rows, the mean over their seeds",
                "none of the ratio; that LeRF is below every random ranking is judged by `differences`", None,
                DESCRIPTIVE,
            )  # fmt: skip


@register_claim("gap", needs=("gap",))
def _gap(tables: Tables) -> Iterator[Claim]:
    """MoRF against LeRF at the reference rate, of unseeded rankings."""
    limits = Thresholds()
    at = tables["gap"].filter((pl.col("rate") - limits.rate).abs() < 1e-9, pl.col("seed").is_null())
    for row in _rows(at):
        error, gap = row["stderr"], row["log_gap"]
        if error is not None and error > 0:
            side = "more" if gap > 0 else "less"
            said = f"Removing its highest {limits.rate:.0%} of the rows costs {side} than removing the lowest"
            if abs(gap) < limits.stderrs * error:
                said = (
                    f"No difference is seen between removing its highest and its lowest {limits.rate:.0%} of the rows"
                )
            yield Claim(
                row["selector"], f"{limits.rate:.0%}", f"{said} ({gap:+.3g} nats per token).",
                gap, "nats per token", "the same ranking, removed from the other end",
                f"difference paired over windows, {limits.stderrs:g} standard errors ({error:.2g}); windows count as "
                "independent", None, INTERVAL,
            )  # fmt: skip


@register_claim("controls", needs=("control_differences",))
def _controls(tables: Tables) -> Iterator[Claim]:
    """Consensus-2 against its controls."""
    for answer in control_answers(tables["control_differences"]):
        yield Claim(
            "consensus2", f"{answer.control} {answer.order} {answer.rate:.0%}", answer.sentence, answer.difference,
            "nats per token", f"{answer.control}, {answer.rows_removed:,} rows, {answer.seeds} seed(s)",
            "difference paired over windows, 2 standard errors; not corrected for the number of controls", None,
            INTERVAL if answer.stderr is not None else DESCRIPTIVE,
        )  # fmt: skip


@register_claim("stability", needs=("verdicts",))
def _stability(tables: Tables) -> Iterator[Claim]:
    """Nested calibration sizes."""
    for row in _rows(tables["verdicts"]):
        if row["jaccard"] is not None:
            yield Claim(
                row["selector"], "nested",
                f"From less of the calibration text its masks overlap by {row['jaccard']:.3f} with those from all.",
                row["jaccard"], "Jaccard", "none: the smaller text is part of the larger", "none", None, DESCRIPTIVE,
            )  # fmt: skip


@register_claim("domain", needs=("domain_draws",))
def _domain(tables: Tables) -> Iterator[Claim]:
    """Another text against another draw."""
    for row in _rows(tables["domain_draws"]):
        if row["p_family"] is not None:
            yield Claim(
                row["selector"], f"{row['rate']:.0%}", two_texts.sentence(row), row["drop"], "difference of Jaccard",
                f"{row['text_draws']} disjoint draws of each text",
                "relabelled draws, all of them; largest statistic over all lines (Westfall and Young)", row["p_family"],
                CORRECTED,
            )  # fmt: skip


@register_claim("dangerous", needs=("dangerous_summary",))
def _dangerous(tables: Tables) -> Iterator[Claim]:
    """Groups that do more harm than random groups of their size; in earlier folders those above the limit."""
    for row in _rows(tables["dangerous_summary"]):
        found, groups = row.get("confirmed_groups"), row["groups"]
        above = (
            f"{row['dangerous_groups']} of {groups} groups of its removed rows are above the limit when removed alone"
        )
        if found is None:
            yield Claim(
                row["selector"], f"{row['rate']:.0%}",
                f"{above}; whether random rows of the same places do the same was not measured.",
                row["dangerous_groups"], "groups", "none", "none", None, DESCRIPTIVE,
            )  # fmt: skip
        else:
            yield Claim(
                row["selector"], f"{row['rate']:.0%}",
                f"{above}; {found} of them do more harm than random groups of their size and place.", found, "groups",
                "random groups of as many rows of the same sublayer", "prediction test, Holm over the groups of all "
                "selectors at .05", None, CORRECTED,
            )  # fmt: skip


@register_claim("invariance", needs=("invariance_verdicts",))
def _invariance(tables: Tables) -> Iterator[Claim]:
    """Rewrites that leave every logit bit-equal."""
    said = {
        EXACT: "Its scores keep every bit under rewrites of the weights that leave every logit bit-equal.",
        MOVED: "Its ranking moves though every logit is bit-equal: it ranks how the weights are written as well.",
    }
    for row in _rows(tables["invariance_verdicts"]):
        word = row["invariance"]
        if word != UNKNOWN:
            yield Claim(
                row["selector"], "rewrites",
                said.get(word, "Its ranking changes by no more than rounding though every logit is bit-equal."),
                row["jaccard"], "Jaccard", "the same function, written otherwise",
                "equality of every bit of the logits on the calibration windows", None,
                PROOF if word in said else DESCRIPTIVE,
            )  # fmt: skip
        if row["decoys_protected"] is not None:
            share = row["decoys_protected"]
            yield Claim(
                row["selector"], "decoys",
                f"It protects {share:.0%} of rows that have no effect at all.", share, "fraction",
                "planted rows that nothing reads", "equality of every bit of the logits with and without them", None,
                PROOF,
            )  # fmt: skip


@register_claim("singles", needs=("singles_selectors",))
def _singles(tables: Tables) -> Iterator[Claim]:
    """Rank correlation with the effects of single rows."""
    rows = tables["singles_selectors"].filter(pl.col("unit_kind") == "row", pl.col("seed").is_null())
    for row in _rows(rows):
        low, high = row["absolute_low"], row["absolute_high"]
        if row["absolute_spearman"] is not None and low is not None and high is not None:
            yield Claim(
                row["selector"], "rows",
                f"Its ranking correlates by {row['absolute_spearman']:.2f} ({low:.2f} to {high:.2f}) with how much "
                "single rows matter when removed alone.", row["absolute_spearman"], "Spearman",
                "none", f"95% interval over {row['units_sampled']} sampled rows", None, INTERVAL,
            )  # fmt: skip
