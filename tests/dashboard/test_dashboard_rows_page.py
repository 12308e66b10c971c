"""The Rows page as a script: cells, pages of rows, ticks and the link, zeroing, mask files, empty and broken states."""

import numpy as np
import pytest
from app_pages import captions, drawn_page, select
from fake_replies import replies_are
from scored_runs import write_scored

import precomputed
from dashboard.chat import live
from dashboard.pages.rows import row_cell as row_sets, scored
from dashboard.state import results


@pytest.fixture(autouse=True)
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))


def page(folder=None, **parameters):
    where = {} if folder is None else {"source": "My results", "folder": folder}
    return drawn_page("rows", **where, **parameters)


def click(app, key):
    app.button(key=key).click().run()
    assert not app.exception
    return app


def alt(app):
    return app.get("plotly_chart")[0].proto.alt


def test_the_shipped_scores_open():
    app = page()
    assert not list(app.warning)
    assert alt(app).startswith("Consensus-2 removes ")
    assert [app.selectbox(key=key).value for key in ("block", "projection")] == [0, "q_proj"]
    gemma = page(source="Gemma-3-270m")
    assert gemma.text_input(key="row_model").value == "gemma-3-270m.Q4_K_M.gguf"  # which is not at hand
    assert alt(gemma).startswith("Consensus-2 removes ")


@pytest.mark.parametrize(
    ("measure", "said"),
    [("Mean score", "LRP scores the "), ("Removed rows", "LRP removes "), ("Two selectors", "LRP ranks the ")],
)
def test_every_view_of_the_cells_comes_from_its_link(folder, measure, said):
    app = page(folder, measure=measure, row_selector="LRP", row_order="MoRF", row_rate="20%", row_other="Magnitude")
    assert alt(app).startswith(said)


def test_a_cell_from_the_link_shows_its_rows_sorted_and_paged(folder):
    app = page(folder, block=1, projection="gate_proj", row_sort="LRP", row_first="Highest", row_values="Rank")
    table = app.dataframe[0].value
    assert len(table) == 20
    ranks = table["LRP"].to_list()
    assert ranks == sorted(ranks, reverse=True)
    app.pagination(key="rows_page").set_value(2).run()
    rest = app.dataframe[0].value["LRP"].to_list()
    assert len(rest) == 8  # 28 rows
    assert max(rest) < min(ranks)
    app.selectbox(key="projection").set_value("v_proj").run()  # 12 rows: one page, whatever page was open
    assert not app.exception
    assert len(app.dataframe[0].value) == 12


def test_ticks_are_the_text_in_the_link_and_stay_when_the_cell_changes(folder):
    app = page(folder)
    tick(app, [0, 1, 2, 7])
    assert app.text_input(key="rows").value == "0-2, 7"
    assert app.query_params["rows"] in ("0-2, 7", ["0-2, 7"])
    app.selectbox(key="block").set_value(1).run()
    assert checked(app) == []
    first = scored.cell_rows(scored.read(folder), 1, "q_proj")["row_id"][0]
    tick(app, [0])
    assert app.text_input(key="rows").value == f"0-2, 7, {first}"
    assert "5 rows of 288 ticked, in 2 matrices." in captions(app)
    app.text_input(key="rows").set_value("1").run()
    app.selectbox(key="block").set_value(0).run()
    assert checked(app) == [1]
    other = page(folder, rows="0-2, 7")
    assert checked(other) == [0, 1, 2, 7]
    app.selectbox(key="row_sort").set_value("lrp").run()  # places of the table are other rows now
    assert [app.dataframe[0].value["Row id"][place] for place in checked(app)] == [1]
    tick(app, [])
    assert app.text_input(key="rows").value == ""


def tick(app, places):
    """Checks just these rows of the page's table."""
    select(app, app.dataframe[0], rows=places, columns=[], cells=[])
    assert not app.exception


def checked(app):
    """Which rows of the page's table are checked."""
    return list(app.session_state[app.dataframe[0].key]["selection"]["rows"])


def test_wrong_row_ids_are_one_line_and_the_rows_stay(folder):
    app = page(folder, rows="3, 9999")
    (warning,) = app.warning
    assert "from 0 to 287, got 9999" in warning.value.replace("\\", "")
    assert len(app.dataframe[0].value) == 20


def test_zeroing_measures_nll_and_writes_both_replies(folder, tiny_folder):
    from engine.data.corpora import windows
    from engine.interventions.in_weights import zeroed
    from engine.measures.nll import negative_log_likelihood
    from engine.models.loading import load_model

    app = page(folder, rows="0-143", rows_prompt="The cat sat.", rows_length="20")
    assert not app.metric
    click(app, "rows-zero-ask")
    assert not list(app.warning)
    trial = app.session_state["answer-rows-zero"].found[-1]
    loaded = load_model(str(tiny_folder), dtype="float32", device="cpu")
    tokens = windows("demo", loaded.tokenizer, role="evaluation", samples=16, length=256)
    dense = negative_log_likelihood(loaded, tokens).nats_per_token
    with zeroed(loaded, np.arange(144)):
        edited = negative_log_likelihood(loaded, tokens).nats_per_token
    assert trial.change.dense == pytest.approx(dense, rel=1e-6)
    assert trial.change.edited == pytest.approx(edited, rel=1e-6)
    assert trial.change.difference == pytest.approx(edited - dense, rel=1e-4)
    assert len(app.metric) == 3
    texts = [text.value for text in app.text]
    assert len(texts) == 2
    assert texts[0] != texts[1]
    assert "Rows 0-143: 144 rows zeroed." in captions(app)
    app.selectbox(key="block").set_value(1).run()  # the result stays when something else changes
    assert [text.value for text in app.text] == texts


def test_replies_are_never_markdown(folder, monkeypatch):
    image = "![x](http://example.invalid/pixel.png) **bold** <b>"
    replies_are(monkeypatch, image)
    app = click(page(folder, rows="1", rows_prompt=image), "rows-zero-ask")
    assert [text.value for text in app.text] == [image, image]
    for element in (*app.markdown, *app.caption):
        assert "![x](" not in element.value


def test_without_ticks_there_is_nothing_to_run(folder):
    app = page(folder)
    assert app.button(key="rows-zero-ask").disabled
    assert len(app.get("download_button")) == 3  # the page's two and that of the cell: no mask


def test_an_opened_mask_can_be_tried_and_the_ticked_rows_saved(folder):
    found = scored.read(folder)
    content = row_sets.export(row_sets.Kept("x", np.array([4, 5])), found.model)
    name = "![x](http:y).safetensors"
    app = page(folder)
    app.file_uploader(key="mask-file").set_value((name, content, "application/octet-stream")).run()
    assert not app.exception
    assert app.button(key="rows-zero-ask").disabled  # no row is ticked
    app.selectbox(key="rows-which").set_value(name).run()
    assert len(app.get("download_button")) == 4
    click(app, "rows-zero-ask")
    assert app.session_state["answer-rows-zero"].found[-1].rows == 2
    assert any("\\!\\[x\\]" in caption.value for caption in app.caption)


def test_a_file_that_is_no_mask_is_one_line(folder):
    app = page(folder)
    app.file_uploader(key="mask-file").set_value(("a.safetensors", b"nothing", "application/octet-stream")).run()
    assert not app.exception
    assert "a.safetensors is not a mask file" in app.warning[0].value.replace("\\", "")


def test_scores_of_other_weights_are_never_mixed_with_a_model(folder, tmp_path):
    from tiny_models import save_tiny

    other = save_tiny("llama", tmp_path / "other", seed=5, max_position_embeddings=512)
    app = click(page(folder, rows="1", row_model=str(other)), "rows-zero-ask")
    (warning,) = app.warning
    assert "the scores were computed from" in warning.value
    assert not app.metric


def test_missing_and_empty_folders_say_what_to_do(tmp_path, monkeypatch):
    assert "there is no folder" in page(tmp_path / "no").warning[0].value
    assert "selector-audit score" in page(tmp_path).warning[0].value.replace("\\", "")
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")
    assert "selector-audit score" in page().warning[0].value.replace("\\", "")


def test_the_store_that_the_app_was_started_on_opens_first(folder, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder.parent))
    app = page()
    assert app.selectbox(key="source").value == "My results"
    assert not list(app.warning)


def test_rows_are_ranked_by_scores_of_the_language_model_only(folder):
    app = page(folder)
    assert app.selectbox(key="row_selector").options == ["LRP", "Magnitude", "Random"]
    assert app.selectbox(key="row_sort").options == ["Row number", "LRP", "Magnitude", "Random"]
    table = app.dataframe[0].value
    assert list(table) == ["Row", "Row id", "In the mask", "LRP", "Magnitude", "Random"]


def test_the_model_to_load_is_that_of_the_run(tmp_path, tiny_folder):
    from tiny_models import save_tiny

    other = save_tiny("llama", tmp_path / "other", seed=5, max_position_embeddings=512)
    write_scored(tmp_path / "runs" / "a", tiny_folder)
    write_scored(tmp_path / "runs" / "b", other)
    app = page(tmp_path / "runs")
    assert app.text_input(key="row_model").value == str(tiny_folder)
    app.selectbox(key="run").set_value("b").run()
    assert app.text_input(key="row_model").value == str(other)
    app.text_input(key="row_model").set_value("/elsewhere").run()
    assert app.text_input(key="row_model").value == "/elsewhere"  # until another run is chosen
    assert page(tmp_path / "runs", row_model="/elsewhere").text_input(key="row_model").value == "/elsewhere"


def test_one_selector_is_compared_with_itself(tmp_path, tiny_folder):
    app = page(write_scored(tmp_path / "one", tiny_folder, selectors=("magnitude",)), measure="Two selectors")
    assert alt(app).startswith("Magnitude: all projections alike on average.")


@pytest.mark.parametrize("typed", ["~nobody-of-this-name", "x" * 5000])
def test_text_that_is_no_folder_is_one_line(typed):
    (warning,) = page(typed).warning
    assert "give the path of a results folder" in warning.value.replace("\\", "")
    assert len(warning.value) < 400
