"""Rows and Learn in a real Chromium: clicking a cell, ticking and zeroing rows, keeping a mask, walking the lessons."""

import re
from pathlib import Path

import pytest
from browser_pages import MODEL_TIMEOUT_MS, button, choose, download, press, settled, steady_box
from scored_runs import write_scored

from dashboard.pages.learn.steps import LESSONS

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def scores(tmp_path_factory, tiny_folder):
    return write_scored(tmp_path_factory.mktemp("scores") / "run", tiny_folder)


def rows_page(new_page, scores, **more):
    page = new_page("/rows", source="My results", folder=str(scores), **more)
    heatmap(page)
    settled(page)
    return page


def heatmap(page):
    figure = page.locator("[data-testid=stPlotlyChart][aria-label*='share of each matrix']")
    figure.locator(".heatmaplayer image").first.wait_for(state="attached")
    return figure


def table(page):
    return page.locator("[data-testid=stDataFrame]").first


def tick(page, place):
    """The checkbox of a row of the table: lines of 35 pixels below a head of as many."""
    box = steady_box(page, table(page))
    press(page, table(page), at=(17 / box["width"], (35 * (place + 1) + 17) / box["height"]))


@pytest.mark.long
def test_a_click_on_a_cell_opens_its_rows(new_page, scores):
    from playwright.sync_api import expect

    page = rows_page(new_page, scores, row_selector="LRP")
    page.get_by_text("Rows of block 0, q_proj").wait_for()
    # Two blocks from top to bottom, seven projections from left to right: up_proj of block 1, off its middle.
    press(page, heatmap(page).locator(".heatmaplayer image"), at=(5.7 / 7, 0.7))
    page.get_by_text("Rows of block 1, up_proj").wait_for()
    settled(page)
    assert "block=1" in page.url
    assert "projection=up_proj" in page.url
    expect(page.locator(".st-key-projection").get_by_role("combobox")).to_have_value("up_proj")
    choose(page, "projection", "k_proj")  # afterwards the box decides
    page.get_by_text("Rows of block 1, k_proj").wait_for()


@pytest.mark.long
def test_ticked_rows_are_zeroed_and_downloaded(new_page, scores):
    page = rows_page(new_page, scores, rows_prompt="The cat sat.", rows_length="20", rows="20-200")
    page.get_by_text("181 rows of 288 ticked").wait_for()
    tick(page, 3)
    page.get_by_text("182 rows of 288 ticked").wait_for()
    settled(page)
    assert "rows=3" in page.url
    press(page, button(page, "Zero them and measure"))
    page.get_by_text("182 rows zeroed").wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    tried = page.locator(".st-key-rows-zero-trial")
    assert "Perplexity as it is" in tried.inner_text()
    before, after = tried.locator("[data-testid=stText]").all_inner_texts()
    assert before != after
    saved = download(page, button(page, "Download as a mask file"))
    content = Path(saved.path()).read_bytes()

    other = rows_page(new_page, scores)  # another session: the file is all it needs
    other.locator("[data-testid=stFileUploader] input[type=file]").set_input_files(
        {"name": "mine.safetensors", "mimeType": "application/octet-stream", "buffer": content}
    )
    choose(other, "rows-which", "mine.safetensors")
    press(other, button(other, "Zero them and measure"))
    other.get_by_text("182 rows zeroed").wait_for(timeout=MODEL_TIMEOUT_MS)


@pytest.mark.long
def test_both_pages_fit_a_phone(new_page, scores):
    page = new_page("/rows", width=400, source="My results", folder=str(scores), rows="0-3")
    heatmap(page)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page = new_page("/learn", width=400)
    page.get_by_text("1. What is a row?").first.wait_for()
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.long
def test_the_lessons_can_be_walked_and_answers_stay(new_page):
    page = new_page("/learn")
    verdict = page.locator(".st-key-verdict")
    for number, lesson in enumerate(LESSONS, 1):
        page.get_by_role("heading", name=f"{number}. {lesson.title}").wait_for()
        settled(page)
        press(page, page.locator("[data-testid=stRadio]").get_by_text(lesson.answers["a"], exact=True))
        settled(page)
        press(page, button(page, "Make this my guess"))
        verdict.get_by_text(re.compile("The figure|These numbers|settled")).wait_for()
        page.get_by_text(f"{number} of {len(LESSONS)} questions answered").wait_for()
        settled(page)
        if number < len(LESSONS):
            press(page, button(page, "Next"))
    assert "answers=1a.2a.3a.4a.5a.6a" in page.url
    copy = new_page(address=page.url)
    copy.get_by_text("6 of 6 questions answered").wait_for()
    copy.get_by_role("heading", name=f"6. {LESSONS[-1].title}").wait_for()
    settled(copy)
    press(copy, button(copy, "Back"))
    copy.get_by_role("heading", name=f"5. {LESSONS[4].title}").wait_for()
    settled(copy)
    copy.get_by_text(f"Your guess: {LESSONS[4].answers['a']}").wait_for()


@pytest.mark.long
def test_the_installed_behaviour_is_shown_live(new_page):
    page = new_page("/learn", step=f"5. {LESSONS[4].title}", learn_domain="Hate", answers="5a")
    page.get_by_role("heading", name=LESSONS[4].title).wait_for()
    settled(page)
    press(page, button(page, "Zero the rows and ask"))
    tried = page.locator(".st-key-learn-install-trial")
    tried.get_by_text("rows zeroed.").wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    before, after = tried.locator("[data-testid=stColumn]").all_inner_texts()
    assert "refuses" in after
    assert "answers" in before


@pytest.mark.long
def test_a_button_that_waits_for_a_tick_can_be_read(new_page, scores):
    page = rows_page(new_page, scores)
    waiting = button(page, "Zero them and measure")
    assert waiting.is_disabled()
    colour = waiting.locator("p").evaluate("e => getComputedStyle(e).color")
    assert colour != "rgb(255, 255, 255)"  # white is for the filled button
