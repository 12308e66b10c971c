"""The parts of Rows that ask a model: brushed cells, a row in its text, rows behind a token; at once or by a button."""

import re

import pytest
from app_pages import run_page, select, texts
from scored_runs import write_scored

from dashboard.chat import against_random, answers, live, measure
from dashboard.pages.rows import row_sets, scored
from engine.edits.masks import removed_rows
from engine.measures.row_values import row_outputs, row_relevance
from engine.measures.token_rows import token_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("model"), max_position_embeddings=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model):
    return write_scored(tmp_path_factory.mktemp("runs") / "scored", model)


@pytest.fixture(scope="module")
def loaded(model):
    from engine.models.loading import load_model

    return load_model(str(model), dtype="float32", device="cpu")


@pytest.fixture(autouse=True)
def one_model_and_little_text(monkeypatch, tmp_path, loaded):
    """Loaded once for all tests of this file."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(lambda _: loaded))
    monkeypatch.setattr(measure, "WINDOWS", 3)
    monkeypatch.setattr(against_random, "ALL_WINDOWS", 5)
    monkeypatch.setattr(against_random, "FIRST", 2)
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))


def page(folder, **parameters):
    app = run_page("rows", source="My results", folder=folder, **parameters)
    assert not app.exception
    return app


def captions(app):
    return " ".join(caption.value for caption in app.caption).replace("\\", "")


def metrics(app):
    return {one.label: one.value for one in app.metric}


def table(app):
    return next(one for one in app.dataframe if "Row id" in one.value and "LRP" in one.value)


def test_brushed_cells_are_asked_by_a_button_where_the_model_is_not_at_hand(folder):
    app = page(folder, brushed="block 1 q_proj")
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
    real = against_random.compared
    monkeypatch.setattr(
        against_random, "compared", lambda loaded, rows, say: asked.append(rows.tolist()) or real(loaded, rows, say)
    )
    app = page(folder)
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
    app = page(folder, brush="true")
    points = [{"customdata": [row, column, ""]} for row, column in ((0, 1), (1, 1), (0, 0))]
    select(app, app.get("plotly_chart")[0], points=points)
    assert not app.exception
    assert app.multiselect(key="brushed").value == ["block 0 q_proj", "block 0 k_proj", "block 1 k_proj"]
    assert [app.selectbox(key=key).value for key in ("block", "projection")] == [0, "q_proj"]  # no cell was opened
    assert len(app.get("plotly_chart")[0].proto.spec.split('"type":"rect"')) - 1 == 3
    app.multiselect(key="brushed").set_value(["block 1 k_proj"]).run()
    assert app.multiselect(key="brushed").value == ["block 1 k_proj"]
    without = page(folder)
    select(without, without.get("plotly_chart")[0], points=points[1:2])
    assert without.multiselect(key="brushed").value == []
    assert [without.selectbox(key=key).value for key in ("block", "projection")] == [1, "k_proj"]


def test_all_rows_have_nothing_to_be_compared_with(folder):
    app = page(folder, rows="0-287")
    assert "all rows of the model" in captions(app)
    assert "rows-brush-ask" not in [button.key for button in app.button]


def test_a_click_on_a_row_shows_it_in_its_text_at_once(folder, loaded, monkeypatch):
    monkeypatch.setattr(answers, "at_hand", lambda _: True)
    app = page(folder, block=1, projection="up_proj")
    row_id = int(table(app).value["Row id"].iloc[3])
    select(app, table(app), rows=[], columns=[], cells=[[3, "LRP"]])
    assert not app.exception
    assert app.number_input(key="row").value == row_id
    assert app.text_input(key="rows").value == ""  # it is not ticked
    assert app.query_params["row"] in (str(row_id), [str(row_id)])
    text = measure.evaluation_windows(loaded)
    outputs = row_outputs(loaded, text, row_id)
    (answer,) = app.session_state["answer-row-in-text"].found
    assert answer.values.tolist() == pytest.approx(outputs.flatten().tolist(), rel=1e-4, abs=1e-6)
    for passage in answer.passages:
        part = slice(passage.start, passage.start + measure.PASSAGE_TOKENS)
        assert passage.values == pytest.approx(outputs[passage.window, part].tolist(), rel=1e-4, abs=1e-6)
        assert max(map(abs, passage.values)) == pytest.approx(float(outputs[passage.window].abs().max()), rel=1e-4)
        whole = loaded.tokenizer.decode(text.input_ids[passage.window, part])
        assert "".join(passage.pieces) == whole
    app.segmented_control(key="row_graded").set_value("Relevance").run()
    assert not app.exception
    (answer,) = app.session_state["answer-row-in-text"].found
    expected = row_relevance(loaded, text, row_id)[:, :-1]
    assert answer.values.tolist() == pytest.approx(expected.flatten().tolist(), rel=1e-3, abs=1e-6)


def test_rows_behind_each_token_of_a_text(folder, loaded):
    text = 'The cat <b>sat</b> & "ran" ![x](http://example.invalid/pixel.png).'
    app = page(folder, token_text=text)
    assert not app.get("iframe")
    app.button(key="rows-behind-ask").click().run()
    assert not app.exception
    ids = loaded.tokenizer(text)["input_ids"]
    expected = token_rows(loaded, ids, top=5)
    (body,) = [one.proto.body for one in app.get("html") if "sa-behind" in one.proto.body]
    assert body.count('class="sa-token"') == sum(bool(one) for one in expected.tokens["token"][1:])
    without = re.sub('<span class="sa-why.*?</span></span></span>|<span class="sa-why sa-first.*?</span>', "", body)
    assert texts(without, "sa-behind") == ["".join(expected.tokens["token"])]  # letter by letter, nothing of it a tag
    assert "<b>sat" not in body
    strongest = expected.rows.filter(position=1, side="towards", place=1).row(0, named=True)
    found = scored.read(folder).rows.row(strongest["row_id"], named=True)
    value = f"{strongest['relevance']:+.3f}"
    assert f"{value} block {found['block']} {found['projection']}, row {found['row']}<br>" in body
    assert "![x](" not in "".join(one.value for one in (*app.markdown, *app.caption))

    behind = next(one for one in app.dataframe if "Relevance" in one.value)
    rows = behind.value["Row id"].to_list()
    assert set(rows) == set(expected.rows.filter(position=1)["row_id"])
    app.button(key="rows-behind-tick").click().run()
    assert not app.exception
    assert app.text_input(key="rows").value == row_sets.write(rows)
    behind = next(one for one in app.dataframe if "Relevance" in one.value)
    select(app, behind, rows=[2], columns=[], cells=[])
    assert app.number_input(key="row").value == rows[2]


@pytest.mark.parametrize(("text", "said"), [("word " * 110, "at most 64"), ("a", "at least 2 tokens")])
def test_a_text_that_cannot_be_attributed_is_one_line(folder, text, said):
    app = page(folder, token_text=text)
    app.button(key="rows-behind-ask").click().run()
    assert not app.exception
    (warning,) = app.warning
    assert said in warning.value.replace("\\", "")


@pytest.mark.long
def test_the_map_of_a_mask_marks_its_rows_and_can_be_tried(folder):
    app = page(folder, measure="Share in the mask", row_selector="LRP", row_order="MoRF", row_rate="30%")
    mask = removed_rows(scored.read(folder).scores("lrp"), "morf", 0.3)
    shown = table(app).value
    assert shown["In the mask"].to_list() == [row in mask for row in shown["Row id"]]
    assert f"removes {mask.size} of 288 rows" in " ".join(one.value for one in app.markdown).replace("\\", "")
    app.selectbox(key="rows-which").set_value("Of the map: LRP, MoRF 30%").run()
    app.button(key="rows-zero-ask").click().run()
    assert not app.exception
    assert app.session_state["answer-rows-zero"].found[-1].rows == mask.size
