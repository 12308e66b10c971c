"""The Live edit page as a script, with a tiny model: settings, result, plain text, problems."""

import pytest
from fake_replies import replies_are
from streamlit.testing.v1 import AppTest

import precomputed
from dashboard.chat import live
from dashboard.state import shipped

IMAGE = "![x](http://example.invalid/pixel.png) **bold** $x$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("page"), max_position_embeddings=512)


@pytest.fixture(autouse=True)
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))


def page(**parameters):
    def script():
        from dashboard.pages.live import page as live_edit

        live_edit.render()

    app = AppTest.from_function(script, default_timeout=120)
    for name, value in parameters.items():
        app.query_params[name] = str(value)
    return app.run()


def by_rate(folder, **more):
    settings = {"edit_model": "Another model", "edit_model_id": folder, "mode": "Remove by rate"}
    return page(**{**settings, "rank_selector": "Magnitude", "prompt": "The cat sat.", "length": "20", **more})


def run(app):
    app.button(key="run").click().run()
    assert not app.exception
    return app


def captions(app):
    return " ".join(caption.value for caption in app.caption)


def test_a_url_brings_back_all_settings_and_runs_nothing(folder):
    app = by_rate(folder, rank_order="MoRF", rate="50%")
    assert not app.exception
    assert app.segmented_control(key="rank_order").value == "MoRF"
    assert app.select_slider(key="rate").value == 0.5
    assert app.text_area(key="prompt").value == "The cat sat."
    assert [text.value for text in app.text] == [" ", " "] or not list(app.text)
    assert not live.POOL._entries


def test_an_edit_shows_both_replies_their_facts_and_where_rows_went(folder):
    app = run(by_rate(folder))
    assert not list(app.warning)
    before, after = (text.value for text in app.text)
    assert before != after
    assert "86 rows removed" in captions(app).replace("\\", "")  # round(0.3 * 288)
    assert captions(app).count("cut off at 20 tokens") == 2
    assert captions(app).count("margin") == 3  # the two replies, and how to read it
    (chart,) = app.get("plotly_chart")
    assert "of 48" in chart.proto.spec


def test_the_result_stays_when_a_setting_changes(folder):
    app = run(by_rate(folder))
    texts = [text.value for text in app.text]
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    assert [text.value for text in app.text] == texts
    assert "LeRF 30%" in captions(app).replace("\\", "")


def test_replies_and_prompt_are_never_markdown(folder, monkeypatch):
    replies_are(monkeypatch, IMAGE)
    app = run(by_rate(folder, prompt=IMAGE))
    assert [text.value for text in app.text] == [IMAGE, IMAGE]
    for element in (*app.markdown, *app.caption):
        assert "![x](" not in element.value
        assert "**bold**" not in element.value


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"edit_model_id": "/no/such/folder"}, "no/such/folder"),
        ({"prompt": "long " * 380}, "context"),
    ],
)
def test_wrong_input_is_one_line(folder, changes, said):
    app = run(by_rate(folder, **changes))
    (warning,) = app.warning
    assert said in warning.value.replace("\\", "")
    assert "\n" not in warning.value


def test_without_a_prompt_or_a_model_there_is_nothing_to_run(folder):
    assert by_rate(folder, prompt="").button(key="run").disabled
    assert by_rate(folder, edit_model_id="").button(key="run").disabled


def test_a_missing_shipped_model_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    monkeypatch.setattr(precomputed, "demo_model_dir", lambda: tmp_path / "model")
    app = page()
    assert not app.exception
    assert "precomputed.recipe" in app.warning[0].value.replace("\\", "")


def test_examples_of_the_domain_fill_the_prompt():
    app = page(domain="Crime")
    offered = [example for example in shipped.examples() if example.domain == "crime"]
    assert app.selectbox(key="example").options == [f"{e.kind}: {e.prompt}" for e in offered]
    assert app.text_area(key="prompt").value == offered[0].prompt
    app.selectbox(key="example").set_value(app.selectbox(key="example").options[-1]).run()
    assert app.text_area(key="prompt").value == offered[-1].prompt


def sliders(app):
    return app.select_slider(key="lambda").value, app.select_slider(key="k").value


def measured(selector, domain):
    point = shipped.operating_point(selector, domain)
    return point.lam, point.k


def test_refusal_settings_start_from_the_measured_operating_point():
    app = page(domain="Hate", edit_selector="LRP")
    assert sliders(app) == measured("lrp", "hate")
    assert "held-out risk prompts" in captions(app)
    app.selectbox(key="domain").set_value("crime").run()
    assert sliders(app) == measured("lrp", "crime") != measured("lrp", "hate")
    app.select_slider(key="lambda").set_value(0.7).run()  # the user's choice stays
    assert sliders(app) == (0.7, measured("lrp", "crime")[1])


def test_settings_of_a_shared_link_win_over_the_measured_point():
    app = page(domain="Crime", edit_selector="LRP", **{"lambda": "0.6", "k": "10%"})
    assert sliders(app) == (0.6, 0.1)
