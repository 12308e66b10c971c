"""Depth profiles against plain loops over the row table."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny_audits import depth, lowest, tiny_audit

from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.studies.audit.agreement import depth_profile, layer_sums

LEVELS = (("block",), ("block", "sublayer"), ("block", "sublayer", "projection"))


def test_means_and_masks_of_every_part(tiny_family: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_family,
            tiny_text,
            store,
            scoring={"selectors": ("random", "mean_activation"), "seeds": (3, 4, 5)},
            agreement_rates=(0.1, 0.5),
        )
        tables = depth(audit)
        scores = {name: np.atleast_2d(values).tolist() for name, values in audit.scores.items()}
    profile, masks = tables["depth"], tables["mask_depth"]
    assert dict(profile.schema) == spec("depth").schema()
    assert dict(masks.schema) == spec("mask_depth").schema()
    frame = list(tiny_family.rows.frame().iter_rows(named=True))
    for selector, seeds in scores.items():
        for level in LEVELS:
            rows: dict[tuple[object, ...], list[float]] = {}
            for line in frame:
                place = tuple(line[name] for name in level) + (None,) * (3 - len(level))
                rows.setdefault(place, []).extend(values[line["row_id"]] for values in seeds)
            means = {place: sum(values) / len(values) for place, values in rows.items()}
            depth_of_level = sum(name is not None for name in next(iter(means)))
            found = [
                line
                for line in profile.filter(selector=selector).iter_rows(named=True)
                if sum(line[name] is not None for name in LEVELS[-1]) == depth_of_level
            ]
            assert [tuple(line[name] for name in LEVELS[-1]) for line in found] == list(means)
            for line, mean in zip(found, means.values(), strict=True):
                assert line["mean_score"] == pytest.approx(mean, rel=1e-12)
                assert line["relative_score"] == pytest.approx(mean / max(means.values()), rel=1e-12)
        for rate in (0.1, 0.5):
            counts: dict[tuple[object, ...], float] = {}
            for values in seeds:
                for row in lowest(values, round(rate * len(values))):
                    place = tuple(frame[row][name] for name in LEVELS[-1])
                    counts[place] = counts.get(place, 0) + 1 / len(seeds)
            lines = masks.filter(selector=selector, rate=rate)
            assert lines["removed"].sum() == pytest.approx(round(rate * len(frame)))
            assert lines["rows"].sum() == len(frame)
            assert lines.height == len(tiny_family.rows.layers)
            for line in lines.iter_rows(named=True):
                place = tuple(line[name] for name in LEVELS[-1])
                assert line["removed"] == pytest.approx(counts.get(place, 0))
                assert line["rows"] == sum(tuple(entry[name] for name in LEVELS[-1]) == place for entry in frame)


def test_every_level_has_a_part_at_one(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        profile = depth(tiny_audit(tiny_llama, tiny_text, store, scoring={"selectors": ("magnitude",)}))["depth"]
    level = pl.concat_list(pl.col("sublayer", "projection").is_null().cast(pl.Int8)).list.sum().alias("level")
    largest = profile.group_by(level).agg(pl.col("relative_score").max()).sort("level")
    assert largest["level"].to_list() == [0, 1, 2]
    assert largest["relative_score"].to_list() == [1, 1, 1]


def test_a_score_without_a_positive_mean_has_no_relative_one(tiny_llama: LoadedModel) -> None:
    scores = -np.arange(1, tiny_llama.rows.n_rows + 1, dtype=np.float32)
    sums = layer_sums(scores, tiny_llama.rows)
    assert sums.sum() == scores.astype(np.float64).sum()
    assert {relative for _, _, relative in depth_profile(sums, tiny_llama.rows)} == {None}
