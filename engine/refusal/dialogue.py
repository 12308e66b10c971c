"""One prompt, answered by the model as it is and with rows removed, as a stream of text."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

from engine.errors import InputError
from engine.evaluation.generation import stream_reply
from engine.evaluation.judges import Judge
from engine.intervention import zeroed
from engine.masks import Mask
from engine.models import LoadedModel
from engine.refusal.margin import margins

_BIDIRECTIONAL = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
Side = Literal["before", "after"]


@dataclass(frozen=True)
class Answer:
    """A finished reply. margin: nats of logit difference, None where `margin_note` says why there is none."""

    side: Side
    reply: str
    refusal: bool
    reason: str
    margin: float | None
    margin_note: str
    elapsed_s: float


def answers(
    loaded: LoadedModel,
    mask: Mask,
    prompt: str,
    judge: Judge,
    max_new_tokens: int,
    on_text: Callable[[Side, str], None] = lambda _side, _text: None,
) -> Generator[Answer, None, None]:
    """The answer before, then the one with the rows of `mask` zeroed; `on_text(side, piece)` while they are written.

    The model's lock is held throughout; the weights are back when the iterator ends, is closed or raises.
    """
    with loaded.lock:
        yield _answer(loaded, "before", prompt, judge, max_new_tokens, on_text)
        with zeroed(loaded, mask):
            yield _answer(loaded, "after", prompt, judge, max_new_tokens, on_text)


def _answer(
    loaded: LoadedModel,
    side: Side,
    prompt: str,
    judge: Judge,
    max_new_tokens: int,
    on_text: Callable[[Side, str], None],
) -> Answer:
    start = time.monotonic()
    pieces = []
    for piece in stream_reply(loaded, prompt, max_new_tokens):
        pieces.append(piece)
        on_text(side, piece)
    elapsed_s = time.monotonic() - start
    reply = "".join(pieces)
    verdict = judge.judge([reply])[0]
    margin, note = _margin(loaded, prompt)
    return Answer(side, reply, verdict.refusal, verdict.reason, margin, note, elapsed_s)


def _margin(loaded: LoadedModel, prompt: str) -> tuple[float | None, str]:
    try:
        return float(margins(loaded, [prompt])[0]), ""
    except InputError as error:  # a tokenizer without onset tokens still chats
        return None, str(error)


def plain_text(text: str) -> str:
    """Text that a terminal only shows: control characters (escape sequences) and bidirectional overrides taken out."""
    return "".join(
        character
        for character in text
        if character in "\n\t" or not (unicodedata.category(character) == "Cc" or character in _BIDIRECTIONAL)
    )
