"""The typeface in a real Chromium: what it drew with, in both themes, and the pages where it cannot be loaded."""

import pytest
from browser_pages import chart, settled

from dashboard.charts import typeface

pytestmark = [pytest.mark.browser, pytest.mark.long]

DRAWN = {
    "text of the page": "[data-testid=stMarkdownContainer] p",
    "heading": "[data-testid=stMain] h1",
    "finding": ".finding h2",
    "axis": ".xtick text",
    "name at a line's end": ".annotation-text",
    "button": ".st-key-export button p",
}
LOADED = "[...document.fonts].filter(face => face.family === 'Inter').map(face => face.status)"


def families(page, selector):
    """The typefaces whose glyphs stand for the first such element, as the browser tells a debugger."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": selector})["nodeId"]
    assert node, selector
    found = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
    session.detach()
    return {(font["familyName"], font["isCustomFont"]) for font in found}


def open_curves(new_page):
    page = new_page("/curves")
    chart(page, says="LeRF: lowest scores")
    settled(page)
    return page


def test_pages_and_figures_are_drawn_with_it_and_its_letters_are_there(new_page):
    page = open_curves(new_page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(1000)
        chart(page, says="LeRF: lowest scores")
        assert "error" not in page.evaluate(LOADED)
        assert "loaded" in page.evaluate(LOADED)
        for what, selector in DRAWN.items():
            found = families(page, selector)
            assert [custom for _, custom in found] == [True], (what, found)
            assert all(family.startswith(typeface.NAME) for family, _ in found), (what, found)
    # Of what our own texts are written in, nothing comes from elsewhere.
    page.evaluate("document.querySelector('.finding h2').textContent = 'Äß é λ μ ρ → ← ± − × ÷ ≤ ≥ ≠ ∞ … “a” ⁻¹⁰ · –'")
    assert [custom for _, custom in families(page, ".finding h2")] == [True]
