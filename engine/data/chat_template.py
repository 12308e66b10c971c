"""A model's chat template: turns to text, under limits; what it must do to be used; how it ends a turn. Templates are
programs of strangers: they run in a child process (`engine.models.untrusted`); what goes wrong is an `InputError`."""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from engine.models import untrusted
from engine.models.untrusted import OverLimit, TemplateFailed
from engine.records.errors import InputError

Turn = Mapping[str, str]  # role, content
_PROBE = "Which of these two words stands here"
_REPLY = "nowtheassistantanswers"  # in lower case, one word: no template trims, splits or changes it
_CHANNEL, _MESSAGE_END = "<|channel|>", "<|end|>"  # harmony's
_WORD = re.compile(r"[^\W_]+")
_AS_CODE = re.compile(r"""['"]text['"]: """)  # a list that the template has written as it is
_SWITCHES = re.compile(r"/(no_)?think\b")  # words of the user that some templates take as a setting


class TurnsRefused(InputError):
    """The template fails with these turns. reason: what it does with them, as a verb."""

    reason = ""


class _Form(NamedTuple):
    """in_parts: the template reads a content as a list of typed parts. problem: why it cannot be used, or ""."""

    in_parts: bool
    problem: str = ""


def render(
    tokenizer: PreTrainedTokenizerBase, turns: Sequence[Turn], *, generation_prompt: bool = True, **variables: Any
) -> str:
    """The text that the chat template writes for these turns, as `apply_chat_template(tokenize=False)` gives it.

    Contents are given as texts, or, where the template then leaves them out, as lists of one text part (templates of
    vision models). Errors: `InputError` where the template fails, writes without bounds, leaves a user's turn out or
    changes its words, or has no generation prompt."""
    source, special = _source(tokenizer), json.dumps(tokenizer.special_tokens_map)
    form = _form(source, special)
    if form.problem:
        raise InputError(f"this model's chat template {form.problem}; correct the template, or give another model")
    try:
        text = _rendered(source, special, turns, generation_prompt, in_parts=form.in_parts, **variables)
    except (TemplateFailed, OverLimit) as error:
        reason = str(error) if isinstance(error, OverLimit) else f"refuses it ({error})"
        refused = TurnsRefused(
            f"this model's chat template cannot write {_named(turns)}: it {reason}; "
            + ("ask in one turn" if len(turns) > 1 else "correct the template, or ask otherwise")
        )
        refused.reason = reason
        raise refused from None
    for turn in turns:
        if turn["role"] == "user" and not stands(turn["content"], text):
            raise InputError(
                f"this model's chat template leaves out or changes what the user says in {_named(turns)}: given "
                f"{_short(turn['content'])}, it writes {_short(text)}; ask in other words or in one turn, or correct it"
            )
    return text


def turn_ends(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The token that the chat template puts right behind what the assistant says, where that is an added token.
    As the template ends the last turn of a dialogue, and where it leaves that open, a turn before another. Not what
    ends a message of several in one turn (gpt-oss: its thinking would be the reply)."""
    if not tokenizer.chat_template:
        return frozenset()
    try:
        source = _source(tokenizer)
    except InputError:
        return frozenset()
    added = tokenizer.added_tokens_decoder
    for tail in _tails(source, json.dumps(tokenizer.special_tokens_map)):
        ids = tokenizer(tail, add_special_tokens=False)["input_ids"]
        token = added.get(ids[0]) if ids else None
        if token and token.content.strip() and not (_CHANNEL in source and token.content == _MESSAGE_END):
            return frozenset(ids[:1])
    return frozenset()


def stands(wanted: str, text: str) -> bool:
    """Does `text` hold this as it is, or else its words in their order? Upper and lower case, blanks, and settings for
    the template itself do not matter."""
    if wanted.strip() in text:
        return True
    words = _words(wanted)
    return bool(words.strip()) and words in _words(text)


def _words(text: str) -> str:
    plain = unicodedata.normalize("NFKC", _SWITCHES.sub(" ", text)).casefold()
    return f" {' '.join(_WORD.findall(plain))} "


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    try:
        return tokenizer.get_chat_template()
    except ValueError:
        raise InputError(
            f"this model has the chat templates {', '.join(sorted(tokenizer.chat_template))} and none called default; "
            "keep the one for dialogues in its folder as chat_template.jinja"
        ) from None


def _rendered(
    source: str, special: str, turns: Sequence[Turn], generation_prompt: bool, *, in_parts: bool, **variables: Any
) -> str:
    messages = [
        {"role": turn["role"], "content": [{"type": "text", "text": turn["content"]}] if in_parts else turn["content"]}
        for turn in turns
    ]
    given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": generation_prompt}
    return untrusted.rendered(source, {**json.loads(special), **variables, **given})


@lru_cache(64)
def _form(source: str, special: str) -> _Form:
    """How this template reads a content, and whether it can be used at all."""
    asked = [{"role": "user", "content": _PROBE}]
    problem = ""
    for in_parts in (False, True):
        try:
            text = _rendered(source, special, asked, True, in_parts=in_parts, enable_thinking=False)
        except OverLimit as error:
            return _Form(in_parts, str(error))  # it would take as long once more
        except TemplateFailed as error:
            problem = problem or f"fails ({error})"
            continue
        if stands(_PROBE, text) and not _AS_CODE.search(text):
            return _Form(in_parts, _no_generation_prompt(source, special, in_parts, text))
        problem = problem or f"leaves out or changes what the user says: given {_PROBE!r}, it writes {_short(text)}"
    return _Form(False, problem)


def _no_generation_prompt(source: str, special: str, in_parts: bool, prompt: str) -> str:
    """Does the model go on as the user? Then the template writes a head before an assistant's turn, and does not write
    it when it is asked to (`add_generation_prompt`)."""
    asked = [{"role": "user", "content": _PROBE}]
    answered = [*asked, {"role": "assistant", "content": _REPLY}]
    try:
        without = _rendered(source, special, asked, False, in_parts=in_parts, enable_thinking=False)
        dialogue = _rendered(source, special, answered, False, in_parts=in_parts, enable_thinking=False)
    except (TemplateFailed, OverLimit):
        return ""  # no dialogue to compare with
    head, found, _ = dialogue.partition(_REPLY)
    behind = prompt.strip().removeprefix(head.strip()).strip() if found else ""
    if behind and behind == json.loads(special).get("eos_token"):
        return f"puts {behind!r} where the reply begins, so that a prompt would be over before it"
    if not found or prompt.strip() != without.strip() or not head.startswith(prompt.strip()):
        return ""
    missing = head[len(prompt.strip()) :].strip()
    return f"has no generation prompt: it does not write {missing!r} where the reply begins" if missing else ""


@lru_cache(64)
def _tails(source: str, special: str) -> tuple[str, ...]:
    """What stands behind an assistant's turn, without blanks before it: of the last turn, and of one before another."""
    form = _form(source, special)
    dialogue = [{"role": "user", "content": _PROBE}, {"role": "assistant", "content": _REPLY}]
    tails = []
    for turns in (dialogue, [*dialogue, {"role": "user", "content": _PROBE}]):
        try:
            text = _rendered(source, special, turns, False, in_parts=form.in_parts, enable_thinking=False)
        except (TemplateFailed, OverLimit):
            continue
        _, found, tail = text.rpartition(_REPLY)
        if found and tail.strip():
            tails.append(tail.lstrip())
    return tuple(tails)


def _named(turns: Sequence[Turn]) -> str:
    return f"a dialogue of {len(turns)} turns" if len(turns) > 1 else "a prompt"


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:60]}…{text[-60:]}")
