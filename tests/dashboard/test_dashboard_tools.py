"""Figures at two sizes, the foot of a page."""

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts import figure_size, lines
from dashboard.charts.findings import finding_words as words


def figure():
    drawn = go.Figure(go.Scatter(x=[1, 2], y=[3, 4], marker={"size": 7}, line={"width": 2}))
    drawn.update_layout(height=300, margin={"l": 10, "b": 40}, title={"text": "a title"})
    drawn.update_xaxes(title={"text": "x", "standoff": 5})
    drawn.add_annotation(text="a note", x=1, y=3, font={"size": 11})
    return drawn


@pytest.mark.parametrize("low", [False, True])
def test_a_first_figure_leaves_its_title_to_the_page_and_its_distances_are_pixels(low):
    drawn = lines.finished(figure(), "a title", "below", height=400, bottom=120, top=66)
    drawn.update_yaxes(tickvals=[3, 4], ticktext=["few<br><sub>3 rows</sub>", "many"])
    drawn.update_layout(coloraxis={"colorbar": {"orientation": "h", "y": -0.15, "yanchor": "top"}})
    words.headed(drawn, "a sentence that is long enough to take more than one line of a figure's title")
    assert drawn.layout.margin.t > 66
    layout = figure_size.stretchable(drawn, 66, low=low).layout
    assert layout.title.text is None
    assert layout.margin.t == 28 + 80  # that it was made with, less a line of title and one below it; the colour bar
    assert layout.height == pytest.approx(400 - (66 - 28))
    assert (layout.legend.yref, layout.legend.y, layout.legend.yanchor) == ("container", 0, "bottom")
    assert (layout.coloraxis.colorbar.yref, layout.coloraxis.colorbar.yanchor) == ("container", "top")
    assert layout.yaxis.ticktext[0] == ("few · <sub>3 rows</sub>" if low else "few<br><sub>3 rows</sub>")
    assert layout.yaxis.ticktext[1] == "many"


def page(**parameters):
    def script():
        import plotly.graph_objects as go
        import polars as pl

        from dashboard.show import stage, tools

        stage.switch()
        tools.show(go.Figure(go.Bar(x=[1], y=[2]), {"height": 200}), "bars")
        tools.end(pl.DataFrame({"a": [1]}), "values", "a note", provenance=["<b>origin</b>"])

    app = AppTest.from_function(script, default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    return app.run()


def test_the_stage_enlarges_page_and_figures():
    plain, large = page(), page(present="true")
    assert not plain.exception
    assert not large.exception
    assert '"height":200' in plain.get("plotly_chart")[0].proto.spec
    assert '"height":400' in large.get("plotly_chart")[0].proto.spec
    styles = [
        [block.proto.body for block in app.get("html") if "<style>" in block.proto.body] for app in (plain, large)
    ]
    assert styles[0] == []
    assert "vh" in styles[1][0]


def test_the_export_menu_has_link_downloads_and_plain_provenance():
    app = page(present="true", model="a b&c")
    (link,) = app.code
    assert link.value.endswith("?present=true&model=a+b%26c")
    assert [button.proto.label for button in app.get("download_button")] == ["CSV", "Parquet"]
    notes = [block.proto.body for block in app.get("html")]
    assert sum("&lt;b&gt;origin" in body for body in notes) == sum("a note" in body for body in notes) == 1
