"""Calibration, evaluation and contrast prompts: named corpora and local files to token windows and pairs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from engine.errors import InputError, unknown
from precomputed import demo_dir

Role = Literal["calibration", "evaluation"]
CALIBRATION = (128, 128)  # windows, tokens per window: the paper, section 3.4
EVALUATION = (256, 512)

_WIKITEXT = "Salesforce/wikitext"
_C4 = "allenai/c4"
_C4_DOCUMENTS = 2000  # about a million tokens: more than any default asks for, a few MB to fetch
_ALTERNATIVE = "give a local file, --corpus PATH.txt or PATH.jsonl, or --corpus demo"


@dataclass(frozen=True)
class Windows:
    """Consecutive windows of one tokenised text, all full, none padded."""

    corpus: str
    corpus_hash: str  # SHA-256 of the text
    input_ids: Tensor  # [n, length] int64, CPU
    sample_ids: tuple[int, ...]  # number of each window, counted from the start of the text
    role: Role | None = None
    samples_requested: int | None = None  # more than n where the text was too short
    source_revision: str | None = None  # commit of a hub data set

    def first(self, n: int) -> Windows:
        """The first n windows: calibration sets of growing size are nested."""
        if not 0 < n <= len(self.sample_ids):
            raise InputError(f"{self.corpus} has {len(self.sample_ids)} windows here, asked for {n}")
        return replace(
            self, input_ids=self.input_ids[:n], sample_ids=self.sample_ids[:n], samples_requested=n
        )

    def record(self) -> dict[str, Any]:
        """What a manifest says about these tokens."""
        return {
            "corpus": self.corpus,
            "corpus_hash": self.corpus_hash,
            "source_revision": self.source_revision,
            "role": self.role,
            "samples": len(self.sample_ids),
            "samples_requested": self.samples_requested,
            "length": self.input_ids.shape[1],
            "sample_ids": list(self.sample_ids),
        }


class Pair(NamedTuple):
    """A risk prompt and its matched base prompt."""

    domain: str
    risk: str
    base: str
    split: str


class _Text(NamedTuple):
    text: str
    revision: str | None = None


def windows(corpus: str, tokenizer: Any, *, role: Role, samples: int, length: int) -> Windows:
    """The first `samples` windows of `length` tokens of a corpus.

    The documents are joined by blank lines, tokenised once (with the tokenizer's own BOS, if it has one,
    at the very start only) and cut into consecutive windows from the start; what does not fill a window
    is left out. A text that is too short gives fewer windows, and `samples_requested` keeps the wish.
    The paper, section 3.4; consecutive windows for calibration too are a choice, so that sizes are nested.

    corpus: a registered name (`available_corpora`), a text file whose documents are separated by blank
    lines, or a JSONL file with a `text` field. role chooses the split of a registered corpus: calibration
    text never comes from the evaluation split.
    """
    if samples < 1 or length < 2:
        raise InputError(
            f"windows need samples >= 1 and length >= 2, got {samples} windows of {length} tokens"
        )
    name, content = _read(corpus, role)
    ids = _first_tokens(content.text, tokenizer, samples * length)
    n = len(ids) // length
    if n == 0:
        raise InputError(
            f"corpus {name} has {len(ids)} tokens, fewer than one window of {length}; "
            "use shorter windows (--max-length, --eval-length) or a longer text"
        )
    return Windows(
        corpus=name,
        corpus_hash=hashlib.sha256(content.text.encode()).hexdigest(),
        input_ids=torch.tensor(ids[: n * length], dtype=torch.int64).view(n, length),
        sample_ids=tuple(range(n)),
        role=role,
        samples_requested=samples,
        source_revision=content.revision,
    )


def available_corpora() -> tuple[str, ...]:
    """Names that `--corpus` takes besides files."""
    return tuple(_CORPORA)


def reachable(corpus: str) -> str | None:
    """None if a registered corpus can be read now, otherwise why not. Fetches no text."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    if corpus not in _CORPORA:
        raise unknown("corpus", corpus, _CORPORA)
    try:
        if corpus == "demo":
            for role in ("calibration", "evaluation"):
                _demo(cast(Role, role))
        elif corpus == "c4":
            HfApi().dataset_info(_C4, timeout=10)
        else:
            try:
                HfApi().dataset_info(_WIKITEXT, timeout=10)
            except (OSError, HTTPError):
                for role in ("calibration", "evaluation"):
                    _wikitext_files(cast(Role, role))
    except InputError as error:
        return str(error)
    except (OSError, HTTPError) as error:
        return str(_unreachable(corpus, error))
    return None


def contrast_pairs(source: str, domain: str | None = None, split: str | None = None) -> list[Pair]:
    """Matched risk and base prompts, in the order of the file.

    source: `demo`, or a JSONL file with `risk` and `base` and optionally `domain` and `split`
    (`calibration` where absent). domain, split: keep only these; it is an error if nothing is left.
    """
    path = demo_dir() / "prompts.jsonl" if source == "demo" else Path(source).expanduser()
    if not path.is_file():
        raise InputError(f"there is no file {path}; give a JSONL file with the fields risk and base, or demo")
    pairs: list[Pair] = []
    for number, entry in _json_lines(path):
        values = [
            entry.get("domain", "unnamed"),
            entry.get("risk"),
            entry.get("base"),
            entry.get("split", "calibration"),
        ]
        for field, value in zip(Pair._fields, values, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"{path.name} line {number}: {field} must be a text, got {value!r}")
        pairs.append(Pair(*values))
    for field, wanted in (("domain", domain), ("split", split)):
        if wanted is not None:
            there = {getattr(pair, field) for pair in pairs}
            if wanted not in there:
                raise unknown(field, wanted, there)
            pairs = [pair for pair in pairs if getattr(pair, field) == wanted]
    if not pairs:
        raise InputError(f"{path.name} holds no pairs; expected one JSON object with risk and base per line")
    return pairs


def _read(corpus: str, role: Role) -> tuple[str, _Text]:
    if corpus in _CORPORA:
        return corpus, _CORPORA[corpus](role)
    path = Path(corpus).expanduser()
    if path.is_file():
        if path.suffix == ".jsonl":
            return path.name, _Text(_text_of_json_lines(path))
        if path.suffix == ".txt":
            return path.name, _Text(_text_of_file(path))
        raise InputError(f"corpus {path.name} has the suffix {path.suffix!r}; expected .txt or .jsonl")
    if path.suffix or len(path.parts) > 1:
        raise InputError(
            f"there is no corpus file {corpus}; give a .txt or .jsonl file, or {', '.join(_CORPORA)}"
        )
    raise unknown("corpus", corpus, _CORPORA)


def _text_of_file(path: Path) -> str:
    documents = [part.strip() for part in re.split(r"\n[^\S\n]*\n", _contents(path))]
    text = "\n\n".join(part for part in documents if part)
    if not text:
        raise InputError(f"corpus {path.name} is empty; expected documents separated by blank lines")
    return text


def _text_of_json_lines(path: Path) -> str:
    documents: list[str] = []
    for number, entry in _json_lines(path):
        if not isinstance(entry.get("text"), str):
            there = ", ".join(sorted(entry)) or "nothing"
            raise InputError(f"{path.name} line {number}: expected a field text with a string, got {there}")
        documents.append(entry["text"])
    if not any(document.strip() for document in documents):
        raise InputError(f"corpus {path.name} is empty; expected one JSON object with a text per line")
    return "\n\n".join(documents)


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_contents(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise InputError(
                f"{path.name} line {number} is not JSON ({error}); expected one object per line"
            ) from None
        if not isinstance(entry, dict):
            raise InputError(
                f"{path.name} line {number} holds a {type(entry).__name__}; expected a JSON object"
            )
        yield number, entry


def _contents(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path.name} cannot be read ({error.strerror})") from None


def _demo(role: Role) -> _Text:
    path = demo_dir() / "corpus" / f"{role}.txt"
    if not path.is_file():
        raise InputError(
            f"the shipped corpus is not in {path}; rebuild it with `uv run python -m precomputed.recipe`"
        )
    return _Text(_text_of_file(path))


def _wikitext(role: Role) -> _Text:
    """WikiText-2 (raw), train for calibration and test for evaluation, lines joined by blank lines."""
    files = _wikitext_files(role)
    rows = _stream("parquet", [str(file) for file in files])
    return _Text("\n\n".join(row["text"] for row in rows), revision=files[0].parents[1].name)


def _wikitext_files(role: Role) -> list[Path]:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    pattern = f"wikitext-2-raw-v1/{'train' if role == 'calibration' else 'test'}-*.parquet"
    try:
        folder = Path(snapshot_download(_WIKITEXT, repo_type="dataset", allow_patterns=[pattern]))
    except (OSError, HTTPError) as error:
        raise _unreachable("wikitext2", error) from None
    files = sorted(folder.glob(pattern))
    if not files:
        raise InputError(f"corpus wikitext2: {_WIKITEXT} has no {pattern} in the local cache; {_ALTERNATIVE}")
    return files


def _c4(role: Role) -> _Text:
    """The first documents of C4 (English), train for calibration and validation for evaluation."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    shard = "c4-train.00000-of-01024" if role == "calibration" else "c4-validation.00000-of-00008"
    try:
        revision = HfApi().dataset_info(_C4, timeout=30).sha
        rows = _stream("json", [f"hf://datasets/{_C4}@{revision}/en/{shard}.json.gz"])
        documents = [row["text"] for row, _ in zip(rows, range(_C4_DOCUMENTS), strict=False)]
    except (OSError, HTTPError) as error:
        raise _unreachable("c4", error) from None
    return _Text("\n\n".join(documents), revision)


def _stream(builder: str, files: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of data files through `datasets`, read as they come: no second copy in its cache."""
    from datasets import load_dataset

    yield from load_dataset(builder, data_files=files, split="train", streaming=True)


def _unreachable(corpus: str, error: Exception) -> InputError:
    offline = "HF_HUB_OFFLINE is set" if "HF_HUB_OFFLINE" in str(error) else str(error.__cause__ or error)
    reason = offline.splitlines()[0] if offline else type(error).__name__
    return InputError(
        f"corpus {corpus} is neither in the local cache nor can the Hugging Face hub be reached ({reason}); "
        f"{_ALTERNATIVE}"
    )


def _first_tokens(text: str, tokenizer: Any, needed: int) -> list[int]:
    """The first `needed` tokens of the text, or all of them if there are fewer.

    Tokenises no more of a long text than it must: a prefix that ends between two documents has the same
    tokens as the whole text but for a few at its end, which are not used.
    """
    spare, characters = 64, 8 * needed
    while (end := text.find("\n\n", characters)) != -1:
        ids = _tokens(text[:end], tokenizer)
        if len(ids) >= needed + spare:
            return ids[:needed]
        characters *= 2
    return _tokens(text, tokenizer)[:needed]


def _tokens(text: str, tokenizer: Any) -> list[int]:
    # verbose=False: a text longer than the model's context is what windows are cut from, not a mistake.
    return cast("list[int]", tokenizer(text, verbose=False)["input_ids"])


_CORPORA: dict[str, Callable[[Role], _Text]] = {"wikitext2": _wikitext, "c4": _c4, "demo": _demo}
