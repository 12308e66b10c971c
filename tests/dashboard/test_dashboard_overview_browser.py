"""The overview in a real Chromium: it opens first, with its figure, leads on, and fits a phone."""

from pathlib import Path

import pytest
from browser_pages import button, chart, download, figure, press, settled, unfold
from synthetic import add_table, stability, verdicts

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.fixture(scope="module")
def store(store):
    add_table(store / "results" / "made-up", "stability", stability({"lrp": 0.99, "wanda": 0.999}))
    add_table(store / "results" / "made-up", "verdicts", verdicts())
    return store


def test_the_overview_opens_first_with_its_figure_and_leads_on(new_page):
    page = new_page("/")
    figure(page, "colours by rank within a model")
    unfold(page, page.locator("summary", has_text="What the words mean"))
    page.get_by_text("No *why*.").wait_for()
    chip = page.locator("[data-testid=stPageLink-NavLink]").filter(has_text="✗ no", visible=True).first
    press(page, chip)
    chart(page, says="stays low. Wanda.")
    page.go_back()
    figure(page, "colours by rank within a model")


def test_values_of_the_overview_can_be_saved_and_it_fits_a_phone(new_page):
    page = new_page("/", width=400)
    figure(page, "colours by rank within a model")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    settled(page)
    save = page.get_by_role("button", name="CSV", exact=True)  # in a menu over the page
    press(page, button(page, "Export"), took=save.is_visible)
    values = download(page, save)
    lines = Path(values.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "label,selector,nll,error,printed,destroyed,unmasked_nll"
    assert len(lines) == 1 + 4 + 35  # four selectors here, seven of five models of the paper
