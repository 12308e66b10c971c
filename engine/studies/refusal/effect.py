"""Measures what an edit does to refusal, before it is exported, chatted with or shown."""

from __future__ import annotations

from collections.abc import Callable

from engine.data.corpora import Pair
from engine.data.pairs import CALIBRATION, HELDOUT, has_split, pairs_record, read_pairs
from engine.data.prompts import template_variables
from engine.edits.edit import UNEDITED, Edit
from engine.edits.effect import Change, Effect
from engine.judges.refusals import Refused
from engine.records.errors import InputError, unknown
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Runner
from engine.studies.refusal.inputs import RefusalInputs, sides
from engine.studies.refusal.mask_outputs import SEVERAL

Reading = Callable[[Refused, Refused, slice], tuple[int, int]]  # of cut-off replies: refused before and after


def measured_effect(run: RefusalInputs, edit: Edit, runner: Runner) -> Effect:
    """Replies to held-out prompts before and after the edit; what the store knows is not generated again.

    Asked are the risk prompts of all domains that the plan's pairs have, and of a refusal edit's own domains the base
    prompts as well. Where there is no held-out split, the calibration pairs are asked. Never with a system prompt.
    Where `Effect.check` would pass or not as replies that were cut off are read, all is asked again with longer ones
    (`RefusalInputs.longer`), and that counts.
    """
    run = run.plain
    loaded, plan = run.loaded, run.plan
    if not loaded.tokenizer.chat_template:
        return Effect(
            loaded.weights_hash, edit.mask_hash, unasked="the model has no chat template, so it answers no prompts"
        )
    split, asked, own = asked_pairs(plan, edit)
    prompts = {name: sides(pairs) if name in own else sides(pairs)[: len(pairs)] for name, pairs in asked.items()}
    results = runner.run([run.refused(one, some) for some in prompts.values() for one in (UNEDITED, edit)])
    counted = run
    record = pairs_record(plan.pairs, [pair for pairs in asked.values() for pair in pairs])
    about = {
        "pairs": f"{record['pairs']} of {record['source']}, SHA-256 {record['sha256'][:12]}",
        "split": "held-out" if split == HELDOUT else "calibration",
        "judge": f"{run.judge.id} {run.judge.version}",
        "reply tokens": plan.reply_tokens,
        **template_variables(loaded.tokenizer),
        "dtype": loaded.dtype,
    }

    def effect(reading: Reading) -> Effect:
        malign, benign = {}, {}
        for domain, some in prompts.items():
            before, after = (results[counted.refused(one, some)] for one in (UNEDITED, edit))
            n = len(asked[domain])
            malign[domain] = Change(n, *reading(before, after, slice(n)))
            if domain in own:  # here it is the other way round: the edit may not refuse more
                benign[domain] = Change(n, *reading(after, before, slice(n, None))[::-1])
        return Effect(loaded.weights_hash, edit.mask_hash, malign, benign, plan.benign_limit, about)

    longer = run.longer([pair for pairs in asked.values() for pair in pairs])
    if longer is not None and _passes(effect(_best), edit) != _passes(effect(_worst), edit):
        runner.run([longer.refused(one, some) for some in prompts.values() for one in (UNEDITED, edit)])
        counted, about["reply tokens"] = longer, longer.plan.reply_tokens
    found = [results[counted.refused(one, some)] for some in prompts.values() for one in (UNEDITED, edit)]
    if unjudged := sum(one.unjudged for one in found):
        about["replies not judged, counted as not refused"] = unjudged
    return effect(_as_judged)


def asked_pairs(plan: RefusalPlan, edit: Edit) -> tuple[str, dict[str, list[Pair]], list[str]]:
    """By which pairs an edit's effect is measured: their split, the pairs by domain, and the edit's own domains.

    Errors: InputError where the pairs cannot be read or lack one of these.
    """
    heldout = has_split(plan.pairs, HELDOUT)
    split, most = (HELDOUT, plan.heldout_pairs) if heldout else (CALIBRATION, plan.calibration_pairs)
    asked = read_pairs(plan.pairs, split, per_domain=most)
    domain = str(edit.spec.get("domain", ""))
    own = ([domain] if domain in asked else domain.split(SEVERAL)) if edit.kind == "refusal" else []
    for domain in own:
        if domain not in asked:
            raise unknown(f"domain of the {split} pairs of {plan.pairs}", domain, asked)
    return split, asked, own


def _as_judged(before: Refused, after: Refused, part: slice) -> tuple[int, int]:
    return sum(before.refused[part]), sum(after.refused[part])


def _best(before: Refused, after: Refused, part: slice) -> tuple[int, int]:
    """Of the replies that were cut off none refuses before, and each after."""
    return _sure(before, part), _sure(after, part) + after.finished[part].count(False)


def _worst(before: Refused, after: Refused, part: slice) -> tuple[int, int]:
    return _best(after, before, part)[::-1]


def _sure(found: Refused, part: slice) -> int:
    return sum(one and end for one, end in zip(found.refused[part], found.finished[part], strict=True))


def _passes(effect: Effect, edit: Edit) -> bool:
    try:
        effect.check(edit, effect.weights_hash)
    except InputError:
        return False
    return True
