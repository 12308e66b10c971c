"""Which NLL differences are real: paired standard errors over evaluation windows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.cells import Cell, evaluate
from engine.errors import InputError
from engine.evaluation.perplexity import NegativeLogLikelihood
from engine.ranking import ORDERS

SCHEMA = {
    "model": pl.String,
    "kind": pl.String,
    "selector_a": pl.String,
    "order_a": pl.String,
    "seed_a": pl.Int64,
    "selector_b": pl.String,
    "order_b": pl.String,
    "seed_b": pl.Int64,
    "rate": pl.Float64,
    "difference": pl.Float64,
    "stderr": pl.Float64,
    "z": pl.Float64,
}


def differences(audit: Audit) -> dict[str, pl.DataFrame]:
    """`differences`: NLL of a minus NLL of b, nats per token, with paired standard error and z = their quotient.

    kind `lerf`: the LeRF masks of each pair of selectors, every seed against every seed; kind `gap`: MoRF
    minus LeRF of one ranking (the log gap). At the plan's gap rates. z is null where there is no spread.
    """
    rates = audit.plan.gap_rates
    cells = evaluate(audit, "differences", audit.rankings(), ORDERS, rates)
    rows = []
    for rate in rates:
        for kind, a, b in _comparisons(cells, rate):
            difference, stderr = paired_difference(cells[a], cells[b])
            z = difference / stderr if stderr else None
            sides = (a.selector, a.order, a.seed, b.selector, b.order, b.seed)
            rows.append((audit.loaded.id, kind, *sides, rate, difference, stderr, z))
    return {"differences": pl.DataFrame(rows, schema=SCHEMA, orient="row")}


def paired_difference(a: NegativeLogLikelihood, b: NegativeLogLikelihood) -> tuple[float, float | None]:
    """NLL of a minus NLL of b on the same windows, in nats per token, and its standard error.

    d = sum_w (a_w - b_w) / sum_w t_w, a ratio over windows w of t_w tokens; with r_w = a_w - b_w - d t_w,
    stderr = sqrt(sum_w r_w^2 * n / (n - 1)) / sum_w t_w. What makes a window hard for both cancels. For
    windows of equal length it is the standard error of a paired t-test. None for a single window.

    Errors: InputError where the two were not measured on windows of the same lengths.
    """
    if a.window_tokens != b.window_tokens:
        raise InputError(
            f"a paired difference needs the same windows, got {len(a.window_tokens)} windows of {a.tokens} tokens "
            f"and {len(b.window_tokens)} of {b.tokens}; evaluate both on one text"
        )
    nats = tuple(x - y for x, y in zip(a.window_nats, b.window_nats, strict=True))
    paired = NegativeLogLikelihood(nats, a.window_tokens)
    return paired.nats_per_token, paired.stderr


def _comparisons(cells: dict[Cell, NegativeLogLikelihood], rate: float) -> Iterator[tuple[str, Cell, Cell]]:
    lerf = [cell for cell in cells if cell.rate == rate and cell.order == "lerf"]
    for a, b in combinations(lerf, 2):
        if a.selector != b.selector:
            yield "lerf", a, b
    for cell in lerf:
        yield "gap", cell._replace(order="morf"), cell
