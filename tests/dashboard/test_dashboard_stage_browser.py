"""The first figure of every page in a real Chromium: wholly in sight without scrolling, at two sizes, in normal and
in larger type, which the last row can read."""

import pytest
from browser_pages import press, settled

pytestmark = [pytest.mark.browser, pytest.mark.long]

SIZES = [(1280, 800), (1920, 1080)]
PAGES = [
    *((path, {}) for path in ("", "curves", "where", "believed", "tasks", "refusal")),
    ("rows", {}),
    ("learn", {"answers": "1a"}),
]
FIRST = "[data-testid=stPlotlyChart] .cartesianlayer .subplot, .lanes canvas"
LEAST_PX = 200
LEAST_TYPE_PX = 24  # at 1920x1080
# Every element that holds text of its own, with the size at which it is drawn; but for the exponents of powers of ten.
TYPE = """parts => parts.flatMap(part => [part, ...part.querySelectorAll("*")])
  .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
  .filter(one => one.getClientRects().length && one.style.fontSize !== "70%")
  .map(one => [parseFloat(getComputedStyle(one).fontSize), one.textContent])"""


@pytest.fixture(scope="module")
def store(empty_store):
    """The shipped results."""
    return empty_store


def opened(new_page, path, **settings):
    page = new_page(f"/{path}", **{"source": "Shipped model", **settings})
    page.locator(FIRST).first.wait_for(state="attached")
    settled(page)
    return page


def first_figure(page):
    """Where the first figure stands in the window, once it has stood there for a while."""
    place = page.locator("[data-testid=stPlotlyChart], .lanes").first
    box = None
    for _ in range(40):
        before, box = box, place.bounding_box()
        if box == before and box["height"] > 0:
            return box
        page.wait_for_timeout(300)
    raise AssertionError(f"still moving: {box}")


def out_of_sight(page, width, height):
    box = first_figure(page)
    told = []
    if box["y"] < 0 or box["y"] + box["height"] > height or box["height"] < LEAST_PX:
        told.append(f"{width}x{height}: {box['y']:.0f} to {box['y'] + box['height']:.0f}")
    if page.evaluate("document.documentElement.scrollWidth") > width:
        told.append(f"{width}x{height}: wider than the window")
    return told


def in_sight(page):
    """What does not fit, once the page has had the time that a busy machine takes to lay it out anew."""
    told = []
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        for _ in range(30):
            page.wait_for_timeout(300)
            outside = out_of_sight(page, width, height)
            if not outside:
                break
        told += outside
    return told


def too_small(page, selector):
    found = page.locator(selector).evaluate_all(TYPE)
    assert found, selector
    return [(size, text) for size, text in found if size < LEAST_TYPE_PX - 0.01]


@pytest.mark.parametrize(("path", "settings"), PAGES)
def test_the_first_figure_is_wholly_in_sight_in_normal_and_in_larger_type(path, settings, new_page):
    page = opened(new_page, path, **settings)
    if path:
        assert in_sight(page) == []
    else:  # whose answer and table of verdicts come first
        page.set_viewport_size({"width": 1280, "height": 800})
        page.wait_for_timeout(1000)
        last = page.locator("[class*='st-key-verdict-']").last.bounding_box()
        assert last["y"] + last["height"] <= 800
    press(page, page.locator("[data-testid=stSidebar]").get_by_text("Stage mode"))
    page.get_by_role("group", name="Stage").wait_for()
    page.locator(FIRST).first.wait_for(state="attached")
    settled(page)
    assert in_sight(page) == []  # the last of the sizes stays
    if path not in ("", "tasks"):
        assert too_small(page, ".st-key-stage h1, .finding") == []
        assert too_small(page, f"{'.st-key-learn-figures' if path == 'learn' else '.st-key-hero'} .main-svg") == []


def test_the_plot_follows_the_height_that_the_window_leaves(new_page):
    page = opened(new_page, "tasks")
    heights = []
    for _, height in SIZES:
        page.set_viewport_size({"width": 1280, "height": height})
        page.wait_for_timeout(1000)
        drawn = page.locator("[data-testid=stPlotlyChart] .main-svg").first.bounding_box()
        heights.append(drawn["height"])
        assert abs(drawn["height"] - first_figure(page)["height"]) < 2
    assert heights[0] < heights[1]
