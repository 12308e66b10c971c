"""Draws: the real grid moved by a permutation within layers, searched by the same code; rank, p and Holm."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from refusal_helpers import points_of, rates, run_experiment, run_stage, small_run
from scipy.stats import t

from engine.edits.contrasts import Contrast, refusal_masks
from engine.edits.control_edits import shuffled
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.folders import read_table
from engine.results.store import Store
from engine.results.tables import checked
from engine.run.runner import LocalRunner
from engine.stats.layer_matched import p_value, prediction_interval, rank_among
from engine.stats.uncertainty import holm
from engine.studies.base import conduct
from engine.studies.refusal.draws import Drawn
from engine.studies.refusal.mask_outputs import kept_masks
from engine.studies.refusal.refusal_inputs import RefusalInputs
from engine.studies.refusal.structure import MaskStability


def counts(mask: np.ndarray, demo: LoadedModel) -> list[int]:
    edges = [layer.start for layer in demo.rows.layers] + [demo.rows.n_rows]
    return [int(((mask >= low) & (mask < high)).sum()) for low, high in pairwise(edges)]


def test_a_shuffled_grid_keeps_counts_and_overlaps_and_is_the_search_of_a_permuted_contrast(demo: LoadedModel):
    rng, n = np.random.default_rng(3), demo.rows.n_rows
    real = Contrast("lrp", "hate", rng.uniform(-1, 1, n), rng.uniform(0, 1, n))  # no ties
    masks = {(lam, k): refusal_masks(real, lam, (k,))[0] for lam in (0.2, 0.8) for k in (0.01, 0.3)}
    moved = {place: shuffled(mask, demo.rows, 5) for place, mask in masks.items()}
    for place, mask in masks.items():
        assert counts(moved[place], demo) == counts(mask, demo)
        for other, another in masks.items():
            both = np.intersect1d(mask, another).size
            assert np.intersect1d(moved[place], moved[other]).size == both

    # By hand: row i of a layer goes where the seed's permutation says, with its contrast and its protection.
    generator = np.random.default_rng(5)
    c_comply, lm_rank = np.empty(n), np.empty(n)
    for layer in demo.rows.layers:
        for row, place in enumerate(generator.permutation(layer.rows)):
            c_comply[layer.start + place] = real.c_comply[layer.start + row]
            lm_rank[layer.start + place] = real.lm_rank[layer.start + row]
    permuted = Contrast("lrp", "hate", c_comply, lm_rank)
    for (lam, k), mask in moved.items():
        assert np.array_equal(refusal_masks(permuted, lam, (k,))[0], mask)


def test_draws_are_uniform_within_a_layer(demo: LoadedModel):
    layer = demo.rows.layers[2]
    mask = np.arange(layer.start, layer.start + 3)
    hits = np.zeros(layer.rows)
    for seed in range(600):
        hits[shuffled(mask, demo.rows, seed) - layer.start] += 1
    expected = 600 * 3 / layer.rows
    assert hits.sum() == 1800
    assert np.abs(hits - expected).max() < 5 * expected**0.5 + 3  # five Poisson deviations over all rows of the layer


@pytest.mark.long
def test_the_edit_stands_among_its_draws(attributed: RefusalInputs):
    run = replace(attributed, plan=replace(attributed.plan, draws=3))
    tables = conduct(Drawn(run), run, LocalRunner(run.store))
    points = points_of(run)
    assert any(points.values())
    lines = checked("specificity", tables["specificity"], "test")
    draws = checked("refusal_draws", tables["refusal_draws"], "test")
    assert draws.height == 3 * lines.height == 3 * 4
    assert lines["tests"].to_list() == [4] * 4
    assert lines["p_holm"].to_list() == pytest.approx(holm(lines["p"].to_list()))
    for line in lines.iter_rows(named=True):
        point = points[line["selector"], line["domain"]]
        own = draws.filter(selector=line["selector"], domain=line["domain"])
        assert (line["k"], line["lambda"]) == ((point.k, point.lam) if point else (None, None))
        assert line["rank"] == 1 + (own["malign"] >= line["edited_malign"]).sum()
        assert line["p"] == line["rank"] / 4
        assert line["draws_without_point"] == own["k"].null_count()
        half = t.ppf(0.975, 2) * np.std(own["malign"].to_numpy(), ddof=1) * (1 + 1 / 3) ** 0.5
        assert line["draws_high"] == pytest.approx(min(1, own["malign"].mean() + half))
        assert line["excess_low"] == pytest.approx(line["edited_malign"] - line["draws_high"])
        without = own.filter(pl.col("k").is_null())["malign"].to_list()
        assert without == [line["unedited_malign"]] * len(without)


@pytest.mark.long
def test_a_draw_is_measured_under_its_own_mask(demo: LoadedModel, tmp_path: Path):
    with Store(tmp_path) as store:
        run = small_run(demo, store, draws=2, selectors=("lrp",), domains=("hate",))
        lines = conduct(Drawn(run), run, LocalRunner(store))["refusal_draws"]
        chosen = lines.filter(pl.col("k").is_not_null())
        assert chosen.height
        for line in chosen.iter_rows(named=True):
            mask = shuffled(refusal_masks(run.contrasts[0], line["lambda"], (line["k"],))[0], demo.rows, line["seed"])
            assert mask.size == line["rows_removed"]
            heldout, calibration = (rates(run, mask, pairs["hate"]) for pairs in (run.heldout, run.calibration))
            assert (line["malign"], line["benign"]) == (heldout.malign.mean, heldout.benign.mean)
            assert line["calibration_malign"] == calibration.malign.mean


@pytest.mark.long
def test_an_experiment_takes_further_stages_where_it_is_asked_to(demo: LoadedModel, tmp_path: Path):
    few = {"heldout_pairs": 2, "ks": (0.01,), "lambdas": (0.2,), "selectors": ("lrp",), "domains": ("crime",)}
    with Store(tmp_path / "store") as store:
        run = small_run(demo, store, draws=2, splits=1, steering_coefficients=(0.1,), steering_depths=(0.5,), **few)
        runner = LocalRunner(store)
        with pytest.raises(InputError, match="unknown stage 'drawn'; did you mean 'draws'"):
            run_experiment(run, tmp_path / "out", runner, "drawn")
        assert not (tmp_path / "out").exists()
        seconds = run_experiment(run, tmp_path / "out", runner, "draws", "stability", "baselines")["done"]
        masks = kept_masks(tmp_path / "out", "operating_points")
        assert masks
        other = replace(run, plan=replace(run.plan, domains=("hate",)))
        run_stage(MaskStability(other), other, runner, tmp_path / "out")  # chooses points, and is not their stage
        assert kept_masks(tmp_path / "out", "operating_points") == masks
    assert list(seconds)[-3:] == ["draws", "stability", "baselines"]
    lines = read_table(tmp_path / "out", "specificity")
    assert lines.select("selector", "domain", "draws", "tests").rows() == [("lrp", "crime", 2, 1)]
    files = read_manifest(tmp_path / "out")["files"]
    assert files["specificity.parquet"]["spec"]["draw_seeds"] == [0, 1]
    assert {"mask_stability.parquet", "baselines.parquet", "transfer.parquet"} <= set(files)


def test_rank_and_p_count_ties_against_the_edit():
    assert rank_among(0.5, [0.1, 0.5, 0.7]) == 3
    assert p_value(0.9, [0.1] * 19) == 1 / 20
    assert p_value(0.1, [0.1] * 19) == 1
    with pytest.raises(InputError, match="at least one draw"):
        rank_among(0.5, [])


def test_holm_against_the_definition():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 9):
        p = rng.uniform(0, 0.3, size).round(2).tolist()  # with ties
        ascending = sorted(p)
        for one, adjusted in zip(p, holm(p), strict=True):
            place = ascending.index(one) if p.count(one) == 1 else size - 1 - ascending[::-1].index(one)
            assert adjusted == max(min(1, (size - j) * ascending[j]) for j in range(place + 1))
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        holm([1.2])


def test_the_prediction_interval_holds_for_normal_values_and_stays_within_shares():
    rng = np.random.default_rng(1)
    values = rng.normal(0.5, 0.05, (4000, 9)).clip(0, 1)
    inside = [low <= row[8] <= high for row in values for low, high in [prediction_interval(row[:8].tolist())]]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.0138)  # four deviations of 4,000 trials
    assert prediction_interval([0.0, 1.0]) == (0, 1)
    with pytest.raises(InputError, match="two draws"):
        prediction_interval([0.5])
