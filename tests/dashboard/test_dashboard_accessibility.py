"""axe-core on every page, light and dark: no finding that it calls serious or critical."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from browser_pages import TIMEOUT_MS, settled

pytestmark = pytest.mark.browser

PAUSE_MS = 500
APP = Path(__file__).parents[2] / "dashboard" / "app.py"


def paths() -> list[str]:
    """The addresses of all pages, read off the app itself; the first page has none."""
    calls = [
        node for node in ast.walk(ast.parse(APP.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
    ]
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


def lasting_findings(page) -> list[str]:
    """What axe-core calls serious or critical and still does after a while: what is drawn anew fades in, faintly."""
    found: list[str] = []
    for _ in range(4):
        page.wait_for_timeout(PAUSE_MS)
        found = findings(page)
        if not found:
            break
    return found


def findings(page) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{violation['id']} ({violation['impact']}): {violation['help']}; {node['html'][:160]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
