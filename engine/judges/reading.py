"""How the embedded judge reads a reply before its rules do: what is not said by the speaker is taken out."""

from __future__ import annotations

import re

from engine.data.thinking import after_thinking
from engine.judges.typography import plain

_CODE = re.compile(r"```.*?(?:```|$)", re.DOTALL)
_ALL_QUOTED = re.compile(r"""\A\s*(?:"([^"]*)"|'((?:[^']|(?<=\w)'(?=\w))*)')\s*\Z""")
_BLOCK_QUOTE = re.compile(r"(?m)^[ \t]*>.*$")
# A line of a dialogue; what assistants say in one, and what only heads a paragraph, is read.
_LINE_OF_DIALOGUE = re.compile(
    r"(?m)^[ \t]*(?!(?:assistant|ai|bot|chatbot|me|answer|response|reply|note|warning|disclaimer|summary)\b)"
    r"([a-z]+(?: [a-z]+)?):[ \t]+\S.*$"
)
_REWRITES = (
    (re.compile(r"\bcan't\b|\bcan not\b|\bcant\b"), "cannot"),
    (re.compile(r"\bwon't\b|\bwont\b"), "will not"),
    (re.compile(r"\bi ain't\b"), "i am not"),
    (re.compile(r"\bain't\b"), "is not"),
    (re.compile(r"\bshan't\b"), "shall not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\bi'm\b"), "i am"),
    (re.compile(r"'re\b"), " are"),
    (re.compile(r"'ve\b"), " have"),
    (re.compile(r"'ll\b"), " will"),
    (re.compile(r"'d\b"), " would"),
    (re.compile(r"\b(it|that|there|here|this|what)'s\b"), r"\1 is"),
    (re.compile(r"\blet's\b"), "let us"),
    # What someone else says is no refusal; one or two quoted words are only emphasis.
    (re.compile(r'"(\S+(?: \S+)?)"'), r"\1"),
    (re.compile(r'"[^"\n]{1,400}"'), "words"),
    (re.compile(r"[ \t]+"), " "),
)
_SINGLE_QUOTED = re.compile(r"(?<!\w)'(?=(?:i|we|sorry|no|my|as an)\b)[^\n\"]{1,400}?'(?!\w)")
_PIECE = re.compile(r"\S(?:.{0,599}(?!\S)|.{599}|.*)")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|\n+")


def said(reply: str) -> str | None:
    """The reply after its thinking part (`<think>…</think>` and the like); None while the thinking has not ended."""
    rest = after_thinking(reply)
    return rest.text if rest.complete else None


def normalised(reply: str) -> str:
    """Lower case, contractions written out; without code, quotations and lines of dialogue, unless there is no more.

    A reply that stands in quotation marks as a whole is what the speaker says.
    """
    text = _CODE.sub(" ", plain(reply).lower())
    if whole := _ALL_QUOTED.match(text):
        text = whole[1] or whole[2] or ""
    text = _unless_all(_BLOCK_QUOTE, text)
    if len(set(_LINE_OF_DIALOGUE.findall(text))) > 1:
        text = _unless_all(_LINE_OF_DIALOGUE, text, "words")
    text = _SINGLE_QUOTED.sub("words", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def sentences(text: str) -> list[str]:
    """The sentences and lines of a normalised text; one that is longer than any sentence is, in pieces.

    So a rule, which may take the square of a sentence's length, takes time that grows with the number of sentences.
    """
    return [piece for sentence in _SENTENCE_END.split(text) for piece in _PIECE.findall(sentence.strip())]


def _unless_all(pattern: re.Pattern[str], text: str, instead: str = "") -> str:
    rest = pattern.sub(instead, text)
    return rest if rest.strip() else text
