"""Points at the edge of the grid: flagged, and the grid goes on beyond them by its own steps, against plain loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from refusal_helpers import count_generations, small_run, tables_of

from engine.edits.contrasts import check_k, check_lambda
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.refusal_plan import KS, LAMBDAS
from engine.studies.refusal.grid import LARGEST_K, LARGEST_LAMBDA, SMALLEST_K, SMALLEST_LAMBDA, Axes
from engine.studies.refusal.operating_point import operating_points
from engine.studies.refusal.points import Chosen

N = 376_832  # rows of a one-billion model
PAPER = Axes(LAMBDAS, KS, N)


def test_a_point_inside_is_at_no_edge():
    for lam in LAMBDAS:
        for k in KS:
            expected = set()
            expected |= {SMALLEST_LAMBDA} if lam == 0.2 else {LARGEST_LAMBDA} if lam == 0.8 else set()
            expected |= {SMALLEST_K} if k == 0.005 else {LARGEST_K} if k == 0.1 else set()
            assert set(PAPER.edges(lam, k)) == expected


def test_the_papers_grid_goes_on_by_its_own_steps():
    """lambda 0.7, 0.8 -> 0.9; k 0.075, 0.1 -> 0.1333; downwards 0.3, 0.2 -> 0.1 and 0.01, 0.005 -> 0.0025."""
    wider = PAPER.widened((LARGEST_LAMBDA, LARGEST_K))
    assert wider.lambdas == (*LAMBDAS, 0.9)
    assert wider.ks == (*KS, pytest.approx(0.1 * 0.1 / 0.075, rel=1e-5))
    lower = PAPER.widened((SMALLEST_LAMBDA, SMALLEST_K))
    assert (lower.lambdas, lower.ks) == ((0.1, *LAMBDAS), (0.0025, *KS))
    assert PAPER.widened(()) == PAPER


@pytest.mark.parametrize("n_rows", [40, 2688, N])
@pytest.mark.parametrize("side", [SMALLEST_LAMBDA, LARGEST_LAMBDA, SMALLEST_K, LARGEST_K])
def test_it_ends_where_the_allowed_ranges_end(side: str, n_rows: int):
    """Every value on the way is allowed, removes another number of rows, and the last one is at no edge any more."""
    axes = Axes((0.5, 0.8), (0.1, 0.2), n_rows)
    steps = 0
    while True:
        lam = min(axes.lambdas) if side == SMALLEST_LAMBDA else max(axes.lambdas)
        k = min(axes.ks) if side == SMALLEST_K else max(axes.ks)
        if side not in axes.edges(lam, k):
            break
        axes, steps = axes.widened((side,)), steps + 1
        assert steps < 40
    for one in axes.lambdas:
        check_lambda(one)
    for one in axes.ks:
        check_k(one)
    counts = [round(k * n_rows) for k in axes.ks]
    assert counts == sorted(set(counts))
    assert counts[0] >= 1
    assert axes.widened((side,)) == axes
    if side == LARGEST_LAMBDA:
        assert axes.lambdas == (0.5, 0.8, 1.0)
    if side == SMALLEST_LAMBDA:
        assert axes.lambdas == (0.0, 0.2, 0.5, 0.8)


def changes(**more: Any) -> dict[str, Any]:
    wide = {"calibration_pairs": 8, "reply_tokens": 25, "lambdas": (0.5, 0.8), "ks": (0.01, 0.02)}
    return {**wide, "benign_limit": 0.3, "domains": ("legal",), "perplexity_factor": 5.0, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("widening")


@pytest.mark.long
@pytest.mark.parametrize(
    ("widen", "selectors"),
    [(0, ("lrp",)), (1, ("random",)), pytest.param(2, ("lrp", "random"), marks=pytest.mark.long)],
)
def test_the_grid_is_searched_beyond_its_edge_and_nothing_else_changes(
    demo: LoadedModel, folder: Path, widen: int, selectors: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """Against a plain loop over plans whose grids are written out; what a smaller grid knew is not generated again."""
    with Store(folder) as store:
        run = small_run(demo, store, **changes(widen=widen, selectors=selectors))
        study = Chosen(run)
        tables = tables_of(study, run)
        table, points = tables["refusal_sweep"], tables["operating_points"]
        assert set(points["edge"]) - {"none"}, "the case is chosen so that a point is at an edge of the first grid"

        for selector in selectors:
            axes = Axes((0.0,) if selector == "random" else (0.5, 0.8), (0.01, 0.02), demo.rows.n_rows)
            for _ in range(widen + 1):
                plan = changes(widen=0, lambdas=axes.lambdas, ks=axes.ks, selectors=(selector,))
                written_out = small_run(demo, store, **plan)
                expected = tables_of(Chosen(written_out), written_out)["refusal_sweep"]
                [point] = operating_points(
                    expected, benign_limit=0.3, max_perplexity=float(np.exp(np.log(5.0))) * expected["perplexity"][0]
                ).values()
                edges = axes.edges(point.lam, point.k) if point else ()
                last = axes
                axes = axes.widened(edges)
            part = table.filter(selector=selector)
            assert part.equals(expected)
            assert set(part.filter(pl.col("k") > 0)["k"]) == set(last.ks)
            row = points.filter(selector=selector).row(0, named=True)
            assert point is not None
            assert (row["lambda"], row["k"]) == (point.lam, point.k)
            assert row["edge"] == (", ".join(edges) or "none")

        generated = count_generations(monkeypatch)
        assert tables_of(Chosen(run), run)["refusal_sweep"].equals(table)
        assert not generated
