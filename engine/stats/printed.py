"""A measured number beside a printed one: how far apart they are once rounding and sampling noise are taken off."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from engine.stats.uncertainty import LEVEL, estimate, holm, seed_parts, text_part, two_sided_p

_ARITHMETIC = 1e-9  # relative: what computing may add to half a unit


class Noise(NamedTuple):
    """Standard error of a mean over seeds, and the degrees of freedom that it is known with (infinite: the normal)."""

    stderr: float
    degrees: float


def noise_of(values: Sequence[float], errors: Sequence[float | None], units: int | None) -> Noise | None:
    """The noise of the mean of one value per seed, e = sqrt(mean_s e_s^2 + s^2 / n), s^2 the variance over seeds; None
    where an error is missing, and without a standard error above 0.

    errors: of each value over `units` independent units (windows, items). All seeds share these, so that their part
    does not shrink with the number of seeds (taken as wholly dependent: rather too wide). Degrees by Welch and
    Satterthwaite: e^4 / (w^2 / (units - 1) + b^2 / (seeds - 1)), with w the mean squared error of the seeds, b the
    variance over seeds over their number, e^2 = w + b. units None: as if there were many."""
    within = text_part(errors, [units if units is not None and units > 1 else None])
    with_error = estimate(statistics.fmean(values), [within, *seed_parts(values, range(len(values)))])
    return Noise(with_error.stderr, with_error.degrees) if with_error.stderr and with_error.degrees else None


def against_printed(cells: pl.DataFrame) -> pl.DataFrame:
    """The cells with `log_ratio`, `z` and `p_holm`, worst first: the largest abs(z), then what has none.

    cells: `published` and `half_unit` as printed, `measured`, `log_measured` (its natural logarithm; null where a ratio
    makes no sense, as for correlations and shares), `stderr` (of log_measured, else of measured; null where none is
    stored) and `degrees`. The printed number stands for anything within half a unit, so the distance is that of the
    measured number from the nearest of these:

        log_ratio = ln measured - ln published
        z = sign * max(0, distance) / stderr, with the distance in logarithms where there is a log_ratio

    Rounding alone gives z = 0, and noise of one stored error passes a level of a in a of all cells or fewer. p by
    Student's t at `degrees`, Holm over all cells with a z. The published number's own sampling error is not printed and
    not in z. A cell without a z comes by the size of its log ratio or difference, what is not finite first."""
    differences = [_apart(*row) for row in cells.select(*_INPUTS).iter_rows()]
    z_values = [z for _, _, z, _ in differences]
    adjusted = iter(holm([p for *_, p in differences if p is not None]))
    columns: dict[str, list[float | None]] = {
        "log_ratio": [ratio for ratio, *_ in differences],
        "z": z_values,
        "p_holm": [None if p is None else next(adjusted) for *_, p in differences],
        "_size": [size for _, size, *_ in differences],
    }
    with_z = cells.with_columns(pl.Series(name, values, pl.Float64) for name, values in columns.items())
    by_size = pl.col("z").abs().fill_null(-1.0)
    return with_z.sort(by_size, "_size", descending=True, nulls_last=True, maintain_order=True).drop("_size")


_INPUTS = ("published", "half_unit", "measured", "log_measured", "stderr", "degrees")


def _apart(
    published: float,
    half_unit: float | None,
    measured: float,
    log_measured: float | None,
    stderr: float | None,
    degrees: float | None,
) -> tuple[float | None, float, float | None, float | None]:
    """Log ratio, size of the difference for sorting, z, p."""
    half = (half_unit or 0.0) + _ARITHMETIC * abs(published)
    ratio, here, ends = None, measured, (published - half, published + half)
    if log_measured is not None and published > 0:
        low = math.log(ends[0]) if ends[0] > 0 else -math.inf
        ratio, here, ends = log_measured - math.log(published), log_measured, (low, math.log(ends[1]))
    signed = ratio if ratio is not None else measured - published
    size = math.inf if math.isnan(signed) else abs(signed)
    if stderr is None or math.isnan(signed):
        return ratio, size, None, None
    z = math.copysign(max(0.0, ends[0] - here, here - ends[1]) / stderr, signed)
    return ratio, size, z, two_sided_p(z, math.inf if degrees is None else degrees)


def differing(cells: pl.DataFrame, level: float = LEVEL) -> pl.DataFrame:
    """The cells of `against_printed` that differ beyond noise after Holm's correction, worst first."""
    return cells.filter(pl.col("p_holm") <= level)
