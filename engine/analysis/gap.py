"""The validity gap: how much more it costs to remove what a selector calls important. And the spread over seeds."""

from __future__ import annotations

import statistics

import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.cells import defined, evaluate
from engine.analysis.uncertainty import paired_difference
from engine.evaluation.perplexity import NegativeLogLikelihood
from engine.ranking import ORDERS

GAP_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "seed": pl.Int64,
    "rate": pl.Float64,
    "nll_lerf": pl.Float64,
    "nll_morf": pl.Float64,
    "ppl_lerf": pl.Float64,
    "ppl_morf": pl.Float64,
    "gap": pl.Float64,
    "log_gap": pl.Float64,
    "stderr": pl.Float64,
}
SEEDS_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "order": pl.String,
    "rate": pl.Float64,
    "seeds": pl.Int64,
    "nll_mean": pl.Float64,
    "nll_sd": pl.Float64,
    "nll_min": pl.Float64,
    "nll_max": pl.Float64,
}


def gap(audit: Audit) -> dict[str, pl.DataFrame]:
    """`gap`, one line per ranking and rate of the plan.

    gap = PPL_MoRF - PPL_LeRF as the paper prints it (section 3.2): infinite where only PPL_MoRF is, null
    where both are. log_gap = NLL_MoRF - NLL_LeRF, nats per token, with its paired standard error.
    """
    cells = evaluate(audit, "gap", audit.rankings(), ORDERS, audit.plan.gap_rates)
    rows = []
    for cell, result in cells.items():
        if cell.order == "lerf":
            found = validity_gap(result, cells[cell._replace(order="morf")])
            rows.append((audit.loaded.id, cell.selector, cell.seed, cell.rate, *found))
    return {"gap": pl.DataFrame(rows, schema=GAP_SCHEMA, orient="row")}


def seeds(audit: Audit) -> dict[str, pl.DataFrame]:
    """`seeds`, the spread of the NLL over the seeds of each seeded selector, per order and gap rate.

    nll_sd is the sample standard deviation over seeds, null for a single seed.
    """
    seeded = [ranking for ranking in audit.rankings() if ranking.seed is not None]
    by_seed: dict[tuple[str, str, float], list[float]] = {}
    for cell, result in evaluate(audit, "seeds", seeded, ORDERS, audit.plan.gap_rates).items():
        by_seed.setdefault((cell.selector, cell.order, cell.rate), []).append(result.nats_per_token)
    rows = [(audit.loaded.id, *where, *spread(values)) for where, values in by_seed.items()]
    return {"seeds": pl.DataFrame(rows, schema=SEEDS_SCHEMA, orient="row")}


def validity_gap(lerf: NegativeLogLikelihood, morf: NegativeLogLikelihood) -> tuple[float | None, ...]:
    """NLL and perplexity under both orders, gap, log gap, its standard error: the columns of `gap` from `nll_lerf`."""
    log_gap, stderr = paired_difference(morf, lerf)
    printed = defined(morf.perplexity - lerf.perplexity)
    return (
        lerf.nats_per_token,
        morf.nats_per_token,
        lerf.perplexity,
        morf.perplexity,
        printed,
        log_gap,
        stderr,
    )


def spread(values: list[float]) -> tuple[float | None, ...]:
    """Number, mean, sample standard deviation (None for one value), least and greatest."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return len(values), statistics.fmean(values), sd, min(values), max(values)
