"""One mask for two domains: built from the pairs of both, measured on each beside the masks of one domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from engine.corpora import Pair
from engine.errors import InputError
from engine.evaluation.perplexity import perplexity
from engine.masks import Mask
from engine.refusal.contrast import Contrast, refusal_mask
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
    stand the masks of each domain alone at the same k, hence with the same number of rows, each at the lambda that
    is best for its own domain there (where none is within the limits, at the composed mask's), and the unedited
    model (`mask_domain` none). All are measured on the held-out pairs of each domain. The paper (section 5.4)
    leaves a mask from hate and crime as a prediction.
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
        masks: dict[str, tuple[float, float, Mask]] = {NONE: (0.0, 0.0, UNEDITED)}
        if point is not None:
            masks[name] = (point.lam, point.k, refusal_mask(contrast, point.lam, point.k))
            for one in singles:
                if one.selector == contrast.selector:
                    lam = _best_lambda(run, one, point)
                    masks[one.domain] = (lam, point.k, refusal_mask(one, lam, point.k))
        for mask_domain, edit in masks.items():
            for domain in domains:
                place = (run.loaded.id, contrast.selector, mask_domain, domain)
                rescue = mask_domain == name and point is not None and point.rescue
                rows.append((*place, *_measured(run, edit, run.heldout[domain]), rescue))
                run.report("composed masks", len(rows), len(contrasts) * (len(domains) + 2) * len(domains))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row"), sweep


def _best_lambda(run: RefusalRun, contrast: Contrast, point: OperatingPoint) -> float:
    """The lambda of the best cell of a single contrast at the k of a point."""
    narrow = replace(run, plan=replace(run.plan, ks=(point.k,)), progress=None)
    sweep = sweep_refusal(narrow, [contrast], {contrast.domain: run.calibration[contrast.domain]})
    [best] = operating_points(
        sweep, benign_limit=run.plan.benign_limit, max_perplexity=perplexity(run.max_nll)
    ).values()
    return best.lam if best else point.lam


def _measured(run: RefusalRun, edit: tuple[float, float, Mask], pairs: Sequence[Pair]) -> tuple[object, ...]:
    lam, k, mask = edit
    rates, nll = run.rates(mask, pairs), run.nll(mask).nats_per_token
    sides = [value for rate in (rates.malign, rates.benign) for value in (rate.mean, *rate.interval, rate.n)]
    return (lam, k, len(mask), *sides, nll, perplexity(nll))
