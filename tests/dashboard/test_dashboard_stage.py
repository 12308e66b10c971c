"""Stage mode without a browser: what stands before and after a page, names at line ends, and the way out."""

import json

import pytest
from streamlit.testing.v1 import AppTest


def app(current, **state):
    def script(current):
        import plotly.graph_objects as go
        import streamlit as st

        from dashboard.show import stage, tools

        def show():
            drawn = go.Figure()
            for name in ("one", "two"):
                drawn.add_scatter(x=[0, 1], y=[1, 2], name=name, mode="lines", line={"color": "#112233", "width": 2})
            drawn.update_layout(height=300, margin={"t": 40, "b": 60, "l": 10, "r": 10}, title={"text": "two lines"})
            tools.show(drawn, "lines", finding="They rise.", hero=True)

        def other():
            pass

        pages = {
            "First": [st.Page(show, title="One", url_path="one", default=True)],
            "Second": [st.Page(other, title="Two", url_path="two"), st.Page(show, title="Three", url_path="three")],
        }
        st.navigation(pages, position="hidden")
        page = next(page for inside in pages.values() for page in inside if page.title == current)
        stage.switch()
        stage.controls(pages, page)
        show()

    made = AppTest.from_function(script, args=(current,), default_timeout=60)
    for name, value in state.items():
        made.session_state[name] = value
    return made.run()


def links(made):
    return [link.proto.label for link in made.get("page_link")]


@pytest.mark.parametrize(("current", "around"), [("One", ["Two"]), ("Two", ["One", "Three"]), ("Three", ["Two"])])
def test_the_pages_before_and_after_are_those_of_the_menu_in_its_order(current, around):
    made = app(current, present=True)
    assert not made.exception
    assert links(made) == around


def test_off_stage_there_is_nothing_of_it():
    made = app("Two")
    assert links(made) == []
    assert made.get("bidi_component") == []
    figure = json.loads(made.get("plotly_chart")[0].proto.spec)
    assert [note["font"]["size"] for note in figure["layout"]["annotations"]] == [12, 12]  # names at line ends


def test_lines_have_their_names_at_their_ends_in_type_of_24_pixels():
    made = app("One", present=True)
    figure = json.loads(made.get("plotly_chart")[0].proto.spec)
    notes = figure["layout"]["annotations"]
    assert [(note["text"], note["font"]["size"]) for note in notes] == [("one", 24), ("two", 24)]
    assert notes[1]["ay"] - notes[0]["ay"] > 0
    assert figure["layout"]["showlegend"] is False
    assert figure["layout"]["font"]["size"] == 24
    (finding,) = [
        block.proto.body for block in made.get("html") if "finding" in block.proto.body and "<h2>" in block.proto.body
    ]
    assert "They rise." in finding


def test_who_leaves_the_stage_is_on_the_page_as_it_was():
    from dashboard.show import stage

    made = app("One", present=True)
    assert made.toggle(key=stage.KEY).value
    made.toggle(key=stage.KEY).set_value(False).run()
    assert links(made) == []
