"""What labels mean: exact values after folding, their negations, and no guess at anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.data.label_words import is_harmful, is_refusal, truth
from engine.data.prompt_sets import read_prompt_sets
from engine.judges.given_replies import read_replies
from engine.judges.labels import label_map
from engine.records.errors import InputError

REFUSED = """refusal|Refusal|REFUSED|refuses|full_refusal|2_full_refusal|3_partial_refusal|partial refusal
Partial-Refusal|partially refused|complete refusal|REJECTION|rejected|declined|declines|is_refusal
refused to answer|refusal detected|non-compliance|Non_Compliance|noncompliant|NONCOMPLIANCE|not compliant
did not comply|didn't comply|didn’t comply|no compliance|does not comply|partial non-compliance
not complied|ｒｅｆｕｓａｌ|re\u00adfusal|refusal\u200b| refusal """
ANSWERED = """Non-refusal|non_refusal|nonrefusal|NonRefusal|not_refused|NOT refused|no refusal|did not refuse
didn't refuse|didn’t refuse|didn´t refuse|doesn't refuse|doesnʼt refuse|does not refuse|unrefused
not a refusal|isn't a refusal|non\u00a0refusal|non\u2011refusal|non\u2013refusal|not declined
not rejected|non-rejection|undeclined|never refuses|no_refusal_detected|refusal not detected
was not refused|compliant|compliance|full_compliance|1_full_compliance|fully complied|complies|answered
accepted|NORMAL|normal|full answer|has not refused"""
UNCLEAR = """refusal_rate|refusal rate|no refusal rate|refuses: no|refusal?|refusal/compliance|refusal or not
maybe refusal|not a full refusal|not fully refused|partial compliance|partially complied
no full compliance|non-non-refusal|not not refused|no answer|unanswered|not answered|not normal|safe
unsafe|harmful|0 refusals|2 refusals|refusal 0|answer: no|rifiuto|Ablehnung|Weigerung|refusé
ne refuse pas|rechazo|отказ|拒否|拒绝|re fus|fusal|unrefusal-like|anti-refusal|LABEL_1|cannot refuse
refusal, not compliance|spam|-|?|refusal=0|irrefutable|false refusal|true refusal|over-refusal|error|skip"""


@pytest.mark.parametrize(
    ("labels", "meaning"), [(REFUSED, True), (ANSWERED, False), (UNCLEAR, None)], ids=["refused", "answered", "unclear"]
)
def test_words(labels: str, meaning: bool | None) -> None:
    wrong = [label for line in labels.split("\n") for label in line.split("|") if is_refusal(label) is not meaning]
    assert wrong == []


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        *((one, True) for one in ("1", "1.0", " 1 ", "1.", "1.00", "true", " True ", "TRUE", "yes", "Yes", "１")),
        *((one, False) for one in ("0", "0.0", "0.", "false", "False", "no", "NO")),
        *((one, None) for one in ("-1", "2", "0.5", "10", "1.5", "01", "1e0", "+1", "", "on", "oui", "ja", "nope")),
    ],
)
def test_truth(value: str, meaning: bool | None) -> None:
    assert truth(value) is meaning


@pytest.mark.parametrize(
    ("label", "meaning"),
    [
        *((one, True) for one in ("unsafe", "Harmful", "malign", "not safe", "non-benign", "UN-SAFE", "not_harmless")),
        *((one, False) for one in ("safe", "Harmless", "benign", "not harmful", "non-harmful", "not unsafe")),
        *((one, None) for one in ("0", "1", "maybe", "safe?", "safety", "safe/unsafe", "sicher", "refusal")),
    ],
)  # fmt: skip
def test_words_of_prompts(label: str, meaning: bool | None, tmp_path: Path) -> None:
    assert is_harmful(label) is meaning
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({"prompt": "a", "label": label}), encoding="utf-8")
    if meaning is None:
        with pytest.raises(InputError, match=r"x.jsonl line 1 does not say whether its prompt is safe"):
            read_prompt_sets([f"xstest={file}"])
    else:
        assert [one.kind for one in read_prompt_sets([f"xstest={file}"])] == ["malign" if meaning else "benign"]


def labelled(tmp_path: Path, value: object, column: str = "label") -> list[bool | None]:
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps({"reply": "x", column: value}), encoding="utf-8")
    return [one.human for one in read_replies(file, label_column=column)]


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(1, True), (0, False), (1.0, True), (0.0, False), (True, True), (False, False), ("no", False), ("yes", True),
     ("1.0", True), ("did not refuse", False), (None, None), ("", None), (" ", None), (float("nan"), None)],
)  # fmt: skip
def test_labels_of_a_file(value: object, meaning: bool | None, tmp_path: Path) -> None:
    assert labelled(tmp_path, value) == [meaning]


@pytest.mark.parametrize("value", [2, -1, 0.5, "refusal_rate", "rifiuto", [True], "refuses: no", "unsafe"])
def test_a_label_that_is_not_clear_is_no_guess(value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1: .* is no label of a reply; understood are refusal.*0/1") as error:
        labelled(tmp_path, value)
    assert "\n" not in str(error.value)
    assert str(value) in str(error.value)


@pytest.mark.parametrize("column", ["compliant", "is_compliant", "non_refusal", "complied", "answered"])
def test_a_flag_says_what_its_column_says(column: str, tmp_path: Path) -> None:
    assert labelled(tmp_path, 1, column) == [False]
    assert labelled(tmp_path, "no", column) == [True]
    assert labelled(tmp_path, "refused", column) == [True]  # words speak for themselves


@pytest.mark.parametrize("column", ["safe", "harmful", "is_unsafe"])
def test_a_flag_of_harm_says_nothing_of_refusal(column: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"column '{column}' is no label of a reply"):
        labelled(tmp_path, 1, column)


def test_classifiers_are_read_alike(tmp_path: Path) -> None:
    assert label_map("it", {0: "did not refuse", 1: "declined"}, tmp_path).refusal == (1,)
    assert label_map("it", {0: "non-compliance", 1: "full compliance"}, tmp_path).refusal == (0,)
    for names in (("0", "1"), ("yes", "no"), ("partial_compliance", "refusal"), ("refusal_rate", "compliance")):
        with pytest.raises(InputError, match="it is not clear what"):
            label_map("it", dict(enumerate(names)), tmp_path)
