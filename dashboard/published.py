"""The paper's tables in the columns of measured ones, so that a page draws both alike. What was not printed is null."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import polars as pl

from dashboard import published_refusal, schemas
from dashboard.results import Table
from engine.errors import InputError
from precomputed.paper_tables import load_table

_CONTROL_IDS = {"lrp_ig_intersection": "intersection", "rank_randomized": "rank_randomised"}
_TEXT = frozenset(
    (
        "model", "selector", "selector_a", "selector_b", "order", "order_a", "order_b", "sublayer", "projection",
        "control", "size_matched_to", "corpus_a", "corpus_b", "task", "kind", "validity", "stability", "reasons",
        "reference", "domain", "domain_a", "domain_b", "comparison", "ranked_by", "part", "name", "prompts", "metric",
    )
)  # fmt: skip
_WHOLE = frozenset(
    (
        "seed", "seeds", "size", "block", "rows", "rows_removed", "reference_rows", "tokens", "items", "groups",
        "dangerous_groups", "masked_rows", "malign_n", "benign_n", "pairs", "n",
    )
)  # fmt: skip
_FLAGS = frozenset(("dangerous", "stable_but_invalid", "feasible", "rescue", "heldout"))


@cache
def table(stem: str) -> Table:
    """A published table under its measured name. `InputError` where the paper has none."""
    if stem not in TABLES:
        raise InputError(f"the paper printed no table for {stem}; choose measured results as the source")
    make, what = TABLES[stem]
    return Table(_complete(make(), stem), f"Published values: {what}, as printed.")


def _complete(frame: pl.DataFrame, stem: str) -> pl.DataFrame:
    """The columns of the schema first, typed nulls where there is nothing, then what else the frame has."""
    wanted = schemas.COLUMNS[stem]
    missing = [pl.lit(None, _type(name)).alias(name) for name in wanted if name not in frame.columns]
    return frame.with_columns(missing).select(*wanted, pl.exclude(*wanted))


def _type(name: str) -> type[pl.DataType]:
    for names, kind in ((_TEXT, pl.String), (_WHOLE, pl.Int64), (_FLAGS, pl.Boolean)):
        if name in names:
            return kind
    return pl.Float64


def _sweep() -> pl.DataFrame:
    return load_table("lerf_morf_ppl").with_columns(nll=pl.col("ppl").log())


def _jaccard() -> pl.DataFrame:
    """Each pair once. The expectation for random masks depends on row counts that are not printed: null."""
    return _unordered(load_table("jaccard_pairs"), ["model", "sublayer", "rate"])


def _spearman() -> pl.DataFrame:
    return _unordered(load_table("spearman_pairs"), ["model"])


def _unordered(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    low, high = pl.min_horizontal("selector_a", "selector_b"), pl.max_horizontal("selector_a", "selector_b")
    return (
        frame.filter(pl.col("selector_a") != pl.col("selector_b"))
        .with_columns(selector_a=low, selector_b=high)
        .unique([*keys, "selector_a", "selector_b"], keep="first", maintain_order=True)
    )


def _stability() -> pl.DataFrame:
    """One row per size and rate; the overlaps are printed without a rate, the perplexities with one."""
    keys = ["model", "selector", "calib_size"]
    perplexity = load_table("convergence_ppl").select(*keys, "rate", nll=pl.col("ppl").log())
    spearman = load_table("spearman_stability").select(*keys, "spearman")
    jaccard = load_table("jaccard_stability").select(*keys, "rate", "jaccard")
    joined = perplexity.join(jaccard, on=[*keys, "rate"], how="full", coalesce=True)
    return (
        joined.join(spearman, on=keys, how="left")
        .with_columns(reference_size=pl.lit(128, pl.Int64))
        .rename({"calib_size": "size"})
        .sort("model", "selector", "size", "rate", maintain_order=True)
    )


def _verdicts() -> pl.DataFrame:
    """Stability beside the perplexities at 30%; the unmasked model and random come from the sweep."""
    sweep = _sweep()
    dense = sweep.filter(rate=0.0).group_by("model", maintain_order=True).agg(dense_nll=pl.col("nll").mean())
    random = sweep.filter(selector="random", order="lerf", rate=0.3).select("model", random_lerf_nll="nll")
    frame = load_table("stability").join(dense, on="model", how="left").join(random, on="model", how="left")
    return frame.with_columns(
        log_gap=(pl.col("morf_ppl_30") / pl.col("lerf_ppl_30")).log(),
        lerf_nll=pl.col("lerf_ppl_30").log(),
        spearman="spearman_c8_c128",
        jaccard="jaccard30_c8_c128",
    )


def _gap() -> pl.DataFrame:
    sweep = load_table("lerf_morf_ppl").with_columns(nll=pl.col("ppl").log())
    keys = ["model", "selector", "rate"]
    lerf = sweep.filter(order="lerf").select(*keys, nll_lerf="nll")
    morf = sweep.filter(order="morf").select(*keys, nll_morf="nll")
    return lerf.join(morf, on=keys).with_columns(log_gap=pl.col("nll_morf") - pl.col("nll_lerf"))


def _controls() -> pl.DataFrame:
    frame = load_table("consensus_controls").with_columns(pl.col("control").replace(_CONTROL_IDS))
    parts = [
        frame.with_columns(order=pl.lit(order), nll=pl.col(f"{order}_ppl").log())
        for order in ("lerf", "morf")
    ]
    return pl.concat(parts).filter(pl.col("nll").is_not_null())


def _rank_distribution() -> pl.DataFrame:
    frame = load_table("consensus_rank_distribution")
    return frame.pivot(on="category", index=["model", "rate"], values="fraction")


def _dangerous_summary() -> pl.DataFrame:
    frame = load_table("false_negatives").with_columns(share=pl.col("pct_danger_rows") / 100)
    return frame.rename(
        {"n_groups": "groups", "n_danger_groups": "dangerous_groups", "n_danger_rows": "rows"}
    )


def _domain() -> pl.DataFrame:
    """One row per rate: the overlaps, and the perplexities of both calibration texts as NLL."""
    frame, keys = load_table("domain_sensitivity"), ["model", "selector"]
    first, second = frame["calib_corpus"].drop_nulls().unique(maintain_order=True).to_list()

    def values(metric: str, corpus: str | None = None) -> pl.DataFrame:
        found = frame.filter(pl.col("metric") == metric, pl.col("calib_corpus").eq_missing(pl.lit(corpus)))
        return found.select(*keys, "rate", "value")

    joined = values("jaccard").rename({"value": "jaccard"})
    joined = joined.join(values("spearman").select(*keys, spearman="value"), on=keys, how="left")
    for name, corpus in (("nll_a", first), ("nll_b", second)):
        perplexity = values("lerf_ppl", corpus).select(*keys, "rate", pl.col("value").log().alias(name))
        joined = joined.join(perplexity, on=[*keys, "rate"], how="left")
    return joined.with_columns(corpus_a=pl.lit(first), corpus_b=pl.lit(second))


def _seeds() -> pl.DataFrame:
    """Mean and spread of the NLL, ln(perplexity), over the printed seeds."""
    nll = pl.col("ppl").log()
    return (
        load_table("random_seeds")
        .filter(stat="seed")
        .group_by("model", "selector", "order", "rate", maintain_order=True)
        .agg(
            seeds=pl.len().cast(pl.Int64), nll_mean=nll.mean(), nll_sd=nll.std(), nll_min=nll.min(),
            nll_max=nll.max(),
        )
    )  # fmt: skip


def _downstream() -> pl.DataFrame:
    """The unmasked model stands at rate 0 of every selector."""
    frame = load_table("downstream_accuracy").filter("primary").with_columns(order=pl.lit("lerf"))
    dense, rest = frame.filter(selector="dense"), frame.filter(pl.col("selector") != "dense")
    start = dense.drop("selector").join(
        rest.select("model", "selector").unique(maintain_order=True), on="model"
    )
    return pl.concat([start.select(frame.columns), rest])


TABLES: dict[str, tuple[Callable[[], pl.DataFrame], str]] = {
    schemas.SWEEP: (_sweep, "perplexities under LeRF and MoRF"),
    "gap": (_gap, "perplexities under LeRF and MoRF"),
    "jaccard": (_jaccard, "Jaccard overlaps of pairs of selectors"),
    "spearman": (_spearman, "rank correlations of pairs of selectors"),
    "stability": (_stability, "convergence over calibration sizes"),
    "verdicts": (_verdicts, "stability beside validity"),
    "controls": (_controls, "consensus controls"),
    "rank_distribution": (_rank_distribution, "where Consensus-2 takes its rows from"),
    "dangerous_summary": (_dangerous_summary, "dangerous groups"),
    "domain": (_domain, "domain sensitivity"),
    "seeds": (_seeds, "spread over random seeds"),
    "downstream": (_downstream, "downstream accuracies"),
    **published_refusal.TABLES,
}
