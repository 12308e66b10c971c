"""One prompt, answered under several edits side by side: text as it is written, then verdict, margins, length.

torch is imported when a reply is first wanted, so that pages can name the types before it is there."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.data.thinking import opened, template_marks
from engine.judges.base import Exchange, Judge, verdicts_on
from engine.records.errors import InputError
from engine.records.locks import OnWait, held, patient

if TYPE_CHECKING:
    from engine.edits.edit import Edit
    from engine.measures.generation import Reply
    from engine.models.loading import LoadedModel

BEFORE_THINKING = "as the thinking part begins, not the reply"  # where a margin stands
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
    begins, None where `margin_note` says why there is none; the note also says where a thinking part begins there
    instead. along: where asked for, every token of the reply with the margin before it; the last entry, without a
    token, is what follows the reply. judged: False where the judge could not judge it.

    pieces: the text that each token completed, which together are `text`; none where the tokens are not known.
    log_probabilities: where asked for, those of the tokens under the unedited model (`engine.measures.fluency`), and of
    the end where it ended by itself. repeated: share of its n-grams that came before, None where that was not asked."""

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
    pieces: tuple[str, ...] = ()
    log_probabilities: tuple[float, ...] = ()
    repeated: float | None = None

    @property
    def verdict(self) -> str:
        """In a word: refuses, answers or not judged."""
        return ("refuses" if self.refusal else "answers") if self.judged else "not judged"


def dialogue(
    loaded: LoadedModel, prompt: str, edits: Mapping[Side, Edit], judge: Judge, max_new_tokens: int, *,
    margins_along: bool = False, likelihoods: bool = False, thinking: bool = False, on_wait: OnWait = patient,
) -> Generator[Piece[Side] | Outcome[Side], None, None]:  # fmt: skip
    """The replies under all edits as one batch: pieces as they are written, and each side's outcome once it has ended.
    margins_along, likelihoods: whether outcomes have the margin, and the log-probability under the unedited model, at
    every token; each costs a pass over the reply. thinking: the template's thinking mode left on.

    Close the generator to stop. `on_wait(seconds)` is called while another thread holds the model, and may raise to
    give up; no edit is ever seen by another thread. `InputError` as in `generate_under`."""
    from engine.measures.generation import stream_replies

    sides, carried = list(edits), list(edits.values())
    with held(loaded.lock, on_wait):
        margins, note = _margins(loaded, prompt, carried, thinking)
    tokens: list[list[int]] = [[] for _ in sides]
    pieces: list[list[str]] = [[] for _ in sides]

    def begun(number: int, token: int) -> None:
        tokens[number].append(token)
        pieces[number].append("")

    stream = stream_replies(loaded, prompt, carried, max_new_tokens, on_token=begun, on_wait=on_wait, thinking=thinking)
    with closing(stream):
        for number, piece in stream:
            side = sides[number]
            if isinstance(piece, str):
                if pieces[number]:
                    pieces[number][-1] += piece
                yield Piece(side, piece)
                continue
            marks = template_marks(loaded.tokenizer)
            [verdict] = verdicts_on(judge, [Exchange(prompt, piece.text, piece.finished)], marks=marks)
            along: tuple[tuple[str, float], ...] = ()
            if margins_along and margins is not None:
                with held(loaded.lock, on_wait):
                    along = _along(loaded, prompt, carried[number], tokens[number], thinking)
            read, repeated = _likelihoods(loaded, prompt, piece, tokens[number], thinking, on_wait, likelihoods)
            reply = (piece.text, piece.tokens, piece.finished, piece.seconds)
            margin = margins[number] if margins is not None else None
            as_shown = tuple(pieces[number]) if "".join(pieces[number]) == piece.text else ()
            refuses, why = verdict.refusal, verdict.reason
            yield Outcome(side, *reply, refuses, why, margin, note, along, verdict.judged, as_shown, read, repeated)


def _margins(loaded: LoadedModel, prompt: str, edits: Sequence[Edit], thinking: bool) -> tuple[list[float] | None, str]:
    from engine.data.prompts import prompt_ids
    from engine.measures.margin import margins_under

    try:
        margins = margins_under(loaded, edits, [prompt], thinking=thinking)[:, 0].tolist()
        before = thinking or opened(loaded.tokenizer, prompt_ids(loaded.tokenizer, prompt))
        return margins, BEFORE_THINKING if before else ""
    except InputError as error:  # a model whose tokenizer has no onset tokens still replies
        return None, str(error)


def _likelihoods(
    loaded: LoadedModel, prompt: str, reply: Reply, tokens: list[int], thinking: bool, on_wait: OnWait, wanted: bool
) -> tuple[tuple[float, ...], float | None]:
    from engine.measures.fluency import Asked, repetition, reply_log_probabilities

    if not wanted:
        return (), None
    asked = [Asked(prompt, tokens, reply.finished)]
    [found] = reply_log_probabilities(loaded, asked, thinking=thinking, on_wait=on_wait)
    return tuple(found.tolist()), repetition(tokens)


def _along(
    loaded: LoadedModel, prompt: str, edit: Edit, tokens: list[int], thinking: bool
) -> tuple[tuple[str, float], ...]:
    from engine.interventions.at_outputs import edited_outputs
    from engine.measures.margin import reply_margins

    pieces = [str(loaded.tokenizer.decode([token])) for token in tokens]
    with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
        margins = reply_margins(loaded, prompt, tokens, thinking=thinking).tolist()
    return tuple(zip([*pieces, ""], margins, strict=True))
