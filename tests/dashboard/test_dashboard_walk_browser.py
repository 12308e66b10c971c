"""A walk over every page in a real Chromium, on the shipped results: what a newcomer sees, and nothing is broken."""

import pytest
from browser_pages import DESTINATIONS, figure, follow, lasting_findings, press, settled

pytestmark = pytest.mark.browser

# Page -> words of the description of its first figure, or of its text where it has none.
FIGURES = {
    "Overview": "filled, lowest scores first", "Curves": "LeRF: lowest scores go first",
    "Where and who": "most alike first",
    "Can it be believed": "bars: 95% intervals over draws",
    "Tasks": "Mean of 5 tasks", "Refusal": "of the rows zeroed; bars", "Rows": "rows that are among",
    "Learn": "One row among its neighbours",
}  # fmt: skip
TEXTS = {"Live edit": "Prompt", "Runs": "Delete this run", "Reference": "Licences"}


def test_every_page_opens_from_the_menu_and_draws_its_first_figure(new_page):
    page = new_page("/", source="Shipped model")
    broken = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("console", lambda message: broken.append(message.text) if message.type == "error" else None)
    figure(page, FIGURES["Overview"])
    assert lasting_findings(page) == []
    names = [name for pages in DESTINATIONS.values() for name in pages]
    assert set(names) == FIGURES.keys() | TEXTS.keys()
    assert page.locator("[data-testid=stSidebar] [data-testid=stPageLink]").all_inner_texts() == list(DESTINATIONS)
    for name in names:
        follow(page, name)
        if name in FIGURES:
            figure(page, FIGURES[name])
        else:
            page.locator("[data-testid=stMain]").get_by_text(TEXTS[name]).first.wait_for()
        page.locator("[data-stale=true]").first.wait_for(state="detached")
        settled(page)
        assert page.locator("[data-testid=stException]").count() == 0, name
        told = page.locator("[data-testid=stMain] [data-testid=stAlert]").all_inner_texts()
        assert [text for text in told if "no judged replies" not in text] == [], name  # none are shipped
    assert broken == []
    # A destination leads to its page that was open last.
    press(page, page.locator("[data-testid=stSidebar]").get_by_role("link", name="Audit", exact=True))
    figure(page, FIGURES["Tasks"])


@pytest.mark.long
def test_a_link_can_be_the_first_thing_that_is_opened(fresh_server, new_page):
    page = new_page(address=f"{fresh_server}/refusal?source=Shipped+model")
    figure(page, FIGURES["Refusal"])
    assert page.get_by_text("Page not found").count() == 0
