"""Replies that think first: the marks around the thinking part, and what is said after it.

The one place that knows these marks. What is judged, and what a second turn quotes, is what is said after thinking;
what is stored and shown is the whole reply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedTokenizerBase

# Around the thinking part. Qwen3, DeepSeek-R1 and many others; Magistral; Seed-OSS; Kimi; Gemma 4.
_BLOCKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|channel>thought", "<channel|>"),
)
# gpt-oss (harmony): every message names its channel, and only that of `final` is for the user.
_CHANNEL, _FINAL = "<|channel|>", "<|channel|>final<|message|>"
_TOKENS = frozenset([*(mark for block in _BLOCKS for mark in block), "<|channel>", _CHANNEL, "<|message|>"])
_LAST = 16  # tokens of a prompt that hold whatever its template opens at the end


class Said(NamedTuple):
    """What a reply says after its thinking part. complete: False where it never comes out of it."""

    text: str
    complete: bool


class Parts(NamedTuple):
    """A reply for people: its thinking part without the marks around it, "" for none, and what is said after it.

    complete: False where it never comes out of thinking.
    """

    thinking: str
    said: str
    complete: bool


def after_thinking(reply: str) -> Said:
    """What is said after the thinking part; of a reply without one, the reply as it is.

    The thinking part stands at the beginning, in one of the known pairs of marks; where only the closing one is there,
    the template had opened it. A mark that is mentioned later on is text like any other.
    """
    _, said, complete = parts(reply)
    return Said(said, complete)


def parts(reply: str) -> Parts:
    """The thinking part apart from what is said after it; see `after_thinking`. The heads of harmony's messages stay in
    the thinking part."""
    if reply.lstrip().startswith(_CHANNEL):
        before, final, said = reply.rpartition(_FINAL)
        return Parts(before.strip(), said.strip(), True) if final else Parts(reply.strip(), "", False)
    for opening, closing in _BLOCKS:
        begins = reply.lstrip().startswith(opening)
        if begins or (closing in reply and opening not in reply):
            before, closed, said = reply.partition(closing)
            return Parts(before.lstrip().removeprefix(opening).strip(), said.strip() if closed else "", bool(closed))
    return Parts("", reply, True)


def thinks(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does the chat template know of thinking? Then the model may write it."""
    return any(mark in str(tokenizer.chat_template or "") for mark in _TOKENS)


def kept_marks(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Marks that are special tokens of this tokenizer, by id: decoding would leave them out of the reply."""
    added = tokenizer.added_tokens_decoder
    return {number: token.content for number, token in added.items() if token.special and token.content in _TOKENS}


def opened(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int]) -> str:
    """The mark, with what follows it, with which a prompt's template has begun the thinking part; "" for none."""
    if not thinks(tokenizer):
        return ""
    text = str(tokenizer.decode(list(prompt[-_LAST:]), skip_special_tokens=False))
    for opening, _ in _BLOCKS:
        if text.rstrip().endswith(opening):
            return text[text.rindex(opening) :]
    return ""
