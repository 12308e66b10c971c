"""Stable: other calibration text of the same kind gives the same ranking and masks. Reads the table `draws`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from engine.stats.limits import Thresholds
from engine.studies.verdict.finding import NOT_APPLICABLE, Finding

UNKNOWN = "unknown"


def stability_between_draws(
    selectors: Sequence[str],
    draws: pl.DataFrame | None,
    data_free: Collection[str],
    limits: Thresholds,
    why_not: str = "",
) -> dict[str, Finding]:
    """Per selector `stable`, `not`, `unknown` or `not applicable`. Numbers: draws, their size, Spearman, Jaccard.

    `stable` where disjoint draws of calibration text agree by both limits in the mean over their pairs. Draws smaller
    than the calibration text in use are rather less alike: where they agree, so much the better; where they do not,
    nothing is known of larger ones, and the word is `unknown`. So it is with fewer draws than asked for.
    why_not: why there are none.
    """
    return {name: _of(name, draws, data_free, limits, why_not) for name in selectors}


def _of(
    selector: str, draws: pl.DataFrame | None, data_free: Collection[str], limits: Thresholds, why_not: str
) -> Finding:
    none = (None, None, None, None)
    if selector in data_free:
        return Finding(NOT_APPLICABLE, none, ("it sees no text, so its stability is not applicable",))
    own = pl.DataFrame()
    if draws is not None:
        own = draws.filter(pl.col("selector") == selector, (pl.col("rate") - limits.rate).abs() < 1e-9)
    if own.is_empty():
        because = f" ({why_not})" if why_not else ""
        return Finding(UNKNOWN, none, (f"stability between disjoint draws was not measured{because}",))
    line = own.row(0, named=True)
    count, size, rho, overlap = (line[name] for name in ("calibration_draws", "draw_size", "spearman", "jaccard"))
    numbers = (count, size, rho, overlap)
    if rho is None or overlap is None:
        return Finding(UNKNOWN, numbers, ("stability is not defined for these scores",))
    found = (
        f"{count} disjoint draws of {size} calibration windows agree by Spearman {rho:.4f} of the scores and Jaccard "
        f"{overlap:.3f} of the masks at {limits.rate:.0%} (asked for {limits.spearman:g} and {limits.jaccard:g})"
    )
    if count < limits.draws:
        found += f"; {limits.draws} draws are asked for, and the text is too short for them"
        return Finding(UNKNOWN, numbers, (found,))
    if rho >= limits.spearman and overlap >= limits.jaccard:
        return Finding("stable", numbers, (found,))
    if size < line["size_wanted"]:
        found += f"; the text is too short for draws of {line['size_wanted']} windows, which may agree more"
        return Finding(UNKNOWN, numbers, (found,))
    return Finding("not", numbers, (found,))
