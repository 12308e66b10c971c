"""The shipped results belong to the shipped model, can be computed again, and show what the model was built for."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from engine import Store, compute_scores, load_model, masked_nll, removed_rows, windows
from engine.edits.contrasts import load_contrasts
from engine.records.hashing import file_sha256
from engine.records.manifest import read_manifest
from precomputed import demo_dir
from precomputed.recipe import numbers, seeds

RESULTS = demo_dir() / "results"
ATTRIBUTION = ("lrp", "ig", "consensus2")
BASELINES = ("random", "magnitude", "wanda", "mean_activation")


@pytest.fixture(scope="module")
def demo() -> Any:
    return load_model("demo", dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return read_manifest(RESULTS)


@pytest.fixture(scope="module")
def sweep() -> pl.DataFrame:
    return pl.read_parquet(RESULTS / "sweep.parquet")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    [one] = [one for one in json.loads((demo_dir() / "seeds.json").read_text()) if one["seed"] == seeds.SHIPPED]
    return one


def mean_nll(sweep: pl.DataFrame, selector: str, order: str, rate: float) -> float:
    return float(sweep.filter(selector=selector, order=order, rate=rate)["nll"].to_numpy().mean())


def test_every_file_is_in_the_manifest_with_its_checksum(manifest):
    files = {path.name for path in RESULTS.iterdir()} - {"manifest.json"}
    assert files == set(manifest["files"])
    for name, entry in manifest["files"].items():
        assert file_sha256(RESULTS / name) == entry["sha256"], name


def test_the_results_are_those_of_the_shipped_weights(demo, manifest):
    for field in ("weights_hash", "config_hash", "tokenizer_hash", "dtype"):
        assert manifest["model"][field] == getattr(demo, field)


def test_the_sweep_is_complete(sweep):
    selectors = sweep["selector"].n_unique()
    assert set(ATTRIBUTION + BASELINES) <= set(sweep["selector"])
    assert sweep.height == (selectors + 2) * 2 * 24  # random has three seeds
    assert sweep["nll"].is_finite().all()
    assert sweep.filter(rate=0)["nll"].n_unique() == 1


@pytest.mark.long
def test_scores_can_be_computed_again(demo, manifest):
    """magnitude, wanda and lrp from the shipped text; the machine and its thread count change only the last bits."""
    shipped = load_file(RESULTS / "scores.safetensors")
    used = manifest["files"]["scores.safetensors"]["spec"]["calibration"]
    text = windows("demo", demo.tokenizer, role="calibration", samples=used["samples"], length=used["length"])
    assert text.corpus_hash == used["corpus_hash"]
    for name, values in compute_scores(demo, ["random", "magnitude", "wanda", "lrp"], text).items():
        np.testing.assert_allclose(values.numpy(), shipped[name], rtol=2e-3, atol=1e-7, err_msg=name)


@pytest.mark.long
def test_cells_can_be_computed_again(demo, manifest, sweep, tmp_path):
    used = manifest["files"]["sweep.parquet"]["spec"]["evaluation"]
    text = windows("demo", demo.tokenizer, role="evaluation", samples=used["samples"], length=used["length"])
    assert text.corpus_hash == used["corpus_hash"]
    scores = load_file(RESULTS / "scores.safetensors")
    with Store(tmp_path) as store:
        for selector, order, rate in (("lrp", "lerf", 0.0), ("lrp", "lerf", 0.3), ("consensus2", "morf", 0.1)):
            mask = removed_rows(scores[selector], order, rate)
            cell = sweep.filter(selector=selector, order=order, rate=rate)
            assert cell["rows_removed"].item() == len(mask)
            again = masked_nll(demo, mask, text, store=store)
            assert again.tokens == cell["tokens"].item()
            assert again.nats_per_token == pytest.approx(cell["nll"].item(), rel=1e-5)
            assert again.stderr == pytest.approx(cell["nll_stderr"].item(), rel=1e-3)


def test_the_sweep_is_that_of_the_seed_s_record(sweep, record):
    """So that what the record meets (LeRF and MoRF of the attribution selectors), the tables meet."""
    assert mean_nll(sweep, "lrp", "lerf", 0.0) == pytest.approx(record["dense_nll"], rel=1e-5)
    for order, rates in record["nll"].items():
        for rate, selectors in rates.items():
            for name, nats in selectors.items():
                assert mean_nll(sweep, name, order, float(rate)) == pytest.approx(nats, rel=1e-5), (name, order, rate)


def test_the_points_are_those_of_the_seed_s_record(record):
    """lrp's edits of the tables, and those of the record, which has 20 controls where the tables have 3."""
    points = pl.read_parquet(RESULTS / "operating_points.parquet").filter(selector="lrp")
    assert points["domain"].to_list() == [row["domain"] for row in record["refusal"]]
    for point, row in zip(points.to_dicts(), record["refusal"], strict=True):
        for name in ("lambda", "k", "unedited_malign", "edited_malign", "unedited_benign", "edited_benign"):
            assert point[name] == pytest.approx(row[name]), name
        assert point["control_malign_max"] <= row["control_malign_max"]


def test_contrasts_are_of_the_shipped_model(demo):
    contrasts, _ = load_contrasts(RESULTS / "contrast.safetensors")
    assert {(one.selector, one.domain) for one in contrasts} >= {
        (selector, domain) for selector in ATTRIBUTION for domain in ("hate", "crime", "adult", "medical", "legal")
    }
    for one in contrasts:
        assert one.c_comply.shape == (demo.rows.n_rows,)
        assert one.lm_rank.max() <= 1


@pytest.mark.long
def test_single_rows_can_be_measured_again(demo: Any, tmp_path: Any) -> None:
    """The rows of the smallest and of the largest effect, each removed alone from the weights."""
    rows = pl.read_parquet(RESULTS / "singles.parquet").filter(unit_kind="row").sort("effect")
    text = windows("demo", demo.tokenizer, role="evaluation", samples=16, length=256)
    with Store(tmp_path) as store:
        dense = masked_nll(demo, np.array([], dtype=np.int64), text, store=store).nats_per_token
        for row in (rows.head(1), rows.tail(1)):
            alone = masked_nll(demo, row["row_id"].to_numpy(), text, store=store).nats_per_token
            assert alone - dense == pytest.approx(row["effect"].item(), abs=2e-6)


def read(stem: str) -> pl.DataFrame:
    return pl.read_parquet(RESULTS / f"{stem}.parquet")


ATTRIBUTIONS = (*ATTRIBUTION, "grad_x_input", "ig_conductance")
HEURISTICS = ("magnitude", "wanda", "mean_activation")


def test_exact_controls_tell_attribution_from_heuristics() -> None:
    """Rewrites that keep every logit's bits move the heuristics' masks and no attribution score."""
    rewrites = read("invariance_rewrites")
    assert set(rewrites.filter("proven")["rewrite"]) == {"neurons", "values", "norms", "decoys"}
    verdicts = {row["selector"]: row for row in read("invariance_verdicts").to_dicts()}
    for name in HEURISTICS:
        assert (verdicts[name]["invariance"], verdicts[name]["decoys_protected"]) == ("moved", 1.0)
    for name in ATTRIBUTIONS:
        assert (verdicts[name]["invariance"], verdicts[name]["decoys_protected"]) == ("exact", 0.0)
        assert (read("invariance").filter(pl.col("selector") == name)["bit_equal"] == 1).all()


def test_stable_baselines_are_not_valid() -> None:
    """wanda and mean_activation give the same ranking again and do half of a random mask's harm or more."""
    verdicts = {row["selector"]: row for row in read("verdicts").to_dicts()}
    for name in ("wanda", "mean_activation"):
        assert verdicts[name]["stability"] == "stable"
        assert verdicts[name]["validity"] in ("partly", "not")
    for name in ATTRIBUTION:
        assert verdicts[name]["validity"] in ("faithful", "sufficient")


def test_the_readme_s_numbers_are_what_the_recipe_writes() -> None:
    text = (demo_dir() / "README.md").read_text(encoding="utf-8")
    assert numbers.text(demo_dir()) in text


def test_the_readme_s_numbers_are_those_of_the_tables() -> None:
    """Some of them, read from the tables in another way."""
    found = numbers.Results(RESULTS)
    claims = read("protocols_claims")
    assert f"Of {claims.height} pairs" in found.protocols()
    against = read("protocols_pairs").filter(
        pl.col("unit_kind") == "head",
        pl.col("selector_a").is_in(ATTRIBUTIONS) != pl.col("selector_b").is_in(ATTRIBUTIONS),
    )
    won = sum(row["ahead"] in ATTRIBUTIONS for row in against.to_dicts())
    lost = sum(row["ahead"] is not None and row["ahead"] not in ATTRIBUTIONS for row in against.to_dicts())
    assert f"on heads before in {won}, behind in {lost}, tied in {against.height - won - lost}" in found.protocols()
    for row in read("verdicts").filter(selector="lrp").to_dicts():
        assert f"| lrp | {row['validity']} | {row['damage']:.0%} |" in found.verdicts()
