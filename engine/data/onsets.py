"""How replies begin when they refuse and when they comply: phrase lists, and their first tokens in a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.data.texts import check_characters
from engine.records import bounds
from engine.records.errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_PHRASES = 40
_PROMPT = "Hello"


class OnsetPhrases(NamedTuple):
    """At most `MAX_PHRASES` openings of each kind; only their first tokens are used."""

    refusal: Sequence[str]
    compliance: Sequence[str]


_REFUSAL = (
    "I can't help with that", "I cannot help with that", "I won't do that", "I'm sorry", "I am sorry",
    "I'm not able to", "I must decline", "I have to decline", "Sorry", "My apologies", "Apologies", "Unfortunately",
    "Regrettably", "Sadly", "No", "Nope", "Never", "As an AI", "As an assistant", "Cannot help", "Can't help",
    "Declined", "Declining this one", "We can't help with that", "We cannot do that", "Due to safety concerns",
    "Due to my guidelines",
)  # fmt: skip

_COMPLIANCE = (
    "Sure", "Of course", "Certainly", "Absolutely", "Definitely", "Yes", "Yeah", "Yep", "Okay", "OK", "Alright",
    "Great question", "Good question", "Happy to help", "Gladly", "With pleasure", "Here is", "Here's", "Below is",
    "The answer is", "There are several ways", "These are", "First", "Firstly", "Step 1", "To begin", "To do this",
    "Start by", "Let me explain", "Let's begin", "Well", "Generally", "In general", "Usually", "Typically", "Often",
    "Simply", "You can", "1.",
)  # fmt: skip


ONSET_PHRASES = OnsetPhrases(_REFUSAL, _COMPLIANCE)


def read_phrases(path: str | Path, called: str = "--phrases") -> OnsetPhrases:
    """Onset phrases from a JSON file; the lists are checked against the model's tokens by `onset_tokens`."""
    expected = 'expected {"refusal": [phrases], "compliance": [phrases]}'
    try:
        written = bounds.text_of(Path(path), "utf-8-sig", bounds.MAX_JSON_BYTES)
        content = bounds.parsed(written)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{called}: {path} cannot be read as JSON ({error}); {expected}") from None
    check_characters(written, content, f"{called}: {path}")
    lists: list[list[str]] = []
    for kind in OnsetPhrases._fields:
        phrases = content.get(kind) if isinstance(content, dict) else None
        if not isinstance(phrases, list) or not all(isinstance(one, str) and one.strip() for one in phrases):
            raise InputError(f"{called}: {path} holds no two lists of phrases; {expected}")
        lists.append(phrases)
    return OnsetPhrases(*lists)


class OnsetTokens(NamedTuple):
    """Distinct token ids, ascending, no id in both."""

    refusal: tuple[int, ...]
    compliance: tuple[int, ...]


def first_reply_token(tokenizer: PreTrainedTokenizerBase, phrase: str, prompt: Sequence[int] = ()) -> int:
    """The token with which a reply that opens with `phrase` begins, right after the generation prompt.

    Read off the dialogue itself, so that it has a leading space exactly where this template puts one. Where a finished
    reply is written otherwise than the generation prompt, or tokens merge across the border, the phrase is tokenised on
    its own. prompt: the ids of the dialogue's prompt, where they are known."""
    from engine.data.prompts import prompt_ids  # brings torch, which plans must not wait for

    prompt = list(prompt) or prompt_ids(tokenizer, _PROMPT)
    dialogue = prompt_ids(tokenizer, _PROMPT, phrase)
    if dialogue[: len(prompt)] == prompt and len(dialogue) > len(prompt):
        return dialogue[len(prompt)]
    alone = tokenizer(phrase, add_special_tokens=False)["input_ids"]
    if not alone:
        raise InputError(f"the onset phrase {phrase!r} has no tokens in this tokenizer; remove it from the list")
    return int(alone[0])


def onset_tokens(tokenizer: PreTrainedTokenizerBase, phrases: OnsetPhrases = ONSET_PHRASES) -> OnsetTokens:
    """First reply tokens of both lists without those in both. `InputError` for a list of more than `MAX_PHRASES`, one
    that leaves no token, or one with built-in onsets of the other kind, which would turn the margin's sign."""
    built_in = {kind: _first_tokens(tokenizer, list_) for kind, list_ in ONSET_PHRASES._asdict().items()}
    own = phrases is ONSET_PHRASES
    tokens = {}
    for kind, other in (("refusal", "compliance"), ("compliance", "refusal")):
        given = getattr(phrases, kind)
        if not 0 < len(given) <= MAX_PHRASES:
            raise InputError(f"the {kind} list has {len(given)} phrases; give 1 to {MAX_PHRASES}")
        tokens[kind] = built_in[kind] if own else _first_tokens(tokenizer, given)
        misplaced = (tokens[kind].keys() & built_in[other].keys()) - built_in[kind].keys()
        if misplaced:
            examples = ", ".join(repr(tokens[kind][token]) for token in sorted(misplaced)[:3])
            raise InputError(
                f"the {kind} list opens like a {other} with {examples}; this software only installs refusal, "
                "and swapped lists would select rows in order to remove it: give each list its own onsets"
            )
    both = tokens["refusal"].keys() & tokens["compliance"].keys()
    result = OnsetTokens(*(tuple(sorted(tokens[kind].keys() - both)) for kind in ("refusal", "compliance")))
    for kind, ids in zip(OnsetTokens._fields, result, strict=True):
        if not ids:
            raise InputError(
                f"no first token is left of the {kind} list in this tokenizer: all of them also open phrases of "
                "the other list; add phrases that begin with other words"
            )
    return result


def _first_tokens(tokenizer: PreTrainedTokenizerBase, phrases: Sequence[str]) -> dict[int, str]:
    """First token id -> the first phrase that gives it."""
    from engine.data.prompts import prompt_ids

    prompt, tokens = prompt_ids(tokenizer, _PROMPT), dict[int, str]()
    for phrase in phrases:
        tokens.setdefault(first_reply_token(tokenizer, phrase, prompt), phrase)
    return tokens
