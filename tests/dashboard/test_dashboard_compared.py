"""Compare: it stays from page to page and is part of the address; small multiples of it stand in one row."""

from pathlib import Path

import pytest
from app_pages import run_page
from streamlit.testing.v1 import AppTest
from synthetic import write_two_runs
from synthetic_refusal import write_refusal_run

import precomputed
from dashboard.charts import curves, series
from dashboard.show.layout import NOT_DRAWN
from dashboard.state import offers, results

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
MODEL = "made-up-1B"
OWN, OTHER, QWEN = f"Run first: {MODEL}", "Run second: other", "Paper: Qwen3-8B"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")
    write_two_runs(tmp_path / "results")
    return tmp_path / "results"


def whole_app(*chosen, path="/", **parameters):
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params[offers.KEY] = list(chosen)
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    assert not any(NOT_DRAWN in warning.value for warning in app.warning)
    return app


def test_it_stands_in_the_sidebar_with_what_the_link_says(store):
    app = whole_app(OTHER, QWEN)
    (widget,) = [one for one in app.sidebar.multiselect if one.key == offers.KEY]
    assert widget.value == [OTHER, QWEN]
    assert {OWN, OTHER, QWEN} <= set(widget.options)
    assert widget.proto.query_param_key == offers.KEY  # the browser keeps it in the address


def test_curves_show_what_is_compared_in_one_row(store):
    app = run_page("curves", run="first", view="Models", **{offers.KEY: OTHER})
    assert not app.exception
    names = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert len(names) == 2  # one row for each order
    assert all(name.endswith(" other.") for name in names), names
    app = run_page("curves", source="Paper", view="Models")
    assert "Qwen3-8B" in app.get("plotly_chart")[0].proto.alt


def test_a_row_of_panels_shares_one_axis_and_wraps_long_names():
    frame = results.read_paper().frame
    panels = [
        curves.Panel(f"{name} in a run with a long name", series.points(frame, name, ["lrp"], ["lerf"], (0, 1)), None)
        for name in results.read_paper().models
    ][: offers.MOST]
    figure = curves.multiples(panels, "lerf", columns=len(panels), relative=False)
    assert {axis.domain for axis in figure.select_yaxes()} == {(0.0, 1.0)}  # in one row
    assert len({axis.range for axis in figure.select_yaxes()}) == 1
    assert all("<br>" in note.text for note in figure.layout.annotations)
    short = curves.multiples([panels[0]], "lerf", columns=1, relative=False)
    assert "<br>" not in short.layout.annotations[0].text
    assert figure.layout.margin.t > short.layout.margin.t


def test_refusal_over_models_show_what_is_compared(store):
    write_refusal_run(store / "third")
    app = run_page("refusal", run="third", section="Across models", **{offers.KEY: [OTHER, QWEN]})
    assert not app.exception
    alts = [chart.proto.alt for chart in app.get("plotly_chart") if "LRP installs more" in chart.proto.alt]
    assert len(alts) == 1
    assert "Qwen3-8B" in alts[0]
    assert "Qwen3-14B" not in alts[0]
    assert MODEL not in alts[0]
