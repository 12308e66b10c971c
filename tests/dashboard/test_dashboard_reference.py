"""Reference: every document opens and reads as it is meant, one search finds what stands in any of them."""

import re

import pytest
from app_pages import drawn_page
from replies_by_kind import quality_by_kind

from dashboard.pages.reference import documents, published, reference_page as page
from engine.cli import main
from engine.judges.embedded import EmbeddedJudge


def opened(document, **more):
    return drawn_page("reference", document=document, **more)


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
    blocks = documents.sections(documents.METHODS).values()
    shown = [block for text in blocks for block in re.findall(r"\$\$\n(.*?)\n\$\$", text, re.DOTALL)]
    assert len(shown) > 15
    assert sum(block.value.count("$$") for block in opened(documents.METHODS).markdown) == 2 * len(shown)
    for latex in shown:
        assert r"\qquad" not in latex  # a line for each part: none is wider than the page
        plain = re.sub(r"\\[{}]", "", latex)
        for opens, closes in (("{", "}"), (r"\left\b", r"\right\b"), (r"\begin\b", r"\end\b")):
            signs = [re.findall(sign if len(sign) == 1 else rf"\{sign}", plain) for sign in (opens, closes)]
            assert len(signs[0]) == len(signs[1]), latex


def test_the_kinds_of_reply_on_which_the_embedded_judge_is_weak_are_named():
    """As measured with the judge of today, the weakest first."""
    kinds = sorted(quality_by_kind(EmbeddedJudge()).items(), key=lambda kind: kind[1].f1)
    lines = [
        f"| {kind} | {sum(vars(one).values())} | {one.false_positives} | {one.false_negatives} | {one.f1:.2f} |"
        for kind, one in kinds
    ]
    text = documents.sections(documents.METHODS)["Judges"]
    assert "\n".join(lines) in text
    assert f"tried on {sum(sum(vars(one).values()) for _, one in kinds)} replies" in text


@pytest.mark.parametrize("command", ["rows", "refusal judge", "analyze"])
def test_the_page_of_a_command_is_what_its_help_prints(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(documents.HELP_COLUMNS + 2))  # argparse leaves two of them free
    with pytest.raises(SystemExit):
        main([*command.split(), "--help-all" if command == "analyze" else "--help"])
    [shown] = [block.value for block in opened(documents.COMMANDS, command=command).code if "usage:" in block.value]
    printed = capsys.readouterr().out.rstrip()
    assert shown.partition("\n\n")[2] == printed.partition("\n\n")[2]
    assert command == "analyze" or shown == printed  # argparse has the usage of the short help there


@pytest.mark.parametrize(
    ("words", "label", "chosen"),
    [
        ("perplexity ten times broken", "Refusal › The gate", {"document": "Refusal"}),
        ("--EVAL-LENGTH sweep tokens", "Commands › sweep", {"document": documents.COMMANDS, "command": "sweep"}),
        ("nll_stderr sweep.parquet", "Methods › Tables", {"document": documents.METHODS}),
        ("Wilson Table", f"{documents.PAPER} › {published.describe('wilson').title}", {"table": "wilson"}),
        ("P60", f"{documents.PAPER} › P60", {"paper_view": "Disagreements"}),
    ],
)
def test_the_search_finds_and_opens(words, label, chosen):
    assert all(word in " ".join(hit).lower() for hit in documents.search(words) for word in words.lower().split())
    app = opened(documents.METHODS, find=words)
    shown = "".join(block.value.lower().replace("\\", "") for block in app.markdown)
    assert words == "P60" or all(f"**{word.lower()}**" in shown for word in words.split())
    [button] = [one for one in app.button if one.label.replace("\\", "") == f"**{label}**"]
    button.click().run()
    assert not app.exception
    assert {key: app.session_state[key] for key in (*chosen, "find")} == {**chosen, "find": ""}
    assert words != "P60" or any("**P60 · " in block.value for block in app.markdown)


def test_hits_in_titles_come_first_and_how_many_there_are_is_said():
    titled = ["judges" in f"{hit.document} {hit.name}".lower() for hit in documents.search("judges")]
    assert titled == sorted(titled, reverse=True)
    for words, line in (("rows", f"the first {page.HITS_AT_ONCE} are shown"), ("zzyzx", "Nothing has all")):
        assert any(line in one.value for one in opened("Tests", find=words).caption)
