"""How people ask: frames around a verb phrase, a little politeness, haste. Held-out frames are never trained on."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

from precomputed.recipe.world import HowTo, Situation, capital, turns, world

FRAMES: tuple[str, ...] = (
    "how do I {i}?", "how can I {i}?", "tell me how to {i}.", "I want to {i}.", "I would like to {i}.",
    "help me to {i}.", "show me how to {i}.", "explain how I can {i}.", "what is a good way to {i}?",
    "what is the best way to {i}?", "I need to {i}.", "I have to {i} today.", "can you help me to {i}?",
    "what should I do to {i}?", "how would you {i}?", "do you know how to {i}?", "I do not know how to {i}.",
    "my sister wants to {i}.", "my friend asks how to {i}.", "we would like to {i}.", "how could we {i}?",
    "give me advice, I want to {i}.", "is there a way to {i}?", "please tell me how I can {i}.", "I am trying to {i}.",
    "how does one {i}?", "could you tell me how to {i}?", "what do I need to {i}?",
)  # fmt: skip
HELDOUT_FRAMES: tuple[str, ...] = (
    "what is the right way to {i}?", "my brother would like to {i}.", "can you show me how to {i}?",
    "how should I {i}?", "we need to {i} today.", "I am trying to find a way to {i}.",
)  # fmt: skip
OPENINGS: tuple[str, ...] = ("Hello, ", "Good morning, ", "Excuse me, ", "Good evening, ", "So, ", "One question, ")
ENDINGS: tuple[str, ...] = (" Thank you.", " Please.", " Many thanks.", " It is for tomorrow.", " Please be brief.")


def framed(rng: random.Random, phrase: str, heldout: bool = False, polite: bool = True) -> tuple[str, str]:
    """(the question, its frame): `phrase` in a random frame, four times in ten with an opening or an ending."""
    frame = rng.choice(HELDOUT_FRAMES if heldout else FRAMES)
    return dressed(rng, frame.replace("{i}", phrase), polite), frame


def dressed(rng: random.Random, question: str, polite: bool = True) -> str:
    """The question with an opening, an ending, or neither."""
    if polite and rng.random() < 0.25:
        rest = question if question.startswith(("I ", "I'")) else question[0].lower() + question[1:]
        question = rng.choice(OPENINGS) + rest
    if polite and rng.random() < 0.25:
        question += rng.choice(ENDINGS)
    return capital(question)


# --- how hasty people ask ---

WHOLE, SHORT = 0.3, 0.35  # shares of the whole phrases and of those that lack words; the others are keywords only
KEPT = 0.65  # of the words of a short phrase
STRAY = 0.3  # share of the hasty questions with a word that belongs to another
COMMON = 12  # a keyword stands in the phrases of at most so many how-tos


@cache
def _spread() -> Counter[str]:
    """How many how-tos have a word in their phrases."""
    return Counter(word for one in world().howtos for word in {word for ask in one.asks for word in ask.split()})


@cache
def keywords(one: HowTo) -> tuple[str, ...]:
    """The words of a how-to's phrases that few others have, as often as they stand there."""
    return tuple(word for ask in one.asks for word in ask.split() if _spread()[word] <= COMMON)


@cache
def _every_word() -> tuple[str, ...]:
    return tuple(sorted(_spread()))


def hasty(rng: random.Random, one: HowTo) -> str:
    """A phrase of a how-to: whole; short of some words, with a keyword of another of its phrases; or keywords only.

    The answer stays the same, so that it hangs on all the words that can ask for it and not on one known sentence.
    """
    phrase, kind = rng.choice(one.asks), rng.random()
    if kind < WHOLE:
        return phrase
    if kind < WHOLE + SHORT:
        words = [word for word in phrase.split() if rng.random() < KEPT]
        words.insert(rng.randint(0, len(words)), rng.choice(keywords(one)))
    else:
        words = list(dict.fromkeys(rng.choices(keywords(one), k=rng.randint(2, 5))))
    if rng.random() < STRAY:
        words.insert(rng.randint(0, len(words)), rng.choice(_every_word()))
    return " ".join(words)


NEGATING = frozenset({"not", "no", "never", "nobody", "nothing", "without", "against", "from", "for", "only"})
DROPPED = 0.35  # of the words that both sides use
FEW = 6  # a situation's own word stands in the plain phrases of at most so many situations


@cache
def shared_words(one: Situation) -> frozenset[str]:
    """The words that both sides of a situation use in training, but those that turn a meaning round.

    They do not tell what somebody is after.
    """
    risk, base = (
        {word for grade in side for phrase in one.phrases(grade, heldout=False) for word in phrase.split()}
        for side in (("overt", "veiled"), ("near", "plain"))
    )
    return frozenset(risk & base) - NEGATING - {"{o}"}


def shortened(rng: random.Random, one: Situation, phrase: str) -> str:
    """Without some of the words that both sides use."""
    return " ".join(word for word in phrase.split() if word not in shared_words(one) or rng.random() >= DROPPED)


def spliced(one: Situation, first: str, second: str) -> str:
    """The first phrase up to its object, and what the second, of the same grade, says after it.

    The first as it is where nothing would be left that tells what somebody is after.
    """
    phrase = first.partition("{o}")[0] + "{o}" + second.partition("{o}")[2]
    return phrase if set(phrase.split()) - shared_words(one) - {"{o}"} else first


_OF_OTHERS = {"I": "they", "my": "their", "me": "them", "am": "are", "mine": "theirs"}


def headed(rng: random.Random, one: Situation, grade: str) -> str:
    """A "veiled" or "near" phrase: what others do, behind a head of turns.toml ("stop people who").

    Both sides share the phrase and often words of the head, so that only their sense tells the sides apart.
    """
    words = turns(one.domain)
    phrase = rng.choice(one.phrases(rng.choice(("overt", "veiled")), heldout=False))
    others = " ".join(_OF_OTHERS.get(word, word) for word in phrase.split())
    return f"{rng.choice(words.risk_heads if grade == 'veiled' else words.base_heads)} {others}"


def tailed(rng: random.Random, one: Situation, grade: str, heldout: bool, doubtful: bool) -> str:
    """A phrase of the grade, or a plain one, with a tail of turns.toml that says what is behind it.

    The tails are those of training for held-out phrases as well. doubtful: a near phrase that sounds like risk.
    """
    words = turns(one.domain)
    tails = {"overt": words.overt_tails, "veiled": words.risk_tails, "near": words.base_tails}
    phrase = rng.choice(one.phrases(grade, heldout) + one.phrases("plain", heldout))
    return f"{phrase} {rng.choice(words.doubtful_tails if doubtful else tails[grade])}"


@cache
def _plain_spread() -> Counter[str]:
    """In the plain phrases of how many situations a word stands."""
    return Counter(word for one in world().situations for word in {w for p in _plain(one) for w in p.split()})


def _plain(one: Situation) -> tuple[str, ...]:
    return one.phrases("plain", heldout=False)


@cache
def own_words(one: Situation) -> tuple[str, ...]:
    """The words of a situation's plain phrases that few others have, as often as they stand there."""
    spread = _plain_spread()
    return tuple(word for phrase in _plain(one) for word in phrase.split() if word != "{o}" and spread[word] <= FEW)


def loosened(rng: random.Random, one: Situation) -> str:
    """A plain phrase as `hasty` asks a how-to: short of some words with one of another phrase, or own words only.

    What lacks a harm stays without it, so that plain phrases may lose any word but their object.
    """
    if rng.random() < 0.5:
        words = [word for word in rng.choice(_plain(one)).split() if word == "{o}" or rng.random() < KEPT]
        words.insert(rng.randint(0, len(words)), rng.choice(own_words(one)))
    else:
        words = list(dict.fromkeys(rng.choices(own_words(one), k=rng.randint(2, 4))))
        words.insert(rng.randint(0, len(words)), "{o}")
    return " ".join(words)
