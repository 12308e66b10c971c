"""Control masks against sets written by hand."""

from collections import Counter

import numpy as np
import pytest
import scipy.stats
from tiny_audits import lowest

from engine.edits.control_edits import NEEDED, REFERENCE, SMALLER, control_masks, intersection, rank_randomised, veto
from engine.models.loading import LoadedModel
from engine.selectors.consensus2 import borda
from engine.stats.removal_order import removal_order

SEEDS = (7, 8)
NULL_SEEDS = (0, 1, 2)
REFERENCES = [("consensus2", None), ("lrp", None), ("ig", None), ("random", 7), ("random", 8)]


def some_scores(n: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    lrp = generator.random(n).astype(np.float32)
    ig = (lrp + generator.normal(0, 0.3, n)).round(2).astype(np.float32)  # with ties
    consensus = borda(lrp, ig).astype(np.float32)
    random = generator.random((len(SEEDS), n)).astype(np.float32)
    return {"lrp": lrp, "ig": ig, "consensus2": consensus, "random": random}


def picks(scores: np.ndarray, order: str, count: int) -> set[int]:
    return set(lowest((scores if order == "lerf" else -scores.astype(np.float64)).tolist(), count))


def test_intersection_and_veto_of_small_sets() -> None:
    first, second = np.array([1, 3, 5, 9]), np.array([0, 3, 4, 9])
    assert intersection(first, second).tolist() == [3, 9]
    assert veto(first, second).tolist() == [1, 5]
    assert veto(second, first).tolist() == [0, 4]
    assert veto(first, first).tolist() == []


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_every_control_is_the_set_it_is_said_to_be(tiny_llama: LoadedModel, order: str) -> None:
    rows = tiny_llama.rows
    scores = some_scores(rows.n_rows)
    count = round(0.3 * rows.n_rows)
    made = list(control_masks(scores, rows, order, 0.3, seeds=SEEDS, null_seeds=NULL_SEEDS))
    assert all((mask.order, mask.rate) == (order, 0.3) for mask in made)
    own = {(mask.control, mask.seed): mask.rows.tolist() for mask in made if mask.size_matched_to is None}
    full_size = {"lrp", "ig", "lrp_layer_matched", "ig_layer_matched", "rank_randomised", "random"}
    assert {control for control, _ in own} == {REFERENCE, *full_size, *SMALLER}

    lrp, ig = picks(scores["lrp"], order, count), picks(scores["ig"], order, count)
    assert own["lrp", None] == sorted(lrp)
    assert own["ig", None] == sorted(ig)
    assert own["consensus2", None] == sorted(picks(scores["consensus2"], order, count))
    assert own["intersection", None] == sorted(lrp & ig)
    assert own["veto_lrp", None] == sorted(lrp - ig)
    assert own["veto_ig", None] == sorted(ig - lrp)
    for seed, values in zip(SEEDS, scores["random"], strict=True):
        assert own["random", seed] == sorted(picks(values, order, count))
    for real, name in ((lrp, "lrp_layer_matched"), (ig, "ig_layer_matched")):
        wanted = Counter(rows.layer_of(sorted(real)).tolist())
        for seed in SEEDS:
            drawn = own[name, seed]
            assert Counter(rows.layer_of(drawn).tolist()) == wanted
            assert len(set(drawn)) == count
            assert set(drawn) != real
        assert own[name, 7] != own[name, 8]
    nulls = [own["rank_randomised", seed] for seed in NULL_SEEDS]
    assert all(len(null) == count for null in nulls)
    assert len({tuple(null) for null in nulls}) == len(NULL_SEEDS)


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_references_have_exactly_the_rows_of_the_smaller_control(tiny_llama: LoadedModel, order: str) -> None:
    scores = some_scores(tiny_llama.rows.n_rows)
    made = list(control_masks(scores, tiny_llama.rows, order, 0.3, seeds=SEEDS, null_seeds=NULL_SEEDS))
    for control in SMALLER:
        (own,) = (mask for mask in made if mask.control == control)
        references = [mask for mask in made if mask.size_matched_to == control]
        assert [(mask.control, mask.seed) for mask in references] == REFERENCES
        assert 0 < own.rows.size < round(0.3 * tiny_llama.rows.n_rows)
        for reference in references:
            values = scores[reference.control]
            if reference.seed is not None:
                values = values[SEEDS.index(reference.seed)]
            assert reference.rows.tolist() == sorted(picks(values, order, own.rows.size))


def test_the_null_is_lrp_averaged_with_a_random_permutation() -> None:
    n = 4000
    scores = some_scores(n)
    null = rank_randomised(scores["lrp"], scores["ig"], seed=3)
    # (rank of lrp + a permutation of 0..N-1) / 2N: what is left after the ranks of lrp is each number once
    left = null * 2 * n - scipy.stats.rankdata(scores["lrp"], method="ordinal") + 1
    assert sorted(left.round().astype(int).tolist()) == list(range(n))
    # correlated with lrp as the mean of two independent rankings is: 1/sqrt(2); not with ig beyond that
    rho = scipy.stats.spearmanr(null, scores["lrp"]).statistic
    assert rho == pytest.approx(2**-0.5, abs=0.03)
    assert abs(scipy.stats.spearmanr(left, scores["ig"]).statistic) < 5 / n**0.5
    assert np.array_equal(null, rank_randomised(scores["lrp"], scores["ig"], seed=3))


def test_masks_of_equal_rankings(tiny_llama: LoadedModel) -> None:
    scores = some_scores(tiny_llama.rows.n_rows)
    scores["ig"] = scores["consensus2"] = scores["lrp"]
    made = list(control_masks(scores, tiny_llama.rows, "lerf", 0.1, seeds=SEEDS, null_seeds=()))
    sizes = {mask.control: mask.rows.size for mask in made if mask.size_matched_to is None}
    assert sizes["intersection"] == sizes["lrp"]
    assert sizes["veto_lrp"] == sizes["veto_ig"] == 0
    assert all(mask.rows.size == 0 for mask in made if mask.size_matched_to == "veto_ig")
    assert set(NEEDED) <= set(scores)
    assert removal_order(scores["lrp"], "lerf")[0] in made[0].rows
