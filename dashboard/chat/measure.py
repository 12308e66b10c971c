"""What zeroing some rows costs: a short measurement, and one beside as many random rows that begins with the first
windows and goes on to more and more text. torch is imported when it is asked for, never before."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from dashboard.chat.live import fitting_threads
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

Progress = Callable[[str, int, int], None]
CORPUS, WINDOWS, WINDOW_TOKENS, AT_ONCE = "demo", 16, 256, 4
FIRST, STEP = 4, 16  # windows that are measured first beside random rows, and in each step after them
ALL_WINDOWS = 1_000_000  # more than the text has


class NllChange(NamedTuple):
    """NLL in nats per token before and after, and their paired difference with its standard error over blocks of
    windows (`block_difference`)."""

    dense: float
    edited: float
    difference: float
    stderr: float | None
    tokens: int


class Compared(NamedTuple):
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


def nll_change(loaded: LoadedModel, mask: Mask, progress: Progress) -> NllChange:
    """NLL of the model as it is and with the rows of `mask` zeroed, on the same windows.
    `progress` is called between batches and may raise to give up; the weights are back then."""
    text, edits, parts = evaluation_windows(loaded), [UNEDITED, edit_of(mask, loaded.rows.n_rows)], []
    total = len(text.sample_ids)
    with store_of_the_session(kept=False) as store:
        for start in range(0, total, AT_ONCE):
            parts.append(_step(loaded, edits, text.part(start, min(AT_ONCE, total - start)), store, progress))
    dense, edited = _put_together(parts, text)
    stderr, _ = block_difference(edited, dense)
    before, after = dense.nats_per_token, edited.nats_per_token
    return NllChange(before, after, after - before, stderr, dense.tokens)


def compared(loaded: LoadedModel, rows: Mask, progress: Progress) -> Generator[Compared, None, None]:
    """After every step what was measured until then; the last one is the whole text. Every number is a cell of the
    store, so that what was measured once, also before a stop, is not measured again.
    The random rows are drawn over the whole model (`global_random`), once for each of `SEEDS`. `progress` may raise to
    give up; the weights are back then. The model's lock is held for one step at a time, so that others get their turn.
    """
    from engine.edits.control_edits import global_random
    from engine.measures.nll import NegativeLogLikelihood

    n_rows = loaded.rows.n_rows
    drawn = [global_random(rows, n_rows, seed) for seed in SEEDS]
    edits = [UNEDITED, *(edit_of(mask, n_rows) for mask in (rows, *drawn))]
    text, parts = evaluation_windows(loaded, ALL_WINDOWS), []
    total = len(text.sample_ids)
    with store_of_the_session() as store:
        for start, end in steps(total):
            parts.append(_step(loaded, edits, text.part(start, end - start), store, progress))
            progress("windows", end, total)
            dense, edited, *random = _put_together(parts, text.first(end))
            means = tuple(
                math.fsum(nats) / len(random) for nats in zip(*(one.window_nats for one in random), strict=True)
            )
            stderr, _ = block_difference(edited, NegativeLogLikelihood(means, dense.window_tokens, dense.blocks))
            each = tuple(one.nats_per_token for one in random)
            yield Compared(
                len(rows), end, total, dense.tokens, dense.nats_per_token, edited.nats_per_token, each,
                edited.nats_per_token - fmean(each), stderr,
            )  # fmt: skip


@contextmanager
def store_of_the_session(*, kept: bool = True) -> Iterator[Store]:
    """The default store, or one that goes with the `with`: where nothing is to be kept, and on a server for other
    machines, on whose disk nothing stays that they ask for."""
    if kept and not access.limited():
        with Store(None) as store:
            yield store
    else:
        with TemporaryDirectory(prefix="selector-audit-") as place, Store(Path(place)) as store:
            yield store


def evaluation_windows(loaded: LoadedModel, samples: int = WINDOWS) -> Windows:
    """The first windows of the shipped evaluation text, in this model's tokens."""
    from engine.data.corpora import windows

    return windows(CORPUS, loaded.tokenizer, role="evaluation", samples=samples, length=WINDOW_TOKENS)


def steps(total: int) -> Iterator[tuple[int, int]]:
    """Where each step begins and ends: `FIRST` windows, then `STEP` at a time, the rest last."""
    end = 0
    while end < total:
        start, end = end, min(total, end + (STEP if end else FIRST))
        yield start, end


def _step(
    loaded: LoadedModel, edits: Sequence[Edit], part: Windows, store: Store, progress: Progress
) -> list[NegativeLogLikelihood]:
    """The NLL of each edit on some windows, under the model's lock."""
    from engine.measures.nll import NegativeLogLikelihood, Nll
    from engine.run.runner import Cell, LocalRunner

    what = f"Windows {part.sample_ids[0] + 1} to {part.sample_ids[-1] + 1}, edits"
    cells = [Cell[NegativeLogLikelihood](loaded, edit, Nll(part)) for edit in edits]
    with held(loaded.lock, lambda _: progress("waiting for another session", 0, 1)), fitting_threads(loaded):
        results = LocalRunner(store, lambda _, done, total: progress(what, done, total)).run(cells)
    return [results[cell] for cell in cells]


def _put_together(parts: Sequence[Sequence[NegativeLogLikelihood]], text: Windows) -> list[NegativeLogLikelihood]:
    """Of each edit what the steps found, over the whole of their windows."""
    from engine.measures.nll import NegativeLogLikelihood

    return [
        NegativeLogLikelihood(
            tuple(nats for one in of_edit for nats in one.window_nats),
            tuple(tokens for one in of_edit for tokens in one.window_tokens), text.blocks,
        ) for of_edit in zip(*parts, strict=True)
    ]  # fmt: skip
