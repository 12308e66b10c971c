"""Makes `precomputed/paper/runs/`: the published tables as results folders, one for each model of the paper.

    python -m precomputed.convert_runs [--out DIR]

Reads `precomputed/paper/*.parquet`, names everything as measured tables do and adds, beside a value that was printed,
its characters and half a unit of its last digit (`X_printed`, `X_half_unit`). What was not printed is null, or is
computed from what was printed where the arithmetic is the table's own (nll = ln perplexity, Wilson's intervals). The
same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import logging
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl

from engine.records.errors import InputError
from engine.records.files import write_parquet
from engine.records.hashing import Json, file_sha256
from engine.records.manifest import MANIFEST, read_manifest, write_manifest
from engine.results.folders import is_published
from engine.results.tables import checked, spec
from engine.stats.uncertainty import wilson_of_rate
from precomputed import paper_runs_dir
from precomputed.paper_schema import PAPER
from precomputed.paper_tables import load_table

log = logging.getLogger(__name__)
CONTROL_NAMES = {"lrp_ig_intersection": "intersection", "rank_randomized": "rank_randomised"}
# The paper's settings, in the words of a measured manifest (its section 3.4).
AUDIT: Json = {
    "scores": {"objective": "loss", "calibration": {"corpus": "wikitext2", "samples": 128, "length": 128}},
    "evaluation": {"corpus": "wikitext2", "samples": 256, "length": 512},
}
BENIGN_LIMIT, PERPLEXITY_CAP = 0.10, 100.0  # what the paper calls feasible (section 5.1)
_KEYS = ["model", "selector", "domain", "lambda", "k"]


def half_unit(printed: str) -> float:
    """Half a unit of the last digit of a printed number: `66.08` 0.005, `1.54e6` 5000, `1,301` 0.5."""
    match = re.fullmatch(r"[-+±]?[\d,]*(?:\.(\d+))?(?:e(\d+))?%?", printed.strip())
    if match is None or not any(character.isdigit() for character in printed):
        raise ValueError(f"{printed!r} is not a printed number")
    return float(0.5 * 10.0 ** (int(match[2] or 0) - len(match[1] or "")))


def _printed(value: str, text: pl.Expr, scale: float = 1.0) -> list[pl.Expr]:
    """`value_printed` and `value_half_unit`. scale: of the value to the printed number, 0.01 for percent."""
    half = text.map_elements(half_unit, return_dtype=pl.Float64) * scale
    return [text.alias(f"{value}_printed"), half.alias(f"{value}_half_unit")]


def _labelled(label: str, place: int = 0) -> pl.Expr:
    """The number behind `label=` in a composite cell; place 1: behind the arrow, or alone where there is no arrow."""
    number, start = r"([-+±]?[\d.,]+(?:e\d+)?%?)", rf"(?:^|; ){re.escape(label)}="
    before = pl.col("printed").str.extract(f"{start}{number} → ")
    after = pl.col("printed").str.extract(f"{start}(?:[^;]* → )?{number}(?:;|$)")
    return before if place == 0 else after


def _single(value: str) -> list[pl.Expr]:
    """Of a table with one printed number in each row."""
    return [pl.col("printed").alias(f"{value}_printed"), pl.col("half_unit").alias(f"{value}_half_unit")]


def _sweep() -> pl.DataFrame:
    ppl = pl.col("ppl")
    return load_table("lerf_morf_ppl").with_columns(*_single("perplexity"), nll=ppl.log(), perplexity=ppl)


def _gap() -> pl.DataFrame:
    """From the printed perplexities of both orders; the gap itself where it was printed, which is at 30%."""
    keys = ["model", "selector", "rate"]
    sides = [
        _sweep().filter(order=order).select(
            *keys, pl.col("nll").alias(f"nll_{order}"), pl.col("ppl").alias(f"ppl_{order}")
        )
        for order in ("lerf", "morf")
    ]  # fmt: skip
    printed = load_table("audit_summary_30").select(*keys, "gap", *_printed("gap", _labelled("G", 1)))
    joined = sides[0].join(sides[1], on=keys).join(printed, on=keys, how="left", maintain_order="left")
    return joined.with_columns(log_gap=pl.col("nll_morf") - pl.col("nll_lerf"))


def _pairs(name: str, value: str) -> pl.DataFrame:
    """Each pair once, its names in alphabetical order. What chance gives depends on row counts not printed."""
    frame = load_table(name)
    low, high = pl.min_horizontal("selector_a", "selector_b"), pl.max_horizontal("selector_a", "selector_b")
    keys = [key for key in spec(value).keys if key in frame.columns]
    return (
        frame.filter(pl.col("selector_a") != pl.col("selector_b"))
        .with_columns(*_single(value), selector_a=low, selector_b=high)
        .unique(keys, keep="first", maintain_order=True)
    )


def _stability() -> pl.DataFrame:
    """One row per size and rate; the rank correlations are printed without a rate."""
    keys = ["model", "selector", "calib_size"]
    perplexity = load_table("convergence_ppl").select(
        *keys, "rate", *_single("perplexity"), nll=pl.col("ppl").log(), perplexity="ppl"
    )
    spearman = load_table("spearman_stability").select(*keys, "spearman", *_single("spearman"))
    jaccard = load_table("jaccard_stability").select(*keys, "rate", "jaccard", *_single("jaccard"))
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
        *_printed("spearman", _labelled("Spearman", 1)),
        *_printed("jaccard", _labelled("Jacc", 1)),
        log_gap=(pl.col("morf_ppl_30") / pl.col("lerf_ppl_30")).log(),
        lerf_nll=pl.col("lerf_ppl_30").log(),
        spearman="spearman_c8_c128",
        jaccard="jaccard30_c8_c128",
    )


def _controls() -> pl.DataFrame:
    frame = load_table("consensus_controls").with_columns(pl.col("control").replace(CONTROL_NAMES))
    parts = [
        frame.with_columns(
            *_printed("perplexity", _labelled(label, 1)),
            order=pl.lit(label.lower()),
            nll=pl.col(f"{label.lower()}_ppl").log(),
            perplexity=f"{label.lower()}_ppl",
        )
        for label in ("LeRF", "MoRF")
    ]
    return pl.concat(parts).filter(pl.col("nll").is_not_null())


def _rank_distribution() -> pl.DataFrame:
    frame = load_table("consensus_rank_distribution").with_columns(half_unit=pl.col("half_unit") / 100)
    wide = [
        frame.pivot(on="category", index=["model", "rate"], values=values).rename(
            {name: f"{name}{suffix}" for name in ("both", "only_one", "neither")}
        )
        for values, suffix in (("fraction", ""), ("printed", "_printed"), ("half_unit", "_half_unit"))
    ]
    return wide[0].join(wide[1], on=["model", "rate"]).join(wide[2], on=["model", "rate"])


def _dangerous_summary() -> pl.DataFrame:
    frame = load_table("false_negatives").with_columns(
        *_printed("dangerous_groups", _labelled("#Danger", 1)),
        *_printed("share", _labelled("%Neurons", 1), 0.01),
        share=pl.col("pct_danger_rows") / 100,
    )
    return frame.rename({"n_groups": "groups", "n_danger_groups": "dangerous_groups", "n_danger_rows": "rows"})


def _domain() -> pl.DataFrame:
    """One row per rate: the overlaps, and the perplexities of both calibration texts."""
    frame, keys = load_table("domain_sensitivity"), ["model", "selector"]
    first, second = frame["calib_corpus"].drop_nulls().unique(maintain_order=True).to_list()

    def values(metric: str, name: str, corpus: str | None = None) -> pl.DataFrame:
        found = frame.filter(pl.col("metric") == metric, pl.col("calib_corpus").eq_missing(pl.lit(corpus)))
        return found.select(*keys, "rate", pl.col("value").alias(name), *_single(name))

    joined = values("jaccard", "jaccard")
    joined = joined.join(values("spearman", "spearman").drop("rate"), on=keys, how="left")
    for side, corpus in (("a", first), ("b", second)):
        joined = joined.join(values("lerf_ppl", f"ppl_{side}", corpus), on=[*keys, "rate"], how="left")
        joined = joined.with_columns(pl.col(f"ppl_{side}").log().alias(f"nll_{side}"))
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
    frame = load_table("downstream_accuracy").filter("primary")
    frame = frame.with_columns(*_single("accuracy"), order=pl.lit("lerf"))
    dense, rest = frame.filter(selector="dense"), frame.filter(pl.col("selector") != "dense")
    selectors = rest.select("model", "selector").unique(maintain_order=True)
    return pl.concat([dense.drop("selector").join(selectors, on="model").select(frame.columns), rest])


def _prompts(metric: str) -> int:
    """How many prompts a printed rate is about."""
    return int(load_table("wilson").filter(metric=metric)["n"][0])


def _chosen() -> pl.DataFrame:
    """The printed operating points; random has no lambda there, which is 0 in measured tables."""
    return load_table("refusal_operating_points").with_columns(pl.col("lambda").fill_null(0.0))


def _points() -> pl.DataFrame:
    """Intervals: the printed ones of Llama-3.1-8B, Wilson's on as many prompts for the other models."""
    sides = {"unedited": ("before", 0), "edited": ("after", 1)}
    frame = _chosen().with_columns(
        pairs=pl.lit(_prompts("malign"), pl.Int64),
        unedited_nll=pl.col("ppl_before").log(),
        edited_nll=pl.col("ppl_after").log(),
    )
    keys = ["model", "selector", "domain"]
    for metric in ("malign", "benign"):
        for side, (when, place) in sides.items():
            name = f"{side}_{metric}"
            frame = frame.with_columns(
                pl.col(f"{metric}_{when}").alias(name), *_printed(name, _labelled(metric, place))
            ).with_columns(_end(name, end, _prompts(metric)).alias(f"{name}_{('low', 'high')[end]}") for end in (0, 1))
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
        *keys, "gain",
        *_printed("control_malign", _labelled("ctrl_mean", 1)),
        *_printed("control_malign_max", _labelled("ctrl_max", 1)),
        *_printed("gain", _labelled("gain", 1)),
        control_malign="control_mean", control_malign_max="control_max", control_seeds="n_seeds",
    )  # fmt: skip
    return frame.join(controls, on=keys, how="left", maintain_order="left")


def _end(column: str, end: int, n: int) -> pl.Expr:
    return pl.col(column).map_elements(lambda rate: wilson_of_rate(rate, n)[end], return_dtype=pl.Float64)


def _refusal_sweep() -> pl.DataFrame:
    """The few printed cells of grids, the operating points, and the unedited model (k = 0) where it was printed.

    A cell that is printed in both kinds of table keeps its values as an operating point; they differ for one.
    """
    chosen = _chosen()
    before = chosen.filter(pl.col("malign_before").is_not_null()).with_columns(
        pl.lit(0.0).alias("lambda"), pl.lit(0.0).alias("k")
    )
    parts = [_cells(before, 0, "_before", "ppl"), _cells(chosen, 1, "_after", "ppl")]
    parts += [_cells(load_table(name), 1, "", "PPL") for name in ("lambda_sweep", "rescue_sweep")]
    frame = pl.concat(parts).unique(_KEYS, keep="first", maintain_order=True)
    return frame.with_columns(
        malign_n=pl.lit(_prompts("malign"), pl.Int64),
        benign_n=pl.lit(_prompts("benign"), pl.Int64),
        nll=pl.col("perplexity").log(),
        feasible=(pl.col("benign") <= BENIGN_LIMIT) & (pl.col("perplexity") <= PERPLEXITY_CAP),
    )


def _cells(frame: pl.DataFrame, place: int, when: str, label: str) -> pl.DataFrame:
    names = {"malign": f"malign{when}", "benign": f"benign{when}", "perplexity": f"ppl{when}"}
    labels = {"malign": "malign", "benign": "benign", "perplexity": label}
    printed = [one for name, text in labels.items() for one in _printed(name, _labelled(text, place))]
    return frame.select(*_KEYS, *printed, **names)


def _transfer() -> pl.DataFrame:
    """Two further prompt sets; the number of prompts is printed for OR-Bench-Hard only."""
    parts = []
    for name, kind, prefix, n in (
        ("SorryBench", "malign", "sorrybench", None),
        ("OR-Bench-Hard", "benign", "orbench", _prompts("orbench")),
    ):
        part = _chosen().with_columns(
            *_printed("before", _labelled(prefix, 0)), *_printed("after", _labelled(prefix, 1)),
            before=f"{prefix}_before", after=f"{prefix}_after", prompts=pl.lit(name), kind=pl.lit(kind),
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
    parts = [
        _chosen().with_columns(
            *_printed("difference", _labelled(f"d{name}", 1)),
            task=pl.lit(name), metric=pl.lit("accuracy"), difference=f"delta_{name.lower()}",
        )
        for name in ("MMLU", "GSM8K", "IFEval")
    ]  # fmt: skip
    return pl.concat(parts).filter(pl.col("difference").is_not_null())


def _density() -> pl.DataFrame:
    percent = load_table("signal_density").with_columns(half_unit=pl.col("half_unit") / 100)
    return percent.with_columns(*_single("density"), density=pl.col("density_pct") / 100)


def _refusal_jaccard() -> pl.DataFrame:
    """LRP beside IG, and the cross-domain overlaps that the text gives. By chance: t / (2 - t) of two shares t."""
    pairs = load_table("lrp_ig_jaccard").select(
        "model", "selector_a", "selector_b", "jaccard", *_single("jaccard"), domain_a="domain", domain_b="domain",
        top="top_fraction", comparison=pl.lit("selectors"), ranked_by=pl.lit(None, pl.String),
    )  # fmt: skip
    parts = pl.col("domain").str.split("|")
    domains = (
        load_table("prose_values")
        .filter(quantity="cross_domain_top1pct_jaccard")
        .select(
            "model", selector_a="selector", selector_b="selector", jaccard="value", domain_a=parts.list.first(),
            domain_b=parts.list.last(), top=pl.lit(float(pairs["top"][0])), comparison=pl.lit("domains"),
            ranked_by=pl.lit("abs_c_comply"), jaccard_printed=pl.lit(None, pl.String),
            jaccard_half_unit=pl.lit(None, pl.Float64),
        )
    )  # fmt: skip
    frame = pl.concat([pairs, domains.select(pairs.columns)])
    return frame.with_columns(expected_random=pl.col("top") / (2 - pl.col("top")))


def _shares() -> pl.DataFrame:
    return load_table("layer_thirds").with_columns(
        *_single("share"),
        ranked_by=pl.lit("abs_c_comply"),
        part=pl.lit("third"),
        name="third",
        share="fraction",
    )


# Stem -> how it is made, and what it holds, as the foot of a page says it.
MADE: dict[str, tuple[Callable[[], pl.DataFrame], str]] = {
    "sweep": (_sweep, "perplexities under LeRF and MoRF"),
    "gap": (_gap, "perplexities under LeRF and MoRF"),
    "jaccard": (lambda: _pairs("jaccard_pairs", "jaccard"), "Jaccard overlaps of pairs of selectors"),
    "spearman": (lambda: _pairs("spearman_pairs", "spearman"), "rank correlations of pairs of selectors"),
    "stability": (_stability, "convergence over calibration sizes"),
    "verdicts": (_verdicts, "stability beside validity"),
    "controls": (_controls, "consensus controls"),
    "rank_distribution": (_rank_distribution, "where Consensus-2 takes its rows from"),
    "dangerous_summary": (_dangerous_summary, "dangerous groups"),
    "domain": (_domain, "domain sensitivity"),
    "seeds": (_seeds, "spread over random seeds"),
    "downstream": (_downstream, "downstream accuracies"),
    "operating_points": (_points, "refusal operating points, Wilson intervals and controls"),
    "refusal_sweep": (_refusal_sweep, "refusal operating points and parts of two grids"),
    "transfer": (_transfer, "refusal on two further prompt sets"),
    "utility": (_utility, "differences of accuracy after the edits"),
    "signal_density": (_density, "share of rows with a clear contrast"),
    "refusal_jaccard": (_refusal_jaccard, "overlaps of the top 1% of rows"),
    "refusal_shares": (_shares, "depth of the top 1% of rows"),
}
AUDITED = tuple(MADE)[: tuple(MADE).index("operating_points")]


def table(stem: str) -> pl.DataFrame:
    """A published table of all models in the columns of a measured one, nulls where nothing was printed."""
    frame, about = MADE[stem][0](), spec(stem)
    absent = [pl.lit(None, one).alias(name) for name, one in about.schema().items() if name not in frame.columns]
    known = [name for name in frame.columns if about.column(name)]
    return checked(stem, frame.select(known).with_columns(absent), f"published {stem}", published=True)


def convert(out: Path) -> None:
    """One folder per model of the paper with its tables and a manifest that says what they are."""
    for folder in out.iterdir() if out.is_dir() else ():
        own = (folder / MANIFEST).is_file() and is_published(folder)
        if not own or {path.name for path in folder.iterdir()} - {MANIFEST, *read_manifest(folder)["files"]}:
            raise InputError(
                f"{out} holds {folder.name}, which is not all written by this; give a new folder with --out"
            )
    shutil.rmtree(out, ignore_errors=True)
    manifests: dict[str, Json] = {}
    for stem, (_, what) in MADE.items():
        frame = table(stem)
        for place, model in enumerate(frame["model"].unique(maintain_order=True).to_list()):
            folder = out / model
            folder.mkdir(parents=True, exist_ok=True)
            write_parquet(folder / f"{stem}.parquet", frame.filter(model=model))
            manifest = manifests.setdefault(
                model,
                {"published": PAPER, "model": {"id": model}, "files": {}},
            )
            manifest["files"][f"{stem}.parquet"] = {
                "sha256": file_sha256(folder / f"{stem}.parquet"),
                "what": f"Published values: {what}, as printed.",
                "place": place,  # of the model in the paper's table
                "spec": AUDIT if stem in AUDITED else {},
            }
    for model, manifest in manifests.items():
        write_manifest(out / model, manifest)
    log.info("wrote %d folders to %s", len(manifests), out)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m precomputed.convert_runs", description=__doc__)
    parser.add_argument("--out", type=Path, default=paper_runs_dir(), help="folder to write (default: shipped)")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        convert(parser.parse_args(arguments).out)
    except InputError as error:
        log.error("%s", error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
