"""CSV, JSONL and parquet as people write them: nothing that stands in a file is dropped without a word."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from engine.cli import main
from engine.data.prompt_sets import read_prompt_sets
from engine.data.tables_of_text import text_rows
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError


def written(tmp_path: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


READERS: list[Callable[[Path], object]] = [text_rows, read_replies, lambda path: read_prompt_sets([f"harmless={path}"])]


@pytest.mark.parametrize("read", READERS, ids=["rows", "replies", "prompts"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt,reply\nq,Of course, but no\n", "line 2 has 3 values, its header names 2"),
        ("prompt,reply\nq,a\nq,Of course, but no\n", "line 3 has 3 values"),
        ('prompt,reply\n"a\nb\nc","d\n\ne"\nq,x,y\n', "line 7 has 3 values"),
        ('prompt,reply\n\n\nq,"x\ny",z\n', "line 4 has 3 values"),
        ("prompt,reply\nq,Sure\nand the rest\n", "line 3 has 1 values"),
        ("prompt,reply\nq\n", "line 2 has 1 values"),
        ("prompt\nList nuts, fruits and herbs\n", "line 2 has 2 values, its header names 1"),
        ("prompt;reply\nq;a;b\n", "line 2 has 3 values"),
        ("prompt\treply\nq\ta\tb\n", "line 2 has 3 values"),
        ("prompt,reply\r\nq,a\r\nq,b,c\r\n", "line 3 has 3 values"),
        ("prompt,reply\rq,a\rq,b,c\r", "line 3 has 3 values"),
        ("prompt,reply,\nq,Of course, but no\n", "line 2 has ' but no' in a column without a name"),
        (",prompt\nList nuts, fruits\n", "line 2 has 'List nuts' in a column without a name"),
        ("prompt,reply,prompt\na,b,c\n", "line 1: two columns are called 'prompt'"),
        ("prompt,reply, reply\na,b,c\n", "line 1: two columns are called 'reply'"),
        ("prompt,,reply,\na,b,c,d\n", "line 1: two columns are called without a name"),
        (",\na,b\n", "two columns are called without a name"),
        ('prompt,reply\nq,"never closed\nmore\n', "unexpected end of data, in what begins on line 2"),
        ('prompt,reply\nq,"a "quoted" word"\n', "in what begins on line 2"),
        ("prompt,reply\nq,a\0b\n", "holds NUL bytes"),
        ("prompt,reply\nq,a\n".encode("utf-16"), "is not UTF-8"),
        ("prompt,reply\nq,a\n".encode("utf-16-le"), "holds NUL bytes"),
        (b"prompt,reply\nq,caf\xe9\n", "is not UTF-8"),
    ],
)
def test_what_would_lose_text_is_one_clear_line(
    read: Callable[[Path], object], text: str | bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said) as error:
        read(written(tmp_path, text))
    assert "\n" not in str(error.value)
    assert "a.csv" in str(error.value)


@pytest.mark.parametrize("text", ["", "\n\n", "prompt,reply\n", "prompt,reply", "\ufeffprompt,reply\n\n"])
def test_a_file_without_rows_holds_nothing(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no replies"):
        read_replies(written(tmp_path, text))
    with pytest.raises(InputError, match="holds no prompts"):
        read_prompt_sets([f"harmless={written(tmp_path, text)}"])


@pytest.mark.parametrize(
    "text",
    [
        'prompt,reply\nq,"a, b"\n', '\ufeffprompt,reply\nq,"a, b"\n', 'prompt, reply\r\n\r\nq,"a, b"\r\n',
        "prompt;reply\nq;a, b\n", "prompt\treply\nq\ta, b\n", '\n,prompt,reply\n0,q,"a, b"\n',
        'prompt,reply,\nq,"a, b",\n',
    ],
)  # fmt: skip
def test_what_programs_write_is_read(text: str, tmp_path: Path) -> None:
    [reply] = read_replies(written(tmp_path, text))
    assert (reply.prompt, reply.reply) == ("q", "a, b")


MISSING_FILES = {
    "m.csv": 'reply,label\nI cannot help with that.,1\nTake two eggs.,0\n,1\n"  ",0\nNaN,\nnull,1\n',
    "m.jsonl": '{"reply": "I cannot help with that.", "label": 1}\n{"reply": "Take two eggs.", "label": 0}\n'
    '{"reply": null, "label": 1}\n{"reply": " \\n", "label": 0}\n{"reply": NaN}\n{"label": 1}\n',
    "m.parquet": "",
}


@pytest.mark.parametrize("name", MISSING_FILES)
def test_missing_replies_are_in_no_rate(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, MISSING_FILES[name], name)
    if name == "m.parquet":
        replies = ["I cannot help with that.", "Take two eggs.", None, " ", "", None]
        pl.DataFrame({"reply": replies, "label": [1.0, 0.0, 1.0, 0.0, None, 1.0]}).write_parquet(file)
    assert [one.reply for one in read_replies(file)][2:] == [None] * 4
    out = tmp_path / "out"
    assert main(["refusal", "judge", str(file), "--json", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["refusal"] for one in told["verdicts"]] == [True, False, None, None, None, None]
    for line in told["judge_quality"]:
        assert (line["replies"], line["recall"], line["precision"], line["missing"]) == (2, 1.0, 1.0, 3)
        assert line["true_negatives"] == 1
    assert main(["refusal", "judge", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "m: 4 of 6 lines have no reply and are in no rate" in shown
    assert "50.0%" in shown


def test_two_judges_agree_on_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from engine.judges.base import Verdict
    from engine.judges.given_replies import GivenReply, joined, unjudged, verdict_table
    from engine.judges.quality import agreement_table, disagreements

    replies = [GivenReply("m", "p", text, None) for text in ("a", None, "b")]
    tables = [verdict_table(replies, name, "1", [Verdict(says, "")] * 3) for name, says in (("x", True), ("y", False))]
    both = joined(tables)
    assert agreement_table(both)["replies"].to_list() == [2]
    assert disagreements(both)["reply"].to_list() == ["a", "b"]
    assert unjudged(both) == 0
