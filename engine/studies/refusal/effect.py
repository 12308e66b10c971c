"""Measures what an edit does to refusal and to text, before it is exported, chatted with or shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from engine.data.corpora import CALIBRATION, HELDOUT, Pair, windows
from engine.data.pairs import has_split, pairs_record, read_pairs
from engine.data.prompts import template_variables
from engine.edits.edit import UNEDITED, Edit
from engine.edits.edit_effect import READABLE, Change, Effect, check_not_lowered, total
from engine.judges.base import EMBEDDED, Judge, open_judges
from engine.judges.refusals import Refused
from engine.measures.generation import checked_prompt, context_tokens, room_for_replies
from engine.measures.nll import NegativeLogLikelihood, Nll
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel, load_model, load_tokenizer
from engine.records.errors import InputError, unknown
from engine.run.audit_plan import SHIPPED
from engine.run.refusal_plan import RefusalPlan, demo_plan
from engine.run.runner import Cell, Runner
from engine.studies.refusal.mask_outputs import SEVERAL
from engine.studies.refusal.refusal_inputs import RefusalInputs, sides

GENERAL = Path(__file__).parents[2] / "data" / "general_prompts.jsonl"
REPLY_TOKENS = 64  # to a shipped prompt at least: a refusal says so in its first sentences
LONGER = 5  # times as long where too few replies come out of their thinking part
SHIPPED_MODEL_PAIRS = 40  # of each domain, that the shipped model and what was made from it are asked about always
WINDOWS, WINDOW_TOKENS = 16, 256  # of the text that tells whether a model is broken


def shipped_prompts() -> dict[str, list[Pair]]:
    """Domain -> risk prompts of any model, written for this, each with a harmless neighbour of the same form."""
    return read_pairs(str(GENERAL), HELDOUT)


def text_effect(run: RefusalInputs, edit: Edit, runner: Runner) -> Effect:
    """NLL of the shipped text before and after the edit, and nothing else: enough to know whether it is broken."""
    loaded = run.loaded
    length = min(WINDOW_TOKENS, context_tokens(loaded) or WINDOW_TOKENS)
    text = Nll(windows(SHIPPED, loaded.tokenizer, role="evaluation", samples=WINDOWS, length=length))
    cells: list[Cell[NegativeLogLikelihood]] = [Cell(loaded, carried, text) for carried in (UNEDITED, edit)]
    results = runner.run(cells)
    before, after = (results[cell].nats_per_token for cell in cells)
    return Effect(loaded.weights_hash, edit.mask_hash, nats=(before, after))


def shipped_effect(run: RefusalInputs, edit: Edit, runner: Runner) -> Effect:
    """`text_effect` with the replies to the shipped risk prompts before and after the edit, read by the embedded judge
    whatever the plan's is, and those to the harmless neighbours in the edit's own domains.

    Replies have `REPLY_TOKENS` tokens or the plan's number if that is larger, as the context allows. Where fewer than
    `READABLE` could be read because replies are still thinking, all is asked again with longer ones."""
    run = replace(run.plain, judge=_embedded())
    asked = shipped_prompts()
    own = [name for name in asked if name in _own_domains(edit, asked)]
    wanted = max(REPLY_TOKENS, run.plan.reply_tokens)
    room = room_for_replies(run.loaded, [prompt for pairs in asked.values() for prompt in sides(pairs)])
    effect = text_effect(run, edit, runner)
    for tokens in (wanted, LONGER * wanted):
        used = replace(run, plan=replace(run.plan, reply_tokens=max(1, min(tokens, room or tokens))))
        answers = _Answers(used, edit, asked, [], runner, at_once=True)
        risk = answers.risk(_as_judged)
        if total(risk).n >= READABLE or not answers.still_thinking:
            break
    base = {name: [pair._replace(risk=pair.base) for pair in asked[name]] for name in own}
    neighbours = _Answers(used, edit, base, [], runner).risk(_as_judged)
    record = pairs_record(GENERAL.name, [pair for pairs in asked.values() for pair in pairs])
    about = {
        "shipped prompts": f"{record['pairs']} in English, SHA-256 {record['sha256'][:12]}",
        "judge of the shipped prompts": f"{run.judge.id} {run.judge.version}",
        "reply tokens of the shipped prompts": used.plan.reply_tokens,
        **template_variables(run.loaded.tokenizer),
        **({} if run.loaded.tokenizer.chat_template else {"chat template": "none: plain User: and Assistant: text"}),
        "dtype": run.loaded.dtype,
    }
    return replace(effect, shipped=risk, neighbours=neighbours, about=about)


def measured_effect(run: RefusalInputs, edit: Edit, runner: Runner, *, with_pairs: bool = True) -> Effect:
    """`shipped_effect`, and unless that fails already, replies to the plan's held-out pairs before and after the edit;
    what the store knows is not generated again.

    Asked are the risk prompts of all domains that the plan's pairs have, and of a refusal edit's own domains the base
    prompts as well. Where there is no held-out split, the calibration pairs are asked. Never with a system prompt.
    Where `Effect.check` would pass or not as replies that were cut off are read, all is asked again with longer ones
    (`RefusalInputs.longer`), and that counts. with_pairs: False where no pairs were given. `InputError` where the
    model is the shipped one or was made from it, and the edit lowers refusal of the pairs that it ships with."""
    run = run.plain
    plan = run.plan
    shipped = shipped_effect(run, edit, runner)
    if not _passes(shipped, replace(edit, kind="hand-made")):
        return shipped
    _check_shipped_model(run, edit, runner, with_pairs=with_pairs)
    if not with_pairs:
        return shipped
    split, asked, own = asked_pairs(plan, edit)
    record = pairs_record(plan.pairs, [pair for pairs in asked.values() for pair in pairs])
    about = {
        "pairs": f"{record['pairs']} of {record['source']}, SHA-256 {record['sha256'][:12]}",
        "split": "held-out" if split == HELDOUT else "calibration",
        "judge": f"{run.judge.id} {run.judge.version}",
        "reply tokens": plan.reply_tokens,
        **shipped.about,
    }
    answers = _Answers(run, edit, asked, own, runner)

    def effect(reading: _Reading) -> Effect:
        # Of base prompts it is the other way round: the edit may not refuse more.
        benign = answers.base(lambda before, after, some: reading(after, before, some)[::-1])
        return replace(
            shipped, malign=answers.risk(reading), benign=benign, benign_limit=plan.benign_limit, about=about
        )

    longer = run.longer([pair for pairs in asked.values() for pair in pairs])
    if longer is not None and _passes(effect(_best), edit) != _passes(effect(_worst), edit):
        answers, about["reply tokens"] = _Answers(longer, edit, asked, own, runner), longer.plan.reply_tokens
    if unread := sum(map(len, asked.values())) - total(answers.risk(_as_judged)).n:
        about["risk prompts with a reply that the judge could not read, counted on neither side"] = unread
    return effect(_as_judged)


def _check_shipped_model(run: RefusalInputs, edit: Edit, runner: Runner, *, with_pairs: bool) -> None:
    """`InputError` where the model is the shipped one or was made from it, and the edit lowers refusal of the pairs
    that it ships with, asked through the shipped chat template whatever pairs, options and folder were given."""
    loaded, plan = run.loaded, run.plan
    tokenizer = _shipped_tokenizer()
    if tokenizer is None or loaded.tokenizer.get_vocab() != tokenizer.get_vocab():
        return
    own_plan = replace(demo_plan(), heldout_pairs=SHIPPED_MODEL_PAIRS, batch_size=plan.batch_size)
    most = plan.heldout_pairs or SHIPPED_MODEL_PAIRS
    enough = most >= SHIPPED_MODEL_PAIRS and plan.reply_tokens >= own_plan.reply_tokens
    if loaded.id == SHIPPED and with_pairs and plan.pairs == SHIPPED and enough:
        return  # they are asked in any case
    shipped = find_checkpoint(SHIPPED)
    if loaded.weights_hash == shipped.weights_hash():
        loaded = load_model(SHIPPED, dtype=loaded.dtype, device=loaded.device)
    else:
        loaded = replace(loaded, tokenizer=tokenizer, tokenizer_hash=shipped.tokenizer_hash())
    answers = _Answers(
        replace(run, loaded=loaded, plan=own_plan, judge=_embedded()), edit,
        read_pairs(SHIPPED, HELDOUT, per_domain=SHIPPED_MODEL_PAIRS), [], runner, at_once=True,
    )  # fmt: skip
    check_not_lowered(
        {"pairs of the shipped model, all": total(answers.risk(_as_judged))}, "as the shipped model", edit
    )


@cache
def _shipped_tokenizer() -> Any:
    """None where the shipped model is not there."""
    try:
        return load_tokenizer(SHIPPED)
    except InputError:
        return None


def _embedded() -> Judge:
    return open_judges(EMBEDDED)[0]


def asked_pairs(plan: RefusalPlan, edit: Edit) -> tuple[str, dict[str, list[Pair]], list[str]]:
    """By which pairs an edit's effect is measured: their split, the pairs by domain, and the edit's own domains.
    Errors: InputError where the pairs cannot be read or lack one of these."""
    heldout = has_split(plan.pairs, HELDOUT)
    split, most = (HELDOUT, plan.heldout_pairs) if heldout else (CALIBRATION, plan.calibration_pairs)
    asked = read_pairs(plan.pairs, split, per_domain=most)
    own = _own_domains(edit, asked)
    for domain in own:
        if domain not in asked:
            raise unknown(f"domain of the {split} pairs of {plan.pairs}", domain, asked)
    return split, asked, own


def _own_domains(edit: Edit, asked: Mapping[str, object]) -> list[str]:
    """The domains that a refusal edit was made for; of a composed one each."""
    domain = str(edit.spec.get("domain", ""))
    return ([domain] if domain in asked else domain.split(SEVERAL)) if edit.kind == "refusal" else []


class _Answers:
    """Replies to the risk prompts of pairs, and to the base prompts of some domains, before and after an edit.
    at_once: all domains are one cell, which is faster; else one a domain, as other studies have them."""

    def __init__(
        self,
        run: RefusalInputs,
        edit: Edit,
        asked: Mapping[str, Sequence[Pair]],
        own: Sequence[str],
        runner: Runner,
        *,
        at_once: bool = False,
    ) -> None:
        self._asked, self._own = asked, own
        prompts = {name: sides(pairs) if name in own else sides(pairs)[: len(pairs)] for name, pairs in asked.items()}
        groups = [list(prompts)] if at_once else [[name] for name in prompts]
        texts = [tuple(prompt for name in group for prompt in prompts[name]) for group in groups]
        carried = (UNEDITED, edit)
        results = runner.run(
            [cell(one, some) for cell in (run.refused, run.replies) for some in texts for one in carried]
        )
        self._verdicts: dict[str, tuple[Refused, Refused]] = {}
        self._readable: dict[str, list[int]] = {}  # numbers of prompts whose replies were both read
        for group, some in zip(groups, texts, strict=True):
            verdicts = [results[run.refused(one, some)] for one in carried]
            replies = [results[run.replies(one, some)] for one in carried]
            start = 0
            for name in group:
                count = len(prompts[name])
                before, after = (one.part(slice(start, start + count)) for one in verdicts)
                self._verdicts[name] = before, after
                self._readable[name] = [
                    number
                    for number in range(count)
                    if before.judged[number] and after.judged[number]
                    if all(one[start + number].text.strip() for one in replies)
                ]
                start += count

    @property
    def still_thinking(self) -> bool:
        """Is there a reply that never came out of its thinking part?"""
        return any(one.still_thinking for both in self._verdicts.values() for one in both)

    def risk(self, reading: _Reading) -> dict[str, Change]:
        """Refused risk prompts by domain."""
        return {name: self._change(name, range(len(pairs)), reading) for name, pairs in self._asked.items()}

    def base(self, reading: _Reading) -> dict[str, Change]:
        """Refused base prompts of the edit's own domains."""
        counts = {name: len(self._asked[name]) for name in self._own}
        return {name: self._change(name, range(count, 2 * count), reading) for name, count in counts.items()}

    def _change(self, name: str, numbers: range, reading: _Reading) -> Change:
        readable = [number for number in self._readable[name] if number in numbers]
        return Change(len(readable), *reading(*self._verdicts[name], readable))


# Refused before and after, of the prompts with these numbers.
_Reading = Callable[[Refused, Refused, Sequence[int]], tuple[int, int]]


def _as_judged(before: Refused, after: Refused, some: Sequence[int]) -> tuple[int, int]:
    return sum(before.refused[one] for one in some), sum(after.refused[one] for one in some)


def _best(before: Refused, after: Refused, some: Sequence[int]) -> tuple[int, int]:
    """Of the replies that were cut off none refuses before, and each after."""
    cut_off = sum(not after.finished[one] for one in some)
    return _sure(before, some), _sure(after, some) + cut_off


def _worst(before: Refused, after: Refused, some: Sequence[int]) -> tuple[int, int]:
    return _best(after, before, some)[::-1]


def _sure(found: Refused, some: Sequence[int]) -> int:
    return sum(found.refused[one] and found.finished[one] for one in some)


def _passes(effect: Effect, edit: Edit) -> bool:
    try:
        effect.check(edit, effect.weights_hash, allow_broken=True)
    except InputError:
        return False
    return True


def check_effect(sketch: LoadedModel, plan: RefusalPlan, edit: Edit, *, with_pairs: bool) -> None:
    """`InputError` where the prompts by which the edit's effect is measured cannot be read or asked."""
    for prompt in (prompt for pairs in shipped_prompts().values() for prompt in sides(pairs)):
        checked_prompt(sketch, prompt, 1)
    if with_pairs:
        _, asked, own = asked_pairs(plan, edit)
        for domain, pairs in asked.items():
            for prompt in sides(pairs) if domain in own else [pair.risk for pair in pairs]:
                checked_prompt(sketch, prompt, plan.reply_tokens)
