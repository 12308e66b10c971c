"""Windows and pairs: the right tokens from every source, the same ones every time, and lines for what is wrong."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import torch
from bad_inputs import error_of
from tiny_models import text, tiny_tokenizer
from tokenizers.processors import TemplateProcessing

import engine.data.corpora
import engine.data.texts
from engine.data.corpora import Pair, Windows, contrast_pairs, windows
from engine.data.texts import reachable

TOKENIZER = tiny_tokenizer()
# pragma: allowlist nextline secret: made up
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def cut(source: Path | str, samples: int = 3, length: int = 16, **options: Any) -> Windows:
    return windows(str(source), options.get("tokenizer", TOKENIZER), role="evaluation", samples=samples, length=length)


def write(path: Path, content: str) -> Path:
    path.write_bytes(content.encode())
    return path


# Windows


def test_consecutive_windows_of_the_text_tokenised_once(tmp_path: Path) -> None:
    written = text(documents=20).strip()
    got = cut(write(tmp_path / "a.txt", written), samples=4, length=17)
    ids = TOKENIZER(written)["input_ids"]
    assert got.input_ids.tolist() == [ids[17 * i : 17 * (i + 1)] for i in range(4)]
    assert got.input_ids.dtype == torch.int64
    assert got.sample_ids == (0, 1, 2, 3)
    assert got.corpus_hash == hashlib.sha256(written.encode()).hexdigest()


def test_documents_are_joined_by_one_blank_line(tmp_path: Path) -> None:
    variants = [
        "One here.\nMore.\n\nTwo there.\n\nThree.",
        "\n\nOne here.\nMore.\n\n\n\n  Two there.  \n \t \nThree.\n\n",
        "\ufeffOne here.\r\nMore.\r\n\r\nTwo there.\r\n\r\nThree.\r\n",
    ]
    seen = [cut(write(tmp_path / f"{i}.txt", variant), samples=1, length=8) for i, variant in enumerate(variants)]
    assert len({w.corpus_hash for w in seen}) == 1
    assert seen[0].corpus_hash == hashlib.sha256(variants[0].encode()).hexdigest()
    documents = [{"text": "One here.\nMore.", "more": 1}, {"text": "Two there."}, {"text": "Three."}]
    lines = write(tmp_path / "a.jsonl", "\n".join(json.dumps(d) for d in documents) + "\n\n")
    assert cut(lines, samples=1, length=8).token_hash == seen[0].token_hash


@pytest.mark.parametrize("needed", [1, 40, 600])
def test_a_prefix_gives_the_tokens_of_the_whole(needed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    long = text(documents=3000)
    whole = TOKENIZER(long)["input_ids"]
    seen: list[int] = []
    real = engine.data.corpora.tokens_of

    def counted(text: str, *more: Any, **named: Any) -> Any:
        seen.append(len(text))
        return real(text, *more, **named)

    monkeypatch.setattr(engine.data.corpora, "tokens_of", counted)
    places = [start for start, _ in TOKENIZER(long, return_offsets_mapping=True)["offset_mapping"]]
    assert engine.data.corpora._first_tokens(long, TOKENIZER, needed, "text") == (whole[:needed], [])
    found = engine.data.corpora._first_tokens(long, TOKENIZER, needed, "text", with_places=True)
    assert found == (whole[:needed], places[:needed])
    assert max(seen) < len(long) / 4
    everything, _ = engine.data.corpora._first_tokens(long, TOKENIZER, 10**9, "text")
    assert everything == whole


def test_in_the_stream_a_bos_stands_at_the_very_start_only(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 0), ("<eos>", 1)]
    )
    source = write(tmp_path / "a.txt", text(documents=200))
    got = windows(str(source), tokenizer, role="evaluation", samples=3, length=16, window_start="stream")
    assert torch.equal(got.read_ids, got.input_ids)
    assert (got.input_ids == 0).nonzero().tolist() == [[0, 0]]
    assert not (got.input_ids == 1).any()
    assert torch.equal(got.input_ids.flatten()[1:], cut(source).input_ids.flatten()[:-1])


def test_a_short_text_gives_fewer_windows_and_says_so(tmp_path: Path) -> None:
    source = write(tmp_path / "a.txt", text(documents=4))
    n_tokens = len(TOKENIZER(text(documents=4).strip())["input_ids"])
    got = cut(source, samples=100, length=16)
    assert len(got.sample_ids) == n_tokens // 16 < 100
    assert (got.record()["samples"], got.record()["samples_requested"]) == (n_tokens // 16, 100)
    message = error_of(lambda: cut(source, length=n_tokens + 1))
    assert message.startswith(
        f"corpus a.txt has {n_tokens} tokens, fewer than one window of {n_tokens + 1}; use shorter"
    )


def test_windows_of_less_than_nothing(tiny_text: Path) -> None:
    for samples, length in ((0, 16), (3, 1), (-1, 16)):
        message = error_of(lambda s=samples, n=length: cut(tiny_text, samples=s, length=n))  # type: ignore[misc]
        assert message == f"windows need samples >= 1 and length >= 2, got {samples} windows of {length} tokens"


def test_smaller_sets_are_nested(tiny_text: Path) -> None:
    large = cut(tiny_text, samples=6)
    for n in (1, 4, 6):
        small = large.first(n)
        assert small.token_hash == cut(tiny_text, samples=n).token_hash
        assert small.record() == cut(tiny_text, samples=n).record()
    assert error_of(lambda: large.first(7)) == "text.txt has 6 windows here, asked for 7"


# Registered corpora


@pytest.fixture
def wikitext(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A hub cache that holds a small data set in the place of WikiText-2."""
    repository = tmp_path / "hub" / "datasets--Salesforce--wikitext"
    folder = repository / "snapshots" / COMMIT / "wikitext-2-raw-v1"
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    splits = {name: ["", " = A title = \n", *text(60, seed).split("\n")] for seed, name in enumerate(("train", "test"))}
    for name, lines in splits.items():
        pl.DataFrame({"text": lines}).write_parquet(folder / f"{name}-00000-of-00001.parquet")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return splits


@pytest.mark.parametrize(("role", "split"), [("calibration", "train"), ("evaluation", "test")])
def test_wikitext2(wikitext: dict[str, list[str]], role: Any, split: str) -> None:
    got = windows("wikitext2", TOKENIZER, role=role, samples=5, length=16)
    joined = "\n\n".join(wikitext[split])
    assert got.input_ids.flatten().tolist() == TOKENIZER(joined)["input_ids"][:80]
    assert (got.corpus, got.source_revision, got.role) == ("wikitext2", COMMIT, role)
    assert got.corpus_hash == hashlib.sha256(joined.encode()).hexdigest()
    assert reachable("wikitext2") is None


def test_c4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's answer and the address of the file are stood in for; the file is read by `datasets`."""
    documents = [f"Document {i}: {line}" for i, line in enumerate(text(30).split("\n\n"))]
    with gzip.open(tmp_path / "part.json.gz", "wt") as file:
        file.writelines(json.dumps({"text": d, "url": "", "timestamp": ""}) + "\n" for d in documents)
    asked: list[str] = []
    real = engine.data.texts._stream

    def stream(builder: str, files: list[str]) -> Iterator[dict[str, Any]]:
        asked.extend(files)
        return real(builder, [str(tmp_path / "part.json.gz")])

    info = SimpleNamespace(sha=COMMIT)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, **_: info)
    monkeypatch.setattr(engine.data.texts, "_stream", stream)
    monkeypatch.setattr(engine.data.texts, "_C4_DOCUMENTS", 10)
    for role in ("calibration", "evaluation"):
        got = windows("c4", TOKENIZER, role=role, samples=4, length=16)  # type: ignore[arg-type]
        assert got.corpus_hash == hashlib.sha256("\n\n".join(documents[:10]).encode()).hexdigest()
        assert got.source_revision == COMMIT
    assert asked == [
        f"hf://datasets/allenai/c4@{COMMIT}/en/c4-train.00000-of-01024.json.gz",
        f"hf://datasets/allenai/c4@{COMMIT}/en/c4-validation.00000-of-00008.json.gz",
    ]
    assert reachable("c4") is None


def test_offline_names_the_local_alternatives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    alternative = "choose another calibration text, demo or a file of your own: --corpus demo, PATH.txt or PATH.jsonl"
    unreachable = "the Hugging Face hub cannot be reached (HF_HUB_OFFLINE is set)"
    expected = {
        "wikitext2": f"corpus wikitext2: it is not in the local cache and {unreachable}; {alternative}",
        "c4": f"corpus c4: {unreachable}; {alternative}",
    }
    for name, message in expected.items():
        assert error_of(lambda name=name: cut(name)) == message  # type: ignore[misc]
        assert reachable(name) == message


@pytest.mark.parametrize(("name", "prefix"), [("demo", ""), ("demo-chat", "instructions_")])
def test_the_shipped_corpora(name: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.data.texts, "demo_dir", lambda: tmp_path)
    message = error_of(lambda: cut(name))
    assert "the shipped corpus is not in" in message
    assert "python -m precomputed.recipe" in message
    assert reachable(name) == error_of(lambda: windows(name, TOKENIZER, role="calibration", samples=1, length=4))
    (tmp_path / "corpus").mkdir()
    for seed, role in enumerate(("calibration", "evaluation")):
        write(tmp_path / "corpus" / f"{prefix}{role}.txt", text(seed=seed))
        got = windows(name, TOKENIZER, role=role, samples=2, length=16)  # type: ignore[arg-type]
        assert got.corpus == name
        assert got.corpus_hash == hashlib.sha256(text(seed=seed).strip().encode()).hexdigest()
    assert reachable(name) is None


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b" \n\n \n", "corpus a.txt is empty; expected documents separated by blank lines"),
        ("a.txt", b"caf\xe9", "a.txt is not UTF-8 (byte 3); save it as UTF-8"),
        ("a.jsonl", b"", "corpus a.jsonl is empty; expected one JSON object with a field `text` per line"),
        ("a.jsonl", b'{"text": "a"}\n\n{"text": ', "a.jsonl line 3 is not JSON (Expecting value: line 1 column 10"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', "a.jsonl line 2 holds a list; expected a JSON object"),
        ("a.jsonl", b'{"txt": "a", "n": 1}\n', "line 1 has no text (a string in the field `text`), got txt: str, n"),
        ("a.jsonl", b'{"text": null}\n', "line 1 has no text (a string in the field `text`), got text: NoneType"),
        ("a.jsonl", b"{}\n", "line 1 has no text (a string in the field `text`), got an empty object"),
    ],
)
def test_malformed_files(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert expected in error_of(lambda: cut(tmp_path / name))


# Contrast pairs

PROMPTS = [
    {"risk": "r1", "base": "b1", "domain": "hate", "split": "calibration", "object": "x"},
    {"risk": "r2", "base": "b2", "domain": "crime", "split": "heldout"},
    {"risk": "r3", "base": "b3", "domain": "hate", "split": "heldout"},
    {"risk": "r4", "base": "b4"},
]


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    return str(write(tmp_path / "prompts.jsonl", "\n".join(map(json.dumps, PROMPTS))))


def test_pairs_in_the_order_of_the_file(prompts: str) -> None:
    assert contrast_pairs(prompts) == [
        Pair(domain="hate", risk="r1", base="b1", split="calibration"),
        Pair(domain="crime", risk="r2", base="b2", split="heldout"),
        Pair(domain="hate", risk="r3", base="b3", split="heldout"),
        Pair(domain="unnamed", risk="r4", base="b4", split="calibration"),
    ]
    assert [pair.risk for pair in contrast_pairs(prompts, domain="hate")] == ["r1", "r3"]
    assert [pair.risk for pair in contrast_pairs(prompts, split="heldout")] == ["r2", "r3"]
    assert [pair.risk for pair in contrast_pairs(prompts, "hate", "heldout")] == ["r3"]


def test_pairs_that_are_not_there(prompts: str, tmp_path: Path) -> None:
    assert "unknown domain 'hat'; did you mean 'hate'?" in error_of(lambda: contrast_pairs(prompts, "hat"))
    message = error_of(lambda: contrast_pairs(prompts, "crime", "calibration"))
    assert message == "unknown split 'calibration'; available: heldout"
    assert "there is no file" in error_of(lambda: contrast_pairs(str(tmp_path / "none.jsonl")))
    empty = str(write(tmp_path / "empty.jsonl", "\n"))
    assert "empty.jsonl holds no pairs; expected one JSON object" in error_of(lambda: contrast_pairs(empty, "hate"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"risk": "r"}', "line 2: base must be a text, got None"),
        ('{"risk": " ", "base": "b"}', "line 2: risk must be a text, got ' '"),
        ('{"risk": "r", "base": 3}', "line 2: base must be a text, got 3"),
        ('{"risk": "r", "base": "b", "domain": null}', "line 2: domain must be a text, got None"),
        ("{", "line 2 is not JSON"),
    ],
)
def test_malformed_pairs(tmp_path: Path, line: str, expected: str) -> None:
    source = write(tmp_path / "p.jsonl", json.dumps(PROMPTS[0]) + "\n" + line)
    assert f"p.jsonl {expected}" in error_of(lambda: contrast_pairs(str(source)))


def test_the_shipped_pairs(prompts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.data.corpora, "demo_dir", lambda: tmp_path)
    assert contrast_pairs("demo") == contrast_pairs(prompts)
    Path(prompts).unlink()
    assert "rebuild the shipped prompts with `uv run python -m" in error_of(lambda: contrast_pairs("demo"))
