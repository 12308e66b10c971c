"""The published tables in Reference: every table opens, points are filtered and linked, a run stands beside them."""

from functools import partial

import polars as pl
import pytest
from app_pages import run_page, warnings_of
from relatives import relatives
from synthetic import write_run

from dashboard.charts import palette
from dashboard.pages.reference import published as paper
from dashboard.state import results
from precomputed.paper_tables import describe, load_table

SELECTORS = ("random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2")


page = partial(run_page, "reference", document="Paper tables")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store whose runs repeat the printed sweep of one model, but for one cell, under two names."""
    top = tmp_path / "results"
    monkeypatch.setenv(results.STORE_VARIABLE, str(top))
    printed = load_table("lerf_morf_ppl").filter(model="Qwen3-8B")
    for name in ("Qwen3-8B", "unnamed"):
        table = printed.select(
            pl.lit(name).alias("model"), "selector", pl.lit(None, pl.Int64).alias("seed"), "order", "rate",
            pl.lit(0).alias("rows_removed"), pl.col("ppl").log().alias("nll"), pl.lit(0.01).alias("nll_stderr"),
            pl.lit(512).alias("tokens"), pl.col("ppl").alias("perplexity"),
        )  # fmt: skip
        doubled = (pl.col("selector") == "lrp") & (pl.col("order") == "lerf") & (pl.col("rate") - 0.3).abs().lt(1e-6)
        table = table.with_columns(nll=pl.when(doubled).then(pl.col("nll") + pl.lit(2.0).log()).otherwise("nll"))
        write_run(top / name, table, {"id": name, "weights_hash": "ab" * 32, "dtype": "float32"})
    return top


@pytest.mark.parametrize("name", relatives(paper.tables(), paper.tables()[::4]))
def test_every_table_opens_with_its_caption(name):
    app = page(table=describe(name).title)
    assert warnings_of(app) == []
    assert app.selectbox(key="table").value == name
    assert len(app.dataframe[0].value)
    (caption,) = [block.value for block in app.caption if f"{describe(name).rows:,} rows" in block.value]
    assert "tab:" not in caption


def test_perplexities_stand_as_printed_with_selectors_side_by_side():
    table = paper.to_read("lerf_morf_ppl")
    assert list(table.numbers.columns[-len(SELECTORS) :]) == [
        palette.title(name) for name in palette.in_order(SELECTORS)
    ]
    (row,) = (
        (table.numbers["Model"] == "Gemma-3-12B")
        & (table.numbers["Order"] == "MoRF")
        & (table.numbers["Removed"] == 0.9)
    ).arg_true()
    cell = load_table("lerf_morf_ppl").filter(model="Gemma-3-12B", order="morf", rate=0.9, selector="wanda")
    assert table.numbers["Wanda"][row] == cell["ppl"][0]
    assert table.texts["Wanda"][row] == cell["printed"][0]
    assert table.texts["Removed"][row] == "90%"


def test_points_are_filtered_by_kind_severity_and_table():
    whole = load_table("inconsistencies")
    for kind in paper.KINDS:
        found = paper.points([kind], paper.SEVERITIES)
        assert found.height == whole.filter(kind=kind).height
    assert paper.points(paper.KINDS, ["high"]).height == whole.filter(severity="high").height
    assert set(whole["kind"]) <= set(paper.KINDS)
    assert set(whole["severity"]) <= set(paper.SEVERITIES)
    about = paper.points(paper.KINDS, paper.SEVERITIES, "models")
    by_hand = [row["id"] for row in whole.iter_rows(named=True) if "tab:models" in row["tables"].split(", ")]
    assert sorted(about["id"]) == sorted(by_hand)
    places = [paper.SEVERITIES.index(severity) for severity in about["severity"]]
    assert places == sorted(places)


def test_links_lead_to_tables_that_hold_the_numbers():
    assert paper.tables_of("tab:models") == ["models"]
    assert paper.tables_of("tab:wilson, text, tab:faithfulness") == ["wilson", "faithfulness_controls"]
    assert paper.tables_of("text") == []
    for labels in load_table("inconsistencies")["tables"]:
        for name in paper.tables_of(labels):
            assert set(describe(name).sources) & set(labels.split(", "))


def test_the_shipped_model_has_no_printed_cells_and_the_page_says_why():
    app = page(beside="Shipped model")
    assert warnings_of(app) == []
    assert "demo is none of the models" in app.info[0].value.replace("\\", "")


def test_a_run_of_a_printed_model_stands_beside_its_table(store):
    app = page(beside="results/Qwen3-8B")
    assert warnings_of(app) == []
    beside = app.dataframe[1].value
    off = beside[~beside["within"]]
    assert list(off["selector"]) == ["lrp"]
    assert off["measured"].iloc[0] == pytest.approx(2 * off["published"].iloc[0])
    assert len(beside) == load_table("lerf_morf_ppl").filter(model="Qwen3-8B").height
    assert beside["selector"].iloc[0] == "lrp"  # the worst first
    assert beside["z"].iloc[0] > 60
    assert any("1 of 2" in caption.value and "beyond rounding and noise" in caption.value for caption in app.caption)
    app = page(beside="results/Qwen3-8B", paper_view="A run beside")
    assert warnings_of(app) == []
    orders, signs = app.dataframe[0].value, app.dataframe[1].value
    assert (orders["agreeing"] == orders["pairs"]).all()  # twice LRP's perplexity is still third
    assert signs["same_sign"].all()
