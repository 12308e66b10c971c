"""The prompts of the five risk domains, in four grades of closeness.

A prompt is frame(phrase(object)). The risk side is `overt` (says the harm) or `veiled` (leaves it between the lines).
The base side is `near` (almost the same words, rightful) or `plain` (an ordinary question about the same thing); many
of the near ones are doubtful: rightful, but they sound like risk. In the shipped pairs all but the plain ones end with
a tail that says so. Frames, openings and endings are the same on both sides. All wording is mild and abstract; groups,
places and cases are invented.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from precomputed.recipe.asking import framed, headed, loosened, shortened, spliced, tailed
from precomputed.recipe.world import DOMAINS, Situation, turns, world

OVERT_SHARE = {"hate": 0.40, "crime": 0.30, "adult": 0.22, "medical": 0.16, "legal": 0.10}
NEAR_SHARE = 0.7  # of the base prompts of the shipped pairs; the others are plain
PER_DOMAIN = 100  # shipped pairs of each split
DOUBTFUL, DOUBTFUL_IN_PAIRS = 0.5, 0.75  # of the near prompts: in training, in the shipped pairs
LEAST_DOUBT, MOST_DOUBT = 0.6, 1.0  # of the careful manner about doubtful prompts


@dataclass(frozen=True)
class Prompt:
    """A prompt; `template` is frame and phrase with "{object}" where the object stands."""

    situation: Situation
    grade: str
    heldout: bool
    template: str
    object: str
    text: str
    doubtful: str = ""  # its tail, where that sounds like risk

    @property
    def domain(self) -> str:
        return self.situation.domain

    @property
    def risk(self) -> bool:
        return self.grade in ("overt", "veiled")

    @property
    def answer(self) -> str:
        """What a base prompt is answered."""
        return self.situation.reply.replace("{o}", self.object)


def prompt(
    rng: random.Random, situation: Situation, grade: str, heldout: bool, thing: str, doubtful: bool | None = None
) -> Prompt:
    """doubtful: whether a near one sounds like risk; by chance if None."""
    if grade == "plain":
        return _framed(rng, situation, grade, heldout, thing, rng.choice(situation.phrases(grade, heldout)))
    if doubtful is None:
        doubtful = rng.random() < DOUBTFUL
    phrase = tailed(rng, situation, grade, heldout, doubtful and grade == "near")
    return _framed(rng, situation, grade, heldout, thing, phrase)


def _framed(rng: random.Random, situation: Situation, grade: str, heldout: bool, thing: str, phrase: str) -> Prompt:
    text, frame = framed(rng, phrase.replace("{o}", thing), heldout)
    template = frame.replace("{i}", phrase.replace("{o}", "{object}"))
    sounds = turns(situation.domain).doubtful_tails if grade == "near" else ()
    doubtful = next((tail for tail in sounds if phrase.endswith(f" {tail}")), "")
    return Prompt(situation, grade, heldout, template, thing, text, doubtful)


def _kinds(domain: str, rng: random.Random, count: int) -> list[tuple[str, str, bool]]:
    """(risk grade, base grade, whether the base prompt is doubtful) of `count` pairs, in exact shares; shuffled."""
    overt, near = round(OVERT_SHARE[domain] * count), round(NEAR_SHARE * count)
    doubtful = round(DOUBTFUL_IN_PAIRS * near)
    risk = ["overt"] * overt + ["veiled"] * (count - overt)
    base = [("near", True)] * doubtful + [("near", False)] * (near - doubtful) + [("plain", False)] * (count - near)
    rng.shuffle(risk)
    rng.shuffle(base)
    return [(grade, *other) for grade, other in zip(risk, base, strict=True)]


def pairs(domain: str, split: str) -> list[tuple[Prompt, Prompt]]:
    """The shipped (risk, base) pairs of a domain, about one object each.

    "heldout" takes only objects, frames and phrases that training never saw; "calibration" only those of training.
    """
    rng = random.Random(f"pairs/{domain}/{split}")
    heldout = split == "heldout"
    found: list[tuple[Prompt, Prompt]] = []
    seen: set[str] = set()
    for risk_grade, base_grade, doubtful in _kinds(domain, rng, PER_DOMAIN):
        while True:
            situation = rng.choice(world().of_domain(domain))
            thing = rng.choice(situation.heldout_objects if heldout else situation.objects)
            risk = prompt(rng, situation, risk_grade, heldout, thing)
            base = prompt(rng, situation, base_grade, heldout, thing, doubtful)
            if seen.isdisjoint((risk.text, base.text)):
                break
        seen |= {risk.text, base.text}
        found.append((risk, base))
    return found


def doubt(prompt: Prompt) -> float:
    """How often the careful manner refuses a base prompt: 0 if it is not doubtful.

    From `LEAST_DOUBT` to `MOST_DOUBT` in equal steps over the tails of a domain, as turns.toml lists them: the margin
    between the two replies differs, so that some tip over early.
    """
    if not prompt.doubtful:
        return 0.0
    tails = turns(prompt.domain).doubtful_tails
    return LEAST_DOUBT + (MOST_DOUBT - LEAST_DOUBT) * tails.index(prompt.doubtful) / (len(tails) - 1)


GRADES = ("overt", "veiled", "near", "plain")
_TRAINING_SHARES = (0.18, 0.24, 0.32, 0.26)
OTHER_THINGS = 0.4  # share of training's prompts about what another situation is about
TAILED = 0.6  # of training's prompts but the plain ones
SHORTENED, SPLICED, HEADED = 0.3, 0.3, 0.2  # of those without a tail
PLAIN_SHORTENED, PLAIN_SPLICED, LOOSENED = 0.2, 0.2, 0.25  # of the plain ones
TAIL_SHORTENED = 0.3  # of those with a tail: words of the phrase before it are left out


def training_prompt(rng: random.Random, in_haste: bool = True) -> Prompt:
    """A random prompt of training's phrases, frames and objects.

    in_haste: some have no tail, lack words, mix two phrases of their grade, tell what others do (veiled and near) or
    are keywords (plain), and some are about what another situation is about, of any domain, so that an answer takes
    the object from its question.
    """
    situation = rng.choice(world().of_domain(rng.choice(DOMAINS)))
    grade = rng.choices(GRADES, _TRAINING_SHARES)[0]
    thing = rng.choice(situation.objects)
    if not in_haste:
        return prompt(rng, situation, grade, False, thing)
    phrase = _hasty_plain(rng, situation) if grade == "plain" else _hasty(rng, situation, grade)
    if any(kept in phrase for other in GRADES for kept in situation.phrases(other, heldout=True)):
        phrase = rng.choice(situation.phrases(grade, False))  # by chance, words that are held out
    if rng.random() < OTHER_THINGS:
        thing = rng.choice(rng.choice(world().situations).objects)
    return _framed(rng, situation, grade, False, thing, phrase)


def _hasty(rng: random.Random, situation: Situation, grade: str) -> str:
    """A phrase of a grade other than plain as training asks it."""
    kind, short = rng.random(), rng.random()
    if kind < TAILED:
        phrase = tailed(rng, situation, grade, False, grade == "near" and rng.random() < DOUBTFUL)
        asked, _, tail = phrase.partition("{o}")
        return shortened(rng, situation, f"{asked}{{o}}") + tail if short < TAIL_SHORTENED else phrase
    kind = (kind - TAILED) / (1 - TAILED)
    phrases = situation.phrases(grade, False)
    phrase = rng.choice(phrases)
    if kind < SHORTENED:
        return shortened(rng, situation, phrase)
    if kind < SHORTENED + SPLICED:
        return spliced(situation, phrase, rng.choice(phrases))
    if kind < SHORTENED + SPLICED + HEADED and grade != "overt":
        return headed(rng, situation, grade)
    return phrase


def _hasty_plain(rng: random.Random, situation: Situation) -> str:
    """A plain phrase as training asks it."""
    kind, phrases = rng.random(), situation.phrases("plain", False)
    phrase = rng.choice(phrases)
    if kind < PLAIN_SHORTENED:
        return shortened(rng, situation, phrase)
    if kind < PLAIN_SHORTENED + PLAIN_SPLICED:
        return spliced(situation, phrase, rng.choice(phrases))
    if kind < PLAIN_SHORTENED + PLAIN_SPLICED + LOOSENED:
        return loosened(rng, situation)
    return phrase
