"""Stage mode in a real Chromium: keys, the drawer, names at line ends, the way out."""

from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_pages import has_count, press, settled

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture(scope="module")
def store(empty_store):
    """The shipped results."""
    return empty_store


def staged(new_page, path, **settings):
    page = new_page(f"/{path}", **{"source": "Shipped model", "present": "true", **settings})
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.get_by_role("group", name="Stage").wait_for()
    settled(page)
    return page


def path(page):
    return urlsplit(page.url).path.strip("/")


def arrives(page, name):
    page.locator("[data-testid=stMain] h1").get_by_text(name, exact=True).wait_for()
    settled(page)


def test_names_stand_at_line_ends_apart_and_within_the_figure(new_page):
    page = staged(new_page, "curves")
    for width, height in ((1920, 1080), (1280, 800)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(1000)
        _check_names(page)


def _check_names(page):
    figures = page.locator(".st-key-hero [data-testid=stPlotlyChart]")
    has_count(figures, 2)
    for figure in figures.all():
        frame = figure.bounding_box()
        plot = figure.locator(".nsewdrag").first.bounding_box()
        names = (
            figure.locator(".annotation")
            .filter(has_text="Wanda")
            .or_(figure.locator(".annotation").filter(has_text="LRP"))
        )
        has_count(names, 2)
        boxes = [one.locator(".annotation-text").bounding_box() for one in names.all()]
        for box in boxes:
            assert box["x"] >= plot["x"] + plot["width"] - 30
            assert box["x"] + box["width"] <= frame["x"] + frame["width"] + 1
            assert frame["y"] <= box["y"]
            assert box["y"] + box["height"] <= frame["y"] + frame["height"]
        every = [one.bounding_box() for one in figure.locator(".annotation .annotation-text").all()]
        at_ends = sorted((box for box in every if box["x"] > plot["x"] + plot["width"] - 30), key=lambda box: box["y"])
        for one, other in pairwise(at_ends):
            assert other["y"] >= one["y"] + 0.7 * one["height"]  # of the box: letters reach over part of it


def test_keys_lead_from_page_to_page(new_page):
    page = staged(new_page, "curves", view="Gap")
    for key, name in [
        ("ArrowRight", "Where and who"),
        ("ArrowLeft", "Curves"),
        ("PageDown", "Where and who"),
        ("PageDown", "Can it be believed"),
        ("PageUp", "Where and who"),
    ]:
        page.keyboard.press(key)
        arrives(page, name)
        assert parse_qs(urlsplit(page.url).query)["present"] == ["true"]
    page.keyboard.press("Control+ArrowRight")
    page.wait_for_timeout(1000)
    assert path(page) == "where"


def test_on_learn_they_lead_from_step_to_step_and_on_from_its_ends(new_page):
    page = staged(new_page, "learn")
    titles = page.locator("[data-testid=stMain] h2")
    page.locator(".st-key-learn-next button").wait_for()  # a busy browser draws it after the script has ended
    page.keyboard.press("ArrowRight")
    titles.filter(has_text="2. ").wait_for()
    settled(page)
    page.keyboard.press("ArrowLeft")
    titles.filter(has_text="1. ").wait_for()
    settled(page)
    page.keyboard.press("ArrowLeft")
    arrives(page, "Which importance scores can you trust?")
    page.keyboard.press("ArrowRight")
    arrives(page, "Learn")


def test_who_writes_keeps_the_keys(new_page):
    page = staged(new_page, "live")
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    prompt.fill("ab")
    for key in ("ArrowLeft", "PageDown", "ArrowRight", "PageUp"):
        prompt.press(key)
    page.wait_for_timeout(1000)
    assert path(page) == "live"


def test_the_drawer_holds_the_settings_and_closes(new_page):
    page = staged(new_page, "curves")
    view = page.locator(".st-key-bar").get_by_text("Gap", exact=True)
    button = page.get_by_role("button", name="Settings", exact=True)
    assert not view.is_visible()
    press(page, button, took=lambda: button.get_attribute("aria-expanded") == "true")
    press(page, view)
    page.locator("[data-testid=stPlotlyChart][aria-label*='below 0 is inverted']").wait_for()
    settled(page)
    assert view.is_visible()
    page.keyboard.press("Escape")
    assert not view.is_visible()
    page.keyboard.press("ArrowRight")  # what had the focus lies in the drawer
    arrives(page, "Where and who")
    assert not page.locator(".st-key-bar").is_visible()


@pytest.mark.parametrize("name", ["curves", "live"])
def test_axe_finds_nothing_serious(name, new_page):
    from browser_pages import lasting_findings

    page = staged(new_page, name)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settled(page)
        assert lasting_findings(page) == []
    settings = page.get_by_role("button", name="Settings", exact=True)
    press(page, settings, took=lambda: settings.get_attribute("aria-expanded") == "true")
    assert lasting_findings(page) == []
