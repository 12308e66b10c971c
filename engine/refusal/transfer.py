"""Does an edit hold on prompts that it was not made from? Refusal rates before and after, with their intervals."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from engine.masks import Mask
from engine.refusal.operating_point import OperatingPoint
from engine.refusal.prompt_sets import BENIGN, MALIGN, PromptSet
from engine.refusal.run import UNEDITED, Rate, RefusalRun

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "domain": pl.String,
    "lambda": pl.Float64,
    "k": pl.Float64,
    "prompts": pl.String,
    "kind": pl.String,
    "n": pl.Int64,
    "before": pl.Float64,
    "before_low": pl.Float64,
    "before_high": pl.Float64,
    "after": pl.Float64,
    "after_low": pl.Float64,
    "after_high": pl.Float64,
}


def pair_sets(run: RefusalRun, domain: str) -> list[PromptSet]:
    """The run's held-out pairs of a domain as two sets, `heldout` (or `calibration` where there are no others)."""
    pairs = run.heldout[domain]
    name = "heldout" if run.measures_heldout else "calibration"
    return [
        PromptSet(name, MALIGN, tuple(pair.risk for pair in pairs), run.plan.pairs),
        PromptSet(name, BENIGN, tuple(pair.base for pair in pairs), run.plan.pairs),
    ]


def transfer(run: RefusalRun, point: OperatingPoint, mask: Mask, sets: Iterable[PromptSet]) -> pl.DataFrame:
    """`transfer`: share of refused prompts per set before and after one edit, with Wilson's 95% intervals.

    kind malign: refusing is right; benign: refusing is over-refusal. The paper, section 5 and appendix E.
    """
    rows = []
    for one in sets:
        before, after = (Rate(run.refused(removed, one.prompts)) for removed in (UNEDITED, mask))
        place = (run.loaded.id, point.selector, point.domain, point.lam, point.k)
        rates = (before.mean, *before.interval, after.mean, *after.interval)
        rows.append((*place, one.name, one.kind, before.n, *rates))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")
