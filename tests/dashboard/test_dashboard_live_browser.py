"""Live edit in a real Chromium: Enter runs it, and the three replies are in sight where nobody has scrolled."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browser_pages import MODEL_TIMEOUT_MS, PAUSE_MS, button, has_count, live_page, press, reply, run, settled
from served import SLOW_PROMPT

from dashboard.chat.live import SIDES

pytestmark = [pytest.mark.browser, pytest.mark.long]


def card(page: Any, side: str) -> dict[str, float]:
    box: dict[str, float] = page.locator(f".st-key-reply-{side}").bounding_box()
    return box


@pytest.mark.parametrize("present", ["", "true"])
def test_three_replies_are_in_sight_side_by_side(present: str, new_page: Any, tiny_folder: Path) -> None:
    page = live_page(new_page, tiny_folder, "The cat sat.", control="true", **({"present": present} if present else {}))
    page.set_viewport_size({"width": 1280, "height": 800})
    run(page)
    for width, height in ((1280, 800), (1440, 900), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(PAUSE_MS)
        cards = [card(page, side) for side in SIDES]
        assert len({round(box["y"]) for box in cards}) == 1
        assert max(box["width"] for box in cards) - min(box["width"] for box in cards) < 2
        for left, right in pairwise(cards):
            assert left["x"] + left["width"] <= right["x"]
        chips = [one.bounding_box()["y"] for one in page.locator("[class*=st-key-example-]").all()]
        assert chips == [chips[0]] * len(chips)  # one line
        if not present:  # else the settings lie in a drawer
            bar = page.locator(".st-key-bar").bounding_box()
            assert chips[0] < bar["y"] < bar["y"] + bar["height"] <= cards[0]["y"]
        for side in SIDES:
            text = reply(page, side).bounding_box()
            assert text["y"] > 0
            assert text["y"] + text["height"] <= height
            assert page.locator(f".st-key-reply-{side} .sa-stamp").bounding_box()["y"] > 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_enter_runs_it_and_the_reply_to_markdown_stays_text(new_page: Any, tiny_folder: Path) -> None:
    page = live_page(new_page, tiny_folder, "The cat sat.")
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    prompt.fill("Is there a way out?")
    prompt.press("Enter")
    page.get_by_text("1 try so far").wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    assert reply(page, "after").inner_text().strip()
    assert "prompt=Is" in page.url


def test_further_draws_are_counted_by_themselves_and_a_new_prompt_ends_them(new_page: Any, tiny_folder: Path) -> None:
    page = live_page(new_page, tiny_folder, SLOW_PROMPT, control="true")
    press(page, button(page, "Run"))
    page.get_by_text("Further random draws: 0 of 4 …").wait_for(timeout=MODEL_TIMEOUT_MS)
    assert all(page.locator(f".st-key-reply-{side} .sa-stamp").is_visible() for side in SIDES)
    assert "draws" not in page.locator(".finding h2").inner_text()
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    prompt.fill("Is there a way out?")
    prompt.press("Enter")
    page.get_by_text("Control: the first of 5 random draws.").wait_for(timeout=MODEL_TIMEOUT_MS)
    assert " of 5 draws" in page.locator(".finding h2").inner_text()
    page.get_by_text("2 tries so far").wait_for()  # the first one's replies are kept, and no draw of it goes on


def test_tiles_can_be_stopped_and_read_by_keyboard(new_page: Any, tiny_folder: Path) -> None:
    page = live_page(new_page, tiny_folder, "", live_view="Many at once", length="160", button_name="Run 20 prompts")
    press(page, button(page, "Run 20 prompts"))
    page.locator(".sa-tile").first.wait_for(timeout=MODEL_TIMEOUT_MS)
    stop = button(page, "Stop")  # the page asks for runs of its own: a run is no sign that the click was taken
    press(page, stop, took=lambda: stop.count() == 0)
    page.get_by_text("— stopped").wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    waiting = page.locator(".sa-waits").count()
    assert waiting > 0
    press(page, button(page, "Run 20 prompts"))
    has_count(page.locator(".sa-waits"), 0)
    has_count(page.locator("details.sa-tile"), 20)
    settled(page)
    page.locator("details.sa-tile summary").first.press("Enter")
    assert page.locator("details.sa-tile[open] .sa-said").first.is_visible()
