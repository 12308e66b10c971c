"""Half a character in a file: one line that names the file and the line, not advice about folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.cli import main
from engine.data.corpora import CALIBRATION
from engine.data.onsets import read_phrases
from engine.data.pairs import read_pairs
from engine.data.prompt_sets import read_prompt_sets
from engine.data.texts import read_text
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError

HALVES = ["\ud800", "\udfff", "\ude00\ud83d"]  # a first, a second, and both the wrong way round


def lines(path: Path, *entries: object) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries), encoding="utf-8")
    return path


@pytest.mark.parametrize("half", HALVES)
def test_every_reader_of_json_names_the_file_and_what_it_holds(half: str, tmp_path: Path) -> None:
    text = lines(tmp_path / "text.jsonl", {"text": "a whole line"}, {"text": f"broken {half} here"})
    pairs = lines(tmp_path / "pairs.jsonl", {"domain": "hate", "risk": f"a {half}", "base": "b"})
    replies = lines(tmp_path / "replies.jsonl", {"prompt": "p", "reply": f"Sure {half}"})
    keys = lines(tmp_path / "keys.jsonl", {"prompt": "p", "reply": "r", f"odd{half}": 1})
    prompts = lines(tmp_path / "prompts.jsonl", {"prompt": f"p {half}"})
    phrases = tmp_path / "phrases.json"
    phrases.write_text(json.dumps({"refusal": [f"I {half}"], "compliance": ["Sure"]}), encoding="utf-8")
    cast = tmp_path / "condition_multiple.json"
    cast.write_text(json.dumps({"train": [{"base": half}]}), encoding="utf-8")
    readers = {
        "text.jsonl line 2": lambda: read_text(str(text), "calibration"),
        "pairs.jsonl line 1": lambda: read_pairs(str(pairs), CALIBRATION),
        "replies.jsonl line 1": lambda: read_replies(replies),
        "keys.jsonl line 1": lambda: read_replies(keys),
        "prompts.jsonl line 1": lambda: read_prompt_sets([f"harmful={prompts}"], None),
        "phrases.json": lambda: read_phrases(phrases),
        "condition_multiple.json": lambda: read_pairs(str(cast), CALIBRATION),
    }
    for place, read in readers.items():
        with pytest.raises(InputError, match="half of a character") as told:
            read()
        assert place in str(told.value)
        str(told.value).encode()


@pytest.mark.parametrize("option", [("--system", "be \udcff"), ("--corpus", "\udcff.txt"), ("--judge", "\udce9")])
def test_an_option_of_bytes_that_are_no_unicode(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["refusal", "sweep", "demo", *option]) == 2
    assert "which is no Unicode" in capsys.readouterr().err.strip().splitlines()[-1]
