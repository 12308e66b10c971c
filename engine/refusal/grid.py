"""The grid over lambda and k: mask -> perplexity -> replies -> verdicts, cell by cell into the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl

from engine.behaviour import INSTALLS_ONLY
from engine.corpora import Pair
from engine.errors import InputError
from engine.evaluation.perplexity import perplexity
from engine.masks import Mask
from engine.refusal.contrast import Contrast, refusal_masks
from engine.refusal.run import UNEDITED, Rates, RefusalRun

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "domain": pl.String,
    "lambda": pl.Float64,
    "k": pl.Float64,
    "rows_removed": pl.Int64,
    "malign": pl.Float64,
    "malign_n": pl.Int64,
    "benign": pl.Float64,
    "benign_n": pl.Int64,
    "nll": pl.Float64,
    "perplexity": pl.Float64,
    "feasible": pl.Boolean,
}
# Standard errors by which the unedited model must refuse base prompts more often than risk prompts.
_SWAPPED_ERRORS = 3.0


@dataclass(frozen=True)
class Cell:
    """One mask of the grid."""

    selector: str
    domain: str
    lam: float
    k: float
    mask: Mask


def grid(contrast: Contrast, lambdas: Sequence[float], ks: Sequence[float]) -> Iterator[Cell]:
    """All cells of one contrast, k by k; ranked once per lambda. `random` has lambda 0 only: nothing protects it."""
    strengths = (0.0,) if contrast.selector == "random" else tuple(lambdas)
    masks = {lam: refusal_masks(contrast, lam, ks) for lam in strengths}
    for index, k in enumerate(ks):
        for lam in strengths:
            yield Cell(contrast.selector, contrast.domain, lam, k, masks[lam][index])


def sweep_refusal(
    run: RefusalRun, contrasts: Sequence[Contrast], pairs: dict[str, list[Pair]]
) -> pl.DataFrame:
    """`refusal_sweep`: malign and benign refusal and NLL of every cell of the plan's grid, see `SCHEMA`.

    pairs: by domain, those that the rates are measured on. The cheap test comes first: the NLL of all masks,
    then replies for those under the perplexity cap; a cell above it has null rates unless the plan wants all.
    feasible: benign <= the limit, perplexity <= the cap, and malign not below the unedited model's, since an
    edit that lowers refusal installs none. Each part has one row of the unedited model, k = 0.
    The paper, section 5.1 and appendix E. `InputError` where the unedited model refuses base prompts clearly
    more often than risk prompts: swapped sides.
    """
    cells = [cell for one in contrasts for cell in grid(one, run.plan.lambdas, run.plan.ks)]
    nlls = []
    for done, cell in enumerate(cells):
        run.report("perplexity of the grid", done, len(cells))
        nlls.append(run.nll(cell.mask).nats_per_token)
    run.report("perplexity of the grid", len(cells), len(cells))
    domains = dict.fromkeys(contrast.domain for contrast in contrasts)
    unedited = {domain: run.rates(UNEDITED, pairs[domain]) for domain in domains}
    for domain, rates in unedited.items():
        _refuse_swapped(domain, rates)
    wanted = [run.plan.all_cells or nll <= run.max_nll for nll in nlls]
    rows: list[tuple[object, ...]] = []
    done = 0
    for place, members in groupby(
        zip(cells, nlls, wanted, strict=True), key=lambda one: (one[0].selector, one[0].domain)
    ):
        before = unedited[place[1]]
        dense = run.nll(UNEDITED).nats_per_token
        rows.append(_row(run, Cell(*place, 0.0, 0.0, UNEDITED), dense, before, before))
        for cell, nll, generate in members:
            run.report("replies of the grid", done, sum(wanted))
            after = run.rates(cell.mask, pairs[cell.domain]) if generate else None
            done += generate
            rows.append(_row(run, cell, nll, after, before))
    run.report("replies of the grid", done, sum(wanted))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _row(run: RefusalRun, cell: Cell, nll: float, rates: Rates | None, before: Rates) -> tuple[object, ...]:
    place = (run.loaded.id, cell.selector, cell.domain, cell.lam, cell.k, len(cell.mask))
    if rates is None:
        return (*place, None, before.malign.n, None, before.benign.n, nll, perplexity(nll), False)
    feasible = (
        rates.benign.mean <= run.plan.benign_limit
        and nll <= run.max_nll
        and rates.malign.count >= before.malign.count
    )
    measured = (rates.malign.mean, rates.malign.n, rates.benign.mean, rates.benign.n)
    return (*place, *measured, nll, perplexity(nll), feasible)


def _refuse_swapped(domain: str, unedited: Rates) -> None:
    malign, benign = unedited.malign.mean, unedited.benign.mean
    error = np.sqrt((malign * (1 - malign) + benign * (1 - benign)) / unedited.malign.n)
    if benign - malign > _SWAPPED_ERRORS * error:
        raise InputError(
            f"{domain}: the unedited model refuses {benign:.0%} of the base prompts and {malign:.0%} of the risk "
            f"prompts, as if they were swapped; {INSTALLS_ONLY}: check which is risk"
        )
