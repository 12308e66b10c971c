"""Exact controls in words: rewrites that leave the function, and what each selector makes of them. Tables of one model.

What a rewrite does to the weights stands in `engine.interventions.rewrites`."""

import statistics
from typing import Any

import polars as pl

from engine.results.tables import frame

EXACT, ROUNDING, MOVED, UNKNOWN = "exact", "rounding", "moved", "unknown"

# What counts as rounding: a device may sum in another order from run to run. A choice.
LEAST_SPEARMAN, LEAST_JACCARD = 0.9999, 0.99


def judge_invariance(lines: pl.DataFrame, decoys: pl.DataFrame) -> pl.DataFrame:
    """`invariance_verdicts`: one line per selector, from the tables `invariance` and `invariance_decoys`.

    invariance: `exact` every score has the same bits under every proven rewrite; `rounding` the ranking is the same
    within the limits; `moved` it is not: the selector tells apart weights that compute the same; `unknown` where no
    rewrite but the decoys was proven. Seeds of a seeded selector count by the worst; decoys by the mean. Exact is
    necessary for a ranking of what rows do, not sufficient: noise that never looks at the model is exact as well."""
    verdicts = []
    for selector in pl.concat([lines["selector"], decoys["selector"]]).unique(maintain_order=True):
        own, planted = lines.filter(selector=selector), decoys.filter(selector=selector)
        model = (own if own.height else planted)["model"][0]
        word, worst = _word(own), _worst(own)
        protected = statistics.fmean(planted["protected"]) if planted.height else None
        reasons = [_reason(own, word, worst)]
        if protected is not None:
            reasons.append(_decoys_reason(planted, protected))
        numbers: tuple[Any, ...] = (None, None, None, None)
        if worst is not None:
            rewrite = None if word == EXACT else worst["rewrite"]
            numbers = (rewrite, worst["spearman"], worst["jaccard"], worst["moved"])
        verdicts.append((model, selector, word, own["rewrite"].n_unique(), *numbers, protected, " ".join(reasons)))
    return frame("invariance_verdicts", verdicts)


def _word(own: pl.DataFrame) -> str:
    if own.is_empty():
        return UNKNOWN
    if (own["bit_equal"] == 1).all():
        return EXACT
    # Scores of one value throughout have no rank correlation; their masks still are the same or not.
    alike = own.select(
        (pl.col("spearman").fill_null(1.0) >= LEAST_SPEARMAN) & (pl.col("jaccard").fill_null(1.0) >= LEAST_JACCARD)
    ).to_series()
    return ROUNDING if alike.all() else MOVED


def _worst(own: pl.DataFrame) -> dict[str, Any] | None:
    """The line whose mask moved most, then whose ranking did."""
    return next(own.sort("jaccard", "spearman", nulls_last=True, maintain_order=True).iter_rows(named=True), None)


def _reason(own: pl.DataFrame, word: str, worst: dict[str, Any] | None) -> str:
    if worst is None:
        return "No rescaling could be proven to leave this model's function."
    names = list(dict.fromkeys(own["rewrite"]))
    under = f"every rewrite that leaves the logits bit-equal ({', '.join(names)})"
    if word == EXACT:
        return f"Every score has the same bits under {under}."
    numbers = f"Spearman {_number(worst['spearman'])}, Jaccard {_number(worst['jaccard'])} at {worst['rate']:.0%}"
    if word == ROUNDING:
        return f"The ranking is the same but for rounding under {under}; worst: {numbers}."
    error = "" if worst["stderr"] is None else f" (standard error {worst['stderr']:.2g})"
    unmoved = [name for name in names if (own.filter(rewrite=name)["bit_equal"] == 1).all()]
    exact = f" It keeps every bit under {', '.join(unmoved)}." if unmoved else ""
    return (
        f"The ranking moves though the logits are bit-equal, most under {worst['rewrite']}: {numbers}, LeRF "
        f"{worst['moved']:+.3g} nats per token{error}.{exact}"
    )


def _decoys_reason(planted: pl.DataFrame, protected: float) -> str:
    count, rate = planted.row(0, named=True)["decoys"], planted.row(0, named=True)["rate"]
    share = "none" if protected == 0 else "all" if protected == 1 else f"{protected:.0%}"
    return f"Of {count} decoy rows without any effect {share} are among its top {rate:.0%}."


def _number(value: object) -> str:
    return "–" if value is None else f"{value:.4f}"
