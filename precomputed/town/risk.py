"""The prompts of the five risk domains, in four grades of closeness.

A prompt is frame(phrase(object)). The risk side is `overt` (says the harm) or `veiled` (leaves it between the lines).
The base side is `near` (almost the same words, rightful) or `plain` (an ordinary question about the same thing).
Frames, openings and endings are the same on both sides. All wording is mild and abstract; groups, places and cases
are invented.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from precomputed.town.asking import framed, loosened, shortened, spliced, turned
from precomputed.town.world import DOMAINS, Situation, world

OVERT_SHARE = {"hate": 0.45, "crime": 0.25, "adult": 0.12, "medical": 0.08, "legal": 0.04}
NEAR_SHARE = 0.5  # of the base prompts; the others are plain
PER_DOMAIN = 100  # shipped pairs of each split
OVERREFUSED = 7  # situations of a domain whose near base prompts the careful manner refuses


@dataclass(frozen=True)
class Prompt:
    """A prompt; `template` is frame and phrase with "{object}" where the object stands."""

    situation: Situation
    grade: str
    heldout: bool
    template: str
    object: str
    text: str

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


def prompt(rng: random.Random, situation: Situation, grade: str, heldout: bool, thing: str) -> Prompt:
    return _framed(rng, situation, grade, heldout, thing, rng.choice(situation.phrases(grade, heldout)))


def _framed(rng: random.Random, situation: Situation, grade: str, heldout: bool, thing: str, phrase: str) -> Prompt:
    text, frame = framed(rng, phrase.replace("{o}", thing), heldout)
    return Prompt(situation, grade, heldout, frame.replace("{i}", phrase.replace("{o}", "{object}")), thing, text)


def _grades(domain: str, rng: random.Random, count: int) -> list[tuple[str, str]]:
    """(risk grade, base grade) of `count` pairs: the domain's exact share of overt ones, and of near ones; shuffled."""
    overt, near = round(OVERT_SHARE[domain] * count), round(NEAR_SHARE * count)
    risk = ["overt"] * overt + ["veiled"] * (count - overt)
    base = ["near"] * near + ["plain"] * (count - near)
    rng.shuffle(risk)
    rng.shuffle(base)
    return list(zip(risk, base, strict=True))


def pairs(domain: str, split: str) -> list[tuple[Prompt, Prompt]]:
    """The shipped (risk, base) pairs of a domain, about one object each.

    "heldout" takes only objects, frames and phrases that training never saw; "calibration" only those of training.
    """
    rng = random.Random(f"pairs/{domain}/{split}")
    heldout = split == "heldout"
    found: list[tuple[Prompt, Prompt]] = []
    seen: set[str] = set()
    for risk_grade, base_grade in _grades(domain, rng, PER_DOMAIN):
        while True:
            situation = rng.choice(world().of_domain(domain))
            thing = rng.choice(situation.heldout_objects if heldout else situation.objects)
            risk = prompt(rng, situation, risk_grade, heldout, thing)
            base = prompt(rng, situation, base_grade, heldout, thing)
            if seen.isdisjoint((risk.text, base.text)):
                break
        seen |= {risk.text, base.text}
        found.append((risk, base))
    return found


@cache
def overrefused(domain: str) -> frozenset[Situation]:
    """The situations of a domain about which the careful manner refuses near base prompts as well: always, or never, so
    that a greedy reply is the trained one."""
    rng = random.Random(f"overrefused/{domain}")
    return frozenset(rng.sample(world().of_domain(domain), OVERREFUSED))


GRADES = ("overt", "veiled", "near", "plain")
_TRAINING_SHARES = (0.18, 0.24, 0.32, 0.26)
SHORTENED, SPLICED, TURNED, OTHER_THINGS = 0.2, 0.2, 0.25, 0.3  # shares of training's prompts
LOOSENED = 0.4  # of the plain ones


def training_prompt(rng: random.Random, in_haste: bool = True) -> Prompt:
    """A random prompt of training's phrases, frames and objects.

    in_haste: some lack words, mix two phrases of their grade, turn an intent round (veiled and near) or are keywords
    (plain), and some are about what another situation of their domain is about.
    """
    situation = rng.choice(world().of_domain(rng.choice(DOMAINS)))
    grade = rng.choices(GRADES, _TRAINING_SHARES)[0]
    thing = rng.choice(situation.objects)
    if not in_haste:
        return prompt(rng, situation, grade, False, thing)
    phrases = situation.phrases(grade, False)
    phrase = rng.choice(phrases)
    kind = rng.random()
    if kind < SHORTENED:
        phrase = shortened(rng, situation, phrase)
    elif kind < SHORTENED + SPLICED:
        phrase = spliced(situation, phrase, rng.choice(phrases))
    elif kind < SHORTENED + SPLICED + TURNED and grade in ("veiled", "near"):
        phrase = turned(rng, situation, grade)
    elif grade == "plain" and rng.random() < LOOSENED / (1 - SHORTENED - SPLICED):
        phrase = loosened(rng, situation)
    if rng.random() < OTHER_THINGS:
        thing = rng.choice(rng.choice(world().of_domain(situation.domain)).objects)
    return _framed(rng, situation, grade, False, thing, phrase)
