"""Curves of one model -> points to draw, the gap between the orders, and the table of values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from dashboard.charts import formats, palette

ORDER_TITLES = {"lerf": "LeRF", "morf": "MoRF"}


def points(
    frame: pl.DataFrame, model: str, selectors: Sequence[str], orders: Sequence[str], rates: tuple[float, float]
) -> pl.DataFrame:
    """One row per selector, order and rate.

    A selector with several seeds is averaged in NLL; its error is then the sample standard deviation over
    the seeds, otherwise the standard error over evaluation windows.
    Columns: selector, order, rate, nll, error (nats, null if unknown), seeds, rows_removed, tokens, printed, plateau.
    """
    low, high = rates
    chosen = frame.filter(
        pl.col("model") == model,
        pl.col("selector").is_in(list(selectors)),
        pl.col("order").is_in(list(orders)),
        pl.col("rate").is_between(low - 1e-9, high + 1e-9),
    )
    spread = pl.when(pl.len() > 1).then(pl.col("nll").std()).otherwise(pl.col("nll_stderr").first())
    return (
        chosen.group_by("selector", "order", "rate", maintain_order=True)
        .agg(
            pl.col("nll").mean(),
            spread.alias("error"),
            pl.len().alias("seeds"),
            pl.col("rows_removed", "tokens", "printed").first(),
            pl.col("plateau").any(),
        )
        .sort("order", "rate", maintain_order=True)
    )


def unmasked_nll(frame: pl.DataFrame, model: str) -> float | None:
    """NLL of the unmasked model: the mean of its cells at rate 0, None where there is none that is finite."""
    value = frame.filter(pl.col("model") == model, pl.col("rate") == 0)["nll"].mean()
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def gaps(curve_points: pl.DataFrame) -> pl.DataFrame:
    """LeRF beside MoRF per selector and rate.

    Columns: selector, rate, nll_lerf, nll_morf, log_gap = nll_morf - nll_lerf (nats), gap (text of
    PPL_MoRF - PPL_LeRF, which as a number could overflow). Rows with one order only are left out.
    """
    columns = ["selector", "rate", "nll"]
    lerf = curve_points.filter(pl.col("order") == "lerf").select(columns)
    morf = curve_points.filter(pl.col("order") == "morf").select(columns)
    both = lerf.rename({"nll": "nll_lerf"}).join(morf.rename({"nll": "nll_morf"}), on=["selector", "rate"])
    texts = [formats.perplexity_difference(m, le) for m, le in both.select("nll_morf", "nll_lerf").iter_rows()]
    return both.with_columns(
        log_gap=pl.col("nll_morf") - pl.col("nll_lerf"), gap=pl.Series(texts, dtype=pl.String)
    ).sort("selector", "rate")


def value_table(curve_points: pl.DataFrame) -> pl.DataFrame:
    """Perplexities for people: one row per order and rate, one column per selector."""
    shown = curve_points.with_columns(
        text=pl.col("nll").map_elements(formats.perplexity, return_dtype=pl.String)
        + pl.when("plateau").then(pl.lit(" *")).otherwise(pl.lit("")),
        Order=pl.col("order").replace(ORDER_TITLES),
        Removed=pl.col("rate").map_elements(formats.rate, return_dtype=pl.String),
    )
    wide = shown.pivot(on="selector", index=["Order", "Removed"], values="text", aggregate_function="first")
    selectors = palette.in_order(curve_points["selector"].unique().to_list())
    return wide.select("Order", "Removed", *(pl.col(name).alias(palette.title(name)) for name in selectors))


def gap_table(gap_rows: pl.DataFrame) -> pl.DataFrame:
    """The gap for people: one row per selector and rate, printed gap and log gap."""
    return gap_rows.select(
        pl.col("selector").map_elements(palette.title, return_dtype=pl.String).alias("Selector"),
        pl.col("rate").map_elements(formats.rate, return_dtype=pl.String).alias("Removed"),
        pl.col("nll_lerf").map_elements(formats.perplexity, return_dtype=pl.String).alias("PPL LeRF"),
        pl.col("nll_morf").map_elements(formats.perplexity, return_dtype=pl.String).alias("PPL MoRF"),
        pl.col("gap").alias("PPL MoRF − LeRF"),
        pl.col("log_gap").round(2).alias("log gap (nats)"),
    )


def download_values(curve_points: pl.DataFrame, model: str, source: str) -> pl.DataFrame:
    """The drawn points, exact; perplexity is derived and empty where it would overflow a float64."""
    perplexity = pl.when(pl.col("nll") < 709).then(pl.col("nll").exp())
    return curve_points.with_columns(
        model=pl.lit(model), source=pl.lit(source), perplexity=perplexity
    ).select(
        "source", "model", "selector", "order", "rate", "rows_removed", "nll", "error",
        "seeds", "tokens", "perplexity", "printed", "plateau",
    )  # fmt: skip
