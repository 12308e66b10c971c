"""The audit pages in a real Chromium: a source that is kept, links, the stage, phones."""

from urllib.parse import parse_qs, urlsplit

import pytest
from browser_pages import button, figure, follow, more_settings, press, settled
from made_up_audit import write_audit

pytestmark = pytest.mark.browser

# page -> words of its first figure's description
PAGES = {
    "where": "most alike first",
    "where?part=Depth": "share of each block",
    "believed": " stable",
    "believed?part=Controls": "each control and references",
    "tasks": "Mean of ",
}


@pytest.fixture(scope="module")
def store(empty_store):
    write_audit(empty_store / "results" / "full")
    return empty_store


@pytest.mark.long
def test_source_and_model_are_kept_from_page_to_page(new_page):
    page = new_page("/where", source="Paper", model="Qwen3-8B")
    figure(page, "most alike first")
    follow(page, "Can it be believed")
    figure(page, "stable is to the right")
    chosen = [page.locator(f".st-key-{key}").get_by_role("combobox").input_value() for key in ("source", "model")]
    assert chosen == ["Paper", "Qwen3-8B"]


@pytest.mark.long
def test_the_copied_link_opens_the_same_page(new_page):
    page = new_page("/controls", control_order="MoRF")  # a former address
    figure(page, "each control and references")
    press(page, page.locator("[data-testid=stSidebar]").get_by_text("Stage mode"))
    settled(page)
    code = page.locator("[data-testid=stCode]")
    press(page, button(page, "Export"), took=code.is_visible)
    page.get_by_text("Where the numbers come from:").wait_for()
    link = code.inner_text().replace("\n", "").strip()
    assert "/believed?" in link
    assert parse_qs(urlsplit(link).query) == {
        "control_order": ["MoRF"], "more": ["true"], "part": ["Controls"], "present": ["true"],
        "source": ["Shipped model"],  # of which the page was then
    }  # fmt: skip
    copy = new_page(address=link)
    figure(copy, "each control and references")
    copy.locator(".st-key-stage-strip").wait_for(state="attached")


@pytest.mark.long
@pytest.mark.parametrize(("name", "says"), PAGES.items())
def test_pages_fit_a_phone_also_with_larger_type(new_page, name, says):
    path, _, part = name.partition("?part=")
    page = new_page(f"/{path}", width=400, present="true", **({"part": part} if part else {}))
    figure(page, says)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.long
def test_all_selectors_stay_all_on_a_page_that_has_more(new_page):
    page = new_page("/believed", part="Stability", more="true")
    figure(page, "Spearman of the scores")
    pills = page.locator(".st-key-selectors").get_by_role("button")
    few = pills.count()
    depth = page.locator(".st-key-part").get_by_role("radio", name="Depth", exact=True)
    follow(page, "Where and who")
    press(page, depth)
    figure(page, "share of each block")
    more_settings(page)
    pills.first.wait_for()
    assert pills.count() > few
    assert "selectors" not in page.url
    press(page, pills.filter(has_text="Random"))
    settled(page)
    follow(page, "Can it be believed")
    figure(page, "LeRF masks at 30% from disjoint")
    follow(page, "Where and who")
    figure(page, "share of each block")
    more_settings(page)
    pills.first.wait_for()
    chosen = parse_qs(urlsplit(page.url).query)["selectors"]
    assert len(chosen) == pills.count() - 1
    assert "Random" not in chosen
