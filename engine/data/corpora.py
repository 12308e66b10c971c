"""Calibration, evaluation and contrast prompts: named corpora and local files to token windows and pairs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from engine.data.splits import CALIBRATION, splits_of
from engine.data.texts import Role, available_corpora, json_lines, reachable, read_text
from engine.records.errors import InputError, unknown
from engine.records.shipped import demo_dir

__all__ = [
    "Pair", "Role", "Windows", "available_corpora", "calibration_tokens", "contrast_pairs", "reachable", "windows",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive windows of one tokenised text, all full, none padded."""

    corpus: str
    corpus_hash: str  # SHA-256 of the text
    input_ids: Tensor  # [n, length] int64, CPU
    sample_ids: tuple[int, ...]  # number of each window, counted from the start of the text
    role: Role | None = None
    samples_requested: int | None = None  # more than n where the text was too short
    source_revision: str | None = None  # commit of a hub data set
    skipped_tokens: int = 0  # left out before the first window

    def first(self, n: int) -> Windows:
        """The first n windows: calibration sets of growing size are nested."""
        if not 0 < n <= len(self.sample_ids):
            raise InputError(f"{self.corpus} has {len(self.sample_ids)} windows here, asked for {n}")
        return self.part(0, n)

    def part(self, start: int, n: int) -> Windows:
        """n windows from number `start` of these."""
        chosen = slice(start, start + n)
        ids = self.sample_ids[chosen]
        if start < 0 or n < 1 or len(ids) < n:
            raise InputError(f"{self.corpus} has {len(self.sample_ids)} windows here, asked for {n} from {start}")
        return replace(self, input_ids=self.input_ids[chosen], sample_ids=ids, samples_requested=n)

    @cached_property
    def token_hash(self) -> str:
        """SHA-256 of shape and tokens: for cache keys."""
        tokens = self.input_ids.numpy().astype("<i8")
        return hashlib.sha256(f"{tokens.shape}".encode() + tokens.tobytes()).hexdigest()

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
            "skipped_tokens": self.skipped_tokens,
        }


class Pair(NamedTuple):
    """A risk prompt and its matched base prompt. split: `calibration` or `heldout`."""

    domain: str
    risk: str
    base: str
    split: str


def windows(corpus: str, tokenizer: Any, *, role: Role, samples: int, length: int, skip_tokens: int = 0) -> Windows:
    """The first `samples` windows of `length` tokens of a corpus.

    The documents are joined by blank lines, tokenised once (with the tokenizer's own BOS, if it has one,
    at the very start only) and cut into consecutive windows from the start; what does not fill a window
    is left out. A text that is too short gives fewer windows, and `samples_requested` keeps the wish.
    The paper, section 3.4; consecutive windows for calibration too are a choice, so that sizes are nested.

    corpus: a registered name (`available_corpora`), a text file whose documents are separated by blank
    lines, or a JSONL file with a `text` field. role chooses the split of a registered corpus: calibration
    text never comes from the evaluation split.
    skip_tokens: leave out this many tokens at the start, so that one file can serve for both roles.
    """
    if samples < 1 or length < 2:
        raise InputError(f"windows need samples >= 1 and length >= 2, got {samples} windows of {length} tokens")
    name, text, revision = read_text(corpus, role)
    ids = _first_tokens(text, tokenizer, skip_tokens + samples * length)[skip_tokens:]
    n = len(ids) // length
    if n == 0:
        after = f" after the first {skip_tokens:,}" if skip_tokens else ""
        raise InputError(
            f"corpus {name} has {len(ids)} tokens{after}, fewer than one window of {length}; "
            "use shorter windows (--max-length, --eval-length) or a longer text"
        )
    return Windows(
        corpus=name,
        corpus_hash=hashlib.sha256(text.encode()).hexdigest(),
        input_ids=torch.tensor(ids[: n * length], dtype=torch.int64).view(n, length),
        sample_ids=tuple(range(n)),
        role=role,
        samples_requested=samples,
        source_revision=revision,
        skipped_tokens=skip_tokens,
    )


def calibration_tokens(eval_corpus: str, corpus: str, used: int) -> int:
    """Tokens that evaluation skips: the `used` ones of calibration, if both read the same local file.

    A registered corpus has a split for each role; of one file, evaluation takes what follows.
    """
    if eval_corpus in available_corpora() or Path(eval_corpus).resolve() != Path(corpus).resolve():
        return 0
    return used


def contrast_pairs(source: str, domain: str | None = None, split: str | None = None) -> list[Pair]:
    """Matched risk and base prompts, in the order of the file.

    source: `demo`, or a JSONL file with `risk` and `base` and optionally `domain` and `split` (`calibration` where
    absent; `engine.data.splits`). domain, split: keep only these; it is an error if nothing is left, and
    so is a split that is not understood, anywhere in the file.
    """
    path = demo_dir() / "prompts.jsonl" if source == "demo" else Path(source).expanduser()
    if not path.is_file():
        remedy = (
            "rebuild the shipped prompts with `uv run python -m precomputed.recipe`"
            if source == "demo"
            else "give a JSONL file with the fields risk and base, or demo"
        )
        raise InputError(f"there is no file {path}; {remedy}")
    pairs: list[Pair] = []
    for number, entry in json_lines(path):
        values = [
            entry.get("domain", "unnamed"),
            entry.get("risk"),
            entry.get("base"),
            entry.get("split", CALIBRATION),
        ]
        for field, value in zip(Pair._fields, values, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"{path.name} line {number}: {field} must be a text, got {value!r}")
        pairs.append(Pair(*values))
    meant = splits_of(path.name, [pair.split for pair in pairs])
    pairs = [pair._replace(split=meant[pair.split]) for pair in pairs]
    if not pairs:
        raise InputError(f"{path.name} holds no pairs; expected one JSON object with risk and base per line")
    for field, wanted in (("domain", domain), ("split", split)):
        if wanted is not None:
            there = {getattr(pair, field) for pair in pairs}
            if wanted not in there:
                raise unknown(field, wanted, there)
            pairs = [pair for pair in pairs if getattr(pair, field) == wanted]
    return pairs


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
