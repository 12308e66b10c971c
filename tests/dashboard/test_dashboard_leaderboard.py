"""The leaderboard: its numbers by hand, sorted by number, on the overview, narrowed by Compare."""

import math

import polars as pl
import pytest
from app_pages import run_page
from synthetic import SLOPES, UNMASKED_NLL, add_table, stability, sweep, verdicts, write_run

import precomputed
from dashboard.charts import overview
from dashboard.charts.overview import DRAWS, GAP, HARM, SHARE, STABLE, VERDICT, Entry
from dashboard.pages.overview import overview_page as on_the_page
from dashboard.state import results

MODEL = "made-up-1B"


def entry(slopes=SLOPES, **tables):
    frame = sweep(slopes).with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))
    return Entry("Run one", MODEL, frame, **tables)


def test_the_numbers_are_those_of_the_lines():
    found = overview.leaderboard([entry(verdicts=verdicts(), stability=stability({"lrp": 0.9}))])
    rows = {row["selector"]: row for row in found.iter_rows(named=True)}
    assert list(rows) == ["lrp", "ig", "wanda", "random"]
    for name, (lerf, morf) in SLOPES.items():
        assert rows[name]["log_gap"] == pytest.approx((morf - lerf) * 0.3)
        assert rows[name]["harm"] == pytest.approx(lerf * 0.3)
        assert rows[name]["damage"] == pytest.approx(lerf / 6.0)
    lrp, wanda, ig = rows["lrp"], rows["wanda"], rows["ig"]
    assert (lrp["validity"], lrp["stability"], lrp["draw_jaccard"]) == ("faithful", "stable", 0.9)
    assert lrp["spearman"] == pytest.approx((0.9 + 1) / 2)  # of half the text
    assert (wanda["validity"], wanda["spearman"]) == ("not", None)
    assert (ig["validity"], ig["stability"], ig["draw_jaccard"]) == (None, None, None)
    ceiling = entry().curves.with_columns(plateau=pl.col("order") == "morf")
    (stars,) = overview.leaderboard([Entry("x", MODEL, ceiling)]).filter(selector="lrp").iter_rows(named=True)
    assert (stars["gap_at_ceiling"], stars["harm_at_ceiling"]) == (True, False)


def test_what_is_not_finite_or_not_measured_is_no_number():
    frame = entry().curves.filter(~((pl.col("selector") == "ig") & (pl.col("order") == "morf")))
    frame = frame.with_columns(
        nll=pl.when((pl.col("selector") == "wanda") & (pl.col("rate") == 0.3)).then(math.inf).otherwise("nll")
    )
    found = overview.leaderboard([Entry("x", MODEL, frame)])
    rows = {row["selector"]: row for row in found.iter_rows(named=True)}
    assert rows["ig"]["log_gap"] is None
    assert rows["ig"]["harm"] == pytest.approx(1.5 * 0.3)
    assert (rows["wanda"]["log_gap"], rows["wanda"]["harm"]) == (None, None)
    without = overview.leaderboard([Entry("x", MODEL, frame.filter(pl.col("selector") == "lrp"))])
    assert without["damage"].to_list() == [None]  # no random to compare with
    nowhere = overview.leaderboard([Entry("x", MODEL, frame.filter(pl.col("rate") != 0.3))])
    assert nowhere.is_empty()
    assert overview.leaderboard([]).is_empty()


def test_it_sorts_by_number_and_words_by_how_good_they_are():
    slopes = {"lrp": (1.0, 20.0), "ig": (10.0, 5.0), "wanda": (6.0, 7.0), "random": (6.0, 6.0)}
    found = overview.leaderboard_table(overview.leaderboard([entry(slopes, verdicts=verdicts())]))
    numbers, texts = found.numbers, found.shown
    assert numbers.schema[GAP] == numbers.schema[HARM] == numbers.schema[SHARE] == pl.Float64
    assert numbers.sort(GAP, descending=True)["Selector"].to_list() == ["LRP", "Wanda", "Random", "IG"]
    assert texts.filter(Selector="IG")[GAP].to_list() == ["−1.50"]
    assert texts[VERDICT].to_list() == ["faithful", "–", "not faithful", "–"]
    assert texts[STABLE].to_list() == ["stable", "–", "stable", "–"]
    best_first = numbers.sort(VERDICT, descending=True, nulls_last=True)
    assert best_first["Selector"].to_list()[:2] == ["LRP", "Wanda"]
    assert texts[DRAWS].to_list() == ["0.90", "–", "0.90", "–"]


def board(app):
    """The table, by its columns."""
    (found,) = [one.value for one in app.dataframe if GAP in one.value.columns]
    return found


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")
    add_table(write_run(tmp_path / "results" / "first"), "verdicts", verdicts())
    write_run(
        tmp_path / "results" / "second", sweep({"lrp": (2.0, 30.0)}, "other"), {"id": "other", "dtype": "float32"}
    )
    return tmp_path / "results"


def test_the_overview_has_every_model_that_is_there(store):
    app = run_page("overview", run="first", leaderboard="true")
    assert not app.exception
    table = board(app)
    sources = set(table["Source"])
    assert {f"My results: {MODEL}", "Run second: other"} < sources
    assert sum(name.startswith("Paper: ") for name in sources) == len(results.read_paper().models)
    gaps = table[GAP].dropna().tolist()
    assert gaps == sorted(gaps, reverse=True)
    own = table[(table["Source"] == "Run second: other")]
    assert own[GAP].tolist() == pytest.approx([28.0 * 0.3])
    assert own[HARM].tolist() == pytest.approx([2.0 * 0.3])


def test_a_damaged_table_of_one_run_leaves_the_others(store):
    (store / "first" / "verdicts.parquet").write_bytes(b"x")
    app = run_page("overview", run="second", leaderboard="true")
    assert not app.exception
    found = board(app)
    first = found[found["Source"] == f"Run first: {MODEL}"]
    assert len(first) == len(SLOPES)
    assert first[VERDICT].isna().all()
    assert UNMASKED_NLL > 0
    assert on_the_page.LEADERBOARD in [one.label for one in app.expander]
