"""The shipped results belong to the shipped model, can be computed again, and show what the model was built for."""

from __future__ import annotations

import math
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
    assert sweep.height == (selectors + 2) * 2 * 19  # random has three seeds
    assert sweep["nll"].is_finite().all()
    assert sweep.filter(rate=0)["nll"].n_unique() == 1


def test_scores_can_be_computed_again(demo, manifest):
    """magnitude, wanda and lrp from the shipped text; the machine and its thread count change only the last bits."""
    shipped = load_file(RESULTS / "scores.safetensors")
    used = manifest["files"]["scores.safetensors"]["spec"]["calibration"]
    text = windows("demo", demo.tokenizer, role="calibration", samples=used["samples"], length=used["length"])
    assert text.corpus_hash == used["corpus_hash"]
    for name, values in compute_scores(demo, ["random", "magnitude", "wanda", "lrp"], text).items():
        np.testing.assert_allclose(values.numpy(), shipped[name], rtol=2e-3, atol=1e-7, err_msg=name)


def test_cells_can_be_computed_again(demo, manifest, sweep, tmp_path):
    used = manifest["files"]["sweep.parquet"]["spec"]["evaluation"]
    text = windows("demo", demo.tokenizer, role="evaluation", samples=used["samples"], length=used["length"])
    assert text.corpus_hash == used["corpus_hash"]
    scores = load_file(RESULTS / "scores.safetensors")
    with Store(tmp_path) as store:
        for selector, order, rate in (
            ("lrp", "lerf", 0.0),
            ("lrp", "lerf", 0.3),
            ("consensus2", "morf", 0.1),
        ):
            mask = removed_rows(scores[selector], order, rate)
            cell = sweep.filter(selector=selector, order=order, rate=rate)
            assert cell["rows_removed"].item() == len(mask)
            again = masked_nll(demo, mask, text, store=store)
            assert again.tokens == cell["tokens"].item()
            assert again.nats_per_token == pytest.approx(cell["nll"].item(), rel=1e-5)
            assert again.stderr == pytest.approx(cell["nll_stderr"].item(), rel=1e-3)


def test_attribution_finds_dispensable_rows(sweep):
    """At 30% LeRF each attribution selector is at least 0.5 nats below the best baseline."""
    best_baseline = min(mean_nll(sweep, selector, "lerf", 0.3) for selector in BASELINES)
    for selector in ATTRIBUTION:
        assert mean_nll(sweep, selector, "lerf", 0.3) <= best_baseline - 0.5


def test_attribution_finds_important_rows(sweep):
    """At 10% MoRF lrp and consensus2 are at least 2 nats above the unmasked model."""
    dense = mean_nll(sweep, "lrp", "lerf", 0.0)
    for selector in ("lrp", "consensus2"):
        assert mean_nll(sweep, selector, "morf", 0.1) >= dense + 2


def test_a_contrastive_mask_installs_refusal_and_a_layer_matched_one_does_not():
    """Held-out prompts, lrp, hate and crime: +0.3 malign refusal, benign <= 0.10, perplexity within 1.5x."""
    points = pl.read_parquet(RESULTS / "operating_points.parquet")
    for domain in ("hate", "crime"):
        point = points.row(by_predicate=(pl.col("selector") == "lrp") & (pl.col("domain") == domain), named=True)
        assert point["edited_malign"] >= point["unedited_malign"] + 0.3
        assert point["edited_benign"] <= 0.10
        assert point["edited_nll"] <= point["unedited_nll"] + math.log(1.5)
        assert point["control_malign_max"] < point["unedited_malign"] + 0.3


def test_the_unedited_model_refuses_in_the_domains_order():
    points = pl.read_parquet(RESULTS / "operating_points.parquet").filter(selector="lrp")
    rates = dict(points.select("domain", "unedited_malign").iter_rows())
    ordered = [rates[domain] for domain in ("hate", "crime", "adult", "medical", "legal")]
    assert ordered == sorted(ordered, reverse=True)
    assert 0 < ordered[0] < 0.7
    assert points["unedited_benign"].max() <= 0.05


def test_contrasts_are_of_the_shipped_model(demo):
    contrasts, _ = load_contrasts(RESULTS / "contrast.safetensors")
    assert {(one.selector, one.domain) for one in contrasts} >= {
        (selector, domain) for selector in ATTRIBUTION for domain in ("hate", "crime", "adult", "medical", "legal")
    }
    for one in contrasts:
        assert one.c_comply.shape == (demo.rows.n_rows,)
        assert one.lm_rank.max() <= 1


def test_exact_controls_say_what_the_readme_says() -> None:
    rewrites = pl.read_parquet(RESULTS / "invariance_rewrites.parquet")
    assert set(rewrites.filter("proven")["rewrite"]) == {"neurons", "values", "norms", "decoys"}
    compared = pl.read_parquet(RESULTS / "invariance.parquet")
    verdicts = {row["selector"]: row for row in pl.read_parquet(RESULTS / "invariance_verdicts.parquet").to_dicts()}
    for name, nats in (("magnitude", 0.30), ("wanda", 0.55), ("mean_activation", 0.62)):
        one = compared.filter(pl.col("selector") == name, pl.col("rewrite") == "neurons")["moved"].item()
        assert one == pytest.approx(nats, abs=0.005)
        assert (verdicts[name]["invariance"], verdicts[name]["decoys_protected"]) == ("moved", 1.0)
    for name in ("lrp", "ig", "consensus2", "grad_x_input", "ig_conductance"):
        assert (verdicts[name]["invariance"], verdicts[name]["decoys_protected"]) == ("exact", 0.0)
        assert (compared.filter(pl.col("selector") == name)["bit_equal"] == 1).all()
    decoys = pl.read_parquet(RESULTS / "invariance_decoys.parquet")
    assert set(decoys["decoys"]) == {32}


def test_single_rows_say_what_the_readme_says() -> None:
    [units] = pl.read_parquet(RESULTS / "singles_units.parquet").filter(unit_kind="row").to_dicts()
    assert (units["units_sampled"], units["effect_windows"]) == (512, 16)
    shares = [units[name] for name in ("helps", "helps_low", "helps_high", "helps_clear", "split_half_absolute")]
    assert shares == pytest.approx([0.34, 0.30, 0.39, 0.014, 0.53], abs=0.005)
    assert units["split_half_signed"] < units["split_half_absolute"]
    table = pl.read_parquet(RESULTS / "singles_selectors.parquet").filter(unit_kind="row")
    size = dict(table.group_by("selector").agg(pl.col("absolute_spearman").mean()).rows())
    assert [size[name] for name in ("grad_x_input", "consensus2", "ig", "lrp")] == pytest.approx(
        [0.71, 0.69, 0.67, 0.66], abs=0.005
    )
    assert all(0.405 < size[name] < 0.435 for name in ("magnitude", "wanda", "mean_activation"))


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


def test_verdicts_say_what_the_readme_says() -> None:
    verdicts = {row["selector"]: row for row in read("verdicts").to_dicts()}
    for name in ATTRIBUTIONS:
        assert (verdicts[name]["validity"], verdicts[name]["stability"]) == ("sufficient", "stable")
        assert 0.04 < verdicts[name]["damage"] < 0.061
        assert 0.94 <= verdicts[name]["draw_jaccard"] < 0.965
        assert (verdicts[name]["calibration_draws"], verdicts[name]["draw_size"]) == (5, 67)
    for name in HEURISTICS:
        assert verdicts[name]["validity"] == "partly"
        assert 0.515 < verdicts[name]["damage"] < 0.565
    assert {verdicts[name]["specific"] for name in (*ATTRIBUTIONS, *HEURISTICS)} == {"LeRF only"}
    assert [round(verdicts[name]["draw_jaccard"], 2) for name in ("mean_activation", "wanda")] == [0.97, 0.99]
    shares = {name: round(verdicts[name]["depth_share"], 2) for name in (*ATTRIBUTIONS, *HEURISTICS)}
    assert (shares["lrp"], shares["ig"]) == (0.44, 0.67)
    assert {shares[name] for name in ("consensus2", "grad_x_input", "ig_conductance")} == {0.61, 0.62}
    assert (min(shares[name] for name in HEURISTICS), max(shares[name] for name in HEURISTICS)) == (0.6, 0.72)


def test_moved_limits_say_what_the_readme_says() -> None:
    moved = read("verdict_moves").filter(
        pl.col("selector").is_in(ATTRIBUTIONS), pl.col("changed").str.contains("validity")
    )
    assert moved.select("limit", "moved_value").unique().rows() == [("specific_orders", "lerf")]
    assert moved["validity"].to_list() == ["faithful"] * 5
    stability = read("verdict_moves").filter(pl.col("changed").str.contains("stability"))
    assert stability.is_empty()
    others = read("verdict_moves").filter(pl.col("selector").is_in(ATTRIBUTIONS), pl.col("limit") != "specific_orders")
    assert others["changed"].null_count() == others.height


def test_specific_masks_say_what_the_readme_says() -> None:
    table = read("specific")
    assert set(table.filter(order="lerf")["answer"]) == {"better"}
    assert "better" not in set(table.filter(order="morf")["answer"])
    morf = {row["selector"]: row for row in table.filter(order="morf").to_dicts()}
    assert [round(morf[name]["difference"], 2) for name in ("lrp", "consensus2")] == [1.84, 0.85]
    assert all(morf[name]["low"] > 0 and morf[name]["p_holm"] > 0.05 for name in ("lrp", "consensus2"))
    assert all(morf[name]["high"] < 0 for name in ("wanda", "mean_activation"))
    dense = read("verdicts")["dense_nll"][0]
    assert read("layer_matched").filter(order="morf")["nll"].min() > dense + 2.5


def test_groups_and_draws_of_two_texts_say_what_the_readme_says() -> None:
    [above] = read("dangerous").filter(pl.col("dangerous")).to_dicts()
    assert (above["selector"], above["block"], above["sublayer"], above["confirmed"]) == ("random", 0, "mlp", False)
    assert above["p"] == pytest.approx(0.61, abs=0.005)
    draws = read("domain_draws").filter(pl.col("selector").is_in(ATTRIBUTIONS), rate=0.3)
    assert set(draws["size"]) == {41}
    within = [*draws["jaccard_a"], *draws["jaccard_b"]]
    assert (round(min(within), 2), round(max(within), 2)) == (0.93, 0.96)
    assert (round(draws["jaccard_between"].min(), 2), round(draws["jaccard_between"].max(), 2)) == (0.68, 0.73)
    assert draws["p_family"].to_list() == pytest.approx([1 / 35] * draws.height)


def test_protocols_say_what_the_readme_says() -> None:
    claims = read("protocols_claims")
    assert (claims.height, set(claims["protocols"])) == (36, {108})
    assert "all" not in set(claims["claim_verdict"])
    pairs = read("protocols_pairs").filter(
        pl.col("selector_a").is_in(ATTRIBUTIONS) != pl.col("selector_b").is_in(ATTRIBUTIONS)
    )
    counts = {}
    for kind in ("neuron", "row", "head"):
        ahead = pairs.filter(unit_kind=kind)["ahead"]
        before = ahead.is_in(ATTRIBUTIONS).sum()
        counts[kind] = (before, ahead.drop_nulls().len() - before, ahead.null_count())
    assert counts == {"neuron": (542, 0, 178), "row": (603, 13, 104), "head": (183, 98, 439)}
    among = claims.filter(pl.col("selector_a").is_in(ATTRIBUTIONS), pl.col("selector_b").is_in(ATTRIBUTIONS))
    assert among["claim_verdict"].to_list() == ["overturned"] * 10
    assert read("protocols_units").filter(unit_kind="head")["unit_count"].item() == 24
