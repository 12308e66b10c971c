"""Scores at nested calibration sizes from one pass: passes are sums over windows, so prefix sums serve all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from engine.records.errors import InputError
from engine.selectors.attribution import Method
from engine.selectors.base import OBJECTIVES, SEEDS, Objective, asked_by
from engine.selectors.passes import BatchSize
from engine.selectors.run import Progress, ScoringRun, check_request

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.models.loading import LoadedModel

FinishedAtSize = Callable[[int, str, Tensor], None]  # calibration size, selector, its scores
PrefixSums = dict[tuple[object, ...], dict[int, Tensor]]  # what is summed -> windows -> sum over the first so many


def nested_scores(
    loaded: LoadedModel,
    selectors: Sequence[str],
    windows: Windows,
    sizes: Sequence[int],
    *,
    seeds: Sequence[int] = SEEDS,
    objective: str = OBJECTIVES[0],
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
    known: Mapping[int, Mapping[str, Tensor]] | None = None,
    finished: FinishedAtSize | None = None,
) -> dict[int, dict[str, Tensor]]:
    """Scores from the first n windows for every n in `sizes`, each pass over the largest set only.

    Every pass that selectors share (`ScoringRun.activations`, `mean_relevance`) is cut at the sizes, its
    running sums are kept there, and the run of each size reads its own. This holds for plug-ins too; one that
    reads `input_ids` and runs the model itself does so once per size, as relp does, whose mean output is each size's.
    Equal to separate runs of the same sizes bit for bit where `batch_size` divides every size; else batches
    are cut at other windows, and float32 scores agree to about 1e-6 of their value, half precision to its own.

    known: scores per size that are there already. finished: called with size, selector and scores as soon as
    they are known. The rest as in `compute_scores`.

    returns {size: {selector: [N] float32 on the CPU}}, ascending sizes; seeded selectors [seeds, N]
    Memory: N float64 per size and mean of a pass besides the scores. Errors: those of `compute_scores`, and an
    InputError for sizes outside 1..windows.
    """
    check_request(loaded, selectors, windows, objective)
    ordered = sorted(set(sizes))
    available = len(windows.input_ids)
    if not ordered or ordered[0] < 1 or ordered[-1] > available:
        raise InputError(f"calibration sizes must lie in 1..{available}, the windows available; got {list(sizes)}")
    there = known or {}
    shared: PrefixSums = {}

    # What any size still has to compute: equal for all, so that they share their passes.
    known_everywhere = set.intersection(*(set(there.get(size, ())) for size in ordered))
    asked = asked_by(selectors, known_everywhere)
    same = (seeds, cast(Objective, objective), batch_size, progress)
    runs = {
        size: _PrefixRun(
            shared,
            ordered,
            loaded,
            windows.first(size),
            *same,
            there.get(size),
            finished and partial(finished, size),
            asked,
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

    def _share(self, method: Method, other: Method) -> bool:
        """relp's pass belongs to one size, the others' to all."""
        return super()._share(method, other) and (method == "relp") == (other == "relp")

    def _sum(
        self, stage: str, what: tuple[object, ...], work: Callable[[slice], Tensor], *, of_this_text: bool = False
    ) -> Tensor:
        if of_this_text:
            return super()._sum(stage, what, work)
        size = len(self.input_ids)
        sums = self._shared.setdefault(what, {})
        if size not in sums:
            for done, total in self._running_sums(stage, work, cuts=self._sizes):
                if done in self._sizes:
                    sums[done] = total
        return sums[size]
