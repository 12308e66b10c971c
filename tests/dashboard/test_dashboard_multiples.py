"""Small multiples over models, pinned curves, and what can stand beside a page's curves."""

import math
from functools import partial

import polars as pl
import pytest
from app_pages import run_page
from synthetic import SLOPES, UNMASKED_NLL, break_manifest, sweep, write_run, write_two_runs

import precomputed
from dashboard.charts import curves as curve_chart, multiples, series
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
    return multiples.Panel(name, points, UNMASKED_NLL)


def test_all_panels_share_axes_and_one_legend():
    panels = [panel("<one>"), panel("two", {"lrp": (1.0, 40.0)}), panel("three")]
    figure = multiples.multiples(panels, "morf", columns=2, relative=False)
    assert [note.text for note in figure.layout.annotations] == ["&lt;one&gt;", "two", "three"]
    assert len({axis.range for axis in figure.select_yaxes()}) == 1
    named = [trace.name for trace in figure.data if trace.showlegend]
    assert named == ["LRP", "IG", "Wanda", "Random"]
    assert {trace.legendgroup for trace in figure.data} == {"lrp", "ig", "wanda", "random"}
    steep = next(trace for trace in figure.data if trace.yaxis == "y2")
    assert steep.y[-1] == pytest.approx((UNMASKED_NLL + 20.0) / LN10)
    assert figure.layout.yaxis.range[1] > steep.y[-1]


def test_relative_panels_start_at_one():
    figure = multiples.multiples([panel("one"), panel("two")], "lerf", columns=1, relative=True)
    assert [trace.y[0] for trace in figure.data] == pytest.approx([0.0] * 8)
    assert "÷ unmasked" in figure.layout.yaxis.title.text


def test_a_panel_without_an_unmasked_model_has_no_relative_curves():
    whole, part = panel("one"), panel("two")
    part = multiples.Panel(part.name, part.points, None)
    figure = multiples.multiples([whole, part], "lerf", columns=1, relative=True)
    assert {trace.yaxis for trace in figure.data} == {"y"}
    both = multiples.multiples([whole, part], "lerf", columns=1, relative=False)
    assert {trace.yaxis for trace in both.data} == {"y", "y2"}


def test_cells_at_a_ceiling_do_not_stretch_the_shared_axis():
    wild = panel("wild", {"lrp": (1.0, 1000.0)}, plateau=0.5)
    figure = multiples.multiples([panel("one"), wild], "morf", columns=1, relative=False)
    highest = (UNMASKED_NLL + 0.3 * 1000) / LN10  # the last cell below the ceiling
    assert highest < figure.layout.yaxis.range[1] < 1.2 * highest
    assert max(figure.data[-1].y) == pytest.approx((UNMASKED_NLL + 500) / LN10)


def test_a_pinned_curve_lies_behind_every_panel_and_keeps_its_baseline():
    points = panel("x", {"ig": (3.0, 5.0)}).points
    pinned = curve_chart.Pinned("<run>, IG", points, 1.0)
    figure = multiples.multiples([panel("one"), panel("two")], "lerf", columns=1, relative=True, pinned=pinned)
    bands = [trace for trace in figure.data if trace.name == "pinned: &lt;run&gt;, IG"]
    assert len(bands) == 2
    assert [trace.showlegend for trace in bands] == [True, False]
    assert bands[0].y[-1] == pytest.approx((UNMASKED_NLL + 1.5 - 1.0) / LN10)
    single = curve_chart.curves(panel("one").points, "lerf", baseline=UNMASKED_NLL, pinned=pinned)
    assert single.data[0].line.width > single.data[1].line.width
    assert single.layout.yaxis.range[1] > max(single.data[0].y)


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
    assert list(offers.pins(offered))[:4] == [
        f"My results: {MODEL}, {name}" for name in ("LRP", "IG", "Wanda", "Random")
    ]


def test_a_source_of_one_model_is_shown_beside_all_others(store):
    offered = offers.offers("Paper", results.read_paper(), None)
    alone = {name: offer for name, offer in offered.items() if offer.model in ("Qwen3-8B", "other")}
    assert [offer.model for offer in offers.beside("Paper", alone)] == ["Qwen3-8B", "other"]


page = partial(run_page, "curves")


def test_the_models_tab_draws_all_runs_of_the_store(store):
    app = page(view="Models", run="first", pin="Run second: other, LRP")
    assert not app.exception
    assert not app.warning
    lerf, morf = (figure.proto.spec for figure in app.get("plotly_chart"))
    for spec in (lerf, morf):
        assert "Run second: other" in spec
        assert "pinned: Run second: other, LRP" in spec
    app = page(view="Models", source="Paper", order="LeRF")
    assert not app.exception
    (figure,) = app.get("plotly_chart")
    assert all(model in figure.proto.spec for model in results.read_paper().models)


def test_a_pin_stays_when_another_model_is_chosen(store):
    app = page(source="Paper", model="Qwen3-8B", pin="Paper: Gemma-3-12B, Wanda")
    app.selectbox(key="model").set_value("Llama-3.2-3B").run()
    assert not app.exception
    assert app.selectbox(key="pin").value == "Paper: Gemma-3-12B, Wanda"
    assert all("pinned: Paper: Gemma-3-12B, Wanda" in figure.proto.spec for figure in app.get("plotly_chart"))


def test_another_run_can_be_laid_over(store):
    app = page(run="first", overlay="Run second: other")
    assert not app.exception
    assert "Run second: other" in app.get("plotly_chart")[0].proto.spec
