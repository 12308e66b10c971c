"""Scores for a model: one scoring run, in which selectors share the passes they need; at nested calibration sizes from
one pass: passes are sums over windows, so prefix sums serve all sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.records.errors import InputError, unknown
from engine.records.hashing import canonical
from engine.records.progress import Progress
from engine.records.registry import plug_in_code
from engine.selectors.base import (
    ACTIVATIONS,
    OBJECTIVES,
    SEEDS,
    Objective,
    SelectorInfo,
    asked_by,
    check_skip_first,
    get_selector,
    new_scorer,
    with_needs,
)
from engine.selectors.gradients import METHODS, Method, check_method
from engine.selectors.passes import BatchSize, check_finite, counted, in_batches, real_tensor, windows_per_pass
from engine.selectors.window_sums import (
    ActivationStatistics,
    Asked,
    Statistic,
    checked_asks,
    needs_plain,
    relevance_sums,
    split_statistics,
    window_statistics,
)

Finished = Callable[[str, Tensor], None]  # selector, its scores
FinishedAtSize = Callable[[int, str, Tensor], None]  # calibration size, selector, its scores
# Windows of a batch [B, T], ascending numbers of them up to B -> sums over the first so many of the batch [numbers, n].
Work = Callable[[Tensor, Sequence[int]], Tensor]
LARGEST_BYTES = 256 * 2**20  # on the host


def compute_scores(
    loaded: LoadedModel, selectors: Sequence[str], windows: Windows | None, *, seeds: Sequence[int] = SEEDS,
    objective: str = OBJECTIVES[0], batch_size: BatchSize = "auto", progress: Progress | None = None,
    known: Mapping[str, Tensor] | None = None, finished: Finished | None = None, skip_first: int = 0,
    kept: KeptSums | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Scores of every row under each selector, higher = more important.

    windows: calibration tokens; None will do if all selectors are data-free.
    objective: what attributions explain, `loss` (summed next-token loss) or `logit` (summed target logits).
    batch_size: windows per pass; `auto` starts from a size by the model's and halves it when memory runs
    out. Scores depend on it by rounding only.
    progress: called with the pass that runs, windows done, windows in all.
    known: scores of the same model, text and objective that are there already (a consensus may need them).
    finished: called with a selector and its scores as soon as they are known, also for one that was only
    needed by another.
    skip_first: positions at the start of each window that E leaves out (**choice**: 0, as the paper). Some models put
    by far the most of a score on a window's first token. F stays the loss of all predicted tokens, and the windows are
    read as they are. Selectors without data do not change; one that runs the model itself has to mind
    `run.skip_first`.
    kept: what runs over other texts summed over batches that this text has as well, and where this run's go.

    returns {selector: [N] float32 on the CPU}, seeded selectors [seeds, N]; weights and hooks as before
    Errors: InputError for an unknown selector or objective, missing or too short windows, scores that are
    not finite, a single window that does not fit in memory."""
    check_request(loaded, selectors, windows, objective, skip_first)
    asked = asked_by(selectors, known or ())
    how = (seeds, cast(Objective, objective), batch_size, progress, known, finished, asked, skip_first, kept)
    run = ScoringRun(loaded, windows, *how)
    return {selector: run.scores(selector) for selector in selectors}


def check_request(
    loaded: LoadedModel, selectors: Sequence[str], windows: Windows | None, objective: str, skip_first: int = 0
) -> None:
    """What cannot work is an InputError before hours of work, not after."""
    if objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    check_skip_first(skip_first, None if windows is None else windows.input_ids.shape[1])
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
    """`InputError` where the selector, or a method that it asks for, cannot score such a model; needs no weights."""
    for method in dict.fromkeys(of for name in with_needs([selector]) for of, _ in get_selector(name).asks):
        check_method(method, loaded)
    with plug_in_code("selector", selector):
        check = getattr(new_scorer(selector), "check", None)
        if check is not None:
            check(loaded)


class KeptSums:
    """Sums over whole batches that went through the model, for texts that share these: draws of one text may overlap.
    By the model, what was summed, and the batch's tokens.

    Only whole batches are shared, the same windows in the same order and no others, since neighbours can change last
    bits (**choice**: equal bits before fewer passes). Batches end at multiples of their size from the start of the
    text. Kept are the batches that come first, in memory only, until they take `largest` bytes."""

    def __init__(self, largest: int = LARGEST_BYTES) -> None:
        self._largest = largest
        self._sums: dict[str, Tensor] = {}
        self.taken = 0  # bytes
        self.spared = 0  # batches that did not have to go through the model again

    def of(
        self, loaded: LoadedModel, what: object, ids: Tensor, ends: Sequence[int], compute: Callable[[], Tensor]
    ) -> Tensor:
        """`compute()`, or what it gave before for the same model, `what` (equal for equal work) and tokens.

        ids [B, T]; ends: ascending numbers of windows up to B, over which `compute` gives a sum each. Only that over
        all B is kept, so that a pass whose sums over fewer are wanted runs.
        returns [ends, n]"""
        about = canonical({"model": loaded.numeric_fingerprint, "what": repr(what), "shape": list(ids.shape)})
        key = hashlib.sha256(about.encode() + ids.cpu().numpy().astype("<i8").tobytes()).hexdigest()
        if key in self._sums and len(ends) == 1:
            self.spared += 1
            return self._sums[key][None]
        sums = compute()
        size = sums[-1].numel() * sums.element_size()
        if key not in self._sums and self.taken + size <= self._largest:
            self._sums[key] = sums[-1].clone()  # not a view that keeps the others alive
            self.taken += size
        return sums


# By what is summed: sums over the first so many windows, and what is still to come of the pass.
_Passes = dict[tuple[object, ...], tuple[dict[int, Tensor], Iterator[tuple[int, Tensor]]]]


class _Text(NamedTuple):
    """What the runs of all sizes have in common. wanted: the largest size that has something to compute."""

    input_ids: Tensor
    sizes: tuple[int, ...]
    wanted: int
    passes: _Passes


@dataclass(eq=False)
class ScoringRun:
    """What a selector may ask for. Every pass runs when first asked for and once only. asked: what the selectors of the
    run will ask of relevances. skip_first: positions at the start of each sequence of `input_ids` that every mean over
    tokens leaves out: what stands before a window, and as many of its own as the run was told. text: where the windows
    are the first of a text whose passes serve runs of several sizes."""

    loaded: LoadedModel
    windows: Windows | None
    seeds: Sequence[int] = SEEDS
    objective: Objective = OBJECTIVES[0]
    batch_size: BatchSize = "auto"
    progress: Progress | None = None
    known: Mapping[str, Tensor] | None = None
    finished: Finished | None = None
    asked: Sequence[tuple[str, str]] = ()
    skip_first: int = 0
    kept: KeptSums | None = None
    text: _Text | None = None

    def __post_init__(self) -> None:
        self.skip_first += len(self.windows.prefix) if self.windows is not None else 0
        self._scores = {name: self._checked(get_selector(name), one) for name, one in (self.known or {}).items()}
        self._activations: ActivationStatistics | None = None
        self._passes: _Passes = {}  # of this run alone
        self._asked = checked_asks(one for one in self.asked if one != ACTIVATIONS)
        # On the CPU, where a test finds the same bits under gradients as without: a card may choose another kernel.
        self._activations_too = ACTIVATIONS in self.asked and self.loaded.device.partition(":")[0] == "cpu"
        self._means: dict[Asked, Tensor] = {}

    @property
    def rows(self) -> RowIndex:
        return self.loaded.rows

    @property
    def input_ids(self) -> Tensor:
        """Calibration windows as the model reads them [n, T] on the CPU. Errors: InputError where there are none or
        they have fewer than 2 tokens."""
        if self.windows is None or not len(self.windows.input_ids):
            raise InputError("this selector needs calibration text, got none; give a corpus")
        length = self.windows.input_ids.shape[1]
        if length < 2:
            raise InputError(f"calibration windows need at least 2 tokens to predict one, got {length}")
        return self.windows.read_ids

    def scores(self, selector: str) -> Tensor:
        """Checked scores of a selector, float32 on the CPU, computed at most once in this run."""
        if selector not in self._scores:
            with torch.no_grad(), plug_in_code("selector", selector):
                values = real_tensor(selector, new_scorer(selector).score(self))
            self._scores[selector] = self._checked(get_selector(selector), values)
            if self.finished is not None:
                self.finished(selector, self._scores[selector])
        return self._scores[selector]

    def per_layer(self, score: Callable[[nn.Linear], Tensor]) -> Tensor:
        """Scores from the Linears alone: `score` gives [rows of the layer]. Returns [N] on the CPU."""
        with self.loaded.lock, torch.no_grad():
            parts = [score(self.linear(layer.index)).cpu() for layer in self.rows.layers]
        return torch.cat(parts)

    def linear(self, layer: int) -> nn.Linear:
        return cast(nn.Linear, self.loaded.model.get_submodule(self.rows.layers[layer].name))

    def activations(self) -> ActivationStatistics:
        """Sizes of inputs and outputs of every Linear: from one forward pass over the calibration text, or from the
        pass of plain gradients where the run's selectors said that they need both."""
        if self._activations is None and self._activations_too:
            along = next((one for one in self._asked if one not in self._means and needs_plain(one[0])), None)
            if along is not None:
                self._relevance_pass(*along)
        if self._activations is None:

            def work(ids: Tensor, ends: Sequence[int]) -> Tensor:
                return window_statistics(self.loaded, ids, self.skip_first, ends)

            self._activations = split_statistics(self.loaded, self._sum("activations", ("activations",), work))
        return self._activations

    def mean_abs_relevance(self, method: Method) -> Tensor:
        """E abs(R_i) over all predicted tokens of all windows, absolute value per token first. [N] float64. A window of
        T tokens counts T - 1 positions, without the first `skip_first`; a routed expert's rows those that it sees
        (none: 0)."""
        return self.mean_relevance(method, "abs")

    def mean_relevance(self, method: Method, statistic: Statistic) -> Tensor:
        """`abs`: E abs(R_i); `signed`: E R_i; `square`: E R_i^2; over the tokens of `mean_abs_relevance`. [N] float64.
        One pass gives this and all that the run's selectors ask of it; what none of them said (`asks` in
        `register_selector`) costs a pass of its own. `relp` is centred on E h_i over the same text."""
        if (method, statistic) not in self._means:
            self._relevance_pass(method, statistic)
        return self._means[method, statistic]

    def _relevance_pass(self, method: Method, statistic: Statistic) -> None:
        n_rows = self.rows.n_rows
        others = [one for one in self._asked if one not in self._means and METHODS[method] is METHODS[one[0]]]
        if self.text is not None:  # relp's pass belongs to one size, the others' to all
            others = [one for one in others if (method == "relp") == (one[0] == "relp")]
        asked: tuple[Asked, ...] = tuple(sorted({(method, statistic), *others}))
        centred = any(of == "relp" for of, _ in asked)
        centre = self.activations().output_mean.split([layer.rows for layer in self.rows.layers]) if centred else None

        too = self._activations_too and self._activations is None and needs_plain(method)

        def work(ids: Tensor, ends: Sequence[int]) -> Tensor:
            return relevance_sums(self.loaded, ids, asked, self.objective, centre, self.skip_first, ends, too)

        stage = ", ".join(dict.fromkeys(of for of, _ in asked))
        of_stage = self._sum(stage, (*asked, ACTIVATIONS) if too else asked, work, of_this_text=centred)
        sizes = [*[n_rows] * len(asked), len(self.rows.layers)]
        *sums, counts, beside = of_stage.split([*sizes, len(of_stage) - sum(sizes)])
        if too:
            self._activations = split_statistics(self.loaded, beside)
        count = counted(counts, [layer.rows for layer in self.rows.layers])
        self._means |= {one: total / count for one, total in zip(asked, sums, strict=True)}

    def _sum(self, stage: str, what: tuple[object, ...], work: Work, *, of_this_text: bool = False) -> Tensor:
        """Sum of `work` over the run's windows, batch by batch. what: the same for equal work; stage: what people are
        shown. of_this_text: the work depends on the windows as a whole, so that runs over fewer do not share it."""
        text, size = self.text, len(self.input_ids)
        if text is None or of_this_text:
            text = _Text(self.input_ids, (size,), size, self._passes)
        if what not in text.passes:
            text.passes[what] = {}, self._running_sums(stage, work, text, None if of_this_text else what)
        sums, to_come = text.passes[what]
        while size not in sums:
            done, total = next(to_come)
            if done in text.sizes:
                sums[done] = total
        return sums[size]

    def _running_sums(
        self, stage: str, work: Work, text: _Text, kept_as: tuple[object, ...] | None
    ) -> Iterator[tuple[int, Tensor]]:
        """At every size and after every batch of a text: windows so far, sum of `work` over them.

        A size inside a batch moves no batch, so that the sum over all windows has the bits that it has alone. kept_as:
        what is summed, so that batches of other texts share it; None where the work is this text's alone."""
        ids, wanted = text.input_ids, text.wanted
        count, tokens = ids.shape
        size = windows_per_pass(self.batch_size, self.loaded.model, self.rows, tokens)

        def ends_in(part: slice) -> list[int]:
            inside = (end - part.start for end in text.sizes if part.start < end < part.stop)
            return [*inside, part.stop - part.start]

        def batch(part: slice) -> Tensor:
            ends = ends_in(part)
            if self.kept is None or kept_as is None:
                return work(ids[part], ends)
            what = (*kept_as, self.objective, self.skip_first)
            return self.kept.of(self.loaded, what, ids[part], ends, lambda: work(ids[part], ends))

        self._report(stage, 0, wanted)
        total = torch.zeros(())
        first = self.windows.sample_ids[0] if self.windows is not None else 0
        for part, sums in in_batches(batch, count, size, first):
            so_far = sums if part.start == 0 else total + sums
            total = so_far[-1]
            self._report(stage, min(part.stop, wanted), wanted)
            yield from zip((part.start + end for end in ends_in(part)), so_far, strict=True)

    def _report(self, stage: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(stage, done, total)

    def _checked(self, info: SelectorInfo, given: Tensor) -> Tensor:
        values = given.detach().float().cpu()
        expected = [len(self.seeds), self.rows.n_rows] if info.seeded else [self.rows.n_rows]
        if list(values.shape) != expected:
            raise InputError(f"selector {info.id!r} gave scores of shape {list(values.shape)}; expected {expected}")
        check_finite(info.id, values, self.rows, self.loaded.dtype)
        return values


def nested_scores(
    loaded: LoadedModel, selectors: Sequence[str], windows: Windows, sizes: Sequence[int], *,
    seeds: Sequence[int] = SEEDS, objective: str = OBJECTIVES[0], batch_size: BatchSize = "auto",
    progress: Progress | None = None, known: Mapping[int, Mapping[str, Tensor]] | None = None,
    finished: FinishedAtSize | None = None, skip_first: int = 0, kept: KeptSums | None = None,
) -> dict[int, dict[str, Tensor]]:  # fmt: skip
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
    how: dict[str, Any] = {"objective": objective, "batch_size": batch_size, "progress": progress, "asked": asked}
    how |= {"seeds": seeds, "skip_first": skip_first, "kept": kept, "text": text}

    def run_of(size: int) -> ScoringRun:
        on_finished = partial(finished, size) if finished else None
        return ScoringRun(loaded, windows.first(size), known=there.get(size), finished=on_finished, **how)

    runs = {size: run_of(size) for size in ordered}
    # Largest first: its passes leave the sums that the smaller sizes read.
    for selector in selectors:
        for size in reversed(ordered):
            runs[size].scores(selector)
    return {size: {selector: runs[size].scores(selector) for selector in selectors} for size in ordered}
