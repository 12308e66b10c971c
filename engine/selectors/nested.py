"""Scores at nested calibration sizes from one pass: passes are sums over windows, so prefix sums serve all sizes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from torch import Tensor

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors.base import ACTIVATIONS, OBJECTIVES, SEEDS, Objective, asked_by
from engine.selectors.gradients import Method
from engine.selectors.kept_sums import KeptSums
from engine.selectors.passes import BatchSize
from engine.selectors.relevance_sums import needs_plain
from engine.selectors.run import Progress, ScoringRun, Work, check_request

FinishedAtSize = Callable[[int, str, Tensor], None]  # calibration size, selector, its scores


class _Pass(NamedTuple):
    """A pass over the whole text, as far as it has come. sums: windows -> sum over the first so many."""

    sums: dict[int, Tensor]
    to_come: Iterator[tuple[int, Tensor]]


Passes = dict[tuple[object, ...], _Pass]  # by what is summed


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
    skip_first: int = 0,
    kept: KeptSums | None = None,
) -> dict[int, dict[str, Tensor]]:
    """Scores from the first n windows for every n in `sizes`, each pass over the largest set only.

    Every pass that selectors share (`ScoringRun.activations`, `mean_relevance`) goes over all windows as a run of the
    whole text does, is read off at the sizes on its way, and stops where no size is left to compute; the run of each
    size reads its own sums. This holds for plug-ins too; one that reads `input_ids` and runs the model itself does so
    once per size, as relp does, whose mean output is each size's.
    The scores of all windows equal those of `compute_scores` bit for bit. So do those of a smaller size where
    `batch_size` divides it; else its last windows went through the model beside later ones, and float32 scores agree to
    about 1e-6 of their norm, half precision to its own.

    known: scores per size that are there already. finished: called with size, selector and scores as soon as
    they are known. The rest as in `compute_scores`.

    returns {size: {selector: [N] float32 on the CPU}}, ascending sizes; seeded selectors [seeds, N]
    Memory: N float64 per size and mean of a pass besides the scores. Errors: those of `compute_scores`, and an
    InputError for sizes outside 1..windows."""
    check_request(loaded, selectors, windows, objective, skip_first)
    ordered = sorted(set(sizes))
    available = len(windows.input_ids)
    if not ordered or ordered[0] < 1 or ordered[-1] > available:
        raise InputError(f"calibration sizes must lie in 1..{available}, the windows available; got {list(sizes)}")
    there = known or {}
    # What any size still has to compute: equal for all, so that they share their passes.
    known_everywhere = set.intersection(*(set(there.get(size, ())) for size in ordered))
    asked = asked_by(selectors, known_everywhere)
    each = (asked_by(selectors, there.get(size, ())) for size in ordered)
    if any(ACTIVATIONS in one and not any(needs_plain(of) for of, _ in one) for one in each):
        # A size would walk the path for its activations alone: they have a pass of their own.
        asked = tuple(one for one in asked if one != ACTIVATIONS)
    missing = [size for size in ordered if not set(selectors) <= set(there.get(size, ()))]
    text = _Text(windows.read_ids, tuple(ordered), max(missing, default=available), {})
    same, last = (seeds, cast(Objective, objective), batch_size, progress), (asked, skip_first, kept)

    def run_of(size: int) -> _PrefixRun:
        own = (there.get(size), finished and partial(finished, size))
        return _PrefixRun(text, loaded, windows.first(size), *same, *own, *last)

    runs = {size: run_of(size) for size in ordered}
    # Largest first: its passes leave the sums that the smaller sizes read.
    for selector in selectors:
        for size in reversed(ordered):
            runs[size].scores(selector)
    return {size: {selector: runs[size].scores(selector) for selector in selectors} for size in ordered}


class _Text(NamedTuple):
    """What the runs of all sizes have in common. wanted: the largest size that has something to compute."""

    input_ids: Tensor
    sizes: tuple[int, ...]
    wanted: int
    passes: Passes


class _PrefixRun(ScoringRun):
    """A scoring run over the first windows of a text, whose passes go over the whole of it, for all sizes."""

    def __init__(self, text: _Text, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._text = text

    def _share(self, method: Method, other: Method) -> bool:
        """relp's pass belongs to one size, the others' to all."""
        return super()._share(method, other) and (method == "relp") == (other == "relp")

    def _sum(self, stage: str, what: tuple[object, ...], work: Work, *, of_this_text: bool = False) -> Tensor:
        if of_this_text:
            return super()._sum(stage, what, work)
        text, size = self._text, len(self.input_ids)
        if what not in text.passes:
            running = self._running_sums(stage, work, text.input_ids, text.sizes, text.wanted, what)
            text.passes[what] = _Pass({}, running)
        found = text.passes[what]
        while size not in found.sums:
            done, total = next(found.to_come)
            if done in text.sizes:
                found.sums[done] = total
        return found.sums[size]
