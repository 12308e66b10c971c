"""axe-core on every page, light and dark: no finding that it calls serious or critical."""

import ast
from pathlib import Path

import pytest
from browser_pages import TIMEOUT_MS, lasting_findings, settled

pytestmark = [pytest.mark.browser, pytest.mark.long]

APP = Path(__file__).parents[2] / "dashboard" / "app.py"


def paths() -> list[str]:
    """The addresses of all pages, read off the app itself; the first page has none."""
    calls = [node for node in ast.walk(ast.parse(APP.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    found = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "url_path"]
    return ["", *(value.value for value in found if isinstance(value, ast.Constant))]


@pytest.mark.parametrize("path", paths())
def test_no_serious_finding(path, new_page):
    page = new_page(f"/{path}")
    page.locator("[data-testid=stHeading]").first.wait_for(timeout=TIMEOUT_MS)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settled(page)
        page.locator("[data-stale=true]").first.wait_for(state="detached")
        found = lasting_findings(page)
        assert found == [], f"{scheme}:\n" + "\n".join(found)
