"""What a planned run will take, before any weight is fetched: passes, tokens, FLOPs, memory, and time on this device,
counted on the model's shapes (`engine.models.dry_passes`) with the functions and batch sizes that the run itself
uses. And whether a model fits on a device with that."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from engine.data.corpora import CALIBRATION, Windows
from engine.data.pairs import read_pairs
from engine.data.window_starts import before_each
from engine.interventions.compaction import compacts
from engine.measures.base import MEASURES, Derived, Given, Passes, Stored, TokenMeasure
from engine.measures.generation import REPLIES, given_cache, kept_cache
from engine.measures.nll import Nll
from engine.measures.predictions import predictions, sequences_that_fit, values_of
from engine.measures.replies import Replies
from engine.models.dry_passes import DryModel, PassCost, dry
from engine.models.links import gated_mlps
from engine.models.loading import DTYPES, LoadedModel, load_sketch
from engine.models.memory import free_host_bytes, has_own_memory, room_on
from engine.records.errors import InputError
from engine.run.audit_plan import AuditPlan, default_preset, preset
from engine.run.edited_passes import sequences_per_edit
from engine.run.refusal_plan import RefusalPlan, default_plan
from engine.run.scoring import impossible
from engine.selectors.base import ACTIVATIONS, asked_by, get_selector, with_needs
from engine.selectors.gradients import IG_STEPS, Inputs, Pass, Wanted, lrp, path
from engine.selectors.passes import objective_gradient, windows_in_budget
from engine.selectors.window_sums import needs_plain, window_statistics

SCORE, SWEEP = "score", "sweep"
STAGES = (SCORE, SWEEP, REPLIES)
_PROBE_S = 0.3  # of matrix products, for their speed


@dataclass(frozen=True)
class Work:
    """One kind of pass of a planned run.

    passes: batches through the model, each time that one goes forward. tokens: positions that go forward, all passes.
    flops: two per multiply and add of a matrix product, the backward passes' too. batch: sequences in a pass.
    peak_bytes: beyond the weights. kept_bytes: of rows that an edit removes, which are put back later."""

    stage: str
    what: str
    passes: int
    tokens: int
    flops: int
    batch: int
    peak_bytes: int
    kept_bytes: int = 0


@dataclass(frozen=True)
class Estimate:
    """Of a run on one device. dtype, device: as in `LoadedModel`."""

    model: str
    dtype: str
    device: str
    weight_bytes: int
    work: tuple[Work, ...]

    @property
    def peak_bytes(self) -> int:
        """Most on the device at once, the weights included; beside them the rows that an edit removes, but for a card,
        where these go to the host if there is little room."""
        return self.weight_bytes + (self._beside(self.most_costly) if self.work else 0)

    @property
    def most_costly(self) -> Work:
        """The work that needs most on the device."""
        return max(self.work, key=self._beside)

    @property
    def host_bytes(self) -> int:
        """Most that the host may have to keep of a card's removed rows."""
        return max((one.kept_bytes for one in self.work), default=0) if self._is_card else 0

    @property
    def flops(self) -> int:
        return sum(one.flops for one in self.work)

    @property
    def _is_card(self) -> bool:
        return has_own_memory(torch.device(self.device))

    def _beside(self, work: Work) -> int:
        return work.peak_bytes + (0 if self._is_card else work.kept_bytes)


def estimate(
    sketch: LoadedModel,
    plan: AuditPlan,
    refusal: RefusalPlan,
    stages: Sequence[str] = STAGES,
    *,
    batch: int | None = None,
    cells: Iterable[tuple[Stored[Any], int]] | None = None,
) -> Estimate:
    """The work of these stages: scores of the plan's selectors, every cell of its sweep, the replies under one edit.

    sketch: the model without its weights (`load_sketch`), which is used up. batch: sequences per pass, None for what
    the run would choose. cells: measures, each with how many edits it is taken under, in the place of the sweep's; one
    that does not say its cost (`Stored.passes`) is named and not counted. What the store knows already is not left out,
    and what is skipped of dead neurons is not subtracted from FLOPs. Errors: InputError where the model cannot be
    traced by its shapes."""
    tracer = _Tracer(sketch, plan, refusal, batch)
    swept = tracer.sweep if cells is None else lambda: tracer.measured(cells)
    makers = {SCORE: tracer.scores, SWEEP: swept, REPLIES: tracer.replies}
    try:
        with dry(sketch.model, DTYPES[sketch.dtype]) as model:
            tracer.dry = model
            work = tuple(one for stage in STAGES if stage in stages for one in makers[stage]())
            weight_bytes = model.weight_bytes
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise InputError(
            f"{sketch.id} ({sketch.architecture}) cannot be estimated from its shapes "
            f"({type(error).__name__}: {reason}); measure a short run instead: --samples 8 --eval-samples 8"
        ) from None
    return Estimate(sketch.id, sketch.dtype, sketch.device, weight_bytes, work)


class _Tracer:
    """The work of one model, once `dry` is set."""

    dry: DryModel

    def __init__(self, sketch: LoadedModel, plan: AuditPlan, refusal: RefusalPlan, batch: int | None) -> None:
        self.sketch, self.rows, self.plan, self.refusal, self.batch = sketch, sketch.rows, plan, refusal, batch
        self.kind = "cuda" if sketch.device.startswith("cuda") else "cpu"
        self.before = before_each(sketch.tokenizer, plan.scoring.window_start)  # tokens before each window
        self.vocabulary = int(sketch.model.get_input_embeddings().weight.shape[0])
        linears = [sketch.model.get_submodule(layer.name) for layer in self.rows.layers]
        itemsize = DTYPES[sketch.dtype].itemsize
        self.row_bytes = itemsize * sum(p.numel() for linear in linears for p in linear.parameters())
        # Of which a cell makes smaller copies where a mask leaves less of them.
        copied = [linear for mlp in gated_mlps(sketch.model) for linear in mlp] if compacts(sketch) else []
        self.copied_bytes = itemsize * sum(p.numel() for linear in copied for p in linear.parameters())

    def scores(self) -> Iterator[Work]:
        scoring = self.plan.scoring
        count, tokens = scoring.samples, scoring.length + len(self.before)
        chosen = scoring.batch_size or windows_in_budget(self.kind, self.rows.n_rows, self.vocabulary, tokens)
        size = min(count, self.batch or chosen)
        ids = torch.zeros(size, tokens, dtype=torch.int64)
        passes = math.ceil(count / size)

        def work(what: str, times: int, cost: PassCost, flops: int, more_bytes: int = 0) -> Work:
            total = flops * count // size
            return Work(SCORE, what, passes * times, count * tokens * times, total, size, cost.peak_bytes + more_bytes)

        methods = {method for method, _ in asked_by(with_needs(scoring.selectors), ())}
        plain = any(needs_plain(method) for method in methods)
        # On the CPU plain gradients' pass gives the activations too (`ScoringRun.activations`).
        if ACTIVATIONS[0] in methods and not (plain and self.sketch.device.partition(":")[0] == "cpu"):
            loaded, rows = replace(self.sketch, model=self.dry.model), self.rows
            cost = self.dry.cost(lambda: window_statistics(replace(loaded, rows=self.dry.passed(rows)), ids))
            yield work("activations", 1, cost, cost.flops)
        walked = methods & {"ig", "ig_conductance"}
        if walked:
            cost = self.dry.cost(lambda: self._backward(path, ids))
            kept = self._path_bytes(size, tokens, ig="ig" in walked, conductance="ig_conductance" in walked)
            found = work("integrated gradients", IG_STEPS, cost, IG_STEPS * cost.flops, kept)
            with torch.no_grad():  # h(0) of one window, for every batch
                start = self.dry.cost(lambda: self.dry.model(input_ids=ids[:1], use_cache=False))
            yield replace(
                found, passes=found.passes + passes, tokens=found.tokens + passes * tokens,
                flops=found.flops + passes * start.flops,
            )  # fmt: skip
        elif methods & {"grad_x_input", "gradient"}:
            cost = self.dry.cost(lambda: self._backward(path, ids))
            yield work("plain gradients", 1, cost, cost.flops)
        if methods & {"lrp", "relp"}:
            cost = self.dry.cost(lambda: self._backward(lrp, ids))
            yield work("lrp", 1, cost, cost.flops)

    def _path_bytes(self, size: int, tokens: int, *, ig: bool, conductance: bool) -> int:
        """What ig's path keeps beside a plain pass: see `engine.selectors.gradients`, and h(0) of one window."""
        outputs = tokens * self.rows.n_rows
        kept = 4 * outputs * size if ig else 0
        kept += (4 + DTYPES[self.sketch.dtype].itemsize) * outputs * size if conductance else 0
        return kept + 4 * outputs

    def _backward(self, one_pass: Pass, ids: Tensor) -> None:
        sums: dict[tuple[str, int], Tensor] = {}

        def reduce(method: Any, layer: int, values: Tensor) -> None:
            sums[method, layer] = values.abs().sum((0, 1))

        model, rows = self.dry.model, self.dry.passed(self.rows)
        wanted = Wanted(["lrp" if one_pass is lrp else "grad_x_input"], reduce)
        with torch.enable_grad():
            one_pass(model, rows, Inputs(model, ids, None), lambda it: objective_gradient(it, ids, "loss"), wanted)

    def sweep(self) -> Iterator[Work]:
        plan, asked = self.plan, self.plan.replies
        ids = torch.zeros(plan.eval_samples, plan.eval_length, dtype=torch.int64)
        text = Windows("", "", ids, tuple(range(len(ids))), prefix=self.before)
        given = Given(text, plan.scoring.batch_size, asked.replies_prompts, asked.replies_tokens)
        found: dict[str, tuple[Stored[Any], list[str]]] = {}
        for name in plan.measures:
            measure = MEASURES.get(name).make(given)
            base = measure.base if isinstance(measure, Derived) else measure
            found.setdefault(base.kind, (base, []))[1].append(name)
        more = [plan.rates_under_more] * len(plan.more_interventions or ())  # of their NLL
        if more:
            found.setdefault(Nll.kind, (Nll(text, plan.scoring.batch_size), []))
        for kind, (measure, names) in found.items():
            own = more if kind == Nll.kind else []
            cells = self._cells([*([plan.sweep_rates] if names else []), *own])
            yield from self._under(SWEEP, "" if kind == Nll.kind else f" of {', '.join(names)}", measure, cells)

    def measured(self, cells: Iterable[tuple[Stored[Any], int]]) -> Iterator[Work]:
        """The work of measures, each under so many edits."""
        for measure, edits in cells:
            yield from self._under(SWEEP, f" of {measure.kind}", measure, edits)

    def replies(self) -> Iterator[Work]:
        plan = self.refusal
        if not self.sketch.tokenizer.chat_template:
            return  # a model that answers no prompts
        pairs = read_pairs(plan.pairs, CALIBRATION, plan.domains, plan.calibration_pairs)
        texts = tuple(text for some in pairs.values() for pair in some for text in (pair.risk, pair.base))
        measure = Replies(texts, plan.reply_tokens, plan.batch_size, plan.system, thinking=plan.thinking)
        for work in self._under(REPLIES, "", measure, 1):
            yield replace(work, what=f"replies to {len(texts):,} prompts, one edit")

    def _cells(self, sweeps: Sequence[Sequence[float]]) -> int:
        """How many cells curves over these rates have, one under each intervention."""
        plan = self.plan
        rankings = sum(len(plan.scoring.seeds) if get_selector(name).seeded else 1 for name in plan.scoring.selectors)
        # The model without an edit is one cell, and under each intervention so is the one without any row.
        lines = rankings * len(plan.orders)
        inner = (lines * sum(0 < rate < 1 for rate in rates) + (1 in rates) for rates in sweeps)
        return int(any(0 in rates for rates in sweeps)) + sum(inner)

    def _under(self, stage: str, what: str, measure: Stored[Any], edits: int) -> Iterator[Work]:
        """The work of a measure under so many edits."""
        loaded = replace(self.sketch, model=self.dry.model)
        share, passes, tokens, flops, peak, batches = sequences_per_edit(loaded, measure), 0, 0, 0, 0, []
        for one in measure.passes(loaded):
            size, costs = self._traced(measure, one)
            passes += math.ceil(edits * share * math.ceil(one.sequences / size)) * (1 + one.steps)
            tokens += math.ceil(edits * share * one.sequences) * (one.length + one.steps)
            flops += math.ceil(edits * share * one.sequences * costs.flops / size)
            peak = max(peak, costs.peak_bytes)
            batches.append(size)
        what += "" if batches else ", whose cost is not told"
        kept, copies = self._moved() if measure.kind == Nll.kind else (0, 0)
        size = next(iter(batches), 0)
        yield Work(stage, f"{edits:,} cells{what}", passes, tokens, flops, size, peak + copies, kept)

    def _traced(self, measure: Stored[Any], one: Passes) -> tuple[int, PassCost]:
        """Sequences in a pass, and what it costs, with the steps behind it."""
        model = self.dry.model
        limit = self.batch or one.at_once or sequences_that_fit(model, self.rows, self.kind, one.length)
        size = min(limit, one.at_once or one.sequences)

        def passed(length: int, **more: Any) -> Any:
            ids = torch.zeros(size, length, dtype=torch.int64)
            return model(input_ids=ids, logits_to_keep=one.logits, **more)

        def valued() -> None:
            assert isinstance(measure, TokenMeasure)
            ids, beside = torch.zeros(size, one.length, dtype=torch.int64), None  # type: Tensor, Iterable[Any] | None
            if measure.beside_unedited:
                unedited = predictions(model, {"input_ids": ids}, self.kind, check=False)
                beside = map(measure.of_unedited, unedited.chunks())
                # As long as the edits' passes, or piece by piece.
                beside = list(beside) if unedited.logits_of is None else beside
            predicted = predictions(model, {"input_ids": ids}, self.kind, check=False)
            values_of(_Repeated(measure, predicted.values.shape[:2].numel()), predicted, ids, beside)  # type: ignore[arg-type]

        with torch.no_grad():
            if isinstance(measure, TokenMeasure):
                cost = self.dry.cost(valued)
                return size, cost._replace(flops=cost.flops // (1 + measure.beside_unedited))
            first = self.dry.cost(lambda: passed(one.length, use_cache=bool(one.steps)))
            if not one.steps:
                return size, first
            caches: list[Any] = []
            grown, step = self.dry.costs(
                lambda: caches.append(kept_cache(passed(one.length + one.steps, use_cache=True))),
                lambda: passed(1, use_cache=True, **given_cache(model, caches.pop())),
            )
        peak = max(first.peak_bytes, grown.left_bytes + step.peak_bytes)
        return size, PassCost(peak, 0, first.flops + one.steps * step.flops)

    def _moved(self) -> tuple[int, int]:
        """Of masks in the weights at the sweep's rates, at most: bytes of rows that are put back later, on the CPU with
        the smaller copies of Linears; and of these copies on a card, where they lie beside the weights."""
        rates = [rate for rate in self.plan.sweep_rates if rate > 0]
        if self.kind == "cpu":
            return max([round(rate * self.row_bytes + (1 - rate) * self.copied_bytes) for rate in rates], default=0), 0
        return round(max(rates, default=0.0) * self.row_bytes), round((1 - min(rates, default=1.0)) * self.copied_bytes)


class _Repeated:
    """A token measure whose pieces of one size are traced twice and at the end: those between take no more memory, and
    matrix products, which no measure of ours has there, are not counted."""

    def __init__(self, measure: TokenMeasure[Any], positions: int) -> None:
        self.windows, self._measure, self._left = measure.windows, measure, positions
        self._traced: dict[int, list[torch.Size]] = {}

    def of_tokens(self, logits: Tensor, tokens: Tensor, unedited: Any) -> Tensor:
        self._left -= len(tokens)
        traced = self._traced.setdefault(len(tokens), [])
        if len(traced) > 1 and self._left:
            return torch.empty(traced[0], device=logits.device)
        out = self._measure.of_tokens(logits, tokens, unedited)
        traced.append(out.shape)
        return out


def flops_per_second(sketch: LoadedModel) -> float:
    """How fast this device multiplies matrices of the model's most costly shape, in its dtype, measured now.
    Norms, attention and copies come on top, so that a time made from it is a lower bound."""
    shapes: Counter[tuple[int, int]] = Counter()
    for layer in sketch.rows.layers:
        linear = sketch.model.get_submodule(layer.name)
        assert isinstance(linear, nn.Linear)
        shapes[linear.in_features, linear.out_features] += linear.in_features * linear.out_features
    [((wide, out), _)] = shapes.most_common(1)
    device, dtype = torch.device(sketch.device), DTYPES[sketch.dtype]
    weight = torch.ones(out, wide, dtype=dtype, device=device)
    given = torch.ones(512, wide, dtype=dtype, device=device)
    products, start = 0, 0.0
    with torch.no_grad():
        nn.functional.linear(given, weight)  # the first one sets up its library
        _wait(device)
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < _PROBE_S:
            nn.functional.linear(given, weight)
            _wait(device)
            products += 1
    return 2.0 * products * len(given) * wide * out / elapsed


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


GIB = 2**30
SLACK = 1.05  # an allocator hands out whole blocks; a choice


class Fits(NamedTuple):
    """note: only with fewer sequences at a time, to which batches come down by themselves."""

    state: Literal["ok", "note", "problem"]
    found: str
    next_step: str | None


def fits(model_id: str, sketch: LoadedModel) -> Fits:
    """The weights and the most costly pass of the model's default plans against the memory that is free now. sketch: of
    that model (`load_sketch`), which is used up."""
    plan, refusal = preset(default_preset(model_id)), default_plan(model_id)
    left_out = impossible(sketch, plan.scoring.selectors)
    rest = tuple(name for name in plan.scoring.selectors if name not in left_out)
    plan = replace(plan, scoring=replace(plan.scoring, selectors=rest))
    device = torch.device(sketch.device)
    free = room_on(device).free
    weight_bytes = DTYPES[sketch.dtype].itemsize * sum(parameter.numel() for parameter in sketch.model.parameters())
    try:
        whole = estimate(sketch, plan, refusal)
    except InputError as error:
        memory = f"{weight_bytes / GIB:.2f} GiB of weights in {sketch.dtype}, {free / GIB:.1f} GiB free on {device}"
        return Fits("note" if weight_bytes <= free else "problem", f"{memory}; {error}", None)
    if fits_in(whole.peak_bytes, free):
        return Fits("ok", f"{told(whole)}, {free / GIB:.1f} GiB free on {device}{_rows(whole, free)}", None)
    again = load_sketch(model_id, revision=sketch.revision, device=sketch.device, dtype=sketch.dtype)
    single = estimate(again, plan, refusal, STAGES, batch=1)
    memory = f"{told(whole)}, {free / GIB:.1f} GiB free on {device}"
    if fits_in(single.peak_bytes, free):
        less = f"with one sequence at a time {single.peak_bytes / GIB:.2f} GiB in all{_rows(single, free)}"
        return Fits(
            "note", f"{memory}; {less}", "batches come down to what fits by themselves; fewer at a time are slower"
        )
    smaller = "" if whole.dtype != "float32" else "--dtype bfloat16, "
    return Fits("problem", memory, f"use {smaller}a larger device, or --device-map auto over several")


def fits_in(needed_bytes: int, free_bytes: int) -> bool:
    return needed_bytes * SLACK <= free_bytes


def told(found: Estimate) -> str:
    """Weights and the most costly pass, in words."""
    most = found.most_costly
    return (
        f"{found.weight_bytes / GIB:.2f} GiB of weights in {found.dtype}, {found.peak_bytes / GIB:.2f} GiB with the "
        f"most costly pass ({most.stage}: {most.what}, {most.batch} at a time)"
    )


def _rows(found: Estimate, free: int) -> str:
    """Where a card's removed rows go if they do not fit beside the rest."""
    if not found.host_bytes or fits_in(found.peak_bytes + found.host_bytes, free):
        return ""
    room = free_host_bytes()
    short = "" if found.host_bytes <= room else f", which has {room / GIB:.1f} GiB: lower rates need less"
    return f"; up to {found.host_bytes / GIB:.2f} GiB of removed rows go to the host{short}"
