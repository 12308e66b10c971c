"""Scores for a model: one scoring run, in which selectors share the passes they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from engine.models.rows import RowIndex
from engine.records.errors import InputError, unknown
from engine.records.progress import Progress
from engine.selectors.activations import ActivationStatistics, split_statistics, window_statistics
from engine.selectors.attribution import Method
from engine.selectors.base import OBJECTIVES, SEEDS, Objective, SelectorInfo, asked_by, get_selector, new_scorer
from engine.selectors.checks import check_finite
from engine.selectors.passes import BatchSize, in_batches, windows_per_pass
from engine.selectors.relevance_sums import Asked, Statistic, checked_asks, relevance_sums, same_pass
from engine.selectors.seen import counted

if TYPE_CHECKING:
    from engine.data.corpora import Windows
    from engine.models.loading import LoadedModel

Finished = Callable[[str, Tensor], None]  # selector, its scores


def compute_scores(
    loaded: LoadedModel,
    selectors: Sequence[str],
    windows: Windows | None,
    *,
    seeds: Sequence[int] = SEEDS,
    objective: str = OBJECTIVES[0],
    batch_size: BatchSize = "auto",
    progress: Progress | None = None,
    known: Mapping[str, Tensor] | None = None,
    finished: Finished | None = None,
) -> dict[str, Tensor]:
    """Scores of every row under each selector, higher = more important.

    windows: calibration tokens; None will do if all selectors are data-free.
    objective: what attributions explain, `loss` (summed next-token loss) or `logit` (summed target logits).
    batch_size: windows per pass; `auto` starts from a size by the model's and halves it when memory runs
    out. Scores depend on it by rounding only.
    progress: called with the pass that runs, windows done, windows in all.
    known: scores of the same model, text and objective that are there already (a consensus may need them).
    finished: called with a selector and its scores as soon as they are known, also for one that was only
    needed by another.

    returns {selector: [N] float32 on the CPU}, seeded selectors [seeds, N]; weights and hooks as before
    Errors: InputError for an unknown selector or objective, missing or too short windows, scores that are
    not finite, a single window that does not fit in memory.
    """
    check_request(loaded, selectors, windows, objective)
    asked = asked_by(selectors, known or ())
    run = ScoringRun(loaded, windows, seeds, cast(Objective, objective), batch_size, progress, known, finished, asked)
    return {selector: run.scores(selector) for selector in selectors}


def check_request(loaded: LoadedModel, selectors: Sequence[str], windows: Windows | None, objective: str) -> None:
    """What cannot work is an InputError before hours of work, not after."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    for selector in selectors:
        info = get_selector(selector)
        if not info.scores:
            raise InputError(
                f"selector {selector!r} contrasts prompts and gives text no scores; name it for `refusal`, or score "
                f"with {info.protected_by}"
            )
        if windows is None and not info.data_free:
            raise InputError(f"selector {selector!r} needs calibration text, got none; give a corpus")
        check_model(loaded, selector)


def check_model(loaded: LoadedModel, selector: str) -> None:
    """`InputError` where the selector says that it cannot score such a model; needs no weights."""
    check = getattr(new_scorer(selector), "check", None)
    if check is not None:
        check(loaded)


class ScoringRun:
    """What a selector may ask for. Every pass runs when first asked for and once only.

    asked: what the selectors of the run will ask of relevances, so that a pass sums it all when it runs.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        windows: Windows | None,
        seeds: Sequence[int] = SEEDS,
        objective: Objective = OBJECTIVES[0],
        batch_size: BatchSize = "auto",
        progress: Progress | None = None,
        known: Mapping[str, Tensor] | None = None,
        finished: Finished | None = None,
        asked: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.loaded = loaded
        self.seeds = tuple(seeds)
        self.objective: Objective = objective
        self._windows = windows
        self._batch_size = batch_size
        self._progress = progress
        self._finished = finished
        self._scores: dict[str, Tensor] = {}
        for selector, scores in (known or {}).items():
            self._scores[selector] = self._checked(get_selector(selector), scores.detach().float().cpu())
        self._activations: ActivationStatistics | None = None
        self._sums: dict[tuple[object, ...], Tensor] = {}  # by what is summed
        self._asked = checked_asks(asked)
        self._means: dict[Asked, Tensor] = {}

    @property
    def rows(self) -> RowIndex:
        return self.loaded.rows

    @property
    def input_ids(self) -> Tensor:
        """Calibration windows [n, T] on the CPU. Errors: InputError where there are none or T < 2."""
        if self._windows is None or not len(self._windows.input_ids):
            raise InputError("this selector needs calibration text, got none; give a corpus")
        ids: Tensor = self._windows.input_ids
        if ids.shape[1] < 2:
            raise InputError(f"calibration windows need at least 2 tokens to predict one, got {ids.shape[1]}")
        return ids

    def scores(self, selector: str) -> Tensor:
        """Checked scores of a selector, float32 on the CPU, computed at most once in this run."""
        if selector not in self._scores:
            with torch.no_grad():
                values = new_scorer(selector).score(self)
            self._scores[selector] = self._checked(get_selector(selector), values.detach().float().cpu())
            if self._finished is not None:
                self._finished(selector, self._scores[selector])
        return self._scores[selector]

    def per_layer(self, score: Callable[[nn.Linear], Tensor]) -> Tensor:
        """Scores from the Linears alone: `score` gives [rows of the layer]. Returns [N] on the CPU."""
        with self.loaded.lock, torch.no_grad():
            parts = [score(self.linear(layer.index)).cpu() for layer in self.rows.layers]
        return torch.cat(parts)

    def linear(self, layer: int) -> nn.Linear:
        module = self.loaded.model.get_submodule(self.rows.layers[layer].name)
        return cast(nn.Linear, module)

    def activations(self) -> ActivationStatistics:
        """Sizes of inputs and outputs of every Linear, from one forward pass over the calibration text."""
        if self._activations is None:
            ids = self.input_ids
            sums = self._sum("activations", ("activations",), lambda part: window_statistics(self.loaded, ids[part]))
            self._activations = split_statistics(self.loaded, sums)
        return self._activations

    def mean_abs_relevance(self, method: Method) -> Tensor:
        """E abs(R_i) over all predicted tokens of all windows, absolute value per token first. [N] float64.

        A window of T tokens counts T - 1 positions: the last one predicts nothing, and its relevance is zero. A routed
        expert's rows have the mean over those that it sees; where it sees none, 0.
        """
        return self.mean_relevance(method, "abs")

    def mean_relevance(self, method: Method, statistic: Statistic) -> Tensor:
        """`abs`: E abs(R_i); `signed`: E R_i; `square`: E R_i^2; over the tokens of `mean_abs_relevance`. [N] float64.

        One pass gives this and all that the run's selectors ask of it; what none of them said (`asks` in
        `register_selector`) costs a pass of its own. `relp` is centred on E h_i over the same text.
        """
        if (method, statistic) not in self._means:
            self._relevance_pass(method, statistic)
        return self._means[method, statistic]

    def _relevance_pass(self, method: Method, statistic: Statistic) -> None:
        ids, n_rows = self.input_ids, self.rows.n_rows
        others = (one for one in self._asked if one not in self._means and self._share(method, one[0]))
        asked: tuple[Asked, ...] = tuple(sorted({(method, statistic), *others}))
        centred = any(of == "relp" for of, _ in asked)
        centre = self.activations().output_mean.split([layer.rows for layer in self.rows.layers]) if centred else None

        def work(part: slice) -> Tensor:
            return relevance_sums(self.loaded, ids[part], asked, self.objective, centre)

        stage = ", ".join(dict.fromkeys(of for of, _ in asked))
        *sums, counts = self._sum(stage, asked, work, of_this_text=centred).split(
            [*[n_rows] * len(asked), len(self.rows.layers)]
        )
        count = counted(counts, [layer.rows for layer in self.rows.layers])
        self._means |= {one: total / count for one, total in zip(asked, sums, strict=True)}

    def _share(self, method: Method, other: Method) -> bool:
        return same_pass(method, other)

    def _sum(
        self, stage: str, what: tuple[object, ...], work: Callable[[slice], Tensor], *, of_this_text: bool = False
    ) -> Tensor:
        """Sum of `work` over all windows, batch by batch. what: the same for equal work; stage: what people are shown.

        of_this_text: the work depends on the windows as a whole, so that runs over fewer of them do not share it.
        """
        if what not in self._sums:
            for _, so_far in self._running_sums(stage, work):
                self._sums[what] = so_far
        return self._sums[what]

    def _running_sums(
        self, stage: str, work: Callable[[slice], Tensor], cuts: Sequence[int] = ()
    ) -> Iterator[tuple[int, Tensor]]:
        """After every batch: windows done, sum of `work` over them. No batch reaches over one of `cuts`."""
        count, tokens = self.input_ids.shape
        size = windows_per_pass(self._batch_size, self.loaded.model, self.rows, tokens)
        self._report(stage, 0, count)
        total = torch.zeros(())
        for part, sums in in_batches(work, count, size, cuts):
            total = sums if part.start == 0 else total + sums
            self._report(stage, part.stop, count)
            yield part.stop, total

    def _report(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)

    def _checked(self, info: SelectorInfo, values: Tensor) -> Tensor:
        expected = [len(self.seeds), self.rows.n_rows] if info.seeded else [self.rows.n_rows]
        if list(values.shape) != expected:
            raise InputError(f"selector {info.id!r} gave scores of shape {list(values.shape)}; expected {expected}")
        check_finite(info.id, values, self.rows, self.loaded.dtype)
        return values
