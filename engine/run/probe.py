"""How long the work of an estimate takes here: some passes of each kind on the model itself, timed and scaled."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engine.data.corpora import Windows
from engine.data.window_starts import before_each
from engine.edits.edit import UNEDITED, ZERO, Edit, rankings
from engine.interventions.at_outputs import applied
from engine.measures.nll import Nll, negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.models.products import faster_products
from engine.run.audit_plan import AuditPlan
from engine.run.estimate import SCORE, SWEEP, Estimate, Work
from engine.selectors import compute_scores, get_selector

BUDGET_S = 10.0
_RANDOM, _RANKED = "random", "wanda"  # the cheapest that reads text: others rank by what they see, as it does


@dataclass(frozen=True)
class Timed:
    """A stage of an estimate. seconds: that all of it is expected to take; None where even its least probe would take
    longer than its share of the time for probing. made_from: what was timed, in words."""

    stage: str
    seconds: float | None
    made_from: str
    took_s: float


@dataclass(frozen=True)
class CellTime:
    """Of one edit: seconds to install it and take it back, and seconds for each window under it."""

    install_s: float
    window_s: float

    def seconds(self, windows: int) -> float:
        return self.install_s + windows * self.window_s


@dataclass(frozen=True)
class SweepTimes:
    """unedited; random: rate -> masks of the random selector; ranked: (order, rate) -> those of another."""

    unedited: CellTime
    random: Mapping[float, CellTime]
    ranked: Mapping[tuple[str, float], CellTime]


def probe(
    loaded: LoadedModel, plan: AuditPlan, found: Estimate, speed: float, budget_s: float = BUDGET_S
) -> tuple[Timed, ...]:
    """Scores and cells of `found` timed on this model, about `budget_s` seconds in all; replies, texts and tables are
    not. Tokens are drawn at random. speed: FLOP/s, by which a stage that cannot be probed in its share of the time is
    told before it is tried."""
    stages = [stage for stage in (SCORE, SWEEP) if any(one.stage == stage and one.tokens for one in found.work)]
    timed: list[Timed] = []
    for number, stage in enumerate(stages):
        left = budget_s - sum(one.took_s for one in timed)
        share = left / (len(stages) - number)
        work = [one for one in found.work if one.stage == stage and one.tokens]
        one = _scores(loaded, plan, work, speed, share) if stage == SCORE else _cells(loaded, plan, work, speed, share)
        timed.append(one)
    return tuple(timed)


def _scores(loaded: LoadedModel, plan: AuditPlan, work: Sequence[Work], speed: float, share_s: float) -> Timed:
    """All selectors of the plan on as many windows as the share allows, up to a batch: what passes take grows with the
    windows, the rest does not."""
    scoring = plan.scoring
    count, length, batch = scoring.samples, scoring.length, work[0].batch
    bound = sum(one.flops for one in work) / speed / count
    if bound > share_s:
        return _too_long(SCORE, f"{_windows(1, length)} through every pass of the scores", bound, share_s)
    start = time.perf_counter()

    def on(windows: int) -> tuple[float, float]:
        """Seconds of all passes, and of the rest."""
        passes, begin = _PassTimes(), time.perf_counter()
        compute_scores(
            loaded, scoring.selectors, _random_text(loaded, plan, windows, length), seeds=scoring.seeds,
            objective=scoring.objective, batch_size=windows, progress=passes, skip_first=scoring.skip_first,
        )  # fmt: skip
        return passes.seconds, time.perf_counter() - begin - passes.seconds

    on(1)  # what a first pass sets up
    used, (passes, rest) = 1, on(1)
    took = time.perf_counter() - start
    more = min(batch, int((share_s - took) / (passes + rest)))
    if more > 1:
        used, (passes, rest) = more, on(more)
    seconds = rest + passes / used * count
    made_from = f"every selector on {_windows(used, length)} in one batch, of {count:,} in batches of {batch:,}"
    return Timed(SCORE, seconds, made_from, time.perf_counter() - start)


class _PassTimes:
    """Progress of a scoring run, which is told as a pass begins and after each of its batches."""

    def __init__(self) -> None:
        self.seconds = self._since = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if done:
            self.seconds += now - self._since
        self._since = now


def _cells(loaded: LoadedModel, plan: AuditPlan, work: Sequence[Work], speed: float, share_s: float) -> Timed:
    """The unedited model and masks of `random` and `wanda` at some rates, each on as many windows as the share
    allows, up to a batch. What is no NLL takes as long as the unedited model on text of as many FLOPs."""
    whole = next((one for one in work if one.measure == Nll.kind), work[0])
    others = [one for one in work if one.measure != Nll.kind]
    length, batch = plan.eval_length, whole.batch
    some = _random_text(loaded, plan, 1, length)
    window_flops = whole.flops / (whole.tokens / some.read_ids.numel())
    bound = window_flops / speed
    if bound > share_s:
        return _too_long(SWEEP, f"{_windows(1, length)} of the evaluation text", bound, share_s)
    start = time.perf_counter()
    _cell_time(loaded, UNEDITED, some)  # what a first pass sets up
    one = _cell_time(loaded, UNEDITED, some)
    rates: tuple[float, ...] = ()
    windows = 1
    if plan.intervention == ZERO and whole not in others:
        for rates in _choices(plan.sweep_rates):
            masks = 1 + len(rates) * (1 + len(plan.orders))
            left = share_s - (time.perf_counter() - start)
            windows = min(batch, int(left / (masks * max(one.seconds(1), 1e-9))))
            if windows:
                break
    windows = max(1, windows)
    text = _random_text(loaded, plan, windows, length)
    seed = plan.scoring.seeds[0]
    scores = compute_scores(loaded, [_RANDOM, _RANKED], some, seeds=(seed,)) if rates else {}
    random: dict[float, CellTime] = {}
    ranked: dict[tuple[str, float], CellTime] = {}
    for ranking in rankings({name: values.numpy() for name, values in scores.items()}, (seed,), ZERO):
        for rate in rates:
            for order in plan.orders if ranking.selector == _RANKED else plan.orders[:1]:
                found = _cell_time(loaded, ranking.edit(order, rate), text)
                if ranking.selector == _RANKED:
                    ranked[order, rate] = found
                else:
                    random[rate] = found
    times = SweepTimes(_cell_time(loaded, UNEDITED, text), random, ranked)
    masks = len(random) + len(ranked)
    said = f"the unedited model on {_windows(windows, length)}"
    if masks:
        at = ", ".join(f"{rate:g}" for rate in rates)
        said += f" and {masks} masks of {_RANDOM} and {_RANKED} (rates {at}); other masks kill other neurons"
    seconds = 0.0 if whole in others else sweep_seconds(plan, times)
    seconds += times.unedited.window_s * sum(one.flops for one in others) / window_flops
    return Timed(SWEEP, seconds, f"{said}, of {' and '.join(one.what for one in work)}", time.perf_counter() - start)


def sweep_seconds(plan: AuditPlan, times: SweepTimes) -> float:
    """Seconds of the plan's sweep: every cell by the times of masks like its own, between rates by a straight line from
    the unedited model's on. A selector that is not seeded counts as the ranked one; cells under another intervention
    than zero, in which no neuron is dead, as the unedited model."""
    windows, scoring = plan.eval_samples, plan.scoring
    seeded = sum(len(scoring.seeds) for name in scoring.selectors if get_selector(name).seeded)
    others = sum(not get_selector(name).seeded for name in scoring.selectors)
    dense = times.unedited.seconds(windows)
    random = _curve(dense, {rate: one.seconds(windows) for rate, one in times.random.items()})
    ranked = {
        order: _curve(dense, {rate: one.seconds(windows) for (of, rate), one in times.ranked.items() if of == order})
        for order in plan.orders
    }
    rates = plan.rates_under_more if plan.more_interventions else ()
    swept = plan.sweep_rates if Nll.kind in plan.measures else ()
    total = dense * (0 in swept or 0 in rates)
    total += float(np.interp(1.0, *random)) * (1 in swept)
    for order in plan.orders:
        for rate in (rate for rate in swept if 0 < rate < 1):
            total += seeded * float(np.interp(rate, *random)) + others * float(np.interp(rate, *ranked[order]))
    more = (seeded + others) * len(plan.orders) * sum(0 < rate < 1 for rate in rates) + (1 in rates)
    return total + dense * len(plan.more_interventions or ()) * more


def _curve(dense: float, seconds: Mapping[float, float]) -> tuple[list[float], list[float]]:
    points = {0.0: dense, **seconds}
    return list(points), [points[rate] for rate in points]


def _choices(rates: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Rates to probe: the least, a middle one and the most, else the middle one, else none."""
    inner = sorted(rate for rate in rates if 0 < rate < 1)
    if inner:
        middle = inner[len(inner) // 2]
        yield tuple(sorted({inner[0], middle, inner[-1]}))
        yield (middle,)
    yield ()


def _cell_time(loaded: LoadedModel, edit: Edit, text: Windows) -> CellTime:
    start = time.perf_counter()
    with applied(loaded, edit, skip_dead=True):
        inside = time.perf_counter()
        with faster_products():  # as a runner does
            negative_log_likelihood(loaded, text, len(text.input_ids))  # in one pass, on the CPU when it is back
        passed = time.perf_counter() - inside
    return CellTime(time.perf_counter() - start - passed, passed / len(text.input_ids))


def _random_text(loaded: LoadedModel, plan: AuditPlan, windows: int, length: int) -> Windows:
    vocabulary = int(loaded.model.get_input_embeddings().weight.shape[0])
    ids = torch.randint(vocabulary, (windows, length), generator=torch.Generator().manual_seed(0))
    prefix = before_each(loaded.tokenizer, plan.scoring.window_start)
    return Windows("probe", "", ids, tuple(range(windows)), prefix=prefix)


def _too_long(stage: str, what: str, bound_s: float, share_s: float) -> Timed:
    least = math.ceil(bound_s)
    return Timed(
        stage, None, f"{what} would take {least:,} s or more, longer than its {share_s:.3g} s of the probe", 0.0
    )


def _windows(count: int, length: int) -> str:
    return f"{count:,} window{'s' if count != 1 else ''} of {length:,} tokens"
