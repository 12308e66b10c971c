"""One prompt, answered under several edits side by side: text as it is written, then verdict, margins, length.

torch is imported when a reply is first wanted, so that pages can name the types before it is there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.judges.base import Exchange
from engine.judges.heard import verdicts_on
from engine.records.errors import InputError
from engine.records.locks import OnWait, held, patient

if TYPE_CHECKING:
    from engine.edits.edit import Edit
    from engine.judges.base import Judge
    from engine.models.loading import LoadedModel

_BIDIRECTIONAL = frozenset(map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A))))
Side = TypeVar("Side", bound=str)  # names an edit: before, after, control


@dataclass(frozen=True)
class Piece(Generic[Side]):
    """More text of the reply on one side."""

    side: Side
    text: str


@dataclass(frozen=True)
class Outcome(Generic[Side]):
    """A reply that has ended.

    tokens: generated, the end token not counted. finished: ended by itself, not by the limit of tokens.
    elapsed_s: since the first pass, over all sides that are written together. margin: logit difference as the reply
    begins, None where `margin_note` says why there is none. along: where asked for, every token of the reply with the
    margin before it; the last entry, without a token, is what follows the reply. judged: False where the judge could
    not judge it.
    """

    side: Side
    text: str
    tokens: int
    finished: bool
    elapsed_s: float
    refusal: bool
    reason: str
    margin: float | None
    margin_note: str = ""
    along: tuple[tuple[str, float], ...] = ()
    judged: bool = True

    @property
    def verdict(self) -> str:
        """In a word: refuses, answers or not judged."""
        return ("refuses" if self.refusal else "answers") if self.judged else "not judged"


def dialogue(
    loaded: LoadedModel,
    prompt: str,
    edits: Mapping[Side, Edit],
    judge: Judge,
    max_new_tokens: int,
    *,
    margins_along: bool = False,
    on_wait: OnWait = patient,
) -> Generator[Piece[Side] | Outcome[Side], None, None]:
    """The replies under all edits as one batch: pieces as they are written, and each side's outcome once it has ended.

    Close the generator to stop. `on_wait(seconds)` is called while another thread holds the model, and may raise to
    give up; no edit is ever seen by another thread. `InputError` as in `generate_under`.
    """
    from engine.measures.generation import stream_replies

    sides, carried = list(edits), list(edits.values())
    with held(loaded.lock, on_wait):
        margins, note = _margins(loaded, prompt, carried)
    tokens: list[list[int]] = [[] for _ in sides]
    stream = stream_replies(
        loaded,
        prompt,
        carried,
        max_new_tokens,
        on_token=lambda number, token: tokens[number].append(token),
        on_wait=on_wait,
    )
    with closing(stream):
        for number, piece in stream:
            side = sides[number]
            if isinstance(piece, str):
                yield Piece(side, piece)
                continue
            [verdict] = verdicts_on(judge, [Exchange(prompt, piece.text, piece.finished)])
            along: tuple[tuple[str, float], ...] = ()
            if margins_along and margins is not None:
                with held(loaded.lock, on_wait):
                    along = _along(loaded, prompt, carried[number], tokens[number])
            yield Outcome(
                side,
                piece.text,
                piece.tokens,
                piece.finished,
                piece.seconds,
                verdict.refusal,
                verdict.reason,
                margins[number] if margins is not None else None,
                note,
                along,
                verdict.judged,
            )


def _margins(loaded: LoadedModel, prompt: str, edits: Sequence[Edit]) -> tuple[list[float] | None, str]:
    from engine.measures.margin import margins_under

    try:
        return margins_under(loaded, edits, [prompt])[:, 0].tolist(), ""
    except InputError as error:  # a model whose tokenizer has no onset tokens still replies
        return None, str(error)


def _along(loaded: LoadedModel, prompt: str, edit: Edit, tokens: list[int]) -> tuple[tuple[str, float], ...]:
    from engine.interventions.at_outputs import edited_outputs
    from engine.measures.margin import reply_margins

    pieces = [str(loaded.tokenizer.decode([token])) for token in tokens]
    with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
        found = reply_margins(loaded, prompt, tokens).tolist()
    return tuple(zip([*pieces, ""], found, strict=True))


def plain_text(text: str) -> str:
    """Text that a terminal only shows: control characters (escape sequences) and bidirectional overrides taken out."""
    return "".join(
        character
        for character in text
        if character in "\n\t" or not (unicodedata.category(character) == "Cc" or character in _BIDIRECTIONAL)
    )
