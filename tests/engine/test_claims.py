"""The ledger of claims: one line per sentence, each with a tier that its test earns; new kinds by one registration."""

from __future__ import annotations

import polars as pl
import pytest

from engine.records.errors import InputError
from engine.results.folders import read_table, table_names
from engine.results.tables import checked, frame
from engine.studies.claims import ledger as claims
from engine.studies.verdict.judged_selectors import with_draws
from precomputed import demo_dir


@pytest.fixture(scope="module")
def shipped():
    folder = demo_dir() / "results"
    return {stem: read_table(folder, stem) for stem in claims.needed() if stem in table_names(folder)}


def test_the_shipped_tables_support_a_ledger(shipped):
    table = checked("claims", claims.ledger(shipped), "the ledger")
    assert set(table["tier"]) <= set(claims.TIERS)
    assert table.select("model", "selector", "kind", "case").is_unique().all()
    verdicts = shipped["verdicts"].filter(pl.col("selector") != "random")
    harm = table.filter(kind="harm").sort("selector")
    assert harm["number"].to_list() == verdicts.sort("selector")["damage"].drop_nulls().to_list()
    assert (table.filter(kind="gap")["tier"] == claims.CORRECTED).all()
    columns = pl.col("log_gap", "nll_lerf", "nll_morf", "saturated_above")
    means = shipped["gap"].filter(pl.col("rate") < 0.31).group_by("selector", "rate").agg(columns.mean())
    alive = means.filter(pl.min_horizontal("nll_lerf", "nll_morf") <= pl.col("saturated_above")).sort("rate")
    gap = alive.unique("selector", keep="last", maintain_order=True)
    assert gap.filter(selector="random")["rate"].item() == 0.2
    assert sorted(table.filter(kind="gap")["number"]) == pytest.approx(sorted(gap["log_gap"]))
    assert table.filter(kind="controls").height == len(
        shipped["control_differences"].select("control", "order", "rate").unique()
    )


def test_claims_of_specificity_say_what_the_table_answers(shipped):
    found = claims.ledger(shipped).filter(kind="specific")
    table = with_draws(shipped["specific"], shipped["draw_sweep"])
    assert found.height == table["p_holm"].drop_nulls().len() > 0
    assert set(found["tier"]) == {claims.CORRECTED}
    for row in table.to_dicts():
        order = "LeRF" if row["order"] == "lerf" else "MoRF"
        [one] = found.filter(selector=row["selector"], case=f"{order} {row['rate']:.0%}").to_dicts()
        assert (one["number"], one["p"]) == (row["difference"], row["p_holm"])
        if row["answer"] == "no difference seen":
            apart = row["low"] * row["high"] > 0  # before the correction
            assert one["claim"].startswith("After correction" if apart else "No difference is seen")
        else:
            less = (row["answer"] == "better") == (row["order"] == "lerf")
            assert f"Its mask does {'less' if less else 'more'} harm than random rows" in one["claim"]


def test_claims_of_draws_and_protocols_are_those_of_their_tables(shipped):
    table = claims.ledger(shipped)
    draws = shipped["draws"].filter(rate=0.3)
    assert table.filter(kind="draws").select("selector", "number").rows() == draws.select("selector", "jaccard").rows()
    assert set(table.filter(kind="draws")["tier"]) == {claims.DESCRIPTIVE}
    orders = shipped["protocols_claims"]
    assert table.filter(kind="protocols")["claim"].to_list() == orders["claim"].to_list()
    assert table.filter(kind="protocols")["number"].to_list() == orders["protocols_for"].to_list()


def test_a_gap_without_blocks_or_beyond_its_error_is_said_as_such(shipped):
    gap = shipped["gap"].filter(pl.col("selector").is_in(["lrp", "ig"]))
    old = claims.ledger({"gap": gap.drop("stderr_blocks", "blocks")}).filter(kind="gap")
    assert set(old["tier"]) == {claims.INTERVAL}
    loose = claims.ledger({"gap": gap.with_columns(stderr_blocks=pl.lit(50.0))}).filter(kind="gap")
    assert all(one.startswith("No difference is seen") for one in loose["claim"])
    assert loose["p"].min() > 0.05


def test_a_gap_is_claimed_where_not_both_ends_destroy_the_model(shipped):
    gap = shipped["gap"].filter(selector="ig")
    at_thirty = gap.filter(rate=0.3)["nll_lerf"][0]
    for limit, rate in ((at_thirty, 0.3), (at_thirty - 1e-9, 0.2), (0.0, None)):
        found = claims.ledger({"gap": gap.with_columns(saturated_above=pl.lit(limit))}).filter(kind="gap")
        assert found["case"].to_list() == ([] if rate is None else [f"{rate:.0%}"])


def test_a_tier_is_what_the_test_earns(shipped):
    table = claims.ledger(shipped)
    words = dict(shipped["invariance_verdicts"].select("selector", "invariance").rows())
    for selector, tier in table.filter(kind="invariance", case="rewrites").select("selector", "tier").rows():
        assert tier == (claims.PROOF if words[selector] in ("exact", "moved") else claims.DESCRIPTIVE)
    assert set(table.filter(kind="invariance", case="decoys")["tier"]) <= {claims.PROOF}
    old = pl.DataFrame([{"model": "m", "selector": "lrp", "rate": 0.3, "groups": 4, "dangerous_groups": 2, "rows": 9,
                         "masked_rows": 20, "share": 0.45}])  # fmt: skip
    (one,) = claims.ledger({"dangerous_summary": old}).to_dicts()
    assert (one["tier"], one["number"]) == (claims.DESCRIPTIVE, 2.0)
    new = old.with_columns(confirmed_groups=1, confirmed_rows=4, confirmed_share=0.2)
    (one,) = claims.ledger({"dangerous_summary": new}).to_dicts()
    assert (one["tier"], one["number"]) == (claims.CORRECTED, 1.0)
    assert "2 of 4 groups" in one["claim"]
    assert "1 of them do more harm" in one["claim"]


def test_draws_of_two_texts_are_a_corrected_test():
    line = {
        "model": "m", "selector": "lrp", "corpus_a": "one", "corpus_b": "two", "rate": 0.3, "size": 32, "text_draws": 4,
        "spearman_within": 0.9, "spearman_between": 0.8, "jaccard_a": 0.8, "jaccard_b": 0.7, "jaccard_between": 0.6,
        "drop": 0.15, "p_family": 1 / 35, "beyond_draw": True,
    }  # fmt: skip
    (one,) = claims.ledger({"domain_draws": frame("domain_draws", [line])}).to_dicts()
    assert (one["tier"], one["number"], one["p"]) == (claims.CORRECTED, 0.15, 1 / 35)
    empty = frame("domain_draws", [line | {"p_family": None, "jaccard_between": None, "beyond_draw": None}])
    assert claims.ledger({"domain_draws": empty}).is_empty()


def test_nothing_measured_is_no_claim():
    assert claims.ledger({}).is_empty()


def test_a_kind_is_one_registration(monkeypatch):
    monkeypatch.setattr(claims, "KINDS", dict(claims.KINDS))

    @claims.register_claim("mine", needs=("mine",))
    def _mine(tables):
        for row in tables["mine"].iter_rows(named=True):
            yield claims.Claim(row["selector"], "a", "It is so.", 1.0, "none", "none", "none", None, row["tier"])

    table = pl.DataFrame({"model": ["m"], "selector": ["lrp"], "tier": [claims.DESCRIPTIVE]})
    assert claims.ledger({"mine": table}).select("kind", "claim").rows() == [("mine", "It is so.")]
    with pytest.raises(InputError, match="expected proof, corrected test"):
        claims.ledger({"mine": table.with_columns(tier=pl.lit("certain"))})
    with pytest.raises(InputError, match="registered already"):
        claims.register_claim("mine", needs=())(_mine)


def test_claims_of_budgets_and_parts_say_their_tables_numbers():
    columns = ["model", "selector", "seed", "order", "factor", "budget", "beyond", "budget_low", "budget_high",
               "rows_removed", "rows_beyond", "nll", "nll_beyond", "dense_nll", "cells", "blocks"]  # fmt: skip
    ends = (20, 21, 1.1, 1.2, 0.5, 9, 6)
    lines = [("m", "lrp", None, "lerf", 2.0, 0.2, 0.21, 0.18, 0.23, *ends),
             ("m", "random", 1, "lerf", 2.0, 0.01, 0.011, 0.009, None, *ends)]  # fmt: skip
    part = ("m", "lrp", None, "lerf", 0.1)
    parts = [(*part, "projection", "q_proj", 50, 0.6, 0.7, 2.5, 0.5, 0.9, 0.1, 6),
             (*part, "projection", "k_proj", 20, 0.6, 2.3, 2.5, 0.5, 0.1, 0.1, 6),
             (*part, "block", "3", 20, 0.6, 1.5, 2.5, 0.5, 0.5, 0.1, 6)]  # fmt: skip
    budget = frame("budget", [dict(zip(columns, line, strict=True)) for line in lines])
    found = claims.ledger({"budget": budget, "parts": frame("parts", parts)})
    assert found.select("kind", "selector", "case", "claim", "number", "tier").rows() == [
        ("budget", "lrp", "lerf", "20% of the rows can go, lowest scores first, before perplexity doubles, 18% to 23%.",
         0.2, claims.INTERVAL),
        ("budget", "random", "lerf", "1% of the rows can go, lowest scores first, before perplexity doubles.", 0.01,
         claims.DESCRIPTIVE),
        ("parts", "lrp", "LeRF 10%, projection", "90% of its mask's harm goes when its 50 rows of q_proj are put back, "
         "the most of any.", 0.9, claims.DESCRIPTIVE),
        ("parts", "lrp", "LeRF 10%, block", "50% of its mask's harm goes when its 20 rows of block 3 are put back, the "
         "most of any.", 0.5, claims.DESCRIPTIVE),
    ]  # fmt: skip
