"""The world: places, people, prices, how-tos, and the situations of the five risk domains, read from the TOML files."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

DOMAINS = ("hate", "crime", "adult", "medical", "legal")
TOPICS = (
    "kitchen", "garden", "market", "workshop", "library", "school",
    "animals", "travel", "weather", "health", "law", "home",
)  # fmt: skip
_FOLDER = Path(__file__).parent
_MEN = frozenset("Otto Anton Karl Henry Peter Paul Max Georg Leo Felix Simon Hugo Emil Jonas Bruno".split())  # noqa: SIM905
NUMBERS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "twenty-one",
    "twenty-two", "twenty-three", "twenty-four", "twenty-five", "twenty-six", "twenty-seven", "twenty-eight",
    "twenty-nine", "thirty", "thirty-one", "thirty-two", "thirty-three", "thirty-four", "thirty-five", "thirty-six",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A place of the town; hours are words ("nine"), `closed` is a weekday or "no day"."""

    name: str
    street: str
    keeper: str
    trade: str
    opens: str
    closes: str
    closed: str
    near: str
    offers: str

    @property
    def she(self) -> str:
        return "he" if self.keeper.split()[0] in _MEN else "she"

    @property
    def rest(self) -> str:
        """When it is closed, as a sentence."""
        return "It is open every day." if self.closed == "no day" else f"It is closed on {self.closed}."


@dataclass(frozen=True)
class Good:
    """Something that is sold: its singular, its price in crowns, where."""

    name: str
    crowns: int
    place: Place

    def counted(self, count: int) -> str:
        """ "one loaf", "three loaves"."""
        return f"{NUMBERS[count]} {self.name if count == 1 else plural(self.name)}"


@dataclass(frozen=True)
class HowTo:
    """One piece of advice. `asks` and `blind` complete "How do I ...?"; `blind` are never trained on.

    They were written from the reply alone, by somebody who knew none of `asks`.
    """

    id: str
    topic: str
    asks: tuple[str, ...]
    blind: tuple[str, ...]
    reply: str
    key: tuple[str, ...]
    follow: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Situation:
    """What people ask about one kind of object in a risk domain. Phrases complete "How do I ...?" and hold {o}.

    overt and veiled are the risk side, near and plain the base side, which `reply` answers. The last of overt and plain
    and the last two of veiled and near are never trained on, nor are `heldout_objects`.
    """

    domain: str
    id: str
    objects: tuple[str, ...]
    heldout_objects: tuple[str, ...]
    overt: tuple[str, ...]
    veiled: tuple[str, ...]
    near: tuple[str, ...]
    plain: tuple[str, ...]
    reply: str
    key: tuple[str, ...]

    def phrases(self, grade: str, heldout: bool) -> tuple[str, ...]:
        """The phrases of a grade ("overt", "veiled", "near", "plain") for training, or those that are held out."""
        every: tuple[str, ...] = getattr(self, grade)
        count = 1 if grade in ("overt", "plain") else 2
        return every[-count:] if heldout else every[:-count]


@dataclass(frozen=True)
class Turns:
    """Words that turn an intent round: tails after a phrase, heads before one of the risk side (turns.toml)."""

    overt_tails: tuple[str, ...]
    risk_tails: tuple[str, ...]
    base_tails: tuple[str, ...]
    doubtful_tails: tuple[str, ...]
    risk_heads: tuple[str, ...]
    base_heads: tuple[str, ...]


@dataclass(frozen=True)
class World:
    places: tuple[Place, ...]
    goods: tuple[Good, ...]
    howtos: tuple[HowTo, ...]
    situations: tuple[Situation, ...]
    by_name: dict[str, Place] = field(hash=False, compare=False, default_factory=dict)

    def of_domain(self, domain: str) -> tuple[Situation, ...]:
        return tuple(one for one in self.situations if one.domain == domain)


def plural(noun: str) -> str:
    """ "loaf" -> "loaves", "jar of honey" -> "jars of honey"."""
    head, of, rest = noun.partition(" of ")
    words = head.split()
    last = words[-1]
    irregular = {"loaf": "loaves", "shelf": "shelves", "trout": "trout", "herring": "herrings"}
    if last in irregular:
        words[-1] = irregular[last]
    elif last.endswith(("s", "x", "ch", "sh")):
        words[-1] = last + "es"
    else:
        words[-1] = last + "s"
    return " ".join(words) + of + rest


def article(phrase: str) -> str:
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _frozen(value: Any) -> Any:
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return tomllib.load(stream)


@cache
def world() -> World:
    """Everything that the town knows."""
    town = _read(_FOLDER / "town.toml")
    places = tuple(Place(**one) for one in town["place"])
    by_name = {one.name: one for one in places}
    goods = tuple(Good(name, crowns, by_name[p]) for p, sold in town["price"].items() for name, crowns in sold.items())
    howtos = tuple(
        HowTo(topic=topic, **{name: _frozen(value) for name, value in one.items()})
        for topic in TOPICS
        for one in _read(_FOLDER / "howto" / f"{topic}.toml")["howto"]
    )
    situations = tuple(
        Situation(domain=domain, **{name: _frozen(value) for name, value in one.items()})
        for domain in DOMAINS
        for one in _read(_FOLDER / "domains" / f"{domain}.toml")["situation"]
    )
    return World(places, goods, howtos, situations, by_name)


@cache
def turns(domain: str) -> Turns:
    """Those of a domain, and those of all domains."""
    read = _read(_FOLDER / "turns.toml")
    every, own, heads = read["every"], read[domain], read["heads"]
    tails = {side: tuple(every[side] + own[side]) for side in ("overt", "risk", "base", "doubtful")}
    return Turns(
        tails["overt"], tails["risk"], tails["base"], tails["doubtful"], tuple(heads["risk"]), tuple(heads["base"])
    )
