"""Methods: contents that lead to their sections, and definitions as formulas."""

import re

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.pages.methods import page as methods
from dashboard.pages.methods.formulas import FORMULAS


@pytest.fixture(scope="module")
def app():
    def script():
        from dashboard.pages.methods import page

        page.render()

    app = AppTest.from_function(script, default_timeout=60).run()
    assert not app.exception
    return app


def test_the_contents_lead_to_every_section(app):
    contents = next(block.value for block in app.markdown if "On this page" in block.value)
    links = re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", contents)
    sections = [(block.value, block.proto.anchor) for block in app.header]
    assert links == sections
    assert len({anchor for _, anchor in links}) == len(links) > 5


def test_every_formula_is_shown_and_whole(app):
    assert set(FORMULAS) <= set(methods.SECTIONS)
    wanted = [formula.latex for formulas in FORMULAS.values() for formula in formulas]
    shown = [block.value.strip().strip("$").strip() for block in app.latex]
    assert shown == [formula.in_lines for formulas in FORMULAS.values() for formula in formulas]
    assert not any(r"\qquad" in latex for latex in shown)
    for latex in wanted:
        depth = 0
        for sign in re.sub(r"\\[{}]", "", latex):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            assert depth >= 0, latex
        assert depth == 0, latex
        assert len(re.findall(r"\\left\b", latex)) == len(re.findall(r"\\right\b", latex)), latex
