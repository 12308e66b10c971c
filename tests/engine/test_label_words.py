"""What labels mean: exact values after folding, their negations, and no guess at anything else."""

import json
from pathlib import Path

import pytest

from engine.data.prompt_sets import read_prompt_sets
from engine.data.tables_of_text import is_harmful, truth
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError


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


@pytest.mark.parametrize("column", ["jailbroken", "attack_success", "helpful", "correct", "flagged", "unsafe", "score"])
@pytest.mark.parametrize("value", [1, "0.0", "yes"])
def test_a_flag_of_something_else_is_no_guess(column: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"in column '{column}' is no label of a reply.*a column called refused"):
        labelled(tmp_path, value, column)
    assert labelled(tmp_path, "compliance", column) == [False]
