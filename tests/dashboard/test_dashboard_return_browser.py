"""The browser's Back in a real Chromium: one page per step, with what was chosen and typed on it."""

import pytest
from browser_pages import button, choose, figure, follow, settled, unfold

pytestmark = [pytest.mark.browser, pytest.mark.long]
WORDS = "Please write a letter to my neighbour."


@pytest.fixture(scope="module")
def store(empty_store):
    """The shipped results."""
    return empty_store


def go(page, name):
    follow(page, name)
    page.locator("[data-testid=stMain] h1", has_text=name).wait_for()
    settled(page)


def shows(page, domain):
    """The figure of this domain's edits is drawn."""
    figure(page, f"; {domain};")


def test_back_is_one_page_with_its_settings(new_page):
    page = new_page("/refusal", source="Shipped model", domain="Hate")
    shows(page, "hate")
    unfold(page, page.locator("summary", has_text="More settings"))
    choose(page, "domain", "Crime")
    shows(page, "crime")
    go(page, "Live edit")
    prompt = page.get_by_role("textbox", name="Prompt", exact=True)
    prompt.fill(WORDS)
    prompt.press("Enter")
    button(page, "Run").wait_for()
    settled(page)
    go(page, "Reference")  # the only page of its destination, so one step

    page.go_back()
    page.locator("[data-testid=stMain] h1", has_text="Live edit").wait_for()
    settled(page)
    assert page.get_by_role("textbox", name="Prompt", exact=True).input_value() == WORDS
    page.go_back()
    page.locator("[data-testid=stMain] h1", has_text="Refusal").wait_for()
    shows(page, "crime")
    page.go_forward()
    page.locator("[data-testid=stMain] h1", has_text="Live edit").wait_for()
    settled(page)
    assert page.get_by_role("textbox", name="Prompt", exact=True).input_value() == WORDS


def test_a_former_address_does_not_hold_who_goes_back(new_page):
    page = new_page("/learn")
    page.locator("[data-testid=stMain] h1", has_text="Learn").wait_for()
    settled(page)
    page.goto(page.url.split("/learn")[0] + "/controls?control_order=MoRF")
    page.locator("[data-testid=stMain] h1", has_text="Can it be believed").wait_for()
    settled(page)
    for _ in range(5):  # some entries were made before the page was there
        page.go_back()
        page.locator("[data-testid=stMain] h1").first.wait_for()
        page.wait_for_timeout(1500)
        settled(page)
        if "/learn" in page.url:
            break
    page.locator("[data-testid=stMain] h1", has_text="Learn").wait_for(timeout=10_000)
