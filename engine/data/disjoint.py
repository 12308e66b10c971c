"""Several calibration sets without a window in common, from the whole of one text."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from engine.data.corpora import Windows, tokens_of
from engine.data.texts import read_text
from engine.data.window_starts import WINDOW_STARTS, before_each, start_record
from engine.records.errors import InputError
from engine.records.hashing import Json


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
            **{key: first[key] for key in ("corpus", "corpus_hash", "source_revision", "role", "length")},
            **start_record(self.sets[0].window_start, self.sets[0].prefix),
            "samples": self.size,
            "samples_requested": self.size_wanted,
            "draws": len(self.sets),
            "draws_requested": self.draws_wanted,
            "windows_available": self.available,
            "first_windows": [one.sample_ids[0] for one in self.sets],
            "seed": self.seed,
        }


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
