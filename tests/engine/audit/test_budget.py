"""Budgets against every number of rows tried one by one, and intervals against what they promise."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_audits import lowest, tables_of, tiny_audit

from engine.interventions.in_weights import zeroed
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.stats.limits import Harm, first_crossing, next_count
from engine.studies.estimate_words import headline, removal_budgets, share_text


def _searched(harm: dict[int, float], scan: list[int], limit: float, resolution: float) -> dict[int, Harm]:
    asked: dict[int, Harm] = {}
    while (count := next_count(asked, limit, scan, resolution)) is not None:
        assert count not in asked, "nothing is measured twice"
        asked[count] = Harm(harm[count], 0.0, 5)
    return asked


@pytest.mark.parametrize("crossing", [1, 2, 3, 7, 50, 99, 100, 640, 641, 1000])
@pytest.mark.parametrize("resolution", [0.0, 0.05])
def test_the_search_ends_at_the_crossing_of_a_rising_curve(crossing: int, resolution: float) -> None:
    harm = {count: 2.0 if count >= crossing else 0.5 for count in range(1, 1001)}
    asked = _searched(harm, [2, 10, 100, 400, 1000], 1.0, resolution)
    budget = first_crossing(asked, 1.0)
    assert budget.rows < crossing <= (budget.beyond or 0)
    assert (budget.beyond or 0) - budget.rows <= max(1, resolution * budget.rows)
    assert len(asked) <= (16 if resolution == 0 else 11)


def test_a_curve_that_never_crosses_or_returns_counts_by_what_was_measured_first() -> None:
    flat = _searched(dict.fromkeys(range(1, 101), 0.1), [2, 10, 100], 1.0, 0.05)
    assert first_crossing(flat, 1.0) == (100, None, 100.0, None)
    back = {10: Harm(2.0, 0.1, 5), 5: Harm(0.1, 0.1, 5), 50: Harm(0.1, 0.1, 5), 80: Harm(math.nan, 0.1, 5)}
    assert first_crossing(back, 1.0)[:2] == (5, 10)
    assert first_crossing({4: Harm(math.inf, 0.1, 5)}, 1.0) == (0, 4, 0.0, 4.0)
    assert first_crossing({4: Harm(3.0, None, 1), 2: Harm(0.0, None, 1)}, 1.0) == (2, 4, None, None)


def test_the_interval_covers_the_true_crossing_as_often_as_it_says() -> None:
    """Harm grows as rows / 500 nats; blocks of text differ in it by noise that is common to all removals (as a text's
    is) and by noise of each. 400 trials of 8 blocks: 95% +- 2.2 (binomial, two standard errors)."""
    generator, covered, true, trials = np.random.default_rng(0), 0, 500.0, 400
    for _ in range(trials):
        slopes = 1 + 0.3 * generator.standard_normal(8)
        asked: dict[int, Harm] = {}
        while (count := next_count(asked, 1.0, [10, 100, 300, 700, 1000], 0.05)) is not None:
            values = slopes * count / 500 + 0.02 * generator.standard_normal(8)
            asked[count] = Harm(float(values.mean()), float(values.std(ddof=1) / math.sqrt(8)), 8)
        _, _, low, high = first_crossing(asked, 1.0)
        assert low is not None
        covered += low <= true <= (math.inf if high is None else high)
    assert covered / trials >= 0.925


def test_budgets_of_a_model_by_plain_loss(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    factor = 1.002  # a random model is hardly harmed
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "wanda"), "seeds": (3, 4)},
            budget_factor=factor,
        )  # fmt: skip
        table = tables_of("budget", audit)["budget"]
        assert tables_of("budget", audit)["budget"].equals(table)
        one_order = tables_of("budget", replace(audit, plan=replace(audit.plan, budget_orders=("morf",))))["budget"]
        assert one_order.equals(table.filter(order="morf"))
    assert table.select("selector", "seed", "order").rows() == [
        (*who, order) for who in (("random", 3), ("random", 4), ("wanda", None)) for order in ("lerf", "morf")
    ]
    crossing = table.drop_nulls("rows_beyond")
    assert crossing.height >= 3
    for line in crossing.iter_rows(named=True):
        scores = audit.scores[line["selector"]]
        scores = scores if line["seed"] is None else scores[(3, 4).index(line["seed"])]
        signed = [float(score) if line["order"] == "lerf" else -float(score) for score in scores]
        for count, nll, exceeds in ((line["rows_removed"], "nll", False), (line["rows_beyond"], "nll_beyond", True)):
            with zeroed(tiny_llama, lowest(signed, count)):
                windows = audit.evaluation.input_ids
                mean = np.mean([tiny_llama.model(one[None], labels=one[None]).loss.item() for one in windows])
            assert line[nll] == pytest.approx(mean, abs=1e-5)
            assert (mean > line["dense_nll"] + math.log(factor)) == exceeds
        assert line["budget"] == line["rows_removed"] / len(scores)
        assert line["budget_low"] <= line["budget"] <= line["beyond"] <= (line["budget_high"] or 1)
    lerf = removal_budgets(table, "lerf")
    seeds = table.filter(selector="random", order="lerf")["budget"]
    assert lerf["random"].share == pytest.approx(np.mean(seeds.to_list()))
    assert [one.share for one in lerf.values()] == sorted((one.share for one in lerf.values()), reverse=True)
    assert headline(table) == (
        f"By {{wanda}}, {lerf['wanda']} of the rows can go before perplexity is 1.002 times as large; "
        f"at random, {lerf['random']}"
    )
    assert [share_text(share) for share in (0.1964, 0.0132, 0.00051)] == ["19.6%", "1.3%", "0.051%"]
