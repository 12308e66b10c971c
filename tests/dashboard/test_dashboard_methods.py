"""Methods: contents that lead to their sections, and definitions as formulas."""

import re

import pytest
from app_pages import drawn_page

from dashboard.pages.methods import page as methods
from engine.judges.embedded import EmbeddedJudge
from engine.judges.measured_quality import quality_by_kind


@pytest.fixture(scope="module")
def app():
    return drawn_page("methods")


def test_every_formula_is_shown_and_whole(app):
    shown = [block for text in methods.SECTIONS.values() for block in re.findall(r"\$\$\n(.*?)\n\$\$", text, re.DOTALL)]
    assert len(shown) > 15
    assert sum(block.value.count("$$") for block in app.markdown) == 2 * len(shown)
    assert not any(r"\qquad" in latex for latex in shown)  # a line for each part: none is wider than the page
    for latex in shown:
        depth = 0
        for sign in re.sub(r"\\[{}]", "", latex):
            depth += {"{": 1, "}": -1}.get(sign, 0)
            assert depth >= 0, latex
        assert depth == 0, latex
        for opens, closes in ((r"\left", r"\right"), (r"\begin", r"\end")):
            found = [len(re.findall(rf"{re.escape(sign)}\b", latex)) for sign in (opens, closes)]
            assert found[0] == found[1], latex


def test_the_kinds_of_reply_on_which_the_embedded_judge_is_weak_are_named(app, monkeypatch):
    kinds = quality_by_kind(EmbeddedJudge())
    assert len(kinds) == 9
    [said] = [block.value for block in app.markdown if "to mislead it" in block.value]
    named = said.partition(f"F1 below {methods.WEAK_F1}: ")[2]
    weak = {kind for kind, quality in kinds.items() if quality.f1 < methods.WEAK_F1}
    assert {kind for kind in kinds if f"{kind} ({kinds[kind].f1:.2f})" in named} == weak
    assert named.count("(") == len(weak)
    [table] = [frame.value for frame in app.dataframe if "taken for refusals" in frame.value.columns]
    assert dict(zip(table["kind"], table["F1"], strict=True)) == {kind: one.f1 for kind, one in kinds.items()}
    monkeypatch.setattr(EmbeddedJudge, "version", "another")
    assert any("has not been measured by kind" in block.value for block in app.run().markdown)
