"""Mistakes that configuration, tokenizer and texts tell: to be found before any weight is fetched, not after."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.plan_text import calibration_text
from engine.run.score_plan import ScorePlan
from engine.selectors import get_selector, with_needs
from engine.selectors.run import check_model

LeftOut = dict[str, str]  # selector -> why this model has no scores of it


def fitting(sketch: LoadedModel, plan: ScorePlan, *, named: bool) -> tuple[ScorePlan, LeftOut]:
    """The plan with the selectors that can score this model, and why the others cannot; its text is read as well.

    sketch: the model without its weights (`load_sketch`). named: the selectors were asked for by name, so that one that
    cannot is an error; those of a default are left out and told.
    Errors: InputError for that, where no selector is left, and for a calibration text that cannot be read or is short.
    """
    left_out = impossible(sketch, plan.selectors)
    plan = replace(plan, selectors=remaining(plan.selectors, left_out, named=named))
    check_text(sketch, plan)
    return plan, left_out


def impossible(sketch: LoadedModel, selectors: Iterable[str]) -> LeftOut:
    """The selectors that cannot score such a model, themselves or by what they are made of, with the reason."""
    found: LeftOut = {}
    for selector in selectors:
        for name in with_needs([selector]):
            try:
                # A plug-in may look at more than shapes: it is asked again once there are weights.
                with suppress(NotImplementedError, RuntimeError):
                    check_model(sketch, name)
            except InputError as error:
                if get_selector(name).files:  # asked for by its file
                    raise
                found.setdefault(selector, str(error))
    return found


def remaining(selectors: Iterable[str], left_out: LeftOut, *, named: bool) -> tuple[str, ...]:
    """Those that are not left out. Errors: InputError where one was named that is, or none remains."""
    rest = tuple(name for name in selectors if name not in left_out)
    if left_out and (named or not rest):
        selector, reason = next(iter(left_out.items()))
        others = f"; give --selectors {','.join(rest)}" if rest else ""
        raise InputError(f"{selector} cannot be had of this model: {reason}{others}")
    return rest


def check_text(sketch: LoadedModel, plan: ScorePlan) -> None:
    """`InputError` where the calibration text cannot be read or is too short, if a selector of the plan reads it."""
    if not all(get_selector(name).data_free for name in with_needs(plan.selectors)):
        calibration_text(sketch, plan)
