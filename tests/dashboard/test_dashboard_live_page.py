"""The Live edit page as a script, with a tiny model: settings, result, plain text, problems."""

from functools import partial

import pytest
from app_pages import replies, run_page
from fake_replies import replies_are
from streamlit.testing.v1 import AppTest

import precomputed
from dashboard.chat import live, stamps
from dashboard.pages.live import settings as live_settings
from dashboard.show.layout import FOLDED, NOTHING, STILL_THINKING
from dashboard.state import shipped_models as shipped

IMAGE = "![x](http://example.invalid/pixel.png) **bold** $x$"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("page"), max_position_embeddings=512)


@pytest.fixture(autouse=True)
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)  # the model's own replies take longer than the rest


page = partial(run_page, "live")


def by_rate(folder, **more):
    settings = {"edit_model": "Another model", "edit_model_id": folder, "mode": "Remove by rate", "control": "false"}
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
    assert app.text_input(key="prompt").value == "The cat sat."
    assert replies(app) == ["", ""]
    assert not live.POOL._entries


def test_an_edit_shows_both_replies_and_their_facts(folder):
    app = run(by_rate(folder))
    assert not list(app.warning)
    before, after = replies(app)
    assert before != after
    assert "86 rows removed" in captions(app).replace("\\", "")  # round(0.3 * 288)
    assert captions(app).count("cut off at 20 tokens") == 2
    bodies = [one.proto.body for one in app.get("html")]
    assert not any('class="sa-needle"' in body for body in bodies)  # nothing is to be refused
    assert sum("(not finished: 20 tokens)" in body for body in bodies) == 2


def test_the_result_stays_when_a_setting_changes(folder):
    app = run(by_rate(folder))
    texts = replies(app)
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    assert replies(app) == texts
    assert "LeRF 30%" in captions(app).replace("\\", "")


def test_replies_and_prompt_are_never_markdown(folder, monkeypatch):
    replies_are(monkeypatch, IMAGE)
    app = run(by_rate(folder, prompt=IMAGE))
    assert replies(app) == [IMAGE, IMAGE]
    for element in (*app.markdown, *app.caption):
        assert "![x](" not in element.value
        assert "**bold**" not in element.value


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"edit_model_id": "/no/such/folder"}, "no/such/folder"), ({"prompt": "long " * 380}, "context")],
)
def test_wrong_input_is_one_line(folder, changes, said):
    app = run(by_rate(folder, **changes))
    (warning,) = app.warning
    assert said in warning.value.replace("\\", "")
    assert "\n" not in warning.value


def test_without_a_prompt_or_a_model_there_is_nothing_to_run(folder):
    app = by_rate(folder, prompt="")
    app.text_input(key="prompt").set_value("")
    run(app)
    assert "live-shown" not in app.session_state
    assert "There is no prompt yet" in captions(app)
    assert by_rate(folder, edit_model_id="").button(key="run").disabled


def test_a_missing_shipped_model_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    monkeypatch.setattr(precomputed, "demo_model_dir", lambda: tmp_path / "model")
    app = page()
    assert not app.exception
    assert "precomputed.recipe" in app.warning[0].value.replace("\\", "")


def test_examples_are_of_the_domain_and_follow_it(monkeypatch):
    monkeypatch.setattr("dashboard.pages.live.live_page._run", lambda *_: None)
    app = page(domain="Crime")
    offered = {name: live_settings.examples_of("demo", name) for name in ("crime", "legal")}
    chips = [button for button in app.button if button.key.startswith("example-")]
    for chip, one in zip(chips, offered["crime"], strict=True):
        words = chip.label.replace("\\", "").removesuffix("…")
        assert one.prompt.startswith(words)
        assert 20 < len(words) < 48
    assert [chip.proto.help.replace("\\", "") for chip in chips] == [one.prompt for one in offered["crime"]]
    assert app.text_input(key="prompt").value == offered["crime"][0].prompt
    app.selectbox(key="domain").set_value("legal").run()
    assert app.text_input(key="prompt").value == offered["legal"][0].prompt
    app.text_input(key="prompt").set_value("My own.")
    app.button(key="run").click().run()
    app.selectbox(key="domain").set_value("crime").run()
    assert app.text_input(key="prompt").value == "My own."


def test_an_example_is_asked_as_it_is_pressed(folder):
    app = by_rate(folder)
    app.button(key="example-3").click().run()
    assert not app.exception
    one = app.session_state["live-shown"]
    assert one.complete
    assert one.request.prompt == app.text_input(key="prompt").value == live_settings.examples_of(folder, "")[3].prompt
    app.run()
    assert app.session_state["live-shown"] is one  # once


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


def test_the_thinking_part_is_folded_apart_and_plain_text(folder, monkeypatch):
    replies_are(monkeypatch, f"<think>\n{IMAGE} Hm.\n</think>\n\n{IMAGE}")
    app = run(by_rate(folder))
    assert [one.label for one in app.expander if one.label == FOLDED] == [FOLDED] * 2
    folded = [one for one in app.expander if one.label == FOLDED]
    assert [text.value for one in folded for text in one.text] == [f"{IMAGE} Hm."] * 2
    assert replies(app) == [IMAGE] * 2
    for element in (*app.markdown, *app.caption):
        assert "![x](" not in element.value


@pytest.mark.first_run("folded0")
@pytest.mark.parametrize(
    ("reply", "folded", "shown"),
    [("<think>\nHm", ["Hm"], STILL_THINKING), ("<think></think>", [], NOTHING), ("A <think> b", [], "A <think> b")],
)
def test_a_reply_that_says_nothing_after_thinking_says_so(folder, monkeypatch, reply, folded, shown):
    replies_are(monkeypatch, reply)
    app = run(by_rate(folder))
    assert [text.value for text in app.text] == folded * 2
    assert replies(app) == [shown] * 2


def test_a_judged_reply_is_folded_too():
    def script():
        from dashboard.pages.refusal.judging import _card

        line = {"source": "m", "line": 0, "human": None, "prompt": "Why?", "reply": "<think>Hm.</think>**So.**"}
        sides = {f"{what}_{side}": value for side in "ab" for what, value in
                 (("judge", side), ("refusal", False), ("reason", ""))}  # fmt: skip
        _card(line | sides)

    app = AppTest.from_function(script).run()
    assert not app.exception
    assert [(one.label, [text.value for text in one.text]) for one in app.expander] == [(FOLDED, ["Hm."])]
    assert "**So.**" in [text.value for text in app.text]


def test_every_selector_can_be_chosen():
    """The measured point of random rows has lambda 0, which no slider has."""
    for domain, selector in (("Hate", "Random"), ("Crime", "Random"), ("Crime", "LRP")):
        app = page(edit_selector=selector, domain=domain)
        assert not app.exception
        assert app.selectbox(key="edit_selector").value == selector.lower()
    assert measured("random", "crime")[0] == 0
    app.selectbox(key="edit_selector").set_value("random").run()
    assert not app.exception
    assert sliders(app)[1] == measured("random", "crime")[1]


def test_a_selector_without_a_measured_point_can_be_chosen(monkeypatch):
    monkeypatch.setattr(shipped, "operating_point", lambda *_: None)
    app = page(edit_selector="Random", domain="Hate")
    assert not app.exception
    assert app.selectbox(key="edit_selector").value == "random"
