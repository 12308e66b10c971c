"""Prompts as the model sees them at the start of its reply: chat template once, left-padded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

import torch
from jinja2.exceptions import TemplateError
from transformers import BatchEncoding, PreTrainedTokenizerBase

from engine.data.thinking import opened, thinks
from engine.records.errors import InputError

# Llama 3's templates tell the model the date: here always the one that they fall back on, never today's.
TEMPLATE_DATE = "26 Jul 2024"
_VARIABLES: dict[str, Any] = {"enable_thinking": False, "date_string": TEMPLATE_DATE}
_CLOCK = "strftime_now"  # what a template calls for today's date
_MARK = "[end of the system turn]"  # what no template writes of itself

# What a model replies to: one turn of the user, or user, assistant, …, user.
Prompt = str | tuple[str, ...]


class EncodedPrompts(NamedTuple):
    """A left-padded batch, so that position -1 is the last prompt position of every row.

    input_ids, attention_mask, position_ids: int64 [batch, length]. Pads have mask 0 and position 0.
    """

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    position_ids: torch.Tensor

    def to(self, device: torch.device) -> EncodedPrompts:
        return EncodedPrompts(*(tensor.to(device) for tensor in self))


def turns_of(prompt: Prompt) -> tuple[str, ...]:
    """User, assistant, user, …: of a plain prompt the one."""
    return (prompt,) if isinstance(prompt, str) else prompt


def user_turns(prompt: Prompt) -> tuple[str, ...]:
    """What the user says."""
    return turns_of(prompt)[::2]


def prompt_ids(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Prompt,
    reply: str | None = None,
    *,
    system: str = "",
    thinking: bool = False,
) -> list[int]:
    """Token ids of one prompt up to where the reply begins, or, with `reply`, of the dialogue so far.

    With a chat template: the system turn, if any, the prompt's turns and the generation prompt, tokenised by the
    template itself, since rendering to text and tokenising again gives two BOS. `enable_thinking`, False unless
    `thinking`, is a variable that only templates with a thinking mode read, `date_string` one of those that state the
    date. A template that asks the clock itself (`strftime_now`) gives other tokens on another day; keys of cells hold
    `prompts_hash`. Without one (base models) every turn is a line of plain text, and the reply begins on the next line.
    `InputError` for an empty prompt, for a system turn that the template does not write (`check_system`), for a
    thinking mode that it does not have, and for turns that it refuses.
    """
    said = turns_of(prompt)
    if len(said) % 2 == 0:
        raise InputError(f"a dialogue ends with the user's turn, got {len(said)} turns; leave out the last reply")
    if not all(turn.strip() for turn in user_turns(prompt)):
        raise InputError("a prompt is empty; give it at least one word")
    check_system(tokenizer, system)
    if thinking:
        check_thinking(tokenizer)
    if not tokenizer.chat_template:
        lines = "\n".join(said)
        return list(tokenizer(f"{lines}\n{reply or ''}")["input_ids"])
    whole = said if reply is None else (*said, reply)
    turns = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(whole)]
    try:
        encoded = tokenizer.apply_chat_template(
            [*_system_turn(system), *turns],
            add_generation_prompt=reply is None,
            tokenize=True,
            return_dict=True,
            enable_thinking=thinking,
            date_string=TEMPLATE_DATE,
        )
    except TemplateError as error:
        raise InputError(
            f"this model's chat template refuses a dialogue of {len(whole)} turns ({error}); ask in one turn"
        ) from None
    return list(cast(BatchEncoding, encoded)["input_ids"])


def check_system(tokenizer: PreTrainedTokenizerBase, system: str) -> None:
    """`InputError` unless the chat template writes this text into what the model reads.

    Some templates raise an error at a system turn, others leave it out without a word (and some write it into the
    user's turn, which is well). So the template is asked for a dialogue whose system turn ends with a mark, and text
    and mark must stand in it as they were given.
    """
    if not system:
        return
    if not system.strip():
        raise InputError("the system prompt is blank; write it, or leave it out")
    if not tokenizer.chat_template:
        raise InputError("this model has no chat template, so there is no place for a system prompt; leave it out")
    wanted, reason = f"{system.strip()} {_MARK}", "leaves it out"
    try:
        turns = [*_system_turn(wanted), {"role": "user", "content": "Hello"}]
        rendered = str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **_VARIABLES))
    except TemplateError as error:
        rendered, reason = "", f"refuses it ({error})"
    if wanted not in rendered:
        raise InputError(
            f"this model's chat template has no system turn: it {reason}; leave the system prompt out, or write it "
            "into the prompts"
        )


def check_thinking(tokenizer: PreTrainedTokenizerBase) -> None:
    """`InputError` unless the chat template writes something else where thinking is on."""
    if not has_thinking_switch(tokenizer):
        begun = tokenizer.chat_template and opened(tokenizer, prompt_ids(tokenizer, "Hello"))
        raise InputError(
            "this model's chat template has no thinking mode that could be left on (enable_thinking changes nothing in "
            f"it{': it begins the thinking part in any case' if begun else ''}); leave --thinking out"
        )


def thinking_mode(tokenizer: PreTrainedTokenizerBase, *, thinking: bool = False) -> str:
    """How prompts go through the chat template as to thinking, in words for manifests and cards; "" for a template that
    knows of none."""
    if not tokenizer.chat_template:
        return ""
    if has_thinking_switch(tokenizer):
        return f"{'on' if thinking else 'off'} (enable_thinking={thinking})"
    if opened(tokenizer, prompt_ids(tokenizer, "Hello")):
        return "begun by the chat template, which has no switch"
    return "left to the model, since the chat template has no switch" if thinks(tokenizer) else ""


def thinking_record(tokenizer: PreTrainedTokenizerBase, *, thinking: bool = False) -> dict[str, str]:
    """`thinking_mode` for a manifest; nothing for a template that knows of none."""
    mode = thinking_mode(tokenizer, thinking=thinking)
    return {"thinking_mode": mode} if mode else {}


def has_thinking_switch(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does `enable_thinking` change what the chat template writes?"""
    rendered = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "Hello"}], add_generation_prompt=True, tokenize=False,
            enable_thinking=on, date_string=TEMPLATE_DATE,
        )
        for on in ((False, True) if tokenizer.chat_template else ())
    ]  # fmt: skip
    return len(set(rendered)) > 1


def _system_turn(system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def template_variables(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """What the chat template was told, and which date it tells the model if any, in words for a card.

    A variable counts if another value gives other tokens. A template that asks the clock though it was given a date
    states the day on which the prompts were made.
    """
    if not tokenizer.chat_template:
        return {}

    def rendered(**changes: Any) -> str:
        turns = [{"role": "user", "content": "a"}]
        given = _VARIABLES | changes
        return str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, **given))

    said = {}
    usual = rendered()
    if mode := thinking_mode(tokenizer):
        said["thinking mode"] = mode
    if rendered(date_string="1 Jan 1970") != usual:
        said["date in the prompts"] = f"{TEMPLATE_DATE}, given to the chat template as date_string"
    elif _CLOCK in str(tokenizer.chat_template):
        said["date in the prompts"] = f"that of the day, {datetime.now():%Y-%m-%d}: this chat template asks the clock"
    return said


def pad_left(sequences: Sequence[Sequence[int]]) -> EncodedPrompts:
    """Token id lists of different lengths as one batch. The pad id is 0: masked, its embedding is never read."""
    length = max(map(len, sequences))
    input_ids = torch.zeros(len(sequences), length, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, ids in enumerate(sequences):
        input_ids[row, length - len(ids) :] = torch.tensor(ids)
        attention_mask[row, length - len(ids) :] = 1
    # The first real token has position 0, as it has without padding.
    position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    return EncodedPrompts(input_ids, attention_mask, position_ids)


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], *, system: str = "", thinking: bool = False
) -> EncodedPrompts:
    """`prompt_ids` of every prompt, left-padded to the longest. `InputError` without prompts."""
    if not prompts:
        raise InputError("there are no prompts; give at least one")
    return pad_left([prompt_ids(tokenizer, prompt, system=system, thinking=thinking) for prompt in prompts])


def prompts_hash(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Prompt], *, system: str = "", thinking: bool = False
) -> str:
    """SHA-256 over the token ids of all prompts, as the model sees them: for cache keys."""
    ids = [prompt_ids(tokenizer, prompt, system=system, thinking=thinking) for prompt in prompts]
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()
