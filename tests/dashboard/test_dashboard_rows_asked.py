"""The parts of Rows that ask a model: brushed cells, at once or by a button, and the mask of the map."""

from functools import partial

import pytest
from app_pages import captions, drawn_page, select

from dashboard.chat import answers, live, measure
from dashboard.pages.rows import scored
from engine.edits.masks import removed_rows

page = partial(drawn_page, "rows", source="My results")


@pytest.fixture(scope="module")
def loaded(tiny_folder):
    from engine.models.loading import load_model

    return load_model(str(tiny_folder), dtype="float32", device="cpu")


@pytest.fixture(autouse=True)
def one_model_and_little_text(monkeypatch, tmp_path, loaded):
    """Loaded once for all tests of this file."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(lambda _: loaded))
    monkeypatch.setattr(measure, "WINDOWS", 3)
    monkeypatch.setattr(measure, "ALL_WINDOWS", 5)
    monkeypatch.setattr(measure, "FIRST", 2)
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))


def metrics(app):
    return {one.label: one.value for one in app.metric}


def table(app):
    return next(one for one in app.dataframe if "Row id" in one.value and "LRP" in one.value)


def test_brushed_cells_are_asked_by_a_button_where_the_model_is_not_at_hand(folder):
    app = page(folder=folder, brushed="block 1 q_proj")
    assert not app.metric
    there = scored.read(folder).rows.filter(block=1, projection="q_proj").height
    assert f"Block 1 q_proj: {there} of 288 rows." in captions(app)
    app.button(key="rows-brush-ask").click().run()
    assert not app.exception
    assert "the whole text: all 5 windows" in captions(app)
    numbers = metrics(app)
    assert set(numbers) == {"As it is", "Without these rows", "Without random rows", "NLL against random"}
    answer = app.session_state["answer-rows-brush"]
    assert [one.windows for one in answer.found] == [2, 5]
    assert answer.found[-1].rows == there
    app.multiselect(key="brushed").set_value(["block 1 q_proj", "block 0 v_proj"]).run()
    assert not app.metric  # an answer to another question is not shown


def test_brushed_cells_are_measured_at_once_where_it_is(folder, monkeypatch):
    monkeypatch.setattr(answers, "at_hand", lambda _: True)
    asked = []
    real = measure.compared
    monkeypatch.setattr(
        measure, "compared", lambda loaded, rows, say: asked.append(rows.tolist()) or real(loaded, rows, say)
    )
    app = page(folder=folder)
    assert not asked
    app.multiselect(key="brushed").set_value(["block 0 k_proj"]).run()
    assert not app.exception
    assert len(asked) == 1
    assert asked[0] == scored.read(folder).rows.filter(block=0, projection="k_proj")["row_id"].to_list()
    shown = metrics(app)
    assert shown
    app.selectbox(key="block").set_value(1).run()  # another setting asks nothing again
    assert len(asked) == 1
    assert metrics(app) == shown
    app.multiselect(key="brushed").set_value([]).run()
    assert not app.metric
    app.text_input(key="rows").set_value("3, 5").run()  # ticked rows, where no cell is brushed
    assert asked[-1] == [3, 5]


def test_a_box_on_the_map_is_taken_over_once(folder):
    app = page(folder=folder, brush="true")
    points = [{"customdata": [row, column, ""]} for row, column in ((0, 1), (1, 1), (0, 0))]
    select(app, app.get("plotly_chart")[0], points=points)
    assert not app.exception
    assert app.multiselect(key="brushed").value == ["block 0 q_proj", "block 0 k_proj", "block 1 k_proj"]
    assert [app.selectbox(key=key).value for key in ("block", "projection")] == [0, "q_proj"]  # no cell was opened
    assert len(app.get("plotly_chart")[0].proto.spec.split('"type":"rect"')) - 1 == 3
    app.multiselect(key="brushed").set_value(["block 1 k_proj"]).run()
    assert app.multiselect(key="brushed").value == ["block 1 k_proj"]
    without = page(folder=folder)
    select(without, without.get("plotly_chart")[0], points=points[1:2])
    assert without.multiselect(key="brushed").value == []
    assert [without.selectbox(key=key).value for key in ("block", "projection")] == [1, "k_proj"]


def test_all_rows_have_nothing_to_be_compared_with(folder):
    app = page(folder=folder, rows="0-287")
    assert "all rows of the model" in captions(app)
    assert "rows-brush-ask" not in [button.key for button in app.button]


@pytest.mark.long
def test_the_map_of_a_mask_marks_its_rows_and_can_be_tried(folder):
    app = page(folder=folder, measure="Removed rows", row_selector="LRP", row_order="MoRF", row_rate="30%")
    mask = removed_rows(scored.read(folder).scores("lrp"), "morf", 0.3)
    shown = table(app).value
    assert shown["In the mask"].to_list() == [row in mask for row in shown["Row id"]]
    assert f"removes {mask.size} of 288 rows" in " ".join(one.value for one in app.markdown).replace("\\", "")
    app.selectbox(key="rows-which").set_value("Of the map: LRP, MoRF 30%").run()
    app.button(key="rows-zero-ask").click().run()
    assert not app.exception
    assert app.session_state["answer-rows-zero"].found[-1].rows == mask.size
