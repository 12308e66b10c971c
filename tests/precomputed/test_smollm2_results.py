"""The shipped audit of SmolLM2: its tables hold together, its README says what they hold, its weights are known."""

import re

import polars as pl
import pytest

from engine.models.loading import load_model
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names
from engine.run.scoring import read_scores
from engine.stats.removal_order import removal_order
from engine.studies.verdict.removal_budgets import removal_budgets, share_text
from precomputed import smollm2_dir

RESULTS = smollm2_dir() / "results"


def test_readme_says_what_the_tables_hold() -> None:
    text = (smollm2_dir() / "README.md").read_text("utf-8")
    lines = {name: line for line, name in re.findall(r"^(\| (\w+)[ ,].*)$", text, re.MULTILINE) if name != "selector"}
    lerf = removal_budgets(read_table(RESULTS, "budget"), "lerf")
    sweep = read_table(RESULTS, "sweep").filter(pl.col("order") == "lerf", pl.col("rate") >= 0.01)
    means = sweep.group_by("selector", "rate").agg(pl.col("nll").mean()).sort("rate")
    assert set(lines) == set(lerf)
    for name, line in lines.items():
        nlls = means.filter(selector=name)["nll"].to_list()
        assert line.endswith(f"| {', '.join(f'{nll:.1f}' if nll >= 9.995 else f'{nll:.2f}' for nll in nlls)} |"), name
        share = re.search(r"[\d.]+(?=%)", line)
        assert share is not None
        assert name == "random" or float(share[0]) == float(share_text(lerf[name].share).rstrip("%"))


def test_budgets_and_curves_are_of_the_shipped_scores() -> None:
    for stem in table_names(RESULTS):
        assert read_table(RESULTS, stem).height
    budget = read_table(RESULTS, "budget")
    limit = pl.col("dense_nll") + pl.lit(2.0).log()
    assert budget.filter(pl.col("nll") > limit).is_empty()
    assert budget.filter(pl.col("nll_beyond") <= limit).is_empty()
    removed = read_table(RESULTS, "sweep").filter(pl.col("rate") > 0)["rows_removed"]
    scores = read_scores(RESULTS)
    assert set(scores) == set(budget["selector"])
    assert {values.shape[-1] for values in scores.values()} == {155_520}
    assert removed.max() == round(0.3 * 155_520)
    assert removal_order(scores["fisher"], "morf").size == 155_520


def test_readme_says_what_is_specific() -> None:
    text = " ".join((smollm2_dir() / "README.md").read_text("utf-8").split())
    table = read_table(RESULTS, "specific")
    assert set(table["matched_seeds"]) == {5}
    lerf = {row["selector"]: row for row in table.filter(order="lerf").iter_rows(named=True)}
    assert [name for name, row in lerf.items() if row["answer"] == "better"] == ["lrp"]
    assert f"lrp does {-lerf['lrp']['difference']:.2f} nats less harm" in text
    assert f"(p {lerf['lrp']['p_holm']:.3f} after".replace("0.", ".") in text
    assert f"fisher does {-lerf['fisher']['difference']:.2f} less" in text
    assert f"({lerf['fisher']['detectable']:.2f} would have been)" in text
    morf = table.filter(order="morf")
    assert set(morf["answer"]) == {"better"}
    assert f"by {morf['difference'].min():.1f} to {morf['difference'].max():.1f} nats" in text


@pytest.mark.long
def test_the_weights_are_those_of_the_package() -> None:
    loaded = load_model("smollm2", device="cpu")
    assert read_manifest(RESULTS)["model"]["weights_hash"] == loaded.weights_hash
