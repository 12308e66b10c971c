"""A clicked point of a curve leads to its mask on Rows and in Live edit."""

import json
from urllib.parse import parse_qs

import pytest
from app_pages import run_page, select
from made_up_audit import write_audit
from scored_runs import write_scored
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.chat import edits, live
from dashboard.pages.rows import scored
from engine.edits.masks import removed_rows
from engine.records.errors import InputError
from engine.records.manifest import read_manifest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_audit(tmp_path_factory.mktemp("point") / "run")


def curves(**parameters):
    def script():
        import streamlit as st

        from dashboard.pages.curves import curves_page as page
        from dashboard.show import menu

        pages = {"Audit": [st.Page(page.render, title="Curves", default=True)]}
        pages["Playground"] = [st.Page(lambda: None, title=name, url_path=name) for name in ("rows", "live")]
        shown = st.navigation(pages, position="hidden")
        menu.show(pages, shown)
        shown.run()

    app = AppTest.from_function(script, default_timeout=120)
    for key, value in parameters.items():
        app.query_params[key] = str(value)
    app.run()
    assert not app.exception
    return app


def click(app, selector, order, rate):
    """Clicks the point of a curve; returns the links with these settings, by their label."""
    figure = app.get("plotly_chart")[("lerf", "morf").index(order)]
    traces = json.loads(figure.proto.spec)["data"]
    number = next(place for place, one in enumerate(traces) if one.get("legendgroup") == selector)
    point = traces[number]["x"].index(rate)
    select(app, figure, points=[{"curve_number": number, "point_index": point, "x": rate}])
    assert not app.exception
    links = [one.proto for one in app.get("page_link")]
    return {one.label: one for one in links if one.label in (edits.TO_ROWS, edits.TO_LIVE)}


def test_the_link_opens_rows_on_the_very_mask(folder):
    app = curves(source="My results", folder=folder)
    links = click(app, "lrp", "morf", 0.3)
    assert set(links) == {edits.TO_ROWS, edits.TO_LIVE}
    assert links[edits.TO_ROWS].page == "rows"
    assert any("LRP, MoRF 30%" in one.value.replace("\\", "") for one in app.markdown)
    settings = {key: value for key, (value,) in parse_qs(links[edits.TO_ROWS].query_string).items()}
    there = run_page("rows", source="My results", folder=folder, **settings)
    assert not there.exception
    assert not list(there.warning)
    mask = removed_rows(scored.read(folder).scores("lrp"), "morf", 0.3)
    table = next(one.value for one in there.dataframe if "In the mask" in one.value)
    assert table["In the mask"].to_list() == [row in mask for row in table["Row id"]]
    alt = there.get("plotly_chart")[0].proto.alt
    assert alt.startswith("LRP removes ")
    assert "highest 30%" in alt


def test_the_link_to_live_edit_takes_the_scores_of_the_run(tmp_path):
    from tiny_models import save_tiny

    model = save_tiny("llama", tmp_path / "model", max_position_embeddings=512)
    run = write_scored(tmp_path / "run", model)
    write_run(run, model=read_manifest(run)["model"])
    links = click(curves(source="My results", folder=run), "lrp", "morf", 0.1)
    (text,) = parse_qs(links[edits.TO_LIVE].query_string)[edits.HANDED]
    there = run_page("live", edit=text)
    assert not there.exception
    assert there.text_input(key="edit_model_id").value == str(model)
    assert there.text_input(key="rank_run").value == str(run)
    found, edit = edits.read_handed(text)
    entry = live.Entry(live._load(found))
    expected = removed_rows(scored.read(run).scores("lrp"), "morf", 0.1)
    assert edits.mask_of(entry, edit, lambda *_: None).tolist() == expected.tolist()
    other = live.Entry(live._load(str(save_tiny("llama", tmp_path / "other", seed=5))))
    with pytest.raises(InputError, match="run `selector-audit score` on this model"):
        edits.mask_of(other, edit, lambda *_: None)


def test_nothing_is_removed_at_0(folder):
    app = curves(source="My results", folder=folder)
    assert not click(app, "ig", "lerf", 0.0)
    assert any("Nothing is removed" in one.value for one in app.caption)
    assert not click(curves(source="My results", folder=folder, selectors="Random"), "random", "lerf", 0.0)


def test_of_the_shipped_model_the_mask_is_zeroed_live():
    app = curves(source="Shipped model")
    links = click(app, "magnitude", "lerf", 0.3)
    assert set(links) == {edits.TO_ROWS, edits.TO_LIVE}
    (text,) = parse_qs(links[edits.TO_LIVE].query_string)[edits.HANDED]
    there = run_page("live", edit=text)
    assert not there.exception
    assert there.segmented_control(key="mode").value == "Remove by rate"
    assert there.selectbox(key="rank_selector").value == "magnitude"
    assert (there.segmented_control(key="rank_order").value, there.select_slider(key="rate").value) == ("LeRF", 0.3)
    assert edits.HANDED not in there.query_params
