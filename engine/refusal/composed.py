"""One mask for two domains: built from the pairs of both, measured on each beside the masks of one domain."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from engine.corpora import Pair
from engine.errors import InputError
from engine.evaluation.perplexity import perplexity
from engine.masks import Mask
from engine.refusal.contrast import refusal_mask
from engine.refusal.grid import sweep_refusal
from engine.refusal.operating_point import OperatingPoint, operating_points
from engine.refusal.run import UNEDITED, RefusalRun

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "mask_domain": pl.String,
    "evaluated_domain": pl.String,
    "lambda": pl.Float64,
    "k": pl.Float64,
    "rows_removed": pl.Int64,
    "malign": pl.Float64,
    "malign_low": pl.Float64,
    "malign_high": pl.Float64,
    "malign_n": pl.Int64,
    "benign": pl.Float64,
    "benign_low": pl.Float64,
    "benign_high": pl.Float64,
    "benign_n": pl.Int64,
    "nll": pl.Float64,
    "perplexity": pl.Float64,
    "rescue": pl.Boolean,
}
NONE = "none"


def compose(run: RefusalRun, domains: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`composed` and the sweep behind it: one contrast from the pairs of several domains, for every selector.

    The composed mask is the operating point on the calibration pairs of all these domains together. Beside it
    stand the masks of each domain alone at the same lambda and k, hence with the same number of rows, and the
    unedited model (`mask_domain` none); all are measured on the held-out pairs of each domain. The paper
    (section 5.4) leaves a mask from hate and crime as a prediction.
    A selector without an operating point has only the unedited rows.
    """
    if len(set(domains)) < 2:
        raise InputError(f"a composed mask needs at least two domains, got {list(domains)}; write hate,crime")
    missing = [domain for domain in domains if domain not in run.calibration]
    if missing:
        raise InputError(
            f"there are no pairs of {', '.join(missing)}; the pairs have {', '.join(run.calibration)}"
        )
    name = "+".join(domains)
    union = {name: [pair._replace(domain=name) for domain in domains for pair in run.calibration[domain]]}
    contrasts = run.contrasts_of(union)
    singles = run.contrasts_of({domain: run.calibration[domain] for domain in domains})
    sweep = sweep_refusal(run, contrasts, union)
    points = operating_points(
        sweep, benign_limit=run.plan.benign_limit, max_perplexity=perplexity(run.max_nll)
    )
    rows: list[tuple[object, ...]] = []
    for contrast in contrasts:
        point = points[(contrast.selector, name)]
        masks: dict[str, Mask] = {NONE: UNEDITED}
        if point is not None:
            alone = [one for one in singles if one.selector == contrast.selector]
            masks |= {one.domain: refusal_mask(one, point.lam, point.k) for one in (contrast, *alone)}
        for mask_domain, mask in masks.items():
            for domain in domains:
                rows.append(
                    _row(run, contrast.selector, mask_domain, domain, mask, point, run.heldout[domain])
                )
                run.report("composed masks", len(rows), len(contrasts) * (len(domains) + 2) * len(domains))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row"), sweep


def _row(
    run: RefusalRun,
    selector: str,
    mask_domain: str,
    domain: str,
    mask: Mask,
    point: OperatingPoint | None,
    pairs: Sequence[Pair],
) -> tuple[object, ...]:
    rates, nll = run.rates(mask, pairs), run.nll(mask).nats_per_token
    edited = mask_domain != NONE and point is not None
    cell = (point.lam, point.k) if edited and point else (0.0, 0.0)
    measured = [
        value for rate in (rates.malign, rates.benign) for value in (rate.mean, *rate.interval, rate.n)
    ]
    rescue = bool(edited and point and point.rescue)
    return (
        run.loaded.id, selector, mask_domain, domain, *cell, len(mask), *measured, nll, perplexity(nll), rescue
    )  # fmt: skip
