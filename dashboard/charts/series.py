"""Curves of one model -> points to draw, the gap between the orders, and the table of values."""

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.sortable import Cell, Row, Sortable, of_rows, perplexity
from engine.stats.uncertainty import student_t
from engine.studies import estimate_words

ORDER_TITLES = estimate_words.ORDER_TITLES
FEW = 5  # blocks


def points(
    frame: pl.DataFrame, model: str, selectors: Sequence[str], orders: Sequence[str], rates: tuple[float, float]
) -> pl.DataFrame:
    """One row per selector, order and rate.
    A selector with several seeds is averaged in NLL; its error, and its bar, is then the sample standard deviation over
    the seeds, otherwise the standard error over blocks of evaluation windows (in tables of earlier versions over
    windows), and half of the 95% interval from it.
    Columns: selector, order, rate, nll, error, interval (what a bar would show) and bar (nats, null if unknown; bar
    also where it rests on fewer than `FEW` blocks, which make long bars of what all selectors share, the text),
    window_error (the standard error over windows, its mean over seeds), seeds, rows_removed, tokens, printed, plateau,
    counted: nll up to where the model is destroyed (`engine.stats.limits`), beyond which nothing is better or worse;
    destroyed: is it above that. Where the frame does not know the limit, nothing is destroyed."""
    low, high = rates
    lacking = {"saturated_above": pl.Float64, "blocks": pl.Int64}
    frame = frame.with_columns(pl.lit(None, t).alias(name) for name, t in lacking.items() if name not in frame.columns)
    limit = pl.col("saturated_above").first()
    chosen = frame.filter(
        pl.col("model") == model,
        pl.col("selector").is_in(list(selectors)),
        pl.col("order").is_in(list(orders)),
        pl.col("rate").is_between(low - 1e-9, high + 1e-9),
    )
    spread = pl.when(pl.len() > 1).then(pl.col("nll").std()).otherwise(pl.col("nll_stderr").first())
    interval, few = spread_or_interval(spread, frame["blocks"]), (pl.len() == 1) & (pl.col("blocks").first() < FEW)
    return (
        chosen.group_by("selector", "order", "rate", maintain_order=True)
        .agg(
            pl.col("nll").mean(),
            spread.alias("error"),
            interval.alias("interval"),
            pl.when(~few.fill_null(False)).then(interval).alias("bar"),
            pl.col("nll_stderr").mean().alias("window_error"),
            pl.len().alias("seeds"),
            pl.col("rows_removed", "tokens", "printed").first(),
            pl.col("plateau").any(),
            pl.min_horizontal(pl.col("nll").mean(), limit).alias("counted"),
            (pl.col("nll").mean() > limit).fill_null(False).alias("destroyed"),
        )
        .sort("order", "rate", maintain_order=True)
    )


def spread_or_interval(error: pl.Expr, blocks: pl.Series | None = None) -> pl.Expr:
    """Of a group of seeds: what error bars show. Of several the error, their spread; of one half of the 95% interval,
    by Student's t with blocks - 1 degrees of freedom, the normal quantile where they are not known. blocks: of all
    groups, the column `blocks`."""
    known = () if blocks is None else blocks.drop_nulls().unique()
    t, quantiles = pl.lit(student_t(math.inf)), {count: student_t(max(count - 1, 1)) for count in known}
    if quantiles:
        t = pl.col("blocks").first().replace_strict(quantiles, default=t, return_dtype=pl.Float64)
    return pl.when(pl.len() > 1).then(error).otherwise(error * t)


def whole_error() -> pl.Expr:
    """The error of a point for what is said of it: of several seeds their spread and the windows' error together."""
    both = (pl.col("error") ** 2 + pl.col("window_error") ** 2).sqrt()
    return pl.when(pl.col("seeds") > 1).then(both).otherwise(pl.col("error")).cast(pl.Float64)


def unmasked_nll(frame: pl.DataFrame, model: str) -> float | None:
    """NLL of the unmasked model: the mean of its cells at rate 0, None where there is none that is finite."""
    value = frame.filter(pl.col("model") == model, pl.col("rate") == 0)["nll"].mean()
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def gaps(curve_points: pl.DataFrame) -> pl.DataFrame:
    """LeRF beside MoRF per selector and rate.
    Columns: selector, rate, nll_lerf, nll_morf, error (of log_gap, with the two orders' errors taken as independent;
    null where one is not known), log_gap = nll_morf - nll_lerf (nats), gap (text of PPL_MoRF - PPL_LeRF, which as a
    number could overflow), at_ceiling: is one of the two at a published table's numerical ceiling, counted_gap: log_gap
    of losses up to where the model is destroyed, null where both are. Rows with one order only are left out."""
    lerf, morf = (
        curve_points.filter(order=order).select(
            "selector",
            "rate",
            whole_error().alias(f"error_{order}"),
            pl.col("plateau").alias(f"at_{order}"),
            *(pl.col(name).alias(f"{name}_{order}") for name in ("nll", "counted", "destroyed")),
        )
        for order in ("lerf", "morf")
    )
    both = lerf.join(morf, on=["selector", "rate"]).with_columns(at_ceiling=pl.col("at_lerf") | pl.col("at_morf"))
    alive = ~(pl.col("destroyed_lerf") & pl.col("destroyed_morf"))
    both = both.with_columns(
        error=(pl.col("error_lerf") ** 2 + pl.col("error_morf") ** 2).sqrt(),
        counted_gap=pl.when(alive).then(pl.col("counted_morf") - pl.col("counted_lerf")),
    ).select("selector", "rate", "nll_lerf", "nll_morf", "at_ceiling", "error", "counted_gap")
    texts = [formats.perplexity_difference(m, le) for m, le in both.select("nll_morf", "nll_lerf").iter_rows()]
    return both.with_columns(
        log_gap=pl.col("nll_morf") - pl.col("nll_lerf"), gap=pl.Series(texts, dtype=pl.String)
    ).sort("selector", "rate")


def value_table(curve_points: pl.DataFrame) -> Sortable:
    """Perplexities for people: one row per order and rate, one column per selector; * at a numerical ceiling."""
    lines: dict[tuple[str, float], dict[str, Any]] = {}
    for point in curve_points.iter_rows(named=True):
        lines.setdefault((point["order"], point["rate"]), {})[point["selector"]] = point

    def cell(selector: str) -> tuple[Cell, Cell]:
        def text(line: Row) -> str:
            point = line.get(selector)
            return "–" if point is None else formats.perplexity(point["nll"]) + (" *" if point["plateau"] else "")

        return text, lambda line: perplexity(line[selector]["nll"]) if selector in line else None

    selectors = palette.in_order(curve_points["selector"])
    columns: dict[str, Cell | tuple[Cell, Cell]] = {
        "Order": lambda line: ORDER_TITLES[line["order"]],
        "Removed": (lambda line: formats.rate(line["rate"]), itemgetter("rate")),
        **{palette.title(name): cell(name) for name in selectors},
    }
    return of_rows(({"order": order, "rate": rate, **line} for (order, rate), line in lines.items()), columns)


def download_values(curve_points: pl.DataFrame, model: str, source: str) -> pl.DataFrame:
    """The drawn points, exact; perplexity is derived and empty where it would overflow a float64."""
    perplexity = pl.when(pl.col("nll") < 709).then(pl.col("nll").exp())
    return curve_points.with_columns(
        model=pl.lit(model), source=pl.lit(source), perplexity=perplexity
    ).select(
        "source", "model", "selector", "order", "rate", "rows_removed", "nll", "error",
        "seeds", "tokens", "perplexity", "printed", "plateau",
    )  # fmt: skip
