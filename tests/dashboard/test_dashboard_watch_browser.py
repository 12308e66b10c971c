"""Watch it break in a real Chromium: it plays without asking for more, and its pixels are the masks'."""

import re
from urllib.parse import urlencode

import numpy as np
import pytest
from browser_pages import WATCH_RACE, WATCH_STAGE, choose, press, settled
from large_run import ASKED, LLAMA_1B, row_index, scores, write_large

from dashboard.charts import row_picture
from dashboard.charts.formats import perplexity
from engine.edits.masks import removed_rows

pytestmark = pytest.mark.browser

SMALL = (2, {"q_proj": 17, "k_proj": 5, "up_proj": 23})
COUNT_MESSAGES = (  # what the page tells the server, such as that the script shall run again
    "window.messages = 0; const send = WebSocket.prototype.send;"
    "WebSocket.prototype.send = function (...said) { window.messages++; return send.apply(this, said) }"
)
GONE_ALPHA = 16


@pytest.fixture(scope="module")
def store(empty_store):
    """A model of the shape of Llama-3.2-1B, and a small one with replies."""
    write_large(empty_store / "results" / "large")
    write_large(empty_store / "results" / "small", SMALL, with_replies=True)
    return empty_store


def watching(new_page, *, calm=False, counted=False, **settings):
    """The overview, once the stage stands and the page is at rest. counted: window.messages says how many were sent."""
    page = new_page("/", **settings)
    page.locator(".watch canvas").first.wait_for()  # a page that is left before loses settings of its address
    settled(page)
    if counted:
        page.add_init_script(COUNT_MESSAGES)
    if calm:
        page.emulate_media(reduced_motion="reduce")
    if counted or calm:
        origin = "/".join(page.url.split("/")[:3])
        page.goto(f"{origin}/?{urlencode(settings)}")
        page.locator(".watch canvas").first.wait_for()
        settled(page)
    page.wait_for_load_state("networkidle")  # the other figures of the page are there
    return page


def stage(page, what):
    return page.evaluate(f"{WATCH_STAGE}.{what}")


def play_until(page, rate):
    page.locator(".watch .play").click()
    while stage(page, "rate") < rate:  # the policy of the pages forbids to wait inside of them
        page.wait_for_timeout(100)


def alphas(page, lane):
    """[height, width] of a lane's canvas."""
    picture = f"{WATCH_STAGE}.lanes[{lane}].canvas"
    flat = page.evaluate(
        f"(() => {{ const it = {picture};"
        " const data = it.getContext('2d').getImageData(0, 0, it.width, it.height).data;"
        " return Array.from({ length: it.width * it.height }, (_, i) => data[4 * i + 3]) })()"
    )
    return np.array(flat).reshape(page.evaluate(f"[{picture}.height, {picture}.width]"))


def expected(shape, order, rate):
    """The same from the rows of the mask, row by row: how many of a pixel's rows are removed."""
    picture = row_picture.picture(row_index(shape))
    values = scores(picture.rows)["lrp"]
    mask = np.zeros(picture.rows, dtype=bool)
    mask[removed_rows(values, order, rate)] = True
    removed = np.zeros((picture.height, picture.width))
    there = np.zeros_like(removed)
    for part in picture.parts:
        inside = part.offset + np.arange(part.count) // picture.group
        place = (inside // picture.wide, part.left + inside % picture.wide)
        np.add.at(removed, place, mask[part.start : part.start + part.count])
        np.add.at(there, place, 1)
    share = np.divide(removed, there, out=np.zeros_like(removed), where=there > 0)
    shade = np.floor(255 * share + 0.5)
    return np.where(there > 0, np.floor(255 - (255 - GONE_ALPHA) * shade / 255 + 0.5), 0)


def number(shown):
    """Of "≈ 1.53" or "1.2×10⁴"."""
    plain = shown.lstrip("≈ ").replace(",", "").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
    return float(plain.replace("×10", "e"))


@pytest.mark.long
def test_it_plays_in_the_browser_without_a_request_or_a_rerun(new_page):
    page = watching(new_page, counted=True, source="Shipped model")
    asked = []  # but for the page's own downloads, after which the browser looks in its own time
    page.on("request", lambda request: asked.append(request.url) if "/media/" not in request.url else None)
    told = page.evaluate("window.messages")
    assert told > 0
    page.on("websocket", lambda socket: asked.append(socket.url))
    numbers = page.locator(".watch .perplexity b")
    least, most = map(number, numbers.all_inner_texts())
    assert most > 2 * least  # it opens where they differ, and plays from where they do not
    dense = [perplexity(stage(page, "lanes[0].lane.curve[0][1]"))] * 2
    play_until(page, 0.05)
    assert stage(page, "frames") > 1
    assert stage(page, "drawn") > 2
    page.locator(".watch .play").click()
    assert stage(page, "playing") is False
    tenths = round(stage(page, "rate") * 1000)  # of a percent: where the slider stands
    least, most = (number(text) for text in numbers.all_inner_texts())
    assert most > least
    assert asked == []
    assert page.evaluate("window.messages") == told
    label = page.locator(".watch canvas").first.get_attribute("aria-label")
    assert re.search(r"perplexity (about )?[\d.,]+ with \d+% of the rows removed; [\d,]+ rows in \d+ blocks", label)
    page.locator(".watch .rate").focus()
    page.keyboard.press("ArrowRight")
    assert stage(page, "rate") == pytest.approx((tenths // 10 + 1) / 100)
    page.keyboard.press("Home")
    assert numbers.all_inner_texts() == dense
    press(page, page.get_by_text("Stage mode", exact=True))  # a rerun would have been seen
    page.wait_for_url("**present=true**")  # the run writes it
    assert page.evaluate("window.messages") > told


@pytest.mark.long
def test_a_large_model_plays_in_groups_and_every_shade_is_the_share_removed(new_page):
    page = watching(new_page, counted=True, source="My results", run="results/large", **WATCH_RACE)
    assert stage(page, "data.picture.rows") == 376_832
    assert stage(page, "data.picture.group") == 6
    told = page.evaluate("window.messages")
    before = stage(page, "drawn")
    play_until(page, 0.05)
    page.locator(".watch .play").click()
    assert stage(page, "frames") > 5
    assert stage(page, "drawn") - before > 5
    for rate in (0.3, 0.1, 0.5):  # forwards and backwards
        page.evaluate(f"{WATCH_STAGE}.jump({rate})")
        for lane, order in enumerate(("lerf", "morf")):
            assert np.array_equal(alphas(page, lane), expected(LLAMA_1B, order, rate))
    assert page.evaluate("window.messages") == told
    label = page.locator(".watch canvas").first.get_attribute("aria-label")
    assert label.endswith("with 50% of the rows removed; 376,832 rows in 16 blocks, up to 6 neighbouring ones a pixel")
    page.locator(".watch canvas").first.hover(position={"x": 3, "y": 3})
    assert re.fullmatch(
        r"block 0, q_proj: (49|50|51)% of 2,048 rows removed", page.locator(".pointed").first.inner_text()
    )


@pytest.mark.long
def test_who_asked_for_little_motion_sees_measured_rates_one_after_another(new_page):
    page = watching(new_page, calm=True, source="My results", run="results/small", **WATCH_RACE)
    drawn = stage(page, "drawn")
    play_until(page, 0.05)
    assert stage(page, "rate") == 0.1
    assert stage(page, "drawn") == drawn + 2  # and at 0
    assert stage(page, "frames") > 2
    assert stage(page, "playing") is True
    page.locator(".watch .play").click()
    for lane, order in enumerate(("lerf", "morf")):  # nothing glows: a pixel is there or gone
        assert np.array_equal(alphas(page, lane), expected(SMALL, order, 0.1))


@pytest.mark.long
def test_keys_move_and_play_and_the_state_is_said(new_page):
    page = watching(new_page, source="My results", run="results/small", **WATCH_RACE)
    slider = page.locator(".watch .rate")
    slider.focus()
    for key, rate in (
        ("Home", 0.0), ("ArrowRight", 0.01), ("ArrowUp", 0.02), ("ArrowLeft", 0.01), ("PageUp", 0.1), ("PageUp", 0.3),
        ("PageDown", 0.1), ("ArrowDown", 0.09), ("PageDown", 0.0), ("PageDown", 0.0), ("End", 0.5),
        ("ArrowRight", 0.5), ("Home", 0.0),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert stage(page, "rate") == pytest.approx(rate)
        assert slider.get_attribute("aria-valuetext") == f"{round(rate * 100)}% removed"
    page.keyboard.press("Space")
    assert stage(page, "playing") is True
    assert page.locator(".watch .play").get_attribute("aria-label") == "Pause"
    page.keyboard.press("Space")
    assert stage(page, "playing") is False
    page.keyboard.press("PageUp")
    said = "LRP, least relevant first: perplexity 8.17 with 10% of the rows removed; 90 rows in 2 blocks, a pixel each"
    assert page.locator(".watch canvas").first.get_attribute("aria-label") == said
    assert page.locator(".watch .told").inner_text().startswith(said)
    page.keyboard.press("ArrowRight")
    assert "perplexity about 8.25 with 11%" in page.locator(".watch .told").inner_text()


@pytest.mark.long
def test_replies_fall_apart_with_the_rate_and_are_text(new_page):
    asked = {**WATCH_RACE, "watch_b": "Wanda, least relevant first"}
    page = watching(new_page, source="My results", run="results/small", **asked)
    assert page.locator(".watch .prompt option").all_inner_texts() == list(ASKED)
    first, other = page.locator(".watch .reply").all()
    for rate, when, text in (
        (0.0, "At 0%:", "Because it rained."), (0.05, "At 0%:", "Because it rained."), (0.1, "At 10%:", "Because it"),
        (0.45, "At 30%:", "it it <b>it</b> it"), (0.5, "At 50%, cut off: no word yet.", ""),
    ):  # fmt: skip
        page.evaluate(f"{WATCH_STAGE}.jump({rate})")
        assert first.locator(".when").inner_text() == when
        assert first.locator(".text").text_content() == text
        assert other.inner_text() == "No reply was kept."
    assert first.locator("b").count() == 0
    page.locator(".watch .prompt").select_option(ASKED[1])
    assert first.locator(".text").text_content() == "Here."


@pytest.mark.long
def test_another_racer_starts_where_the_last_one_was(new_page):
    page = watching(new_page, source="My results", run="results/small", **WATCH_RACE)
    page.evaluate(f"{WATCH_STAGE}.jump(0.3)")
    page.locator(".watch .prompt").select_option(ASKED[1])
    choose(page, "watch_b", "IG, most relevant first")
    page.locator(".watch .title", has_text="IG, most relevant first").wait_for()
    settled(page)
    assert stage(page, "rate") == 0.3
    assert page.locator(".watch .prompt").input_value() == ASKED[1]
    assert np.array_equal(alphas(page, 0) > 0, expected(SMALL, "lerf", 0.3) > 0)


@pytest.mark.long
def test_the_second_lesson_plays_rows_drawn_by_lot(new_page):
    page = new_page("/learn", step="2. Zero some and watch", answers="2c")
    page.locator(".watch canvas").first.wait_for()
    settled(page)
    assert page.locator(".watch .title").all_inner_texts() == ["Rows drawn by lot"]
    play_until(page, 0.01)
    assert stage(page, "frames") > 1
