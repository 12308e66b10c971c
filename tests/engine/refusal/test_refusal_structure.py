"""Structure of contrasts against counting by hand."""

import numpy as np
import polars as pl
import pytest

from engine.edits.contrasts import Contrast
from engine.models.loading import LoadedModel
from engine.studies.refusal.structure import overlaps, shares, signal_density, top_rows

DOMAINS = ("hate", "crime")


@pytest.fixture
def contrasts(demo: LoadedModel) -> list[Contrast]:
    n = demo.rows.n_rows
    generator = np.random.default_rng(0)
    return [
        Contrast(selector, domain, generator.uniform(-1, 1, n), np.zeros(n))
        for selector in ("lrp", "ig")
        for domain in DOMAINS
    ]


def test_density_counts_both_signs():
    values = np.array([0.6, -0.7, 0.5, -0.5, 0.0, 0.51, 0.2, 0.1], dtype=np.float32)
    one = Contrast("lrp", "hate", values, np.zeros_like(values))
    table = signal_density("m", [one])
    assert table.row(0) == ("m", "lrp", "hate", 3 / 8)


def test_overlaps_compare_selectors_or_domains(contrasts: list[Contrast]):
    table = overlaps("m", contrasts)
    assert table.height == 2 * 4  # two pairs of selectors, two of domains; never both at once
    row = table.filter(comparison="domains", ranked_by="c_comply", selector_a="ig").row(0, named=True)
    assert (row["domain_a"], row["selector_b"], row["domain_b"]) == ("hate", "ig", "crime")
    a, b = (set(top_rows(contrasts[i], "c_comply").tolist()) for i in (2, 3))
    assert row["jaccard"] == len(a & b) / len(a | b)
    # two random sets of n of N rows share about n^2 / N
    n, total = len(a), contrasts[0].c_comply.size
    assert row["expected_random"] == pytest.approx((n * n / total) / (2 * n - n * n / total), rel=0.05)


def test_shares_add_up_and_have_base_rates(demo: LoadedModel, contrasts: list[Contrast]):
    table = shares("m", contrasts, demo.rows)
    sums = table.group_by("selector", "domain", "ranked_by", "part").agg(pl.col("share", "base_rate").sum())
    for name in ("share", "base_rate"):
        assert sums[name].to_list() == pytest.approx([1.0] * sums.height)
    top = set(top_rows(contrasts[0], "abs_c_comply").tolist())
    blocks = 1 + max(layer.block for layer in demo.rows.layers)
    for part, name, inside in (
        ("projection", "up_proj", lambda layer: layer.projection == "up_proj"),
        ("third", "mid", lambda layer: blocks / 3 <= layer.block < 2 * blocks / 3),
    ):
        rows = {
            row for layer in demo.rows.layers if inside(layer) for row in range(layer.start, layer.start + layer.rows)
        }
        one = table.filter(selector="lrp", domain="hate", ranked_by="abs_c_comply", part=part, name=name).row(
            0, named=True
        )
        assert one["share"] == pytest.approx(len(top & rows) / len(top))
        assert one["base_rate"] == pytest.approx(len(rows) / demo.rows.n_rows)
