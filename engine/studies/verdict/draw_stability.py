"""Stable: other calibration text of the same kind gives the same ranking and masks. Reads the table `draws`."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from engine.stats.limits import Thresholds
from engine.studies.verdict.finding import NOT_APPLICABLE, Finding

UNKNOWN = "unknown"
NO_NUMBERS = (None, None, None, None)


def stability_between_draws(
    selectors: Sequence[str],
    draws: pl.DataFrame | None,
    data_free: Collection[str],
    limits: Thresholds,
    why_not: Mapping[str, str],
) -> dict[str, Finding]:
    """Per selector `stable`, `not`, `unknown` or `not applicable`. Numbers: draws, their size, Spearman, Jaccard.

    `stable` where disjoint draws of calibration text agree by both limits in the mean over their pairs, and the lower
    ends of these means' intervals (`engine.stats.similarity`) do so too; `not` where an upper end does not reach its
    limit; in between it cannot be told, and the word is `unknown`. Tables without intervals go by the means. Draws
    smaller than the calibration text in use are rather less alike: where they agree, so much the better; where they do
    not, nothing is known of larger ones, and the word is `unknown`. So it is with fewer draws than asked for.
    why_not: by selector, why it has none."""
    at_rate = pl.DataFrame() if draws is None else draws.filter((pl.col("rate") - limits.rate).abs() < 1e-9)
    by_selector = {line["selector"]: line for line in at_rate.iter_rows(named=True)}
    findings = {}
    for name in selectors:
        if name in data_free:
            reason = "it sees no text, so its stability is not applicable"
            findings[name] = Finding(NOT_APPLICABLE, NO_NUMBERS, (reason,))
        elif name not in by_selector:
            because = f" ({why_not[name]})" if why_not.get(name) else ""
            reason = f"stability between disjoint draws was not measured{because}"
            findings[name] = Finding(UNKNOWN, NO_NUMBERS, (reason,))
        else:
            findings[name] = _finding(by_selector[name], limits)
    return findings


def _finding(line: dict[str, float | None], limits: Thresholds) -> Finding:
    count, size, rho, overlap = numbers = tuple(
        line[name] for name in ("calibration_draws", "draw_size", "spearman", "jaccard")
    )
    if rho is None or overlap is None or count is None:
        return Finding(UNKNOWN, numbers, ("stability is not defined for these scores",))
    sets = f"its {count} files" if size is None else f"{count} disjoint draws of {size} calibration windows"
    asked = {"spearman": limits.spearman, "jaccard": limits.jaccard}
    low, high = ({name: _end(line, name, side) for name in asked} for side in ("low", "high"))
    agreement = (
        f"{sets} agree by Spearman {rho:.4f}{_interval(line, 'spearman')} of the scores and Jaccard "
        f"{overlap:.3f}{_interval(line, 'jaccard')} of the masks at {limits.rate:.0%} (asked for {limits.spearman:g} "
        f"and {limits.jaccard:g})"
    )
    wanted = line["size_wanted"] or 0
    if count < limits.draws:
        too_few = ": give as many files" if size is None else ", and the text is too short for them"
        agreement += f"; {limits.draws} draws are asked for{too_few}"
        word = UNKNOWN
    elif all(low[name] >= asked[name] for name in asked):
        word = "stable"
    elif all(high[name] >= asked[name] for name in asked):
        agreement += "; a limit lies within an interval: more draws could tell"
        word = UNKNOWN
    elif size is not None and size < wanted:
        agreement += f"; the text is too short for draws of {wanted} windows, which may agree more"
        word = UNKNOWN
    else:
        word = "not"
    return Finding(word, numbers, (agreement,))


def _end(line: dict[str, float | None], name: str, side: str) -> float:
    """An end of a mean's interval; the mean itself where there is none."""
    end = line.get(f"{name}_{side}")
    return float(line[name] or 0.0) if end is None else end


def _interval(line: dict[str, float | None], name: str) -> str:
    low, high = (line.get(f"{name}_{side}") for side in ("low", "high"))
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
