"""Perplexity without some rows, and without as many random ones: the first windows at once, then more and more text.

Every number is a cell of the store, so that what was measured once, also before a stop, is not measured again."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dashboard.chat import measure
from dashboard.chat.live import fitting_threads
from dashboard.chat.measure import Progress
from dashboard.state import access
from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.edits.masks import Mask
from engine.records.locks import held
from engine.results.store import Store
from engine.selectors.base import SEEDS
from engine.stats.blocks import block_difference

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.measures.nll import NegativeLogLikelihood
    from engine.models.loading import LoadedModel

FIRST, STEP = 4, 16  # windows that are measured first, and in each step after them
ALL_WINDOWS = 1_000_000  # more than the text has


@dataclass(frozen=True)
class Compared:
    """NLL in nats per token over the first `windows` of `of` windows: unedited, without the rows, and without as many
    random rows, a number for each draw.
    difference: without the rows minus the mean of the draws, paired over the text; stderr: its standard error over
    blocks of windows (`block_difference`), which says nothing of how draws differ."""

    rows: int
    windows: int
    of: int
    tokens: int
    dense: float
    edited: float
    random: tuple[float, ...]
    difference: float
    stderr: float | None


def compared(loaded: LoadedModel, rows: Mask, progress: Progress) -> Generator[Compared, None, None]:
    """After every step what was measured until then; the last one is the whole text.
    The random rows are drawn over the whole model (`global_random`), once for each of `SEEDS`. `progress` may raise to
    give up; the weights are back then. The model's lock is held for one step at a time, so that others get their turn.
    """
    from engine.edits.controls import global_random

    n_rows = loaded.rows.n_rows
    drawn = [global_random(rows, n_rows, seed) for seed in SEEDS]
    edits = [UNEDITED, *(edit_of(mask, n_rows) for mask in (rows, *drawn))]
    text = measure.evaluation_windows(loaded, ALL_WINDOWS)
    total = len(text.sample_ids)
    parts: list[list[NegativeLogLikelihood]] = [[] for _ in edits]
    # On a server for other machines nothing that they ask for stays on the disk.
    scratch = TemporaryDirectory(prefix="selector-audit-") if access.limited() else nullcontext()
    with scratch as place, Store(Path(place) if place else None) as store:
        for start, end in steps(total):
            for found, one in zip(
                parts, _step(loaded, edits, text.part(start, end - start), store, progress), strict=True
            ):
                found.append(one)
            progress("windows", end, total)
            yield _put_together(len(rows), total, text.first(end), parts)


def steps(total: int) -> Iterator[tuple[int, int]]:
    """Where each step begins and ends: `FIRST` windows, then `STEP` at a time, the rest last."""
    end = 0
    while end < total:
        start, end = end, min(total, end + (STEP if end else FIRST))
        yield start, end


def _step(
    loaded: LoadedModel, edits: Sequence[Edit], part: Windows, store: Store, progress: Progress
) -> list[NegativeLogLikelihood]:
    from engine.measures.nll import NegativeLogLikelihood, Nll
    from engine.run.runner import Cell, LocalRunner

    def told(_stage: str, done: int, total: int) -> None:
        progress(f"Windows {part.sample_ids[0] + 1} to {part.sample_ids[-1] + 1}, edits", done, total)

    cells = [Cell[NegativeLogLikelihood](loaded, edit, Nll(part)) for edit in edits]
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        results = LocalRunner(store, told).run(cells)
    return [results[cell] for cell in cells]


def _put_together(rows: int, total: int, text: Windows, parts: Sequence[Sequence[NegativeLogLikelihood]]) -> Compared:
    from engine.measures.nll import NegativeLogLikelihood

    dense, edited, *random = (
        NegativeLogLikelihood(
            tuple(nats for one in some for nats in one.window_nats),
            tuple(tokens for one in some for tokens in one.window_tokens),
            text.blocks,
        )
        for some in parts
    )
    means = tuple(math.fsum(nats) / len(random) for nats in zip(*(one.window_nats for one in random), strict=True))
    mean = NegativeLogLikelihood(means, dense.window_tokens, text.blocks)
    stderr, _ = block_difference(edited, mean)
    each = tuple(one.nats_per_token for one in random)
    return Compared(
        rows, len(text.sample_ids), total, dense.tokens, dense.nats_per_token, edited.nats_per_token, each,
        edited.nats_per_token - fmean(each), stderr,
    )  # fmt: skip
