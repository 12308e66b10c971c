"""Small multiples over models, and what can stand beside a page's curves."""

import math
from functools import partial

import polars as pl
import pytest
from app_pages import run_page
from synthetic import SLOPES, UNMASKED_NLL, break_manifest, sweep, write_run, write_two_runs

import precomputed
from dashboard.charts import curves, series
from dashboard.report.html_report import curves_figure
from dashboard.state import offers, results

LN10 = math.log(10)
MODEL = "made-up-1B"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """Two whole runs of different models and a broken one; nothing is shipped."""
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")
    write_two_runs(tmp_path / "results")
    break_manifest(write_run(tmp_path / "results" / "third"))
    return tmp_path / "results"


def panel(name, slopes=SLOPES, plateau=0.9):
    """A panel of straight lines; cells at or above `plateau` are at a ceiling."""
    frame = sweep(slopes).with_columns(printed=pl.lit(None, pl.String), plateau=pl.col("rate") >= plateau)
    points = series.points(frame, MODEL, list(slopes), ["lerf", "morf"], (0.0, 1.0))
    return curves.Panel(name, points, UNMASKED_NLL)


def test_all_panels_share_axes_and_one_legend():
    panels = [panel("<one>"), panel("two", {"lrp": (1.0, 40.0)}), panel("three")]
    figure = curves.multiples(panels, "morf", columns=2, relative=False)
    assert [note.text for note in figure.layout.annotations] == ["&lt;one&gt;", "two", "three"]
    assert len({axis.range for axis in figure.select_yaxes()}) == 1
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert named == ["LRP", "IG", "Wanda", "Random"]
    assert {trace.legendgroup for trace in figure.data} == {"lrp", "ig", "wanda", "random"}
    steep = next(trace for trace in figure.data if trace.yaxis == "y2")
    assert steep.y[-1] == pytest.approx((UNMASKED_NLL + 20.0) / LN10)
    assert figure.layout.yaxis.range[1] > steep.y[-1]


def test_everything_readable_is_offered_once(store):
    curves = results.read_run(store / "first")
    offered = offers.offers("My results", curves, store / "first")
    assert next(iter(offered)) == f"My results: {MODEL}"
    assert list(offered)[-1] == "Run second: other"
    assert sum(name.startswith("Paper: ") for name in offered) == 5
    assert not any("first" in name or "third" in name for name in offered)
    assert [offer.name for offer in offers.beside("My results", offered)] == [
        f"My results: {MODEL}",
        "Run second: other",
    ]
    assert len(offers.beside("Paper", offered)) == 5


page = partial(run_page, "curves")


def test_the_models_tab_draws_all_runs_of_the_store(store):
    app = page(view="Models", run="first")
    assert not app.exception
    assert not app.warning
    lerf, morf = (figure.proto.spec for figure in app.get("plotly_chart"))
    for spec in (lerf, morf):
        assert '"text":"other"' in spec
    app = page(view="Models", source="Paper", order="LeRF")
    assert not app.exception
    (figure,) = app.get("plotly_chart")
    assert all(model in figure.proto.spec for model in results.read_paper().models)


def test_both_orders_of_one_run_stand_side_by_side():
    """`audit_scores(…).plot()`: every measured mean of the sweep, and the orders' headings."""
    folder = precomputed.demo_dir() / "results"
    figure, sweep = curves_figure(folder), pl.read_parquet(folder / "sweep.parquet")
    drawn = {(trace.name, trace.xaxis): dict(zip(trace.x, trace.y, strict=True)) for trace in figure.data}
    means = sweep.filter(selector="lrp").group_by("order", "rate").agg(pl.col("nll").mean() / math.log(10))
    for order, rate, height in means.iter_rows():
        assert drawn["LRP", "x" if order == "lerf" else "x2"][rate] == pytest.approx(height)
    assert [note.text.split(":")[0] for note in figure.layout.annotations] == ["LeRF", "MoRF"]
