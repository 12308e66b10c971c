"""Calibration, evaluation and contrast prompts: named corpora and local files to token windows and pairs; and several
calibration sets without a window in common, from the whole of one text."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from engine.data.texts import Role, available_corpora, json_lines, read_text
from engine.data.window_starts import WINDOW_STARTS, before_each, start_record
from engine.records.domain_names import domain_ids, find_domain
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.shipped import demo_dir
from engine.stats.blocks import Blocks, document_blocks, window_blocks

_LONG_DOCUMENT = 1_000_000  # characters
_OF_TEXT = ("corpus", "corpus_hash", "source_revision", "role")  # of a record of windows


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive windows of one tokenised text, all full, none padded. A model reads each behind `prefix`
    (`read_ids`), which is never predicted and counts in no mean over tokens; nor is the first token of a window."""

    corpus: str
    corpus_hash: str  # SHA-256 of the text
    input_ids: Tensor  # [n, length] int64, CPU: the text's own tokens
    sample_ids: tuple[int, ...]  # number of each window, counted from the start of the text
    role: Role | None = None
    samples_requested: int | None = None  # more than n where the text was too short
    source_revision: str | None = None  # commit of a hub data set
    skipped_tokens: int = 0  # left out before the first window
    documents: Tensor | None = None  # [n, length] int64: number of the document each token is of, where that is known
    window_start: str = "stream"
    prefix: tuple[int, ...] = ()  # tokens before each window

    def first(self, n: int) -> Windows:
        """The first n windows: calibration sets of growing size are nested."""
        return self.part(0, n)

    def part(self, start: int, n: int) -> Windows:
        """n windows from number `start` of these."""
        chosen = slice(start, start + n)
        ids = self.sample_ids[chosen]
        if start < 0 or n < 1 or len(ids) < n:
            from_start = f" from {start}" if start else ""
            raise InputError(f"{self.corpus} has {len(self.sample_ids)} windows here, asked for {n}{from_start}")
        documents = None if self.documents is None else self.documents[chosen]
        return replace(self, input_ids=self.input_ids[chosen], sample_ids=ids, samples_requested=n, documents=documents)

    @cached_property
    def blocks(self) -> Blocks:
        """What errors over these windows take as units: blocks of documents where enough are known, else of windows."""
        blocks = None if self.documents is None else document_blocks(self.documents.numpy())
        return blocks or window_blocks(len(self.sample_ids))

    @cached_property
    def read_ids(self) -> Tensor:
        """What a model reads: [n, prefix + length] int64, CPU."""
        if not self.prefix:
            return self.input_ids
        return torch.cat([torch.tensor(self.prefix).expand(len(self.input_ids), -1), self.input_ids], dim=1)

    @cached_property
    def token_hash(self) -> str:
        """SHA-256 of shape and tokens: for cache keys. Without a prefix it is what it was before there were any."""
        tokens = self.input_ids.numpy().astype("<i8")
        identity = f"{tokens.shape}{self.prefix or ''}"
        return hashlib.sha256(identity.encode() + tokens.tobytes()).hexdigest()

    def record(self) -> dict[str, Any]:
        """What a manifest says about these tokens. documents: how many evaluation windows are of, and in how many
        blocks errors take them; left out where errors are over blocks of windows."""
        documents = self.blocks.documents if self.role == "evaluation" else None
        errors = {} if documents is None else {"documents": documents, "document_blocks": self.blocks.number}
        return {
            **{name: getattr(self, name) for name in (*_OF_TEXT, "samples_requested", "skipped_tokens")},
            "samples": len(self.sample_ids),
            "length": self.input_ids.shape[1],
            "sample_ids": list(self.sample_ids),
            **start_record(self.window_start, self.prefix),
            **errors,
        }


class Pair(NamedTuple):
    """A risk prompt and its matched base prompt. split: `calibration` or `heldout`."""

    domain: str
    risk: str
    base: str
    split: str


def windows(
    corpus: str,
    tokenizer: Any,
    *,
    role: Role,
    samples: int,
    length: int,
    skip_tokens: int = 0,
    window_start: str = WINDOW_STARTS[0],
) -> Windows:
    """The first `samples` windows of `length` tokens of a corpus, consecutive from its start. The paper, section 3.4.

    The documents are joined by blank lines and tokenised once; what does not fill a window is left out. A text that is
    too short gives fewer windows, and `samples_requested` keeps the wish. window_start: `text`: a model reads each
    window as the tokenizer begins a text, behind the BOS where it puts one before a text (**choice**: a model that
    always saw one is another model without). `stream`: the tokens as they come. corpus: a registered name
    (`available_corpora`), a text file whose documents are separated by blank lines, or a JSONL file with a `text`
    field. role chooses the split of a registered corpus. skip_tokens: left out at the start, so that one file can serve
    for both roles."""
    if samples < 1 or length < 2:
        raise InputError(f"windows need samples >= 1 and length >= 2, got {samples} windows of {length} tokens")
    name, text, revision, starts = read_text(corpus, role)
    prefix = before_each(tokenizer, window_start)
    ids, places = _first_tokens(
        text, tokenizer, skip_tokens + samples * length, window_start, with_places=starts is not None
    )
    ids, places = ids[skip_tokens:], places[skip_tokens:]
    n = len(ids) // length
    if n == 0:
        after = f" after the first {skip_tokens:,}" if skip_tokens else ""
        raise InputError(
            f"corpus {name} has {len(ids)} tokens{after}, fewer than one window of {length}; "
            "use shorter windows (--max-length, --eval-length) or a longer text"
        )
    return Windows(
        corpus=name, corpus_hash=hashlib.sha256(text.encode()).hexdigest(), role=role, source_revision=revision,
        input_ids=torch.tensor(ids[: n * length], dtype=torch.int64).view(n, length), sample_ids=tuple(range(n)),
        samples_requested=samples, skipped_tokens=skip_tokens, window_start=window_start, prefix=prefix,
        documents=_documents(starts, places[: n * length], length),
    )  # fmt: skip


def calibration_tokens(eval_corpus: str, corpus: str, used: int) -> int:
    """Tokens that evaluation skips: the `used` ones of calibration, if both read the same local file; a registered
    corpus has a split for each role."""
    if eval_corpus in available_corpora() or Path(eval_corpus).resolve() != Path(corpus).resolve():
        return 0
    return used


def contrast_pairs(source: str, domain: str | None = None, split: str | None = None) -> list[Pair]:
    """Matched risk and base prompts, in the order of the file.

    source: `demo`, or a JSONL file with `risk` and `base` and optionally `domain` and `split` (`calibration` where
    absent). domain, split: keep only these. Errors: InputError where nothing is left, and for a split that is not
    understood, anywhere in the file."""
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
        values = [entry.get("domain", "unnamed"), entry.get("risk"), entry.get("base"), entry.get("split", CALIBRATION)]
        for field, value in zip(Pair._fields, values, strict=True):
            if not isinstance(value, str) or not value.strip():
                raise InputError(f"{path.name} line {number}: {field} must be a text, got {value!r}")
        pairs.append(Pair(*values))
    meant = splits_of(path.name, [pair.split for pair in pairs])
    ids = domain_ids(pair.domain for pair in pairs)
    pairs = [pair._replace(domain=ids[pair.domain], split=meant[pair.split]) for pair in pairs]
    check_pairs(path.name, pairs)
    if not pairs:
        raise InputError(f"{path.name} holds no pairs; expected one JSON object with risk and base per line")
    for field, wanted in (("domain", domain), ("split", split)):
        if wanted is not None:
            wanted = find_domain(wanted, {getattr(pair, field) for pair in pairs}, field)
            pairs = [pair for pair in pairs if getattr(pair, field) == wanted]
    return pairs


def check_pairs(source: str, pairs: Sequence[Pair]) -> None:
    """`InputError` where a risk prompt is its base prompt, and where a held-out pair is one of calibration: texts that
    differ in case, blanks, Unicode form or the sign at their end only are the same."""
    texts = {pair: (_same(pair.risk), _same(pair.base)) for pair in pairs}
    equal = [pair for pair in pairs if len({*texts[pair]}) == 1]
    _refuse(source, equal, pairs, "pairs have one text for risk and base; give each risk prompt a harmless neighbour")
    calibration = {texts[pair] for pair in pairs if pair.split == CALIBRATION}
    heldout = [pair for pair in pairs if pair.split == HELDOUT]
    known = [pair for pair in heldout if texts[pair] in calibration]
    _refuse(source, known, heldout, "held-out pairs are calibration pairs too; leave each in one of the two splits")


def _refuse(source: str, wrong: Sequence[Pair], among: Sequence[Pair], why: str) -> None:
    if wrong:
        raise InputError(
            f"{source}: {len(wrong):,} of {len(among):,} ({len(wrong) / len(among):.0%}) {why}; the first is "
            f"{wrong[0].risk[:80]!r} with {wrong[0].base[:80]!r}"
        )


def _same(text: str) -> str:
    """A prompt without what does not make it another one."""
    plain = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    words = " ".join(plain.casefold().split())
    return words.rstrip(" .!?…") or words


def tokens_of(
    text: str, tokenizer: Any, window_start: str, *, with_places: bool = False
) -> tuple[list[int], list[int]]:
    """The text's tokens, under `stream` with what the tokenizer adds, and where in it each begins if that is wanted."""
    # verbose=False: a text longer than the model's context is what windows are cut from, not a mistake.
    more = {"return_offsets_mapping": True} if with_places else {}
    tokenized = tokenizer(text, add_special_tokens=window_start == "stream", verbose=False, **more)
    places = [start for start, _ in tokenized["offset_mapping"]] if with_places else []
    return cast("list[int]", tokenized["input_ids"]), places


def _first_tokens(
    text: str, tokenizer: Any, needed: int, window_start: str, *, with_places: bool = False
) -> tuple[list[int], list[int]]:
    """The first `needed` tokens of the text and where each begins (empty unless asked for, and where nobody can tell).

    No more is tokenised than it must: a prefix that ends between two documents has the tokens of the whole text but for
    a few at its end, which are not used. A document of more than a million characters ends for this at a blank."""
    spare, characters = 64, 8 * needed
    with_places = with_places and getattr(tokenizer, "is_fast", False)
    while (end := _boundary(text, characters)) != -1:
        ids, places = tokens_of(text[:end], tokenizer, window_start, with_places=with_places)
        if len(ids) >= needed + spare:
            return ids[:needed], places[:needed]
        characters *= 2
    ids, places = tokens_of(text, tokenizer, window_start, with_places=with_places)
    return ids[:needed], places[:needed]


def _documents(starts: Sequence[int] | None, places: Sequence[int], length: int) -> Tensor | None:
    """Number of the document of every token, from where documents and tokens begin; what stands between two documents
    is of the first. [n, length] int64, None where either is not known."""
    if starts is None or not places:
        return None
    numbers = torch.searchsorted(torch.tensor(starts), torch.tensor(places), right=True) - 1
    return numbers.clamp(min=0).view(-1, length)


def _boundary(text: str, start: int) -> int:
    """Where the first document after `start` ends; of a very long one a blank in it, or any place; -1 at the end."""
    end = text.find("\n\n", start, start + _LONG_DOCUMENT)
    if end == -1 and len(text) > start + _LONG_DOCUMENT:
        end = text.find(" ", start, start + _LONG_DOCUMENT)
        return start if end == -1 else end
    return end


CALIBRATION, HELDOUT = "calibration", "heldout"
# In small letters and without blanks, `-` and `_`: `Held-Out` is understood too.
_NAMES = dict.fromkeys(("calibration", "train", "training"), CALIBRATION)
_NAMES |= dict.fromkeys(("heldout", "test", "validation"), HELDOUT)


def splits_of(source: str, names: Iterable[str]) -> dict[str, str]:
    """Name of a split in a file -> `calibration` or `heldout` (validation and test). Errors: InputError for any other
    name, with those that are there: its pairs would be left out silently."""
    splits = list(dict.fromkeys(names))
    meant = {name: _NAMES.get(re.sub(r"[\s_-]+", "", name.lower())) for name in splits}
    for name, split in meant.items():
        if split is None:
            raise InputError(
                f"{source}: unknown split {name!r}; it has {', '.join(map(repr, splits))}, understood are "
                f"{_said(CALIBRATION)} for calibration and {_said(HELDOUT)} for what is held out"
            )
    return {name: split for name, split in meant.items() if split is not None}


def _said(split: str) -> str:
    return ", ".join(name for name, meant in _NAMES.items() if meant == split)


class TooFewDraws(InputError):
    """There is too little calibration text for two disjoint draws."""


@dataclass(frozen=True)
class Draws:
    """Disjoint calibration sets of one size. draws_wanted, size_wanted: what was asked for; available: windows that
    the text has for them; seed: of the choice."""

    sets: tuple[Windows, ...]
    draws_wanted: int
    size_wanted: int
    available: int
    seed: int

    @property
    def size(self) -> int:
        return len(self.sets[0].sample_ids)

    def record(self) -> Json:
        """What a manifest says: `first_windows` name the draws, each of which goes on for `samples` windows."""
        first = self.sets[0].record()
        return {
            **{key: first[key] for key in (*_OF_TEXT, "length")},
            **start_record(self.sets[0].window_start, self.sets[0].prefix),
            "samples": self.size, "samples_requested": self.size_wanted, "draws": len(self.sets),
            "draws_requested": self.draws_wanted, "windows_available": self.available,
            "first_windows": [one.sample_ids[0] for one in self.sets], "seed": self.seed,
        }  # fmt: skip


def disjoint_draws(
    corpus: str, tokenizer: Any, *, draws: int, size: int, least: int, length: int, seed: int,
    without: range = range(0), window_start: str = WINDOW_STARTS[0],
) -> Draws:  # fmt: skip
    """`draws` stretches of `size` consecutive windows of `length` tokens, at random places of the whole text.

    Consecutive, as the calibration text is (**choice**). A text that is too short gives smaller draws, down to `least`
    windows, then fewer of them. without: tokens that no window may touch. window_start: as of `windows`.
    Errors: TooFewDraws where not even two draws of `least` windows fit."""
    name, text, revision, _ = read_text(corpus, "calibration")
    prefix = before_each(tokenizer, window_start)
    ids, _ = tokens_of(text, tokenizer, window_start)
    total = len(ids) // length
    whole = Windows(
        corpus=name, corpus_hash=hashlib.sha256(text.encode()).hexdigest(),
        input_ids=torch.tensor(ids[: total * length], dtype=torch.int64).view(total, length),
        sample_ids=tuple(range(total)), role="calibration", source_revision=revision, window_start=window_start,
        prefix=prefix,
    )  # fmt: skip
    runs = _runs(total, length, without)
    available = sum(len(run) for run in runs)
    for count in range(draws, 1, -1):
        largest = min(size, available // count) if count == draws else min(size, least)
        for taken in range(largest, min(size, least) - 1, -1):
            if sum(len(run) // taken for run in runs) >= count:
                parts = (whole.part(start, taken) for start in _starts(runs, taken, count, seed))
                return Draws(
                    tuple(replace(part, samples_requested=size) for part in parts), draws, size, available, seed
                )
    raise TooFewDraws(
        f"disjoint draws need at least 2 sets of {min(size, least)} calibration windows, and {name} has {available} "
        f"windows of {length} tokens for them; give a longer calibration text, or smaller --sizes"
    )


def _runs(windows: int, length: int, without: range) -> list[range]:
    """Numbers of the windows before and after the tokens that are left out."""
    if not without:
        return [range(windows)]
    before = range(min(windows, without.start // length))
    after = range(min(windows, -(-without.stop // length)), windows)
    return [run for run in (before, after) if run]


def _starts(runs: list[range], size: int, count: int, seed: int) -> list[int]:
    """First windows of `count` stretches: every run is tiled from a random place on, and tiles are drawn, ascending."""
    generator = np.random.default_rng(seed)
    tiles: list[int] = []
    for run in runs:
        spare = len(run) % size if len(run) >= size else 0
        first = run.start + int(generator.integers(spare + 1))
        tiles += [first + place * size for place in range(len(run) // size)]
    return sorted(int(tile) for tile in generator.choice(tiles, size=count, replace=False))
