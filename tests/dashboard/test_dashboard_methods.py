"""Methods: contents that lead to their sections, and definitions as formulas."""

import re

import pytest
from app_pages import drawn_page

from dashboard.pages.methods import page as methods
from dashboard.pages.methods.formulas import FORMULAS
from engine.judges.embedded import EmbeddedJudge
from engine.judges.measured_quality import quality_by_kind


@pytest.fixture(scope="module")
def app():
    return drawn_page("methods")


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
