"""Reference: every document opens and reads as it is meant, one search finds what stands in any of them."""

import re

import pytest
from app_pages import drawn_page

from dashboard.pages.reference import computed, documents, page, published
from engine.cli import main
from engine.judges.embedded import EmbeddedJudge
from engine.judges.measured_quality import quality_by_kind


def opened(document, **more):
    return drawn_page("reference", document=document, **more)


def press(app, label):
    [button] = [one for one in app.button if one.label.replace("\\", "") == label]
    return button.click().run()


@pytest.mark.parametrize("document", documents.FILES)
def test_a_document_is_shown_whole_and_as_text(document):
    app = opened(document)
    parts = documents.sections(document)
    assert [head.value for head in app.header] == [title for title in parts if title]
    shown = [block.value for block in app.markdown]
    for title, text in parts.items():
        assert documents.linked(text) in shown
        prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        assert not re.search(r":[\w+-]+:", text), title  # which Streamlit would draw as an emoji
        assert not re.search(r"(?<!\$)\$(?!\$)", re.sub(r"\$\$.*?\$\$", "", prose, flags=re.DOTALL)), title  # a formula
    assert not any(re.search(r"\]\((?!http)[^)]*\.md", text) for text in shown)


def test_links_lead_to_documents_and_name_files():
    text = documents.linked("[a b](methods.md#errors), [c](#d), [`x.py`](../../../engine/cli.py), ![e](../page.py)")
    assert text == "[a b](?document=Methods#errors), [c](#d), `engine/cli.py`, e (`dashboard/pages/page.py`)"


def test_every_formula_is_shown_and_whole():
    app = opened(documents.METHODS)
    blocks = documents.sections(documents.METHODS).values()
    shown = [block for text in blocks for block in re.findall(r"\$\$\n(.*?)\n\$\$", text, re.DOTALL)]
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


def test_the_kinds_of_reply_on_which_the_embedded_judge_is_weak_are_named(monkeypatch):
    app = opened(documents.METHODS)
    kinds = quality_by_kind(EmbeddedJudge())
    assert len(kinds) == 9
    [said] = [block.value for block in app.markdown if "to mislead it" in block.value]
    named = said.partition(f"F1 below {computed.WEAK_F1}: ")[2]
    weak = {kind for kind, quality in kinds.items() if quality.f1 < computed.WEAK_F1}
    assert {kind for kind in kinds if f"{kind} ({kinds[kind].f1:.2f})" in named} == weak
    assert named.count("(") == len(weak)
    [table] = [frame.value for frame in app.dataframe if "taken for refusals" in frame.value.columns]
    assert dict(zip(table["kind"], table["F1"], strict=True)) == {kind: one.f1 for kind, one in kinds.items()}
    monkeypatch.setattr(EmbeddedJudge, "version", "another")
    assert any("has not been measured by kind" in block.value for block in app.run().markdown)


@pytest.mark.parametrize("command", ["rows", "refusal judge", "export"])
def test_the_page_of_a_command_is_what_its_help_prints(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(documents.HELP_COLUMNS + 2))  # argparse leaves two of them free
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    [shown] = [block.value for block in opened(documents.COMMANDS, command=command).code if "usage:" in block.value]
    assert shown == capsys.readouterr().out.rstrip()


@pytest.mark.parametrize(
    ("words", "label", "document"),
    [
        ("perplexity ten times broken", "Refusal › The gate", "Refusal"),
        ("--EVAL-LENGTH sweep tokens", "Commands › sweep", documents.COMMANDS),
        ("nll_stderr sweep.parquet", "Methods › Tables", documents.METHODS),
        ("Wilson Table", f"{documents.PAPER} › {published.describe('wilson').title}", documents.PAPER),
        ("P60", f"{documents.PAPER} › P60", documents.PAPER),
    ],
)
def test_the_search_finds_and_opens(words, label, document):
    app = opened(documents.METHODS, find=words)
    hits = documents.search(words)
    assert all(word in hit.low for hit in hits for word in words.lower().split())
    shown = "".join(block.value.lower().replace("\\", "") for block in app.markdown)
    assert [f"**{word.lower()}**" in shown for word in words.split()].count(True) == len(
        words.split()
    ) or words == "P60"
    app = press(app, label)
    assert not app.exception
    assert app.session_state["document"] == document
    assert app.session_state["find"] == ""
    if label.endswith("sweep"):
        assert app.selectbox(key="command").value == "sweep"
    if "wilson" in words.lower():
        assert app.selectbox(key="table").value == "wilson"
    if words == "P60":
        assert any("P60" in block.value for block in app.markdown)


def test_hits_in_titles_come_first_and_nothing_found_is_said():
    hits = documents.search("judges")
    titled = ["judges" in f"{hit.document} {hit.name}".lower() for hit in hits]
    assert titled == sorted(titled, reverse=True)
    assert any(f"the first {page.HITS_AT_ONCE} are shown" in one.value for one in opened("Tests", find="rows").caption)
    assert any("Nothing has all of these words" in one.value for one in opened("Tests", find="zzyzx").info)
