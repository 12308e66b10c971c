"""The Curves page as a script: sources, selection and URL, empty and broken states."""

from functools import partial

import polars as pl
import pytest
from app_pages import run_page, warnings_of
from synthetic import SLOPES, add_table, sweep, write_run

import precomputed
from dashboard.state import results

page = partial(run_page, "curves")


def charts_of(app):
    return app.get("plotly_chart")


def drawn_by(app):
    return [one.proto.spec for one in charts_of(app)]


def said(app):
    """All text that stands on the page, lines of figures' headings among it."""
    return " ".join(
        [*(one.proto.body for one in app.get("html")), *(one.value for one in [*app.markdown, *app.caption])]
    )


@pytest.fixture
def nothing_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The app started on a store of two runs."""
    folder = tmp_path / "store"
    write_run(folder / "results" / "first")
    write_run(folder / "results" / "second")
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder))
    return folder


@pytest.mark.usefixtures("nothing_shipped")
def test_without_shipped_results_the_published_curves_open():
    app = page()
    assert warnings_of(app) == []
    assert app.selectbox(key="source").value == "Paper"
    assert app.selectbox(key="model").options[0] == "Llama-3.2-1B"
    assert len(charts_of(app)) == 2


@pytest.mark.usefixtures("nothing_shipped")
def test_missing_shipped_results_say_what_to_do():
    app = page(source="Shipped model")
    (text,) = warnings_of(app)
    assert "selector" in text
    assert len(charts_of(app)) == 0


def test_a_store_given_at_the_start_opens_first(store):
    app = page()
    assert warnings_of(app) == []
    assert app.selectbox(key="source").value == "My results"
    assert app.selectbox(key="run").options == ["results/first", "results/second"]
    assert list(app.pills(key="selectors").value) == list(SLOPES)
    assert len(charts_of(app)) == 2


def test_selection_changes_what_is_drawn_and_the_url_brings_it_back(store):
    app = page()
    app.pills(key="selectors").set_value(["lrp"])
    app.segmented_control(key="order").set_value("MoRF")
    app.run()
    assert len(charts_of(app)) == 1
    again = page(selectors="LRP", order="MoRF", run="results/second")
    assert warnings_of(again) == []
    assert list(again.pills(key="selectors").value) == ["lrp"]
    assert again.segmented_control(key="order").value == "MoRF"
    assert again.selectbox(key="run").value == "results/second"
    assert len(charts_of(again)) == 1


@pytest.mark.parametrize("view", ["Curves", "Models"])
def test_what_cannot_be_divided_by_the_unmasked_model_is_said(store, view):
    write_run(store / "results" / "first", sweep().filter(pl.col("rate") > 0))
    app = page(view=view, scale="÷ unmasked")
    assert warnings_of(app) == []
    assert any("Not drawn:" in info.value and "made\\-up\\-1B" in info.value for info in app.info)
    assert not any("Not drawn:" in info.value for info in page(view=view).info)
    whole = page(run="results/second", scale="÷ unmasked")
    assert not any("Not drawn:" in info.value for info in whole.info)


def test_curves_under_several_interventions_have_a_switch(store):
    folder = store / "results" / "first"
    assert not [one for one in page(run="results/first").segmented_control if one.key == "intervention"]
    table = sweep()
    more = [
        table.with_columns(pl.col("nll") + shift, intervention=pl.lit(name), stderr_blocks=0.5, blocks=6)
        for name, shift in (("mean", 1.0), ("resample", 2.0))
    ]
    add_table(folder, "sweep_interventions", pl.concat(more))
    app = page(run="results/first")
    assert warnings_of(app) == []
    control = app.segmented_control(key="intervention")
    assert list(control.options) == ["zero", "mean", "resample"]
    assert control.value == "zero"
    drawn = drawn_by(app)
    assert "lowest scores go first; a good selector stays low" in said(app)
    control.set_value("resample")
    app.run()
    assert warnings_of(app) == []
    assert drawn_by(app) != drawn
    assert any("Rows changed by the intervention resample" in block.proto.body for block in app.get("html"))
    told = "lowest scores go first{}; a good selector stays low"
    assert told.format(" and are taken from another window") in said(app)
    again = page(run="results/first", intervention="resample")
    assert again.segmented_control(key="intervention").value == "resample"
    assert drawn_by(again) == drawn_by(app)
