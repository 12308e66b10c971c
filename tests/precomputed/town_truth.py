"""What town.toml holds, read without the recipe, and whether a text of the town agrees with it."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

from precomputed.recipe import world

TOML = tomllib.loads((Path(world.__file__).parent / "town.toml").read_text(encoding="utf-8"))
PLACES = {one["name"].removeprefix("the "): SimpleNamespace(**one) for one in TOML["place"]}
PRICES = {name: (crowns, place) for place, sold in TOML["price"].items() for name, crowns in sold.items()}
GOODS = {form: name for name in PRICES for form in (name, world.plural(name))}
UNITS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
NUMBER = {word: n for n, word in enumerate(UNITS)} | {
    f"{ten}-{unit}".removesuffix("-zero"): value + n
    for ten, value in (("twenty", 20), ("thirty", 30))
    for n, unit in enumerate(UNITS[:10])
}


def number(word: str) -> int:
    return 1 if word.lower() in ("a", "an") else NUMBER[word.lower()]


def one_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


P, KEEPER, STREET = (
    one_of(w) for w in (PLACES, (p.keeper for p in PLACES.values()), (p.street for p in PLACES.values()))
)
GOOD, COUNT = one_of(GOODS), rf"\b((?i:{one_of([*NUMBER, 'a', 'an'])}))"
# What a text may say of a place: pattern with the place and more groups, and the fields that these must equal.
SAID = (
    (rf"[Tt]he ({P})(?: is)? on ({STREET})\b", "street"),
    (rf"[Tt]he ({P}) is on (?:{STREET}), near the ({P})\b", "near"),
    (rf"[Tt]he ({P}) opens at (\w+)", "opens"),
    (rf"[Tt]he ({P}) (?:opens at \w+ and )?closes at (\w+)", "closes"),
    (rf"[Tt]he ({P}) is closed on (\w+day)", "closed"),
    (rf"[Tt]he ({P}) is open (?:every day )?from (\w+)(?: in the morning)? (?:to|until) (\w+)", "opens closes"),
    (rf"[Tt]he ({P}) is open (?:from \w+ to \w+ and closed on (\w+day)|every day)", "closed"),
    (rf"[Tt]he ({P})[^.]*\. It is (?:closed on (\w+day)|open every day)", "closed"),
    (rf"[Tt]he ({P}) (?:[^.]*\. )?It opens at (\w+)", "opens"),
    (rf"[Tt]he ({P})[^.]*\. ({KEEPER}) works there", "keeper"),
    (rf"[Tt]he ({P})[^.]*\. ({KEEPER}), the ([a-z ]+), was there", "keeper trade"),
    (rf"[Tt]he ({P}) ({one_of(p.offers for p in PLACES.values())})\b", "offers"),
)
OF_KEEPERS = (
    (rf"({KEEPER}) (?:works )?at the ({P})\b", "name"),
    (rf"({KEEPER}) is the ([a-z ]+) of the town", "trade"),
    (rf"({KEEPER}) works at the (?:{P})\. S?[Hh]e is the ([a-z ]+)\.", "trade"),
)
PRICED = rf"{COUNT} ({GOOD}) (?:costs?|for) {COUNT} crowns?"


def says(text: str) -> Counter[tuple[str, str]]:
    """How often each kind of fact is said in a text; AssertionError on the first that town.toml has otherwise."""
    found: Counter[tuple[str, str]] = Counter()
    text = re.sub(r"Is it true that [^?]*\?", "", text)
    for pattern, fields in SAID:
        for match in re.finditer(pattern, text):
            wanted = [getattr(PLACES[match[1]], field).removeprefix("the ") for field in fields.split()]
            assert [part or "no day" for part in match.groups()[1:]] == wanted, match[0]
            found[fields, match[1]] += 1
    by_keeper = {place.keeper: place for place in PLACES.values()}
    for pattern, field in OF_KEEPERS:
        for match in re.finditer(pattern, text):
            assert match[2] == getattr(by_keeper[match[1]], field).removeprefix("the "), match[0]
            found["person", match[1]] += 1
    for count, form, crowns in re.findall(PRICED, text):
        assert number(crowns) == number(count) * PRICES[GOODS[form]][0], (count, form)
        found["price", GOODS[form]] += 1
    return found


def is_true(statement: str) -> bool:
    """Whether one sentence on the town is true, which must say exactly one thing that can be checked."""
    try:
        assert sum(says(f"{statement}.").values()) == 1, f"not one statement: {statement}"
    except AssertionError as error:
        if "not one" in str(error):
            raise
        return False
    return True
