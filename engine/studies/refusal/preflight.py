"""What of a refusal experiment can be known to be wrong before any weight is fetched."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from engine.data.corpora import Pair
from engine.data.onsets import onset_tokens
from engine.edits.edit import Edit
from engine.measures.generation import checked_prompt
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.preflight import LeftOut, check_text, impossible, remaining
from engine.run.refusal_plan import RefusalPlan
from engine.selectors import get_selector, protected_by
from engine.studies.refusal.algorithm import check_chat_template, check_sides
from engine.studies.refusal.effect import asked_pairs, shipped_prompts
from engine.studies.refusal.inputs import RefusalInputs, sides


def fitting(
    sketch: LoadedModel, plan: RefusalPlan, store: Store, *, named: bool, contrasts_only: bool = False
) -> tuple[RefusalPlan, LeftOut]:
    """The plan with the selectors that this model allows, and why not the others.

    sketch, named: as of `engine.run.preflight.fitting`. contrasts_only: no edit is measured, so that neither evaluation
    text nor held-out pairs are wanted.

    Errors: InputError for a model without chat template, pairs that cannot be read or have one prompt on both sides,
    onset phrases, system prompt and thinking mode that the tokenizer does not allow, prompts that leave no room for
    their reply, and texts that cannot be read or are short.
    """
    check_chat_template(sketch)
    left_out = impossible_contrasts(sketch, plan)
    plan = replace(plan, selectors=remaining(plan.selectors, left_out, named=named))
    run = RefusalInputs(sketch, plan, store, cast(Any, None))  # nothing is judged here
    for domain, pairs in run.calibration.items():
        check_sides(domain, [pair.risk for pair in pairs], [pair.base for pair in pairs])
    onset_tokens(sketch.tokenizer, plan.phrases)
    _check_prompts(run, run.calibration)
    scored = tuple(dict.fromkeys(protected_by(name) for name in plan.selectors if not get_selector(name).seeded))
    if scored:
        check_text(sketch, replace(plan.scoring, selectors=scored))
    if not contrasts_only:
        run.evaluation  # noqa: B018 - read here or nowhere
        with suppress(InputError):  # a domain without held-out pairs is an error only where they are measured
            _check_prompts(run, run.heldout)
    return plan, left_out


def impossible_contrasts(sketch: LoadedModel, plan: RefusalPlan) -> LeftOut:
    """The plan's selectors that cannot contrast prompts of such a model, or whose rows nothing can protect there."""
    found: LeftOut = {}
    for name in plan.selectors:
        for reason in impossible(sketch, (name, protected_by(name))).values():
            found.setdefault(name, reason)
    return found


def check_effect(sketch: LoadedModel, plan: RefusalPlan, edit: Edit, *, with_pairs: bool) -> None:
    """`InputError` where the prompts by which the edit's effect is measured cannot be read or asked."""
    for prompt in (prompt for pairs in shipped_prompts().values() for prompt in sides(pairs)):
        checked_prompt(sketch, prompt, 1)
    if with_pairs:
        _, asked, own = asked_pairs(plan, edit)
        for domain, pairs in asked.items():
            for prompt in sides(pairs) if domain in own else [pair.risk for pair in pairs]:
                checked_prompt(sketch, prompt, plan.reply_tokens)


def _check_prompts(run: RefusalInputs, domains: dict[str, list[Pair]]) -> None:
    plan = run.plan
    for pairs in domains.values():
        for prompt in sides(pairs):
            checked_prompt(run.loaded, prompt, plan.reply_tokens, plan.system, plan.thinking)
