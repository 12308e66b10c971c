"""Masks of halves of the pairs, re-derived one by one; halves are disjoint."""

from dataclasses import replace
from statistics import fmean

import pytest
from refusal_helpers import points_of, tables_of

from engine.data.corpora import Pair
from engine.edits.contrasts import refusal_mask
from engine.edits.control_edits import shuffled
from engine.records.errors import InputError
from engine.results.tables import checked
from engine.stats.removal_order import expected_random_jaccard
from engine.studies.refusal.refusal_inputs import RefusalInputs
from engine.studies.refusal.structure import SHUFFLES, MaskStability, halves


def overlap(first: set[int], second: set[int]) -> float:
    return len(first & second) / len(first | second)


def test_halves_are_disjoint_and_equally_large():
    pairs = [Pair("hate", "calibration", f"risk {i}", f"base {i}") for i in range(9)]
    first, second = halves(pairs, 1)
    assert len(first) == len(second) == 4
    assert not set(first) & set(second)
    assert set(first) | set(second) <= set(pairs)
    assert halves(pairs, 1) == (first, second) != halves(pairs, 2)
    with pytest.raises(InputError, match="at least four calibration pairs, got 3"):
        halves(pairs[:3], 0)


@pytest.mark.long
def test_masks_of_halves_one_by_one(attributed: RefusalInputs):
    run = replace(attributed, plan=replace(attributed.plan, splits=2, domains=("cups",)))
    places = [place for place, point in points_of(run).items() if point and place[0] != "random"]
    table = checked("mask_stability", tables_of(MaskStability(run), run)["mask_stability"], "test")
    assert places
    assert table.select("seed", "selector", "domain").rows() == [(seed, *place) for seed in (0, 1) for place in places]
    for row in table.iter_rows(named=True):
        where, domain, n = (row["lambda"], row["k"]), row["domain"], run.loaded.rows.n_rows
        [contrast] = [one for one in run.contrasts if (one.selector, one.domain) == (row["selector"], domain)]
        full = set(refusal_mask(contrast, *where).tolist())
        parts = halves(run.contrastable(run.calibration)[domain], row["seed"])
        contrasts = [run.contrasts_of({domain: part}) for part in parts]
        masks = [refusal_mask(one, *where) for some in contrasts for one in some if one.selector == row["selector"]]
        first, second = (set(mask.tolist()) for mask in masks)
        assert row["pairs"] == len(parts[0]) == len(parts[1])
        assert row["rows_removed"] == len(full)
        assert row["jaccard"] == overlap(first, second)
        assert row["jaccard_full"] == pytest.approx((overlap(first, full) + overlap(second, full)) / 2)
        assert row["expected_random"] == pytest.approx(expected_random_jaccard(n, len(first), len(second)))
        moved = [set(shuffled(masks[1], run.loaded.rows, seed).tolist()) for seed in range(SHUFFLES)]
        assert row["expected_layers"] == pytest.approx(fmean(overlap(first, one) for one in moved))
