"""Figures for papers: the copy at a column's width, the switch below a page, and what both hold."""

import json

import plotly.graph_objects as go
import pytest
from app_pages import run_page
from paper_example import figure
from streamlit.testing.v1 import AppTest

from dashboard.show import paper
from dashboard.state.results import describe_run


@pytest.mark.parametrize("width_in", paper.WIDTHS_IN)
def test_a_copy_as_wide_as_a_column_light_and_without_a_title(width_in):
    given = figure()
    before = given.to_json()
    drawn = paper.for_paper(given, width_in)
    layout = drawn.layout
    assert given.to_json() == before
    assert layout.width == round(96 * width_in)
    assert (layout.paper_bgcolor, layout.plot_bgcolor, layout.title.text) == ("white", "white", "")
    assert (
        layout.template.layout.colorway
        == go.Figure().update_layout(template="plotly_white").layout.template.layout.colorway
    )
    assert layout.font.size == pytest.approx(8 * 96 / 72)  # points to pixels
    assert layout.annotations[0].font.color != "#808080"
    plot = given.layout.height - given.layout.margin.t - given.layout.margin.b
    assert layout.height - layout.margin.t - layout.margin.b == pytest.approx(plot * 8 / 9)
    assert len(drawn.data) == len(given.data)


def test_no_text_ends_the_script_that_holds_it():
    drawn = paper.for_paper(figure().update_layout(xaxis_title="</script><b>"), 3.25)
    page = paper.document(drawn, "name", "a caption </script> & more")
    data = page.split('id="data">')[1].split("</script>")[0]
    told = json.loads(data)
    assert told["caption"] == "a caption </script> & more"
    assert told["figure"]["layout"]["xaxis"]["title"]["text"] == "</script><b>"
    assert "http" not in page.split("</head>")[0]


def page():
    def script():
        import plotly.graph_objects as go
        import polars as pl

        from dashboard.show import tools

        for name in ("bars", "dots"):
            tools.show(go.Figure(go.Bar(x=[1], y=[2]), {"height": 200}), name, finding=f"The {name} say so")
        tools.end(pl.DataFrame({"a": [1]}), "values", "a note on `--rates`", provenance=["Model made-up"])

    return AppTest.from_function(script, default_timeout=60).run()


def test_the_switch_shows_one_figure_with_finding_notes_and_provenance():
    app = page()
    assert not app.exception
    assert not app.get("iframe")
    app.toggle(key="paper-figures").set_value(True).run()
    assert not app.exception
    assert app.selectbox(key="paper_figure").options == ["bars", "dots"]
    for name, width in (("bars", 312), ("dots", 648)):
        app.selectbox(key="paper_figure").set_value(name).run()
        app.segmented_control(key="paper_width").set_value(width / 96).run()
        (frame,) = app.get("iframe")
        told = json.loads(frame.proto.srcdoc.split('id="data">')[1].split("</script>")[0])
        assert told["caption"] == f"The {name} say so. a note on --rates Model made-up"
        assert told["name"] == f"{name}-{width / 96:g}in"
        assert told["figure"]["layout"]["width"] == width


def caption_of(app):
    (frame,) = app.get("iframe")
    return json.loads(frame.proto.srcdoc.split('id="data">')[1].split("</script>")[0])["caption"]


@pytest.mark.first_run("curves")
@pytest.mark.parametrize("name", ["curves", "believed"])
def test_the_caption_of_published_values_names_the_model(name):
    app = run_page(name, source="Paper")
    app.toggle(key="paper-figures").set_value(True).run()
    assert not app.exception
    assert f" Model {app.selectbox(key='model').value}. " in caption_of(app)
    assert "Published values: " in caption_of(app)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"id": "/home/somebody/models/mine-1B"}, "Model mine-1B"),
        ({"id": "organisation/name", "revision": "abc"}, "Model organisation/name"),
        ({"id": "demo"}, "Model demo"),
        ({}, "Model unknown"),
    ],
)
def test_no_path_of_a_disk_stands_in_a_caption(model, said):
    assert describe_run({"model": model}, {}).split(" · ")[0] == said
