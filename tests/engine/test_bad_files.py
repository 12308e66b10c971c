"""Texts, options, paths and prompts as they should not be: one line, or the right result."""

import json

import polars as pl
import pytest
from bad_inputs import refused, run

from engine.data.prompts import prompt_ids
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("one_parser")

SMALL = ("--samples", "2", "--max-length", "16", "--selectors", "magnitude")


@pytest.fixture
def score(tiny_llama, tmp_path, tiny_text):
    """The words of a small scoring, to be followed by others that override."""
    return ("score", tiny_llama.id, *SMALL, "--corpus", tiny_text, "--store", tmp_path / "store")


@pytest.fixture
def sweep(tiny_llama, tmp_path, tiny_text):
    return (
        "sweep", tiny_llama.id, *SMALL, "--corpus", tiny_text, "--eval-samples", "2", "--eval-length", "16", "--store",
        tmp_path / "store", "--rates", "0",
    )  # fmt: skip


# Corpora

CORPORA = {
    "empty.txt": b"", "blank.txt": b" \n\t\n\n  \n", "mark.txt": b"\xef\xbb\xbf", "binary.txt": bytes(range(256)) * 20,
    "latin.txt": "Caf\xe9 au lait. ".encode("latin-1") * 50,
    "utf16.txt": "The cat sat on the mat. ".encode("utf-16") * 50, "short.txt": b"One.",
    "suffix.csv": b"text\nA text.\n", "none": b"A text without a suffix. " * 50, "empty.jsonl": b"",
    "null.jsonl": b"null\n", "list.jsonl": b'["a"]\n', "number.jsonl": b"3\n", "text.jsonl": b'"a text"\n',
    "object.jsonl": b"{}\n", "other.jsonl": b'{"content": "a text"}\n', "texts_null.jsonl": b'{"text": null}\n',
    "texts_number.jsonl": b'{"text": 3}\n', "texts_list.jsonl": b'{"text": ["a"]}\n',
    "texts_object.jsonl": b'{"text": {"text": "a"}}\n', "texts_truth.jsonl": b'{"text": true}\n',
    "texts_blank.jsonl": b'{"text": " "}\n{"text": ""}\n', "half.jsonl": b'{"text": "a"}\n{"text": \n',
    "array.jsonl": b'[{"text": "a"}, {"text": "b"}]', "one_object.jsonl": b'{"text": "a"} {"text": "b"}\n',
    "single_quotes.jsonl": b"{'text': 'a'}\n", "nan.jsonl": b'{"text": NaN}\n', "deep.jsonl": b'{"text":' * 100_000,
    "deep_list.jsonl": b"[" * 200_000, "binary.jsonl": bytes(range(256)),
    "latin.jsonl": '{"text": "Caf\xe9"}\n'.encode("latin-1"), "page.jsonl": b"<!DOCTYPE html><html>Sign in</html>",
}  # fmt: skip


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_that_is_none(name, score, tmp_path, capfd):
    (tmp_path / name).write_bytes(CORPORA[name])
    line = refused(capfd, *score, "--selectors", "wanda", "--corpus", tmp_path / name)
    assert name in line


# Paths

LONG = "x" * 5_000
PLACES = {
    "too long": LONG, "a name too long": f"{'x' * 300}.txt", "a zero byte": "a\0b.txt", "below a file": "{file}/a.txt",
    "a folder": "{folder}", "a folder by the name of a file": "{folder}/folder.txt",
    "a link to itself": "{folder}/link.txt", "half a surrogate": "\udcff.txt", "nothing": "", "a blank": " ",
    "a line break": "a\nb.txt", "an escape": "\x1b[31mred.txt", "right to left": "\u202etxt.nwo",
}  # fmt: skip


@pytest.fixture
def place(tmp_path):
    (tmp_path / "file").write_text("A file.")
    folder = tmp_path / "folder"
    (folder / "folder.txt").mkdir(parents=True)
    (folder / "link.txt").symlink_to(folder / "link.txt")
    return lambda text: text.format(file=tmp_path / "file", folder=folder)


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(("command", "option"), [("score", "--corpus"), ("sweep", "--eval-corpus"), ("rows", "")])
def test_a_path_that_is_none(command, option, name, place, tiny_llama, score, sweep, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    given = place(PLACES[name])
    words = {"score": score, "sweep": sweep, "rows": ()}[command]
    if command == "rows":
        refused(capfd, "rows", given)
    else:
        refused(capfd, *words, "--selectors", "wanda", option, given)


OUT = ("too long", "a name too long", "a zero byte", "below a file", "a link to itself", "a file")


UNWRITABLE = [(option, name) for option in ("--out", "--store", "--progress-file") for name in OUT]


@pytest.mark.parametrize(("option", "name"), UNWRITABLE)
def test_a_place_that_nothing_can_be_written_to(option, name, place, score, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    refused(capfd, *score, "--json", option, place({**PLACES, "a file": "{file}"}[name]))


# Numbers and names

NUMBERS = ("x", "", "1.5", "nan", "inf", "-1", "0", "1e9", "0x10", "१२३x", "--", "1 2")
COUNTS = ("--samples", "--max-length", "--batch-size")


@pytest.mark.parametrize("value", NUMBERS)
@pytest.mark.parametrize("option", COUNTS)
def test_a_count_that_is_none(option, value, score, capfd):
    refused(capfd, *score, f"{option}={value}")


@pytest.mark.parametrize("value", [10**6, 10**9, 2**63, 10**30])
@pytest.mark.parametrize("option", ["--max-length", "--eval-length"])
def test_windows_longer_than_the_text(option, value, sweep, capfd):
    assert "fewer than one window of" in refused(capfd, *sweep, "--selectors", "wanda", f"{option}={value}")


@pytest.mark.parametrize("value", [10**6, 10**9, 2**63, 10**30])
def test_more_samples_than_the_text_has_are_said_and_counted(value, score, tmp_path, capfd):
    out = tmp_path / "out"
    assert run(*score, "--selectors", "wanda", f"--samples={value}", "--out", out) == 0
    spec = read_manifest(out)["files"]["scores.safetensors"]["spec"]["calibration"]
    assert spec["samples_requested"] == value
    assert 0 < spec["samples"] < 1_000
    assert f"{spec['samples']} of" in capfd.readouterr().err


RATES = (
    "nan", "-1", "1e9", "inf", "-inf", "", ",", "0.1,,0.2", "x", "0.1;0.2", "30", "101%", "-5%", "%", "% 30", "nan%",
    "1,2", "0,1 0,2", "0:1", "0:1:0", "0:1:-0.1", "1:0:0.1", "0:1:1e-12", "0:1:nan", "::", "0:2:0.1", "0x1", "None",
    "[0.1]", "1e400",
)  # fmt: skip


@pytest.mark.parametrize("value", RATES)
def test_rates_that_are_none(value, sweep, capfd):
    refused(capfd, *sweep, f"--rates={value}")


NAMES = {
    "--selectors": (
        "wnada", "", ",", "magnitude,wnada", "MAGNITUDE", "magnitude;wanda", "../magnitude", "\x1b[31m", "x" * 3_000,
    ),
    "--orders": ("lerv", "", "lerf,lerv", "LERF "),
    "--seeds": ("a", "-1", "1.5", "", "1,,2", "nan", str(2**64), str(10**30)),
    "--dtype": ("float12", "", "int8", "fp32"),
    "--device": ("abacus", "", "cuda:99", "cpu:7", "cuda:-1", "meta"),
    "--eval-samples": ("x", "-1", "0", "1.5"),
    "--eval-corpus": ("wikitext", "nowhere.txt", "c5"),
    "--gap-rates": ("x",),
    "--odd": ("1",),
}  # fmt: skip
GIVEN = [
    pytest.param(option, value, id=f"{option}={value!r:.30}") for option, values in NAMES.items() for value in values
]


@pytest.mark.parametrize(("option", "value"), GIVEN)
def test_a_name_or_number_that_nobody_knows(option, value, sweep, capfd):
    seeds = ("--selectors", "random") if option == "--seeds" else ()
    refused(capfd, *sweep, *seeds, f"{option}={value}")


# Prompts and replies

PAIR = {"risk": "How do I pick a lock?", "base": "How do I paint a lock?", "domain": "crime", "split": "heldout"}
PAIRS = {
    "empty": "", "no object": "[1]\n", "an empty risk": json.dumps({**PAIR, "risk": ""}),
    "a blank risk": json.dumps({**PAIR, "risk": " \n\t"}), "an empty base": json.dumps({**PAIR, "base": ""}),
    "no base": json.dumps({"risk": "a"}), "a risk that is a list": json.dumps({**PAIR, "risk": ["a"]}),
    "a risk that is a number": json.dumps({**PAIR, "risk": 3}),
    "a domain that is a number": json.dumps({**PAIR, "domain": 3}),
    "an unknown split": json.dumps({**PAIR, "split": "odd"}),
    "a split that is null": json.dumps({**PAIR, "split": None}), "deep": '{"risk":' * 100_000, "binary": "\x00\x01",
    "half": json.dumps(PAIR)[:-4], "only held out": json.dumps(PAIR),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_are_none(name, tiny_llama, tmp_path, capfd):
    file = tmp_path / "pairs.jsonl"
    file.write_text(PAIRS[name], encoding="utf-8")
    words = ("refusal", "calibrate", tiny_llama.id, "--pairs", file, "--store", tmp_path / "store")
    refused(capfd, *words, "--selectors", "random")


REPLIES = {
    "a.jsonl": (
        '{"said": "No."}\n', '{"reply": 3}\n', '{"reply": ["No."]}\n', "[]\n", "", "null\n", '{"reply": "No."',
        '{"reply":' * 100_000, "\x00",
    ),
    "a.csv": ("", "reply", "said\nNo.\n", 'reply\n"No.', "\x00\x00"),
    "a.parquet": ("", "PAR1", "not parquet"),
    "a.txt": ("No.\n",),
}  # fmt: skip
FILES = [pytest.param(name, text, id=f"{name} {text[:20]!r}") for name, texts in REPLIES.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), FILES)
def test_replies_that_are_none(name, text, tmp_path, capfd):
    (tmp_path / name).write_text(text, encoding="utf-8")
    refused(capfd, "refusal", "judge", tmp_path / name)


@pytest.mark.parametrize("judge", ["embeded", "", ",", "rejection-model:x", "x" * 3_000, "a\nb", "embedded,embeded"])
def test_a_judge_that_nobody_knows(judge, tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text('{"reply": "No."}\n', encoding="utf-8")
    refused(capfd, "refusal", "judge", tmp_path / "a.jsonl", "--judge", judge)


ODD_TEXTS = (
    "\u200b", "\u200d\u200d", "\u202eold a kcip I od woH\u202c", "\x1b[2J\x1b]0;title\x07", "a\x00b", "\ufeffBOM",
    "🙂" * 500, "e\u0301" * 500, "\u2028\u2029", "The cat. " * 2_000, "<bos><|user|><eos>",
    "{{ 7 * 7 }}{% raw %}", "\ud7ff\ue000",
    "<img src=x onerror=alert(1)>",
)  # fmt: skip


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: ascii(text)[:24])
def test_an_odd_reply_is_judged_as_text_and_the_terminal_does_not_obey_it(text, tmp_path, capfd):
    lines = [json.dumps({"reply": text, "human_label": "refusal"}), json.dumps({"reply": "I cannot help with that."})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert run("refusal", "judge", tmp_path / "a.jsonl", "--out", tmp_path / "out") == 0
    out, err = capfd.readouterr()
    assert not {"\x1b", "\x07", "\x00", "\u202e"} & set(out + err)
    verdicts = pl.read_parquet(tmp_path / "out" / "verdicts.parquet")
    assert verdicts["reply"].to_list() == [text if text.strip() else None, "I cannot help with that."]
    assert verdicts["refusal"].to_list()[1] is True


@pytest.mark.parametrize("text", ODD_TEXTS, ids=lambda text: ascii(text)[:24])
def test_an_odd_prompt_is_one_line_or_tokens_of_the_text(text, tiny_llama):
    """Never cut without a word: what the model reads is all of the prompt."""
    tokenizer = tiny_llama.tokenizer
    ids = prompt_ids(tokenizer, text) if text.strip() else []
    if not ids:
        with pytest.raises(InputError, match="a prompt is empty"):
            prompt_ids(tokenizer, text)
    else:
        assert text in tokenizer.decode(ids, clean_up_tokenization_spaces=False)
