"""Does an edit hold on prompts that it was not made from, and what does it cost? Before and after, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from engine.evaluation.utility import UtilityTask, difference, masked_utility
from engine.masks import Mask
from engine.refusal.operating_point import OperatingPoint
from engine.refusal.points import Points, masks
from engine.refusal.prompt_sets import BENIGN, MALIGN, PromptSet
from engine.refusal.run import UNEDITED, Rate, RefusalRun

_EDIT = {
    "model": pl.String,
    "selector": pl.String,
    "domain": pl.String,
    "lambda": pl.Float64,
    "k": pl.Float64,
}
TRANSFER = {
    **_EDIT,
    "prompts": pl.String,
    "kind": pl.String,
    "n": pl.Int64,
    "before": pl.Float64,
    "before_low": pl.Float64,
    "before_high": pl.Float64,
    "after": pl.Float64,
    "after_low": pl.Float64,
    "after_high": pl.Float64,
}
UTILITY = {
    **_EDIT,
    "task": pl.String,
    "metric": pl.String,
    "items": pl.Int64,
    "before": pl.Float64,
    "after": pl.Float64,
    "difference": pl.Float64,
    "stderr": pl.Float64,
}
REPLIES = {
    **_EDIT,
    "prompts": pl.String,
    "kind": pl.String,
    "prompt": pl.String,
    "reply": pl.String,
    "refused": pl.Boolean,
    "judge": pl.String,
}
NONE = "none"  # the selector of the unedited model's replies


def pair_sets(run: RefusalRun, domain: str) -> list[PromptSet]:
    """The run's held-out pairs of a domain as two sets, `heldout` (or `calibration` where there are no others)."""
    pairs = run.heldout[domain]
    name = "heldout" if run.measures_heldout else "calibration"
    return [
        PromptSet(name, MALIGN, tuple(pair.risk for pair in pairs), run.plan.pairs),
        PromptSet(name, BENIGN, tuple(pair.base for pair in pairs), run.plan.pairs),
    ]


def transfer_table(run: RefusalRun, points: Points, sets: Sequence[PromptSet] = ()) -> pl.DataFrame:
    """`transfer`: share of refused prompts before and after every edit, with Wilson's 95% intervals.

    On the held-out pairs of the edit's own domain and on every further set. kind malign: refusing is right; benign:
    refusing is over-refusal. The paper, section 5 and appendix E.
    """
    rows: list[tuple[object, ...]] = []
    for place, mask, own in _edits(run, points, "transfer"):
        for one in (*own, *sets):
            before, after = (_rate(run, removed, one, own) for removed in (UNEDITED, mask))
            rates = (before.mean, *before.interval, after.mean, *after.interval)
            rows.append((*place, one.name, one.kind, before.n, *rates))
    return pl.DataFrame(rows, schema=TRANSFER, orient="row")


def utility_table(
    run: RefusalRun, points: Points, tasks: Sequence[UtilityTask], limit: int | None
) -> pl.DataFrame:
    """`utility`: mean of each task's metric before and after every edit, their difference and its paired stderr."""
    rows: list[tuple[object, ...]] = []
    for place, mask, _ in _edits(run, points, "utility"):
        for task in tasks:
            before, after = (
                masked_utility(run.loaded, task, removed, limit, store=run.store)
                for removed in (UNEDITED, mask)
            )
            means = (sum(before) / len(before), sum(after) / len(after))
            rows.append((*place, task.name, task.metric, len(before), *means, *difference(after, before)))
    return pl.DataFrame(rows, schema=UTILITY, orient="row")


def replies_table(run: RefusalRun, points: Points, sets: Sequence[PromptSet] = ()) -> pl.DataFrame:
    """`refusal_replies`: every prompt of `transfer` with the reply and its verdict, to be read and judged again.

    The unedited model's replies stand once, with selector `none`; those to a further set have domain `none` too.
    """
    rows: list[tuple[object, ...]] = []
    judge = f"{run.judge.id} {run.judge.version}"

    def add(place: tuple[object, ...], mask: Mask, one: PromptSet, own: Sequence[PromptSet]) -> None:
        replies, refused = _replies(run, mask, one, own)
        for prompt, reply, verdict in zip(one.prompts, replies, refused, strict=True):
            rows.append((*place, one.name, one.kind, prompt, reply, verdict, judge))

    seen: set[tuple[str, str, str]] = set()
    for place, mask, own in _edits(run, points, None):
        for one in (*own, *sets):
            domain = str(place[2]) if one in own else NONE
            if (domain, one.name, one.kind) not in seen:
                seen.add((domain, one.name, one.kind))
                add((run.loaded.id, NONE, domain, None, None), UNEDITED, one, own)
            add(place, mask, one, own)
    return pl.DataFrame(rows, schema=REPLIES, orient="row")


def _edits(
    run: RefusalRun, points: Points, stage: str | None
) -> Iterator[tuple[tuple[object, ...], Mask, list[PromptSet]]]:
    """(model, selector, domain, lambda, k), the mask and the sets of its own pairs, for every operating point."""
    found: list[tuple[OperatingPoint, Mask]] = [
        (point, mask) for _, point, mask in masks(run.contrasts, points) if point is not None
    ]
    for done, (point, mask) in enumerate(found):
        if stage:
            run.report(stage, done, len(found))
        place = (run.loaded.id, point.selector, point.domain, point.lam, point.k)
        yield place, mask, pair_sets(run, point.domain)
    if stage:
        run.report(stage, len(found), len(found))


def _rate(run: RefusalRun, mask: Mask, one: PromptSet, own: Sequence[PromptSet]) -> Rate:
    return Rate(_replies(run, mask, one, own)[1])


def _replies(
    run: RefusalRun, mask: Mask, one: PromptSet, own: Sequence[PromptSet]
) -> tuple[list[str], tuple[bool, ...]]:
    """Replies and verdicts. The two sides of a pair are generated together, so that `RefusalRun.rates` shares them."""
    prompts = [prompt for each in own for prompt in each.prompts] if one in own else list(one.prompts)
    replies, refused = run.replies(mask, prompts), run.refused(mask, prompts)
    if one not in own:
        return replies, refused
    start = 0 if one == own[0] else len(own[0].prompts)
    part = slice(start, start + len(one.prompts))
    return replies[part], refused[part]
