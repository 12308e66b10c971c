"""The published tables of the language-model audit as one long table: a line per printed cell."""

from __future__ import annotations

import re
from functools import cache

import polars as pl

from precomputed.paper_tables import lerf_morf_curves, load_table

KEYS = ("quantity", "model", "selector", "other", "order", "sublayer", "rate", "size")
SCHEMA = {
    "quantity": pl.String,  # perplexity, stability_spearman, ...: the table and column that it is measured in
    "model": pl.String,
    "selector": pl.String,  # or the control
    "other": pl.String,  # second selector of a pair, category, corpus, task
    "order": pl.String,
    "sublayer": pl.String,
    "rate": pl.Float64,
    "size": pl.Int64,  # calibration windows
    "published": pl.Float64,
    "half_unit": pl.Float64,  # half a unit of the last printed digit: what rounding hides
    "table": pl.String,
}
CONTROL_NAMES = {"lrp_ig_intersection": "intersection", "rank_randomized": "rank_randomised"}


@cache
def published_cells() -> pl.DataFrame:
    """`SCHEMA`, sorted by table. Frames are shared between callers: derive new ones, never assign into them."""
    parts = [
        _perplexity(),
        *_stability(),
        _pairs("jaccard_pairs", "jaccard"),
        _pairs("spearman_pairs", "spearman"),
        *_controls(),
        _rank_distribution(),
        *_dangerous(),
        _domain(),
        _downstream(),
    ]
    return pl.concat([_complete(part) for part in parts])


def half_unit(printed: str) -> float:
    """Half a unit of the last digit of a printed number: `66.08` 0.005, `1.54e6` 5000, `1,301` 0.5."""
    match = re.fullmatch(r"-?[\d,]*(?:\.(\d+))?(?:e(\d+))?%?", printed.strip())
    if match is None or not any(character.isdigit() for character in printed):
        raise ValueError(f"{printed!r} is not a printed number")
    return float(0.5 * 10.0 ** (int(match[2] or 0) - len(match[1] or "")))


def _perplexity() -> pl.DataFrame:
    return lerf_morf_curves().with_columns(
        quantity=pl.lit("perplexity"), published="ppl", table=pl.lit("lerf_morf_ppl")
    )


def _stability() -> list[pl.DataFrame]:
    named = {
        "convergence_ppl": ("stability_perplexity", "ppl"),
        "jaccard_stability": ("stability_jaccard", "jaccard"),
        "spearman_stability": ("stability_spearman", "spearman"),
    }
    return [
        load_table(name).with_columns(
            quantity=pl.lit(quantity), published=column, size="calib_size", table=pl.lit(name)
        )
        for name, (quantity, column) in named.items()
    ]


def _pairs(name: str, column: str) -> pl.DataFrame:
    """Each unordered pair once, its names in alphabetical order; a selector with itself says nothing."""
    first, second = (
        pl.min_horizontal("selector_a", "selector_b"),
        pl.max_horizontal("selector_a", "selector_b"),
    )
    keys = [key for key in ("model", "sublayer", "rate") if key in load_table(name).columns]
    return (
        load_table(name)
        .filter(pl.col("selector_a") != pl.col("selector_b"))
        .with_columns(selector=first, other=second)
        .unique([*keys, "selector", "other"], keep="first", maintain_order=True)
        .with_columns(quantity=pl.lit(column), published=column, table=pl.lit(name))
    )


def _controls() -> list[pl.DataFrame]:
    table = load_table("consensus_controls").with_columns(selector=pl.col("control").replace(CONTROL_NAMES))
    return [
        table.with_columns(
            quantity=pl.lit("control_perplexity"),
            order=pl.lit(order.lower()),
            published=f"{order.lower()}_ppl",
            half_unit=_half_units(f"{order}="),
            table=pl.lit("consensus_controls"),
        ).filter(pl.col("published").is_not_null())
        for order in ("LeRF", "MoRF")
    ]


def _rank_distribution() -> pl.DataFrame:
    return load_table("consensus_rank_distribution").with_columns(
        quantity=pl.lit("rank_distribution"),
        selector=pl.lit("consensus2"),
        other="category",
        published="fraction",
        half_unit=pl.col("half_unit") / 100,  # printed in percent
        table=pl.lit("consensus_rank_distribution"),
    )


def _dangerous() -> list[pl.DataFrame]:
    table = load_table("false_negatives").with_columns(table=pl.lit("false_negatives"))
    return [
        table.with_columns(
            quantity=pl.lit("dangerous_groups"), published=pl.col("n_danger_groups").cast(pl.Float64), half_unit=0.5
        ),
        table.with_columns(
            quantity=pl.lit("dangerous_share"),
            published=pl.col("pct_danger_rows") / 100,
            half_unit=_half_units("%Neurons=") / 100,
        ),
    ]  # fmt: skip


def _domain() -> pl.DataFrame:
    return load_table("domain_sensitivity").with_columns(
        quantity=pl.lit("domain_") + pl.col("metric"),
        other="calib_corpus",
        published="value",
        table=pl.lit("domain_sensitivity"),
    )


def _downstream() -> pl.DataFrame:
    return (
        load_table("downstream_accuracy")
        .filter("primary")
        .with_columns(
            quantity=pl.lit("accuracy"), other="task", published="accuracy", table=pl.lit("downstream_accuracy")
        )
    )  # fmt: skip


def _half_units(label: str) -> pl.Expr:
    """Half units of the number behind `label` in a composite `printed` column."""
    number = pl.col("printed").str.extract(re.escape(label) + r"([-\d.,e]*\d)")
    return number.map_elements(half_unit, return_dtype=pl.Float64)


def _complete(part: pl.DataFrame) -> pl.DataFrame:
    columns = [
        (pl.col(name) if name in part.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in SCHEMA.items()
    ]
    return part.select(columns)
