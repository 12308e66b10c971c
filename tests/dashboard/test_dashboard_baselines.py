"""Baselines on the page Can it be believed: draws beside domains, random groups, claims; and folders without them."""

import polars as pl
import pytest
from app_pages import drawn_page
from made_up_audit import groups, write_audit
from synthetic import add_table

from dashboard.report.html_report import build
from dashboard.state import results

NAME = groups()["dangerous"]["model"][0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = write_audit(tmp_path / "audit")
    monkeypatch.setenv(results.STORE_VARIABLE, str(made))
    return made


def page(part, **parameters):
    app = drawn_page("believed", part=part, more="true", **parameters)
    assert not app.warning
    return app


def texts(app):
    return " ".join(one.value for kind in (app.markdown, app.caption, app.info) for one in kind)


def draws(**changed):
    line = {
        "model": NAME, "corpus_a": "made-up", "corpus_b": "other", "rate": 0.3, "size": 32, "text_draws": 4,
        "spearman_within": 0.9, "spearman_between": 0.8, "jaccard_a": 0.8, "jaccard_b": 0.7, "jaccard_between": 0.6,
        "drop": 0.15,
    }  # fmt: skip
    seen = {"lrp": (1 / 35, True), "ig": (0.4, False)}
    return pl.DataFrame([
        {**line, "selector": name, "p_family": p, "beyond_draw": beyond, **changed}
        for name, (p, beyond) in seen.items()
    ])  # fmt: skip


def test_domains_stand_beside_draws(folder):
    add_table(folder, "domain_draws", draws())
    app = page("Second domain")
    assert "**Beyond the draw** the text matters for LRP." in texts(app)
    (table,) = [one.value for one in app.dataframe if "between them" in one.value.columns]
    assert table["within other"].tolist() == [0.7, 0.7]
    assert "nothing is seen of the domain" in table["In words"].iloc[1]
    add_table(folder, "domain_draws", draws(beyond_draw=False, p_family=0.5))
    assert "Nothing is seen beyond the draw" in texts(page("Second domain"))


def compared(confirmed):
    tables = groups()
    of = pl.col("dangerous") & confirmed
    single = tables["dangerous"].with_columns(
        dense_nll=pl.lit(2.0), stderr=pl.lit(0.05),
        group_draws=pl.when("dangerous").then(10).otherwise(0).cast(pl.Int64),
        random_nll=pl.when("dangerous").then(2.9), random_sd=pl.when("dangerous").then(0.1),
        random_most=pl.when("dangerous").then(3.1), p=pl.when("dangerous").then(0.001),
        p_holm=pl.when("dangerous").then(0.02 if confirmed else 0.9), confirmed=of,
    )  # fmt: skip
    summary = tables["dangerous_summary"].with_columns(
        confirmed_groups=pl.col("dangerous_groups") * int(confirmed), confirmed_rows=pl.col("rows") * int(confirmed),
        confirmed_share=pl.col("share") * int(confirmed),
    )  # fmt: skip
    return {"dangerous": single, "dangerous_summary": summary}


def alts(app):
    return " ".join(chart.proto.alt for chart in app.get("plotly_chart"))


@pytest.mark.first_run("True")
@pytest.mark.parametrize(("confirmed", "count"), [(True, 2), (False, 0)])
def test_groups_are_dangerous_if_random_ones_of_their_size_are_not(folder, confirmed, count):
    for stem, table in compared(confirmed).items():
        add_table(folder, stem, table)
    app = page("Dangerous groups")
    assert f"Wanda, {count} do more harm than random groups of their size" in alts(app)
    assert "can be called dangerous" not in texts(app)
    (table,) = (one.value for one in app.dataframe)
    assert table["More harm than random groups"].tolist() == [confirmed] * 2
    report = build([folder])
    assert f"<td>{count} of 4</td><td>2 of 4</td>" in report


def test_the_ledger_on_the_page_and_in_the_report(folder):
    app = page("Verdict")
    (table,) = [one.value for one in app.dataframe if "Evidence" in one.value.columns]
    assert {"proof", "single interval", "descriptive"} <= set(table["Evidence"])
    assert table["Claim"].str.len().min() > 10
    only = page("Verdict", claim_tiers="proof")
    (table,) = [one.value for one in only.dataframe if "Evidence" in one.value.columns]
    assert set(table["Evidence"]) == {"proof"}
    assert "Claims and their evidence" in build([folder])


def test_moved_limits_stand_beside_the_claims_and_in_the_report(folder):
    assert not [one for one in page("Verdict").subheader if "limit moves" in one.value]
    line = {"model": NAME, "selector": "lrp", "limit": "log_gap", "base_value": "1", "moved_value": "2"}
    words = {"validity": "not", "specific": "not measured", "stability": "stable", "changed": "validity"}
    add_table(folder, "verdict_moves", pl.DataFrame([line | words]))
    told = "log gap that is large enough: 2 instead of 1: LRP becomes “not”."
    assert told in texts(page("Verdict"))
    assert told in build([folder])
