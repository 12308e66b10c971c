"""Masks of halves of the pairs, re-derived one by one; halves are disjoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusal_helpers import small_run, tables_of

from engine.data.corpora import Pair
from engine.edits.contrasts import refusal_mask
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.results.tables import checked
from engine.studies.refusal.mask_stability import MaskStability, halves


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
def test_masks_of_halves_one_by_one(demo: LoadedModel, tmp_path: Path):
    with Store(tmp_path) as store:
        run = small_run(demo, store, selectors=("lrp",), domains=("hate",), splits=2, calibration_pairs=6)
        table = checked("mask_stability", tables_of(MaskStability(run), run)["mask_stability"], "test")
        assert table["seed"].to_list() == [0, 1]
        for row in table.iter_rows(named=True):
            place = (row["lambda"], row["k"])
            full = set(refusal_mask(run.contrasts[0], *place).tolist())
            parts = halves(run.calibration["hate"], row["seed"])
            first, second = (set(refusal_mask(run.contrasts_of({"hate": part})[0], *place).tolist()) for part in parts)
            assert row["pairs"] == 3
            assert row["rows_removed"] == len(full)
            assert row["jaccard"] == overlap(first, second)
            assert row["jaccard_full"] == pytest.approx((overlap(first, full) + overlap(second, full)) / 2)
            assert 0 <= row["expected_random"] < row["expected_layers"] < row["jaccard"]
