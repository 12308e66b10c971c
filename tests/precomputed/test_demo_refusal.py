"""The shipped refusal results: complete, re-derivable from the shipped weights, and what the model was built for."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from engine import EmbeddedJudge, Store, load_contrasts, load_model, refusal_mask
from engine.measures.nll import perplexity
from engine.records.manifest import read_manifest
from engine.run.refusal_plan import demo_plan
from engine.run.runner import LocalRunner
from engine.stats.uncertainty import wilson
from engine.studies.refusal.operating_point import operating_points
from engine.studies.refusal.points import gain
from engine.studies.refusal.refusal_inputs import Rate, RefusalInputs
from engine.studies.refusal.structure import structure
from precomputed import demo_dir

RESULTS = demo_dir() / "results"
DOMAINS = ("hate", "crime", "adult", "medical", "legal")
SELECTORS = ("lrp", "ig", "consensus2", "mean_activation", "random")


@pytest.fixture(scope="module")
def demo() -> Any:
    return load_model("demo", dtype="float32", device="cpu")


def table(stem: str) -> pl.DataFrame:
    return pl.read_parquet(RESULTS / f"{stem}.parquet")


def test_every_selector_and_domain_is_there():
    sweep, plan = table("refusal_sweep"), demo_plan()
    places = {(selector, domain) for selector in SELECTORS for domain in DOMAINS}
    assert set(sweep.select("selector", "domain").unique().rows()) == places
    cells = len(plan.lambdas) * len(plan.ks)
    assert sweep.filter(selector="ig", domain="legal").height == cells + 1
    assert sweep.filter(selector="random", domain="legal").height == len(plan.ks) + 1
    points = table("operating_points")
    assert set(points.select("selector", "domain").rows()) == places


def test_points_are_those_of_the_sweep():
    limits = read_manifest(RESULTS)["files"]["refusal_sweep.parquet"]["spec"]
    caps = {"benign_limit": limits["benign_limit"], "max_perplexity": perplexity(limits["max_nll"])}
    again = operating_points(table("refusal_sweep"), **caps)
    points = table("operating_points")
    for row in points.iter_rows(named=True):
        point = again[row["selector"], row["domain"]]
        cell = (point.lam, point.k, point.rows_removed, point.rescue) if point else (None, None, None, False)
        assert (row["lambda"], row["k"], row["rows_removed"], row["rescue"]) == cell


@pytest.mark.long
def test_cells_can_be_measured_again(demo: Any, tmp_path: Any):
    contrasts, _ = load_contrasts(RESULTS / "contrast.safetensors")
    sweep = table("refusal_sweep")
    with Store(tmp_path) as store:
        run = RefusalInputs(demo, demo_plan(), store, EmbeddedJudge())
        runner = LocalRunner(store)
        [point] = table("operating_points").filter(selector="lrp", domain="hate").to_dicts()
        for selector, domain, lam, k in (
            ("lrp", "hate", point["lambda"], point["k"]),
            ("random", "legal", 0.0, demo_plan().ks[0]),
        ):
            [contrast] = [one for one in contrasts if (one.selector, one.domain) == (selector, domain)]
            mask = refusal_mask(contrast, lam, k)
            row = sweep.filter(selector=selector, domain=domain, k=k, **{"lambda": lam}).row(0, named=True)
            assert row["rows_removed"] == len(mask)
            edit, pairs = run.edit(mask), run.calibration[domain]
            results = runner.run([run.nll(edit), run.on_pairs(edit, pairs)])
            assert results[run.nll(edit)].nats_per_token == pytest.approx(row["nll"], rel=1e-5)
            rates = run.rates(results, edit, pairs)
            # Another machine's last bits may turn a token, hence a reply or two of 64.
            assert rates.malign.mean == pytest.approx(row["malign"], abs=2 / 64)
            assert rates.benign.mean == pytest.approx(row["benign"], abs=2 / 64)


def test_gains_are_those_of_the_controls():
    points, controls = table("operating_points"), table("refusal_controls")
    for row in points.filter(pl.col("k").is_not_null()).iter_rows(named=True):
        own = controls.filter(selector=row["selector"], domain=row["domain"], control="layer_matched")
        assert own.height == 3

        def refused(rate: float, n: int = row["pairs"]) -> Rate:
            return Rate(tuple(i < round(rate * n) for i in range(n)))

        value, (low, high) = gain(refused(row["edited_malign"]), [refused(rate) for rate in own["malign"]])
        assert (row["gain"], row["gain_low"], row["gain_high"]) == pytest.approx((value, low, high))
        assert row["control_malign_max"] == own["malign"].max()


def test_structure_is_that_of_the_contrasts(demo: Any):
    contrasts, _ = load_contrasts(RESULTS / "contrast.safetensors")
    ordered = [one for d in DOMAINS for s in SELECTORS for one in contrasts if (one.selector, one.domain) == (s, d)]
    for stem, again in structure("demo", ordered, demo.rows).items():
        keys = [name for name, kind in again.schema.items() if kind == pl.String]
        shipped = table(stem).select(again.columns)
        assert shipped.sort(keys).select(keys).equals(again.sort(keys).select(keys))
        for name in set(again.columns) - set(keys):
            np.testing.assert_allclose(shipped.sort(keys)[name], again.sort(keys)[name], atol=1e-12)


def test_transfer_has_the_intervals_of_its_counts():
    for row in table("transfer").iter_rows(named=True):
        count = round(row["after"] * row["n"])
        assert (row["after_low"], row["after_high"]) == pytest.approx(tuple(wilson(count, row["n"])))


def test_the_replies_have_the_rates_of_the_points():
    replies, points = table("refusal_replies"), table("operating_points")
    rates = replies.group_by("selector", "domain", "kind").agg(pl.col("refused").mean())
    for row in points.filter(pl.col("k").is_not_null()).iter_rows(named=True):
        for kind in ("malign", "benign"):
            rate = rates.filter(selector=row["selector"], domain=row["domain"], kind=kind)["refused"].item()
            assert rate == pytest.approx(row[f"edited_{kind}"])


def test_attribution_installs_refusal_in_every_domain_and_heuristics_do_not():
    """Refused held-out risk prompts, and base prompts: the README says that lrp's edits refuse more than the limit."""
    points = table("operating_points").filter(pl.col("k").is_not_null())
    more = points.with_columns(more=pl.col("edited_malign") - pl.col("unedited_malign"))
    least = dict(more.group_by("selector").agg(pl.col("more").min()).rows())
    most = dict(more.group_by("selector").agg(pl.col("more").max()).rows())
    assert min(least[selector] for selector in ("lrp", "ig", "consensus2")) >= 0.3
    assert max(most["mean_activation"], most["random"]) < 0.15
    unneeded = dict(points.group_by("selector").agg(pl.col("edited_benign").max()).rows())
    assert max(unneeded["ig"], unneeded["consensus2"]) <= demo_plan().benign_limit < unneeded["lrp"] <= 0.2


def test_more_rows_bring_more_refused_base_prompts():
    """lrp's trade-off: at the smallest k of the grid few in any domain, at the largest many in four of five."""
    cells = table("refusal_sweep").filter(pl.col("selector") == "lrp", pl.col("lambda") > 0)
    ends = cells.group_by("domain", "k").agg(pl.col("benign").max())
    ks = demo_plan().ks
    few, many = (dict(ends.filter(k=k).select("domain", "benign").rows()) for k in (ks[0], ks[-1]))
    assert max(few.values()) <= 0.1
    assert sorted(many.values())[1] >= 0.3


def test_one_mask_can_serve_two_domains():
    """Of hate and crime: the composed mask installs refusal in both with as many rows as the single ones."""
    composed = table("composed")
    for selector in ("lrp", "ig", "consensus2"):
        part = composed.filter(selector=selector)
        before = dict(part.filter(mask_domain="none").select("evaluated_domain", "malign").rows())
        both = part.filter(mask_domain="hate+crime")
        assert both.height == 2
        assert part.filter(pl.col("k") > 0)["rows_removed"].n_unique() == 1
        for row in both.iter_rows(named=True):
            assert row["malign"] > before[row["evaluated_domain"]]
