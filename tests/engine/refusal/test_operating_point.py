"""Operating points against a plain search written by hand, the rescue on the paper's own cells, neighbours."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from engine.records.errors import InputError
from engine.results.tables import frame
from engine.studies.refusal.operating_point import operating_point
from precomputed.paper_tables import load_table

LAMBDAS, KS = (0.2, 0.5, 0.8), (0.01, 0.02, 0.05)


def table(cells: list[dict[str, Any]], unedited: float = 0.1, selector: str = "lrp") -> pl.DataFrame:
    """Rows of `refusal_sweep`; each cell needs lambda, k, malign, benign and perplexity."""
    first = {"lambda": 0.0, "k": 0.0, "malign": unedited, "benign": 0.0, "perplexity": 8.0}
    rows = [
        {
            "model": "m", "selector": selector, "domain": "hate", "rows_removed": round(1000 * cell["k"]),
            "malign_n": 64, "benign_n": 64, "nll": float(np.log(cell["perplexity"])), "feasible": False, **cell,
        }
        for cell in [first, *cells]
    ]  # fmt: skip
    return frame("refusal_sweep", rows)


def cell(lam: float, k: float, malign: float | None, benign: float | None = 0.0, perplexity: float = 9.0) -> Any:
    return {"lambda": lam, "k": k, "malign": malign, "benign": benign, "perplexity": perplexity}


@pytest.mark.parametrize("seed", range(20))
def test_equals_a_plain_search(seed: int):
    generator = np.random.default_rng(seed)
    cells = [
        cell(lam, k, round(float(generator.uniform(0, 1)), 1), round(float(generator.uniform(0, 0.4)), 2),
             float(generator.choice([9.0, 50.0, 200.0]))) for lam in LAMBDAS for k in KS
    ]  # fmt: skip
    found = operating_point(table(cells, unedited=0.05))

    def best(cap: float, least: float, strictly: bool) -> Any:
        chosen = None
        for one in cells:
            enough = one["malign"] > least if strictly else one["malign"] >= least
            if one["benign"] > cap or one["perplexity"] > 100 or not enough:
                continue
            key = (-one["malign"], one["k"], one["perplexity"], one["lambda"])
            if chosen is None or key < chosen[0]:
                chosen = (key, one)
        return chosen and chosen[1]

    expected, rescue = best(0.10, 0.05, False), False
    for step in range(1, 6):
        if expected is None:
            expected, rescue = best(round(0.05 * step, 2), 5 * 0.05, True), True
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.lam, found.k, found.malign) == (expected["lambda"], expected["k"], expected["malign"])
    assert found.rescue is rescue


def test_ties_go_to_the_smaller_mask():
    found = operating_point(table([cell(0.2, 0.05, 0.9), cell(0.8, 0.01, 0.9), cell(0.5, 0.02, 0.9)]))
    assert found is not None
    assert (found.lam, found.k, found.rows_removed) == (0.8, 0.01, 10)


def test_an_edit_that_lowers_refusal_is_never_chosen():
    """All cells refuse less than the unedited model: nothing was installed, whatever made the mask."""
    lowered = [cell(lam, k, 0.3) for lam in LAMBDAS for k in KS]
    assert operating_point(table(lowered, unedited=0.5)) is None
    found = operating_point(table([*lowered, cell(0.9, 0.01, 0.5)], unedited=0.5))
    assert found is not None
    assert found.lam == 0.9


def test_the_rescue_of_the_paper():
    """IG on adult, LLaMA-3.1-8B: the printed cells give the printed choice, (0.8, 0.005) at a cap of 0.20."""
    printed = load_table("rescue_sweep")
    cells = [
        cell(row["lambda"], row["k"], row["malign"], row["benign"], row["ppl"]) for row in printed.iter_rows(named=True)
    ]
    [expected] = printed.filter(pl.col("rescue")).iter_rows(named=True)
    found = operating_point(table(cells, unedited=0.058))
    assert found is not None
    assert found.rescue
    assert found.benign_cap == 0.20
    assert (found.lam, found.k, found.malign) == (expected["lambda"], expected["k"], expected["malign"])


def test_a_rescue_needs_five_times_the_unedited_refusal():
    spilling = [cell(0.5, 0.01, 0.5, 0.12)]
    assert operating_point(table(spilling, unedited=0.10)) is None  # 0.5 does not exceed 5 * 0.10
    found = operating_point(table(spilling, unedited=0.09))
    assert found is not None
    assert (found.rescue, found.benign_cap) == (True, 0.15)
    assert operating_point(table([cell(0.5, 0.01, 0.9, 0.26)], unedited=0.01)) is None


def test_neighbours_show_an_isolated_spike():
    cells = [cell(lam, k, 0.2) for lam in LAMBDAS for k in KS if (lam, k) != (0.5, 0.02)]
    found = operating_point(table([*cells, cell(0.5, 0.02, 0.95)]))
    assert found is not None
    assert {(one.lam, one.k) for one in found.neighbours} == {(0.2, 0.02), (0.8, 0.02), (0.5, 0.01), (0.5, 0.05)}
    assert found.malign - (found.neighbour_malign or 0) == pytest.approx(0.75)


def test_without_an_unedited_row_it_is_an_error():
    whole = table([cell(0.2, 0.01, 0.9)])
    for wrong in (whole.filter(pl.col("k") > 0), pl.concat([whole, table([], selector="ig")])):
        with pytest.raises(InputError, match="one unedited row"):
            operating_point(wrong)
