# ruff: noqa: SIM905  (word lists read better as running text)
"""Zipfian choice, invented words and inflection: the small change of the text generator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

_ONSETS = "b b d d dr f g gr h j k kl l l m m n n p p pr r r s s sk st t t tr v w".split()
_VOWELS = "a e i o u ai ea o a e".split()
_CODAS = ["", "", "", "", "", "l", "m", "n", "n", "r", "r", "s", "th"]
_DOUBLING = frozenset("plan stop trim drop ship wrap pin stir mop fit scrub knit rig hem chop prefer drag".split())
_IRREGULAR = {
    "build": "built", "keep": "kept", "sell": "sold", "buy": "bought", "hold": "held", "find": "found",
    "write": "wrote", "read": "read", "sing": "sang", "grow": "grew", "bring": "brought", "make": "made",
    "lead": "led", "sow": "sowed", "cut": "cut", "set": "set", "weave": "wove", "send": "sent",
    "draw": "drew", "feed": "fed", "teach": "taught", "win": "won", "throw": "threw", "catch": "caught",
    "lose": "lost", "hide": "hid", "meet": "met", "see": "saw", "tell": "told", "leave": "left",
    "spin": "spun", "bind": "bound", "wind": "wound", "go": "went", "come": "came", "stand": "stood",
    "rise": "rose", "begin": "began", "fall": "fell", "lay": "laid", "run": "ran", "give": "gave",
    "drive": "drove", "choose": "chose", "cast": "cast", "beat": "beat", "say": "said", "get": "got",
}  # fmt: skip


@cache
def _cumulative(n: int, exponent: float) -> tuple[float, ...]:
    return tuple(accumulate(1.0 / (rank + 1.5) ** exponent for rank in range(n)))


@cache
def _order(items: tuple[str, ...], key: str) -> tuple[str, ...]:
    shuffled = list(items)
    random.Random(f"order/{key}").shuffle(shuffled)
    return tuple(shuffled)


def zipf(rng: random.Random, items: Sequence[str], key: str = "", exponent: float = 1.0) -> str:
    """One of `items` with probability ~ 1 / (rank + 1.5)^exponent.

    `key` names the ranking: each key has its own fixed random order of the items. With the key of another word
    ("which adjective goes with *bridge*") that gives the language thousands of fixed preferences to learn.
    """
    if not key:
        return rng.choices(items, cum_weights=_cumulative(len(items), exponent))[0]
    return rng.choices(_order(tuple(items), key), cum_weights=_cumulative(len(items), exponent))[0]


def fixed(items: Sequence[str], key: str) -> str:
    """The same item for the same key always: a fact of the invented world."""
    return random.Random(f"fixed/{key}").choice(items)


def invented(
    count: int, seed: str, endings: Sequence[str] = ("",), syllables: tuple[int, int] = (1, 2)
) -> tuple[str, ...]:
    """`count` distinct invented lower-case words: onset + vowel + coda per syllable, and an ending."""
    rng = random.Random(f"invented/{seed}")
    words: dict[str, None] = {}
    while len(words) < count:
        stem = "".join(
            rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(rng.randint(*syllables))
        )
        words[stem + rng.choice(endings)] = None
    return tuple(word for word in words)


def plural(noun: str) -> str:
    if noun.endswith("man"):
        return noun[:-3] + "men"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    return {
        "loaf": "loaves",
        "shelf": "shelves",
        "knife": "knives",
        "leaf": "leaves",
        "wolf": "wolves",
        "goose": "geese",
    }.get(noun, noun + "s")


def third(verb: str) -> str:
    """Third person singular of the present."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "ch", "sh", "o")) else "s")


def past(verb: str) -> str:
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb in _DOUBLING:
        return verb + verb[-1] + "ed"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def gerund(verb: str) -> str:
    if verb in _DOUBLING or verb in {"cut", "set", "win", "spin", "begin", "run", "get"}:
        return verb + verb[-1] + "ing"
    return (verb[:-1] if verb.endswith("e") and not verb.endswith("ee") else verb) + "ing"


def article(phrase: str) -> str:
    """`phrase` with "a" or "an" before it."""
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def sentence(text: str, end: str = ".") -> str:
    return text[0].upper() + text[1:] + end
