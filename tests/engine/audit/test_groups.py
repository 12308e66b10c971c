"""Rank distribution and dangerous groups against sets and loops written by hand."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny_audits import dangerous, lowest, nll_of, rank_distribution, tiny_audit

from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.stats.layer_matched import excess_p
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.groups import COMPARED, fractions, mask_groups, random_group


def test_fractions_by_hand() -> None:
    mask = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    first, second = np.array([1, 2, 3, 4, 5, 6, 20, 21]), np.array([0, 1, 2, 3, 8, 9, 21])
    # both: 1 2 3; one: 4 5 6 8 9; neither: 7 10
    assert fractions(mask, first, second) == (0.3, 0.5, 0.2)
    assert fractions(mask, mask, mask) == (1.0, 0.0, 0.0)
    assert fractions(np.array([], dtype=np.int64), first, second) == (None, None, None)


def test_rank_distribution_counts_rows(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    rates = (0.0, 0.1, 0.3, 1.0)
    with Store(tmp_path) as store:
        scoring = {"selectors": ("lrp", "ig", "consensus2")}
        audit = tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, rank_distribution_rates=rates)
        table = rank_distribution(audit)["rank_distribution"]
        scores = {name: values.tolist() for name, values in audit.scores.items()}
    assert table.schema == spec("rank_distribution").schema()
    assert table["rate"].to_list() == list(rates)
    assert table.row(0)[2:] == (None, None, None)
    assert table.row(3)[2:] == (1.0, 0.0, 0.0)
    n = tiny_llama.rows.n_rows
    for line in table.filter(pl.col("rate").is_between(0.1, 0.3)).iter_rows(named=True):
        count = round(line["rate"] * n)
        consensus, lrp, ig = (set(lowest(scores[name], count)) for name in ("consensus2", "lrp", "ig"))
        assert line["both"] == pytest.approx(len(consensus & lrp & ig) / count)
        assert line["only_one"] == pytest.approx(len(consensus & (lrp ^ ig)) / count)
        assert line["neither"] == pytest.approx(len(consensus - lrp - ig) / count)


def test_groups_are_the_masked_rows_of_one_sublayer(tiny_family: LoadedModel) -> None:
    rows = tiny_family.rows
    generator = np.random.default_rng(0)
    mask = np.sort(generator.choice(rows.n_rows, size=rows.n_rows // 3, replace=False))
    # nothing of the last block's attention
    frame = rows.frame()
    spared = frame.filter(block=rows.n_blocks - 1, sublayer="attention")["row_id"].to_list()
    mask = np.array([row for row in mask.tolist() if row not in spared])
    expected: dict[tuple[int, str], list[int]] = {}
    for row in mask.tolist():
        where = frame.row(row, named=True)
        expected.setdefault((where["block"], where["sublayer"]), []).append(row)
    groups = mask_groups(mask, rows)
    assert {(block, sublayer): ids.tolist() for block, sublayer, ids in groups} == expected
    assert len(groups) == 2 * rows.n_blocks - 1
    assert [group[:2] for group in groups] == sorted(expected)


def test_dangerous_groups_by_hand(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    rate, factor = 0.4, 1.02  # low enough for some groups of a random model to be dangerous, not all
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude", "wanda"), "seeds": (43, 42)},
            dangerous_rate=rate, dangerous_factor=factor,
        )  # fmt: skip
        tables = dangerous(audit)
        scores = {name: np.atleast_2d(values)[0].tolist() for name, values in audit.scores.items()}
        text = audit.evaluation
    table = tables["dangerous"]
    assert table.schema == spec("dangerous").schema((*COMPARED, "saturated"))
    confirmed = ("confirmed_groups", "confirmed_rows", "confirmed_share")
    assert tables["dangerous_summary"].schema == spec("dangerous_summary").schema(confirmed)
    frame = tiny_llama.rows.frame()
    dense = negative_log_likelihood(tiny_llama, text).perplexity
    total = round(rate * tiny_llama.rows.n_rows)
    for selector, values in scores.items():
        masked = frame.filter(pl.col("row_id").is_in(lowest(values, total)))
        found, in_danger = [], 0
        for (block, sublayer), part in masked.group_by("block", "sublayer", maintain_order=True):
            with zeroed(tiny_llama, part["row_id"].to_list()):
                result = negative_log_likelihood(tiny_llama, text)
            bad = result.perplexity > factor * dense
            in_danger += part.height * bad
            found.append((block, sublayer, part.height, result.nats_per_token, bad))
        own = table.filter(selector=selector)
        rows = own.select("block", "sublayer", "rows", "nll", "dangerous").sort("block", "sublayer").rows()
        for measured, expected in zip(rows, sorted(found), strict=True):
            # Dead neurons are skipped: other sums round in other places.
            assert measured == (*expected[:3], pytest.approx(expected[3], rel=1e-6), expected[4])
        line = tables["dangerous_summary"].row(by_predicate=pl.col("selector") == selector, named=True)
        assert line["groups"] == len(found)
        assert line["dangerous_groups"] == sum(bad for *_, bad in found)
        assert (line["rows"], line["masked_rows"]) == (in_danger, total)
        assert line["share"] == pytest.approx(in_danger / total)
    assert 0 < table["dangerous"].sum() < table.height


def test_the_limit_is_in_nats(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(tiny_llama, tiny_text, store, scoring={"selectors": ("magnitude",)})
        costs = dangerous(audit)["dangerous"]["nll"] - nll_of(audit, []).nats_per_token
        between = sorted(costs.to_list())[-2:]
        audit.plan = type(audit.plan)(**{**vars(audit.plan), "dangerous_factor": math.exp(sum(between) / 2)})
        assert dangerous(audit)["dangerous"]["dangerous"].sum() == 1


def test_groups_above_the_limit_are_compared_with_random_ones(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every random group measured again by hand; groups within the limit, and those that destroy the model as their
    random ones do, are not compared."""
    destroyed = math.inf
    monkeypatch.setattr(AuditInputs, "saturated_above", lambda *_: destroyed)
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude")}, dangerous_rate=0.4,
            dangerous_factor=1.01, dangerous_draws=4,
        )  # fmt: skip
        table = dangerous(audit)["dangerous"]
        text = audit.evaluation
        least = pl.min_horizontal("nll", "random_nll")
        destroyed = float(table.filter("dangerous").select(least.sort().head(2).mean()).item())
        again = dangerous(audit)["dangerous"]
    saturated = again["dangerous"] & (table.select(least).to_series() > destroyed)
    assert 0 < saturated.sum() == again["saturated"].sum() < table["dangerous"].sum()
    assert again.filter("saturated").select("p", "p_holm").drop_nulls("p").is_empty()
    assert again.filter(~pl.col("saturated"))["p"].to_list() == table.filter(~saturated)["p"].to_list()
    dense = negative_log_likelihood(tiny_llama, text)
    assert table["dense_nll"].to_list() == [pytest.approx(dense.nats_per_token)] * table.height
    assert 0 < table["dangerous"].sum() < table.height
    by_hand: list[float] = []
    for line in table.iter_rows(named=True):
        if not line["dangerous"]:
            assert (line["group_draws"], line["random_nll"], line["p"], line["confirmed"]) == (0, None, None, False)
            continue
        nlls = []
        for seed in range(4):
            rows = random_group(tiny_llama.rows, line["block"], line["sublayer"], line["rows"], seed)
            with zeroed(tiny_llama, rows.tolist()):
                nlls.append(negative_log_likelihood(tiny_llama, text).nats_per_token)
        assert line["random_nll"] == pytest.approx(np.mean(nlls), rel=1e-6)
        assert line["random_sd"] == pytest.approx(np.std(nlls, ddof=1), rel=1e-3, abs=1e-6)
        assert line["random_most"] == pytest.approx(max(nlls), rel=1e-6)
        harms = [one - dense.nats_per_token for one in nlls]
        own = excess_p(line["nll"] - dense.nats_per_token, harms, math.log(1.01))
        assert line["p"] == pytest.approx(own, rel=0.02)
        by_hand.append(line["p"])
    adjusted = table.drop_nulls("p").sort("p")["p_holm"].to_list()
    assert adjusted[0] == pytest.approx(min(1.0, table.height * min(by_hand)))  # all groups count, not only these


def test_random_groups_lie_in_their_sublayer(tiny_family: LoadedModel) -> None:
    rows = tiny_family.rows
    there = set(rows.frame().filter(block=1, sublayer="mlp")["row_id"].to_list())
    drawn = [random_group(rows, 1, "mlp", 5, seed).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    for one in drawn:
        assert one == sorted(set(one))
        assert set(one) < there
        assert len(one) == 5
    assert set(drawn[0]) < set(random_group(rows, 1, "mlp", 9, 0).tolist())
    assert set(random_group(rows, 1, "mlp", len(there), 3).tolist()) == there
