"""What Live says where it used to be silent: a margin against the verdict, and a prompt that is too long."""

import ast
from functools import partial
from pathlib import Path

import pytest
from app_pages import run_page

import dashboard
from dashboard.chat import stamps
from dashboard.chat.live import Outcome


def outcome(margin, refusal, judged=True):
    return Outcome("after", "text", 3, True, 0.1, refusal, "", margin, judged=judged)


@pytest.mark.parametrize(
    ("margin", "refusal", "judged", "said"),
    [
        (1.5, False, True, "leaned to refusing"),
        (-0.2, True, True, "leaned to answering"),
        (1.5, True, True, None),
        (-0.2, False, True, None),
        (0.0, True, True, None),
        (None, True, True, None),
        (1.5, False, False, None),
    ],
)
def test_a_margin_against_the_verdict_is_said(margin, refusal, judged, said):
    text = stamps.facts(outcome(margin, refusal, judged))
    assert ("disagree" in text) == (said is not None)
    assert said is None or said in text


page = partial(run_page, "live")


@pytest.mark.parametrize("characters", [2000, 2001, 5000])
def test_a_prompt_that_is_too_long_is_said(characters):
    app = page(edit_model="Another model", edit_model_id="x", mode="Remove by rate", prompt="a")
    box = app.text_input(key="prompt")
    assert not box.proto.max_chars  # the browser would drop what is pasted without a word
    box.set_value("a" * characters)
    app.button(key="run").click().run()
    assert not app.exception
    warnings = [warning.value for warning in app.warning]
    assert ("live-shown" in app.session_state) == (characters <= 2000)
    assert any(f"{characters:,} characters" in text and "2,000" in text for text in warnings) == (characters > 2000)
    app.text_input(key="prompt").set_value("shorter")
    app.button(key="run").click().run()
    assert app.session_state["live-shown"].request.prompt == "shorter"
    assert not any("characters" in warning.value for warning in app.warning)


def test_no_box_drops_what_is_pasted_beyond_a_limit():
    """Streamlit's own limit keeps what was there before and says nothing."""
    found = [
        (path.name, node.lineno)
        for path in Path(dashboard.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "max_chars"
    ]
    assert found == []
