"""The refusal page in a real Chromium: marks open their cell."""

import contextlib
from urllib.parse import parse_qs, urlsplit

import pytest
from browser_pages import PAUSE_MS, chart, choose, settled
from synthetic_refusal import write_refusal_run

from dashboard.pages.refusal import edit_grid

pytestmark = pytest.mark.browser
POINT = "LRP, hate, λ 0.5, k 2%"
CLICK_MS = 20_000


@pytest.fixture(scope="module")
def refusal_folder(tmp_path_factory):
    return write_refusal_run(tmp_path_factory.mktemp("refusal") / "run")


def open_refusal(new_page, folder, **more):
    page = new_page("/refusal", source="My results", folder=str(folder), **more)
    chart(page, says="of the rows zeroed" if not more else "left keeps the language")
    return page


def heading(page, name):
    page.get_by_role("heading", name=name, exact=True).wait_for()
    settled(page)


def open_by_mark(page, says, number, name):
    """Click the n-th mark of a figure once its label names the cell, so that no click falls on what stands beside it.

    A figure that is still being placed moves away from the pointer, and one that is drawn again loses its label: then
    the mark is looked for again.
    """
    from playwright.sync_api import TimeoutError

    opened, labels = page.get_by_role("heading", name=name, exact=True), []
    for _ in range(20):
        figure = chart(page, says=says)
        figure.scroll_into_view_if_needed()
        mark = figure.locator(".scatterlayer .trace .points path.point").nth(number)
        box = mark.bounding_box()
        page.mouse.move(0, 0)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        for _ in range(2):
            page.wait_for_timeout(PAUSE_MS)
            labels = figure.locator(".hoverlayer .hovertext").all_text_contents()
        if any(label.startswith(name) for label in labels) and mark.bounding_box() == box:
            page.mouse.down()
            page.mouse.up()
            with contextlib.suppress(TimeoutError):  # the figure was drawn again under the pointer: once more
                opened.wait_for(timeout=CLICK_MS)
                return settled(page)
    raise AssertionError(f"mark {number} of {says!r} shows {labels}, and {name} does not open")


@pytest.mark.long
def test_marks_open_their_cell(new_page, refusal_folder):
    page = open_refusal(new_page, refusal_folder)
    heading(page, POINT)
    open_by_mark(
        page, "of the rows zeroed", 8, "IG, hate, λ 0.5, k 5%"
    )  # behind five of the mean, a cross and two circles
    assert page.get_by_text("rescue: chosen under a relaxed limit of harmless prompts").is_visible()

    page = open_refusal(new_page, refusal_folder, show=edit_grid.GRID)
    heading(page, POINT)
    open_by_mark(page, "left keeps the language", 0, "LRP, hate, λ 0.2, k 1%")
    open_by_mark(page, "left keeps the language", 1, "LRP, hate, λ 0.5, k 1%")
    assert parse_qs(urlsplit(page.url).query)["cell"] == ["LRP, hate, λ 0.5, k 1%"]
    shared = page.url
    choose(page, "selector", "IG")
    heading(page, "IG, hate, λ 0.5, k 5%")

    copy = new_page(address=shared)
    heading(copy, "LRP, hate, λ 0.5, k 1%")
