"""The tab of the page Curves that shows the table `differences`."""

import html
import json
import math
import statistics
from functools import partial

import polars as pl
import pytest
import scipy.stats
from app_pages import drawn_page
from synthetic import add_table, write_run

from dashboard.charts import curves as differences
from dashboard.state import results
from engine.results.tables import frame

SEEDS = {42: 1.9, 43: 2.0, 44: 2.3}  # NLL of random minus NLL of lrp


def lines():
    found = [("lerf", "lrp", "lerf", None, "ig", "lerf", None, 0.3, -0.02, 0.02, -1.0)]
    found += [
        ("lerf", "lrp", "lerf", None, "random", "lerf", seed, 0.3, -value, 0.05, -value / 0.05)
        for seed, value in SEEDS.items()
    ]
    found += [("lerf", "ig", "lerf", None, "random", "lerf", 42, 0.5, -3.0, 0.1, -30.0)]
    found += [("gap", "lrp", "morf", None, "lrp", "lerf", None, 0.3, 5.7, 0.1, 57.0)]
    return frame("differences", [("made-up-1B", *line) for line in found])


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    folder = write_run(tmp_path / "run")
    add_table(folder, "differences", lines())
    return folder


page = partial(drawn_page, "curves")


def test_seeds_are_averaged_with_what_their_draw_adds():
    found = differences.over_seeds(lines(), "lerf", 0.3)
    assert found.select("selector_a", "selector_b").rows() == [("lrp", "ig"), ("lrp", "random")]
    row = found.row(1, named=True)
    stderr = math.sqrt(0.05**2 + statistics.variance(SEEDS.values()) / 3)
    assert row["difference"] == pytest.approx(-statistics.fmean(SEEDS.values()))
    assert row["stderr"] == pytest.approx(stderr)
    # three seeds: Student's t of few degrees, and p over the two pairs by Holm
    parts = (0.05**2, statistics.variance(SEEDS.values()) / 3)
    degrees = sum(parts) ** 2 / (parts[1] ** 2 / 2)
    assert row["high"] == pytest.approx(row["difference"] + scipy.stats.t.ppf(0.975, degrees) * stderr)
    p = 2 * scipy.stats.t.sf(abs(row["difference"]) / stderr, degrees)
    assert row["p_holm"] == pytest.approx(2 * p, rel=1e-6)


def test_the_figure_has_both_signs_and_brackets_what_is_not_told_apart():
    figure = differences.pairs(differences.over_seeds(lines(), "lerf", 0.3), 0.3)
    text = {(note.y, note.x): note.text for note in figure.layout.annotations}
    # rows and columns: lrp, ig, random
    assert text == {(0, 1): "(−0.02)", (1, 0): "(0.02)", (0, 2): "−2.07", (2, 0): "2.07"}


@pytest.mark.usefixtures("run")
def test_the_tab_shows_the_pairs_and_the_gaps():
    app = page(source="My results", view="Differences")
    assert [warning.value for warning in app.warning] == []
    (chart,) = app.get("plotly_chart")
    assert chart.proto.alt.startswith("1 of 2 pairs of selectors differ beyond the errors with 30% removed.")
    assert any("Told apart: p at most 0.05 after Holm." in caption.value for caption in app.caption)
    lerf, gaps = (table.value for table in app.dataframe)
    assert lerf["minus"].tolist() == ["IG", "Random"]
    assert gaps["Nats per token"].tolist() == [5.7]
    assert json.loads(chart.proto.spec)["data"][0]["type"] == "heatmap"


def test_two_destroyed_models_are_not_told_apart():
    """They are no part of the correction either."""
    table = lines()
    alone = differences.over_seeds(table.filter(selector_a="lrp", selector_b="ig"), "lerf", 0.3)
    others = ~((pl.col("selector_a") == "lrp") & (pl.col("selector_b") == "ig"))
    found = differences.over_seeds(table.with_columns(saturated=others), "lerf", 0.3)
    assert found.filter(others)["p_holm"].null_count() == found.filter("saturated").height == found.height - 1 > 0
    assert found.filter(~others)["p_holm"].to_list() == alone["p_holm"].to_list()


def test_the_other_way_round_the_ends_are_turned():
    found = differences.over_seeds(lines(), "lerf", 0.3)
    row = found.row(1, named=True)
    drawn = html.unescape(str(differences.pairs(found, 0.3).to_dict()))
    for low, high in ((row["low"], row["high"]), (-row["high"], -row["low"])):
        assert low < high
        assert f"{low:+.4f} to {high:+.4f}" in drawn
