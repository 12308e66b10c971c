"""Scores at nested calibration sizes from one pass: passes are sums over windows, so prefix sums serve all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from engine.errors import InputError
from engine.selectors.passes import BatchSize, Objective
from engine.selectors.run import SEEDS, Progress, ScoringRun, check_request

if TYPE_CHECKING:
    from engine.corpora import Windows
    from engine.models import LoadedModel

FinishedAtSize = Callable[[int, str, Tensor], None]  # calibration size, selector, its scores
PrefixSums = dict[str, dict[int, Tensor]]  # pass -> windows -> sum over the first so many windows


def nested_scores(
    loaded: LoadedModel,
    selectors: Sequence[str],
    windows: Windows,
    sizes: Sequence[int],
    *,
    seeds: Sequence[int] = SEEDS,
    objective: str = "loss",
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
    known: Mapping[int, Mapping[str, Tensor]] | None = None,
    finished: FinishedAtSize | None = None,
) -> dict[int, dict[str, Tensor]]:
    """Scores from the first n windows for every n in `sizes`, each pass over the largest set only.

    Every pass that selectors share (`ScoringRun.activations`, `mean_abs_relevance`) is cut at the sizes, its
    running sums are kept there, and the run of each size reads its own. This holds for plug-ins too; one that
    reads `input_ids` and runs the model itself does so once per size.
    Equal to separate runs of the same sizes bit for bit where `batch_size` divides every size; else batches
    are cut at other windows, and float32 scores agree to about 1e-6 of their value, half precision to its own.

    known: scores per size that are there already. finished: called with size, selector and scores as soon as
    they are known. The rest as in `compute_scores`.

    returns {size: {selector: [N] float32 on the CPU}}, ascending sizes; seeded selectors [seeds, N]
    Memory: N float64 per pass and size besides the scores. Errors: those of `compute_scores`, and an
    InputError for sizes outside 1..windows.
    """
    check_request(loaded, selectors, windows, objective)
    ordered = sorted(set(sizes))
    available = len(windows.input_ids)
    if not ordered or ordered[0] < 1 or ordered[-1] > available:
        raise InputError(
            f"calibration sizes must lie in 1..{available}, the windows available; got {list(sizes)}"
        )
    there = known or {}
    shared: PrefixSums = {}

    def reporter(size: int) -> Callable[[str, Tensor], None] | None:
        return None if finished is None else lambda selector, scores: finished(size, selector, scores)

    runs = {
        size: _PrefixRun(
            shared,
            ordered,
            loaded,
            windows.first(size),
            seeds,
            cast(Objective, objective),
            batch_size,
            progress,
            there.get(size),
            reporter(size),
        )
        for size in ordered
    }
    # Largest first: its passes leave the sums that the smaller sizes read.
    for selector in selectors:
        for size in reversed(ordered):
            runs[size].scores(selector)
    return {size: {selector: runs[size].scores(selector) for selector in selectors} for size in ordered}


class _PrefixRun(ScoringRun):
    """A scoring run over the first windows, whose passes are read from sums that runs share where they are there."""

    def __init__(self, shared: PrefixSums, sizes: Sequence[int], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._shared = shared
        self._sizes = tuple(sizes)

    def _sum(self, stage: str, work: Callable[[slice], Tensor]) -> Tensor:
        size = len(self.input_ids)
        sums = self._shared.setdefault(stage, {})
        if size not in sums:
            for done, total in self._running_sums(stage, work, cuts=self._sizes):
                if done in self._sizes:
                    sums[done] = total
        return sums[size]
