"""Replies that think first: the marks around the thinking part, and what is said after it.

The one place that knows these marks. What is judged, and what a second turn quotes, is what is said after thinking;
what is stored and shown is the whole reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Marks = tuple[str, str]  # around a thinking part
_WORD = (
    r"(?:(?!begin|start|end)[a-z]+[:_-]|ant|inner|internal){0,2}"
    r"(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratch[_-]?pad|analysis|reflection|deliberation|rationale|monologue|"
    r"cot|chain[_-]of[_-]thought)(?:[_-](?:content|process|part|trace|steps?))?"
)
# Marks that name what they hold: Qwen3, DeepSeek-R1 and many others; Seed-OSS (a name before it); Magistral; Kimi;
# OpenThinker; Command A; and their relatives.
_NAMED = (
    ("<{}>", "</{}>"), ("[{}]", "[/{}]"), ("◁{}▷", "◁/{}▷"), ("<|{}|>", "<|/{}|>"),
    ("<|begin_of_{}|>", "<|end_of_{}|>"), ("<|begin_{}|>", "<|end_{}|>"),
    ("<|start_of_{}|>", "<|end_of_{}|>"), ("<|start_{}|>", "<|end_{}|>"),
    ("<|{}_begin|>", "<|{}_end|>"), ("<|{}_start|>", "<|{}_end|>"),
)  # fmt: skip
# Gemma 4; MedGemma; Apertus; Granite 3.2 (both spellings); Ollama's; gpt-oss, where its marks were left out.
_FIXED = (
    (r"<\|channel>thought", r"<channel\|>"),
    (r"<unused94>(?:thought\b)?", r"<unused95>"),
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    (r"Here(?: i|'|’)s my thought process:?", r"Here(?: i|'|’)s my response:?"),
    (r"Thinking\.\.\.\n", r"\.\.\.done thinking\."),
    (r"analysis(?=[A-Z]|(?:(?!\n\n).)*assistantfinal)", r"assistantfinal"),
)


def _pattern(template: str) -> str:
    before, after = template.split("{}")
    return f"{re.escape(before)}(?P<word>{_WORD}){re.escape(after)}"


_OPENINGS = [(re.compile(rf"(?i)\s*{_pattern(opening)}"), closing) for opening, closing in _NAMED]
_FIXED_FORMS = [(re.compile(rf"\s*{opening}"), re.compile(closing)) for opening, closing in _FIXED]
_MARK = re.compile(
    "(?i:" + "|".join(_pattern(one).replace("?P<word>", "?:") for both in _NAMED for one in both if one[0] != "[") + ")"
    r"|\[/?THINK\]|<\|channel>(?:thought)?|<channel\|>|<unused9[45]>|<\|inner_(?:prefix|suffix)\|>"
)
# The closing mark alone: the template had opened the part. Not where a sentence speaks of the mark.
_CLOSING = re.compile(
    r"(?i:</(?:think(?:ing)?|thoughts?|reason(?:ing)?|seed:think)>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>|"
    r"<\|end_thinking\|>|<unused95>|<channel\|>|<\|inner_suffix\|>)"
)
_SPOKEN_OF = re.compile(r"[ `\"'(]\Z"), re.compile(r"[ `\"').,;:!?]")
# Around what is said, behind a thinking part.
_ANSWER = re.compile(
    r"\A\s*(?:<\|START_RESPONSE\|>|<\|begin_of_solution\|>|<(?P<word>answer|response|output|solution)>)"
    r"(?P<said>.*?)(?:<\|END_RESPONSE\|>|<\|end_of_solution\|>|</(?P=word)>)?\s*\Z",
    re.DOTALL | re.IGNORECASE,
)
_WRAPPERS = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|begin_of_solution|>", "<|end_of_solution|>")
# gpt-oss (harmony): every message names its channel, and only that of `final` is for the user.
_CHANNEL, _FINAL = "<|channel|>", "<|channel|>final<|message|>"
_HARMONY = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>")
_LAST = 16  # tokens of a prompt that hold whatever its template opens at the end
_SPLIT = re.compile(r"""split\(\s*(['"])((?:(?!\1).)+)\1\s*\)""")
FORMS = 3  # in keys of what was judged: another number where the forms have changed
NEVER_CLOSED = "never closed"


class Said(NamedTuple):
    """What a reply says after its thinking part. complete: False where it never comes out of it."""

    text: str
    complete: bool


class Parts(NamedTuple):
    """A reply for people: its thinking part without the marks around it, "" for none, and what is said after it.
    complete: False where it never comes out of thinking."""

    thinking: str
    said: str
    complete: bool


_Found = tuple[Parts, str]  # and the marks by which the thinking part was found, "" for none


def after_thinking(reply: str, marks: Iterable[Marks] = ()) -> Said:
    """What is said after the thinking part; of a reply without one, the reply as it is. The part stands at the
    beginning, in a known form or between `marks`; with a closing mark only, the template had opened it."""
    _, said, complete = parts(reply, marks)
    return Said(said, complete)


def parts(reply: str, marks: Iterable[Marks] = ()) -> Parts:
    """The thinking part apart from what is said after it; see `after_thinking`. The heads of harmony's messages stay in
    the thinking part."""
    return _found(reply, tuple(marks))[0]


def thinking_form(reply: str, marks: Iterable[Marks] = ()) -> str:
    """By which marks the thinking part was found, for tables: `<think> … </think>`; "" for a reply without one."""
    return _found(reply, tuple(marks))[1]


def _found(reply: str, marks: tuple[Marks, ...]) -> _Found:
    if _HARMONY.match(reply):
        before, final, said = reply.rpartition(_FINAL)
        form = f"{_CHANNEL} … {_FINAL if final else NEVER_CLOSED}"
        return Parts(before.strip(), said.strip(), True) if final else Parts(reply.strip(), "", False), form
    opened_by = _opening(reply, marks)
    if opened_by is None:
        return _closed_only(reply, marks)
    begins, closing = opened_by
    opening = begins[0].strip()
    closed = closing.search(reply, begins.end())
    if closed is None:
        return Parts(reply[begins.end() :].strip(), "", False), f"{opening} … {NEVER_CLOSED}"
    thinking, rest = reply[begins.end() : closed.start()].strip(), reply[closed.end() :].strip()
    form = f"{opening} … {closed[0]}"
    if _opening(rest, marks):  # some models think in several parts
        further, _ = _found(rest, marks)
        return further._replace(thinking=f"{thinking}\n\n{further.thinking}".strip()), form
    return Parts(thinking, _unwrapped(rest), True), form


def _opening(reply: str, marks: tuple[Marks, ...]) -> tuple[re.Match[str], re.Pattern[str]] | None:
    """The opening mark with which a reply begins, and what closes it."""
    for opening, closing in marks:
        if begins := re.match(rf"\s*{re.escape(opening)}", reply):
            return begins, re.compile(re.escape(closing))
    for pattern, closing in _OPENINGS:
        begins = pattern.match(reply)  # [Reasoning] in a reply is a word in brackets, [THINK] a mark
        if begins and ("[" not in begins[0] or begins["word"].isupper()):
            return begins, re.compile(re.escape(closing.format(begins["word"])), re.IGNORECASE)
    for pattern, closes in _FIXED_FORMS:
        if begins := pattern.match(reply):
            return begins, closes
    return None


def _closed_only(reply: str, marks: tuple[Marks, ...]) -> _Found:
    own = "|".join(re.escape(closing) for _, closing in marks)
    closed = (re.search(own, reply) if own else None) or _CLOSING.search(reply)
    none = Parts("", reply, True), ""
    if closed is None or _MARK.search(reply, 0, closed.start()):  # its opening mark, inside the text
        return none
    if _SPOKEN_OF[0].search(reply[: closed.start()]) and _SPOKEN_OF[1].match(reply, closed.end()):
        return none
    answer = _unwrapped(reply[closed.end() :].strip())
    return Parts(reply[: closed.start()].strip(), answer, True), f"… {closed[0]}"


def _unwrapped(said: str) -> str:
    whole = _ANSWER.match(said)
    return whole["said"].strip() if whole else said


def thinks(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does the chat template know of thinking? Then the model may write it."""
    template = str(tokenizer.chat_template or "")
    return bool(_MARK.search(template)) or _CHANNEL in template or bool(template_marks(tokenizer))


def template_marks(tokenizer: PreTrainedTokenizerBase) -> tuple[Marks, ...]:
    """Marks of other forms that the chat template takes a thinking part away by: of each text at which it splits a
    reply, and which is a special token or looks like one, with the opening mark that it writes too."""
    template = str(tokenizer.chat_template or "")
    marks = []
    for closing in dict.fromkeys(one[2] for one in _SPLIT.finditer(template)):
        opening = closing.replace("/", "", 1) if "/" in closing else re.sub(r"(?i)end", _begin, closing, count=1)
        if opening != closing and opening in template and re.match(r"[<\[◁]", closing) and not _MARK.fullmatch(closing):
            marks.append((opening, closing))
    return tuple(marks)


def _begin(end: re.Match[str]) -> str:
    return {"end": "begin", "END": "START"}.get(end[0], "Begin")


def kept_marks(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Marks that are special tokens of this tokenizer, by id: decoding would leave them out of the reply."""
    own = {*_WRAPPERS, _CHANNEL, "<|message|>", *(mark for both in template_marks(tokenizer) for mark in both)}
    return {
        number: token.content
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special and (token.content in own or _MARK.fullmatch(token.content))
    }


def opened(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int]) -> str:
    """The mark, with what follows it, with which a prompt's template has begun the thinking part; "" for none."""
    if not thinks(tokenizer):
        return ""
    text = str(tokenizer.decode(list(prompt[-_LAST:]), skip_special_tokens=False))
    marks = template_marks(tokenizer)
    starts = [text.rindex(one) for one, _ in marks if text.rstrip().endswith(one)]
    starts += [one.start() for one in _MARK.finditer(text) if not text[one.end() :].strip()]
    begun = text[min(starts) :] if starts else ""
    return begun if _opening(begun, marks) else ""
