"""The paper's refusal tables in the columns of measured ones (see `published`). What was not printed is null."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from dashboard import schemas
from engine.evaluation.rates import wilson_of_rate
from precomputed.paper_tables import load_table

_KEYS = ["model", "selector", "domain", "lambda", "k"]
_PERPLEXITY_CAP = 100.0  # with the benign limit what the paper calls feasible (section 5.1)
BENIGN_LIMIT = 0.10


def _prompts(metric: str) -> int:
    """How many prompts a printed rate is about."""
    return int(load_table("wilson").filter(metric=metric)["n"][0])


def _chosen() -> pl.DataFrame:
    """The printed operating points; random has no lambda there, which is 0 in measured tables."""
    return load_table("refusal_operating_points").with_columns(pl.col("lambda").fill_null(0.0))


def _points() -> pl.DataFrame:
    """Intervals: the printed ones of Llama-3.1-8B, Wilson's on as many prompts for the other models."""
    frame = _chosen().with_columns(
        pairs=pl.lit(_prompts("malign"), pl.Int64),
        unedited_malign="malign_before",
        unedited_benign="benign_before",
        edited_malign="malign_after",
        edited_benign="benign_after",
        unedited_nll=pl.col("ppl_before").log(),
        edited_nll=pl.col("ppl_after").log(),
    )
    keys = ["model", "selector", "domain"]
    for metric in ("malign", "benign"):
        for side in ("unedited", "edited"):
            name = f"{side}_{metric}"
            frame = frame.with_columns(
                _end(name, end, _prompts(metric)).alias(f"{name}_{('low', 'high')[end]}") for end in (0, 1)
            )
        printed = load_table("wilson").filter(metric=metric).select(*keys, "ci_low", "ci_high")
        frame = (
            frame.join(printed, on=keys, how="left", maintain_order="left")
            .with_columns(
                pl.coalesce("ci_low", f"edited_{metric}_low").alias(f"edited_{metric}_low"),
                pl.coalesce("ci_high", f"edited_{metric}_high").alias(f"edited_{metric}_high"),
            )
            .drop("ci_low", "ci_high")
        )
    controls = load_table("faithfulness_controls").select(
        *keys,
        "gain",
        control_malign="control_mean",
        control_malign_max="control_max",
        control_seeds="n_seeds",
    )
    return frame.join(controls, on=keys, how="left", maintain_order="left")


def _end(column: str, end: int, n: int) -> pl.Expr:
    return pl.col(column).map_elements(lambda rate: wilson_of_rate(rate, n)[end], return_dtype=pl.Float64)


def _sweep() -> pl.DataFrame:
    """The few printed cells of grids, the operating points, and the unedited model (k = 0) where it was printed.

    A cell that is printed in both kinds of table keeps its values as an operating point; they differ for one.
    """
    cells = pl.concat(
        load_table(name).select(*_KEYS, "malign", "benign", "ppl")
        for name in ("lambda_sweep", "rescue_sweep")
    )
    chosen = _chosen()
    edited = chosen.select(*_KEYS, malign="malign_after", benign="benign_after", ppl="ppl_after")
    unedited = chosen.filter(pl.col("malign_before").is_not_null()).select(
        "model", "selector", "domain", pl.lit(0.0).alias("lambda"), pl.lit(0.0).alias("k"),
        malign="malign_before", benign="benign_before", ppl="ppl_before",
    )  # fmt: skip
    frame = pl.concat([unedited, edited, cells]).unique(_KEYS, keep="first", maintain_order=True)
    return frame.with_columns(
        malign_n=pl.lit(_prompts("malign"), pl.Int64),
        benign_n=pl.lit(_prompts("benign"), pl.Int64),
        nll=pl.col("ppl").log(),
        feasible=(pl.col("benign") <= BENIGN_LIMIT) & (pl.col("ppl") <= _PERPLEXITY_CAP),
    ).drop("ppl")


def _transfer() -> pl.DataFrame:
    """Two further prompt sets; the number of prompts is printed for OR-Bench-Hard only."""
    orbench = _prompts("orbench")
    parts = []
    for name, kind, prefix, n in (
        ("SorryBench", "malign", "sorrybench", None),
        ("OR-Bench-Hard", "benign", "orbench", orbench),
    ):
        part = _chosen().select(
            *_KEYS, before=f"{prefix}_before", after=f"{prefix}_after", prompts=pl.lit(name), kind=pl.lit(kind),
            n=pl.lit(n, pl.Int64),
        )  # fmt: skip
        for side in ("before", "after"):
            for end, what in ((0, "low"), (1, "high")):
                bound = _end(side, end, n) if n else pl.lit(None, pl.Float64)
                part = part.with_columns(bound.alias(f"{side}_{what}"))
        parts.append(part)
    return pl.concat(parts)


def _utility() -> pl.DataFrame:
    """Differences of accuracy, printed for Llama-3.1-8B; neither side is printed alone."""
    names = {"delta_mmlu": "MMLU", "delta_gsm8k": "GSM8K", "delta_ifeval": "IFEval"}
    parts = [
        _chosen().select(*_KEYS, task=pl.lit(name), metric=pl.lit("accuracy"), difference=column)
        for column, name in names.items()
    ]
    return pl.concat(parts).filter(pl.col("difference").is_not_null())


def _density() -> pl.DataFrame:
    return load_table("signal_density").with_columns(density=pl.col("density_pct") / 100)


def _jaccard() -> pl.DataFrame:
    """LRP beside IG, and the cross-domain overlaps that the text gives. By chance: t / (2 - t) of two shares t."""
    pairs = load_table("lrp_ig_jaccard").select(
        "model", "selector_a", "selector_b", "jaccard", domain_a="domain", domain_b="domain", top="top_fraction",
        comparison=pl.lit("selectors"), ranked_by=pl.lit(None, pl.String),
    )  # fmt: skip
    parts = pl.col("domain").str.split("|")
    domains = (
        load_table("prose_values")
        .filter(quantity="cross_domain_top1pct_jaccard")
        .select(
            "model", selector_a="selector", selector_b="selector", jaccard="value", domain_a=parts.list.first(),
            domain_b=parts.list.last(), top=pl.lit(float(pairs["top"][0])), comparison=pl.lit("domains"),
            ranked_by=pl.lit("abs_c_comply"),
        )
    )  # fmt: skip
    frame = pl.concat([pairs, domains.select(pairs.columns)])
    return frame.with_columns(expected_random=pl.col("top") / (2 - pl.col("top")))


def _shares() -> pl.DataFrame:
    return load_table("layer_thirds").with_columns(
        ranked_by=pl.lit("abs_c_comply"), part=pl.lit("third"), name="third", share="fraction"
    )


def reversal() -> pl.DataFrame:
    """Malign refusal of LRP and IG over the paper's models: model, domain, selector, malign, rescue."""
    return load_table("method_reversal").select(
        "model", "domain", "selector", "rescue", malign="malign_after"
    )


TABLES: dict[str, tuple[Callable[[], pl.DataFrame], str]] = {
    schemas.POINTS: (_points, "refusal operating points, Wilson intervals and controls"),
    schemas.REFUSAL_SWEEP: (_sweep, "refusal operating points and parts of two grids"),
    "transfer": (_transfer, "refusal on two further prompt sets"),
    "utility": (_utility, "differences of accuracy after the edits"),
    "signal_density": (_density, "share of rows with a clear contrast"),
    "refusal_jaccard": (_jaccard, "overlaps of the top 1% of rows"),
    "refusal_shares": (_shares, "depth of the top 1% of rows"),
}
