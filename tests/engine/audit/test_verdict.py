"""Verdicts: every threshold from both sides on tables written by hand, the paper's tables, and a whole audit."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tiny_audits import nll_of, tiny_audit, verdicts

from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.results.tables import spec
from engine.stats.verdict import Thresholds, judge_selectors
from precomputed.paper_tables import load_table

DENSE = 2.0
RATES = (0.1, 0.3)
Curves = dict[str, list[tuple[dict[float, float], dict[float, float]]]]  # selector -> per seed LeRF, MoRF


def flat(lerf: float, log_gap: float) -> tuple[dict[float, float], dict[float, float]]:
    return dict.fromkeys(RATES, lerf), dict.fromkeys(RATES, lerf + log_gap)


def tables(curves: Curves, stderr: float | None = 0.01) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`gap` and `differences` with the same standard error everywhere."""
    gaps, rankings = [], []
    for selector, seeds in curves.items():
        for number, (lerf, morf) in enumerate(seeds):
            seed = number if len(seeds) > 1 else None
            rankings.append((selector, seed, lerf))
            for rate in lerf:
                cost = (lerf[rate], morf[rate], None, None, None, morf[rate] - lerf[rate], stderr)
                gaps.append(("m", selector, seed, rate, *cost))
    pairs = [
        ("m", "lerf", a, "lerf", seed_a, b, "lerf", seed_b, rate, lerf_a[rate] - lerf_b[rate], stderr, None)
        for (a, seed_a, lerf_a), (b, seed_b, lerf_b) in combinations(rankings, 2)
        for rate in lerf_a
        if a != b
    ]
    return (
        pl.DataFrame(gaps, schema=spec("gap").schema(), orient="row"),
        pl.DataFrame(pairs, schema=spec("differences").schema(), orient="row"),
    )


def stability_of(*lines: tuple[str, int, float, float | None, float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [("m", selector, size, 128, rate, rho, overlap, 2.5, 12.2) for selector, size, rate, rho, overlap in lines],
        schema=spec("stability").schema(),
        orient="row",
    )  # fmt: skip


def verdict_of(
    seeds: list[tuple[dict[float, float], dict[float, float]]],
    stability: pl.DataFrame | None = None,
    *,
    stderr: float | None = 0.01,
    thresholds: Thresholds | None = None,
    random_first: bool = True,
) -> dict[str, Any]:
    """The verdict on `wanda` beside three random rankings with LeRF at 3.9, 4.0 and 4.1 nats (damage 2.0)."""
    chance = {"random": [flat(3.9, 0.3), flat(4.0, -0.2), flat(4.1, 0.1)]}
    curves = {**chance, "wanda": seeds} if random_first else {"wanda": seeds, **chance}
    table = judge_selectors(*tables(curves, stderr), DENSE, stability, thresholds=thresholds)
    return table.row(by_predicate=pl.col("selector") == "wanda", named=True)


# 0.5 of chance's damage is 3.0 nats, 0.8 of it 3.6
@pytest.mark.parametrize("random_first", [True, False])
@pytest.mark.parametrize(
    ("seed", "expected", "reason"),
    [
        (flat(2.1, 3.0), "faithful", "it does 5.0% of the damage of random removal; the log gap at 30% is +3 nats"),
        (flat(2.99, 1.01), "faithful", "large enough at every rate"),
        (flat(3.01, 1.5), "partly", "it does 50.5% of the damage of random removal, more than 50%"),
        (flat(3.59, 1.5), "partly", "LeRF at 30% is below every random ranking (3.59 against 4 nats per token)"),
        (flat(3.61, 1.5), "not", "LeRF at 30% does 80.5% of the damage of random removal, close to chance"),
        (flat(3.885, 1.5), "not", "LeRF at 30% is not below every random ranking by 2 standard errors (3.88 against"),
        (flat(4.5, 1.5), "not", "LeRF at 30% does 125.0% of the damage"),
        (flat(2.5, 0.99), "not", "The log gap at 30% is not clearly above zero (+0.99 nats"),
        (flat(2.5, -1.5), "not", "The log gap at 30% is not clearly above zero (-1.5 nats"),
        (({0.1: 2.1, 0.3: 2.5}, {0.1: 2.6, 0.3: 4.0}), "partly", "too small at some rates (+0.5 at 10%)"),
        (({0.1: 3.9, 0.3: 2.5}, {0.1: 5.9, 0.3: 4.0}), "faithful", "LeRF at 30% is below"),
    ],
)  # fmt: skip
def test_validity(seed: Any, expected: str, reason: str, random_first: bool) -> None:
    found = verdict_of([seed], random_first=random_first)
    assert found["validity"] == expected
    assert reason in found["reasons"]


def test_numbers_are_those_of_the_reference_rate() -> None:
    found = verdict_of([({0.1: 2.1, 0.3: 2.5}, {0.1: 5.0, 0.3: 4.0})])
    assert found["log_gap"] == pytest.approx(1.5)
    assert (found["lerf_nll"], found["dense_nll"]) == (2.5, DENSE)
    assert found["random_lerf_nll"] == pytest.approx(4.0)
    assert found["damage"] == pytest.approx(0.25)
    assert judge_selectors(*tables({"random": [flat(4.0, 0.0)]}), DENSE).schema == spec("verdicts").schema()


def test_standard_errors_count() -> None:
    # log gap 1.5 with error 0.8, and 1.4 nats below the lowest random ranking
    assert verdict_of([flat(2.5, 1.5)], stderr=0.69)["validity"] == "faithful"
    assert "not below every random" in verdict_of([flat(2.5, 1.6)], stderr=0.71)["reasons"]
    assert "not clearly above zero" in verdict_of([flat(2.1, 1.5)], stderr=0.76)["reasons"]
    assert verdict_of([flat(2.1, 3.0)], stderr=None)["validity"] == "not"


def test_every_seed_must_pass() -> None:
    good, bad = flat(2.2, 3.0), flat(2.2, 0.2)
    assert verdict_of([good, good])["validity"] == "faithful"
    mixed = verdict_of([good, bad])
    assert mixed["validity"] == "not"
    assert mixed["log_gap"] == pytest.approx(1.6)  # the mean passes, a seed does not


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "partly"),
        ({"faithful_damage": 0.6}, "faithful"),
        ({"invalid_damage": 0.52}, "not"),
        ({"log_gap": 1.6}, "not"),
        ({"stderrs": 80.0}, "not"),
        ({"rate": 0.1}, "faithful"),
    ],
)
def test_every_threshold_of_validity_can_be_changed(change: dict[str, float], expected: str) -> None:
    seed = ({0.1: 2.2, 0.3: 3.1}, {0.1: 4.4, 0.3: 4.6})
    assert verdict_of([seed], thresholds=replace(Thresholds(), **change))["validity"] == expected


# Stability

VALID, INVALID = flat(2.1, 3.0), flat(4.2, 0.5)


@pytest.mark.parametrize(
    ("lines", "expected", "numbers"),
    [
        ([("wanda", 64, 0.3, 0.96, 0.81)], "stable", (0.96, 0.81)),
        ([("wanda", 64, 0.3, 0.94, 0.81)], "not", (0.94, 0.81)),
        ([("wanda", 64, 0.3, 0.96, 0.79)], "not", (0.96, 0.79)),
        # half counts, not the smallest, not the whole, not another rate, not another selector
        (
            [("wanda", 8, 0.3, 0.1, 0.1), ("wanda", 64, 0.3, 0.96, 0.81), ("wanda", 96, 0.3, 0.1, 0.1)],
            "stable",
            (0.96, 0.81),
        ),
        ([("wanda", 64, 0.3, 0.5, 0.5), ("wanda", 128, 0.3, 1.0, 1.0)], "not", (0.5, 0.5)),
        ([("wanda", 64, 0.1, 1.0, 1.0), ("lrp", 64, 0.3, 1.0, 1.0)], "unknown", (None, None)),
        # no half: the largest smaller set
        ([("wanda", 96, 0.3, 0.97, 0.9), ("wanda", 8, 0.3, 0.1, 0.1)], "stable", (0.97, 0.9)),
        ([("wanda", 64, 0.3, None, 0.9)], "unknown", (None, 0.9)),
    ],
)
def test_stability(lines: list[Any], expected: str, numbers: tuple[Any, Any]) -> None:
    found = verdict_of([VALID], stability_of(*lines))
    assert (found["stability"], (found["spearman"], found["jaccard"])) == (expected, numbers)
    assert found["stable_but_invalid"] is False


def test_stability_thresholds_can_be_changed() -> None:
    table = stability_of(("wanda", 64, 0.3, 0.9, 0.7))
    assert verdict_of([VALID], table)["stability"] == "not"
    loose = Thresholds(spearman=0.9, jaccard=0.7)
    assert verdict_of([VALID], table, thresholds=loose)["stability"] == "stable"


def test_stable_but_invalid_is_called_by_name() -> None:
    table = stability_of(("wanda", 64, 0.3, 0.999, 0.99))
    found = verdict_of([INVALID], table)
    assert (found["validity"], found["stability"], found["stable_but_invalid"]) == ("not", "stable", True)
    assert found["reasons"].startswith("Stable but invalid: ")
    assert verdict_of([INVALID], stability_of(("wanda", 64, 0.3, 0.5, 0.5)))["stable_but_invalid"] is False


def test_without_stability_it_says_so() -> None:
    found = verdict_of([VALID], None)
    assert (found["validity"], found["stability"]) == ("faithful", "unknown")
    assert found["reasons"].endswith("stability was not measured.")


def test_selectors_without_text_and_random_itself() -> None:
    curves = {"random": [flat(3.9, 3.0), flat(4.0, 3.0)], "magnitude": [flat(2.1, 3.0)]}
    table = judge_selectors(*tables(curves), DENSE, None)
    random, magnitude = table.iter_rows(named=True)
    assert random["stability"] == magnitude["stability"] == "not applicable"
    assert "it sees no text" in magnitude["reasons"]
    assert magnitude["validity"] == "faithful"
    assert random["validity"] == "not"
    assert random["reasons"].startswith("It is the baseline")
    plug_in = judge_selectors(*tables(curves | {"mine": [VALID]}), DENSE, None, data_free=("random", "mine"))
    assert plug_in["stability"].to_list() == ["not applicable", "unknown", "not applicable"]


def test_random_that_does_no_damage_tells_nothing() -> None:
    curves = {"random": [flat(2.0, 0.0)], "wanda": [flat(1.5, 3.0)]}
    found = judge_selectors(*tables(curves), DENSE).row(1, named=True)
    assert (found["validity"], found["damage"]) == ("not", None)
    assert "Random removal does no damage" in found["reasons"]


def test_what_cannot_be_judged() -> None:
    gap, differences = tables({"wanda": [VALID]})
    with pytest.raises(InputError, match="add random to --selectors"):
        judge_selectors(gap, differences, DENSE)
    gap, differences = tables({"random": [VALID], "wanda": [VALID]})
    with pytest.raises(InputError, match=r"at rate 0.25, the validity gap was measured at 0.1, 0.3; choose"):
        judge_selectors(gap, differences, DENSE, thresholds=Thresholds(rate=0.25))
    with pytest.raises(InputError, match="does not compare wanda with random at rate 0.3"):
        judge_selectors(gap, differences.clear(), DENSE)


# The published tables


def published(model: str) -> tuple[pl.DataFrame, pl.DataFrame, float]:
    """The paper's perplexities as `gap` and `differences`; a small standard error stands in for the unprinted ones."""
    curves = load_table("lerf_morf_ppl").filter(model=model)
    nll = {(s, o, r): math.log(p) for s, o, r, p in curves.select("selector", "order", "rate", "ppl").iter_rows()}
    rates = (0.1, 0.2, 0.3, 0.5)
    by_selector: Curves = {
        s: [({r: nll[s, "lerf", r] for r in rates}, {r: nll[s, "morf", r] for r in rates})]
        for s in curves["selector"].unique(maintain_order=True)
    }
    return *tables(by_selector), nll["random", "lerf", 0.0]


@pytest.mark.parametrize("model", ["Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-8B", "Qwen3-8B", "Gemma-3-12B"])
def test_attributions_are_faithful_and_nothing_else_is_in_the_papers_tables(model: str) -> None:
    gap, differences, dense = published(model)
    table = judge_selectors(gap, differences, dense)
    validity = dict(table.select("selector", "validity").iter_rows())
    faithful = {name for name, word in validity.items() if word == "faithful"}
    assert faithful == {"lrp", "ig", "consensus2"}


def test_the_papers_stable_but_invalid_selectors_are_found() -> None:
    rho = load_table("spearman_stability").filter(model="Llama-3.1-8B", calib_size=64)
    overlap = load_table("jaccard_stability").filter(model="Llama-3.1-8B", calib_size=64, rate=0.3)
    joined = rho.join(overlap, on="selector").select("selector", "calib_size", "rate", "spearman", "jaccard")
    table = judge_selectors(*published("Llama-3.1-8B"), stability_of(*joined.rows()))
    named = table.filter("stable_but_invalid")["selector"].to_list()
    assert sorted(named) == ["mean_activation", "wanda"]
    assert set(table.filter(validity="faithful")["stability"]) == {"stable"}


# A whole audit


def test_verdicts_of_an_audit(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama,
            tiny_text,
            store,
            scoring={"selectors": ("random", "magnitude", "wanda", "ig")},
            stability_sizes=(3, 6),
        )
        table = verdicts(audit)["verdicts"]
        assert table.schema == spec("verdicts").schema()
        assert table["selector"].to_list() == ["random", "magnitude", "wanda", "ig"]
        assert table["stability"].to_list()[:2] == ["not applicable"] * 2
        assert set(table["stability"].to_list()[2:]) <= {"stable", "not"}
        assert set(table["dense_nll"]) == {nll_of(audit, []).nats_per_token}
        assert table["spearman"].is_null().to_list() == [True, True, False, False]

        audit.plan = replace(audit.plan, stability_sizes=(6,))
        alone = verdicts(audit)["verdicts"]
        assert alone["stability"].to_list()[2:] == ["unknown"] * 2
        assert alone["validity"].to_list() == table["validity"].to_list()


def test_other_thresholds_need_no_torch() -> None:
    code = "import engine.stats.verdict, engine.stats.control_answers, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
