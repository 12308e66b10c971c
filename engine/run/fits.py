"""Does a model fit on a device, with all that runs of it take there? Told before anything is downloaded."""

from dataclasses import replace
from typing import Literal, NamedTuple

import torch

from engine.models.loading import LoadedModel, load_sketch, planned_placement
from engine.models.memory import free_host_bytes, has_own_memory, room_on
from engine.records.errors import InputError
from engine.run.audit_plan import default_preset, preset
from engine.run.estimate import STAGES, Estimate, estimate
from engine.run.preflight import impossible
from engine.run.refusal_plan import default_plan

GIB = 2**30
SLACK = 1.05  # an allocator hands out whole blocks; a choice


class Fits(NamedTuple):
    """note: only with fewer sequences at a time, to which batches come down by themselves."""

    state: Literal["ok", "note", "problem"]
    found: str
    next_step: str | None


def fits(model_id: str, revision: str | None, device: str, dtype: str) -> Fits:
    """The weights and the most costly pass of the model's default plans against the memory that is free now.
    Errors: InputError where the model cannot be read."""

    def sketch() -> LoadedModel:
        return load_sketch(model_id, revision=revision, device=device, dtype=dtype)

    first = sketch()
    plan, refusal = preset(default_preset(model_id)), default_plan(model_id)
    left_out = impossible(first, plan.scoring.selectors)
    rest = tuple(name for name in plan.scoring.selectors if name not in left_out)
    plan = replace(plan, scoring=replace(plan.scoring, selectors=rest))
    place = torch.device(first.device)
    free = room_on(place).free
    try:
        whole = estimate(first, plan, refusal)
    except InputError as error:
        there = planned_placement(model_id, revision=revision, device=device, dtype=dtype)
        said = f"{there.weight_bytes / GIB:.2f} GiB of weights in {there.dtype}, {free / GIB:.1f} GiB free on {place}"
        return Fits("note" if there.weight_bytes <= free else "problem", f"{said}; {error}", None)
    if fits_in(whole.peak_bytes, free):
        return Fits("ok", f"{told(whole)}, {free / GIB:.1f} GiB free on {place}{_rows(whole, free)}", None)
    single = estimate(sketch(), plan, refusal, STAGES, batch=1)
    said = f"{told(whole)}, {free / GIB:.1f} GiB free on {place}"
    if fits_in(single.peak_bytes, free):
        less = f"with one sequence at a time {single.peak_bytes / GIB:.2f} GiB in all{_rows(single, free)}"
        return Fits(
            "note", f"{said}; {less}", "batches come down to what fits by themselves; fewer at a time are slower"
        )
    smaller = "" if whole.dtype != "float32" else "--dtype bfloat16, "
    return Fits("problem", said, f"use {smaller}a larger device, or --device-map auto over several")


def fits_in(needed_bytes: int, free_bytes: int) -> bool:
    return needed_bytes * SLACK <= free_bytes


def told(found: Estimate) -> str:
    """Weights and the most costly pass, in words."""
    weights = f"{found.weight_bytes / GIB:.2f} GiB of weights in {found.dtype}"
    if not found.work:
        return weights
    most = found.most_costly
    return (
        f"{weights}, {found.peak_bytes / GIB:.2f} GiB with the most costly pass ({most.stage}: {most.what}, "
        f"{most.batch} at a time)"
    )


def _rows(found: Estimate, free: int) -> str:
    """Where a card's removed rows go if they do not fit beside the rest."""
    device = torch.device(found.device)
    if not has_own_memory(device) or not found.host_bytes or fits_in(found.peak_bytes + found.host_bytes, free):
        return ""
    room = free_host_bytes()
    short = "" if found.host_bytes <= room else f", which has {room / GIB:.1f} GiB: lower rates need less"
    return f"; up to {found.host_bytes / GIB:.2f} GiB of removed rows go to the host{short}"
