# ruff: noqa: E501  (lines of generated text)
"""Prose of the town for language modelling: documents of eight kinds, whose people, things and numbers agree from start to end.

Two kinds of facts can be learned: those of the world (where the library is, what a loaf costs, where Ada lives), which
hold in every document, and those of a document (who has lost the red scarf, what is in the basket), which come back later in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from precomputed.recipe import facts
from precomputed.recipe.demo_replies import fixed
from precomputed.recipe.world import NUMBERS, Good, Place, article, capital, world

PEOPLE = {
    "Ada": "she", "Ben": "he", "Cora": "she", "David": "he", "Elsa": "she", "Finn": "he", "Gerda": "she", "Hans": "he",
    "Ines": "she", "Jakob": "he", "Kaya": "she", "Lukas": "he", "Mona": "she", "Nils": "he", "Oda": "she", "Pavel": "he",
    "Rita": "she", "Sven": "he", "Thea": "she", "Urs": "he", "Wanda": "she", "Yann": "he", "Zora": "she", "Theo": "he",
}  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEATHER = {
    "It rained from morning to night.": ("The street was full of puddles.", "Everybody carried an umbrella."),
    "The sun shone all day.": ("Children played on the square.", "The benches by the river were full."),
    "It snowed in the night.": ("The roofs were white in the morning.", "Max Oller put sand on the steps of the fire station."),
    "A strong wind came from the river.": ("Simon Graf hung out the red flag at the weather tower.", "The ferry stayed at the pier until noon."),
    "Fog lay over the Alder.": ("One could hardly see the other side.", "Lena Moor rang the bell of the ferry."),
    "It was hot and still.": ("The swimming bath was full.", "People sat in the shade and drank cold tea."),
}  # fmt: skip
COLOURS = ("red", "blue", "green", "grey", "yellow", "brown", "black", "white")
THINGS = ("scarf", "umbrella", "bag", "glove", "book", "hat", "key ring", "lunch box", "letter", "toy horse")
PETS = ("dog", "cat", "goat", "goose", "rabbit", "pony")
HOBBIES = (
    "paints boats",
    "sings in the choir",
    "grows roses",
    "plays the violin",
    "collects stamps",
    "bakes bread",
    "keeps bees",
    "builds kites",
)
FEELINGS = ("tired but glad", "in good spirits", "a little late", "hungry", "proud of the day", "wet and cold")


def street_of(name: str) -> str:
    """Where somebody lives: a fact of the world, as are pet and hobby."""
    return fixed(tuple(sorted({one.street for one in world().places})), f"street/{name}")


def pet_of(name: str) -> str:
    return fixed(PETS, f"pet/{name}")


def hobby_of(name: str) -> str:
    return fixed(HOBBIES, f"hobby/{name}")


def _who(rng: random.Random, count: int) -> list[str]:
    return rng.sample(list(PEOPLE), count)


def _open_day(rng: random.Random, *places: Place) -> str:
    """A day on which all of the places are open."""
    return rng.choice([one for one in DAYS if one not in {place.closed for place in places}])


def _weather(rng: random.Random) -> str:
    first = rng.choice(list(WEATHER))
    return f"{first} {rng.choice(WEATHER[first])}"


def _intro(rng: random.Random, name: str) -> str:
    she = capital(PEOPLE[name])
    return rng.choice((
        f"{name} lives on {street_of(name)}.", f"{name} lives on {street_of(name)} with a {pet_of(name)}.",
        f"{name} {hobby_of(name)}.", f"{name} has a {pet_of(name)}. {she} {hobby_of(name)}.",
    ))  # fmt: skip


def _place_line(rng: random.Random, place: Place) -> str:
    """One thing that is true of a place."""
    p = capital(place.name)
    return rng.choice((
        f"{p} is on {place.street}.", f"{p} is on {place.street}, near {place.near}.", f"{place.keeper} works there.",
        f"{place.keeper}, the {place.trade}, was there.", f"{p} opens at {place.opens}.", f"{p} closes at {place.closes}.",
        place.rest, f"{p} {place.offers}.",
    ))  # fmt: skip


def _list(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def shopping(rng: random.Random) -> str:
    """Somebody buys things in two or three places and counts at the end what is in the basket and what it cost."""
    name = _who(rng, 1)[0]
    she = PEOPLE[name]
    places = rng.sample(sorted({good.place.name for good in world().goods}), rng.choice((2, 2, 3)))
    day = _open_day(rng, *(world().by_name[one] for one in places))
    lines = [
        _intro(rng, name),
        rng.choice(
            (
                f"On {day} {she} went to buy a few things.",
                f"{capital(she)} went out on {day} with a basket.",
                f"On {day} {she} took the basket and went out.",
            )
        ),
    ]
    if rng.random() < 0.5:
        lines.append(_weather(rng))
    total, bought = 0, []
    for index, name_of_place in enumerate(places):
        place = world().by_name[name_of_place]
        good: Good = rng.choice(facts.goods_of(place))
        count = rng.choice((1, 1, 2, 3)) if good.crowns <= 6 else 1
        count = 1 if facts.untold(good, count) else count
        cost = count * good.crowns
        if total + cost > 36:
            break
        total += cost
        bought.append(good.counted(count))
        start = ("First", "Then", "Last")[min(index, 2)] if rng.random() < 0.6 else "After that" if index else "First"
        lines.append(f"{start} {she} went to {place.name} and bought {good.counted(count)} for {facts.crowns(cost)}.")
        if rng.random() < 0.6:
            lines.append(_place_line(rng, place))
    if rng.random() < 0.5:
        other = rng.choice([one for one in PEOPLE if one != name])
        lines.append(f"On the way home {she} met {other}. {_intro(rng, other)}")
    lines.append(f"At home {name} put everything on the table: {_list(bought)}.")
    lines.append(f"It had cost {facts.crowns(total)} in all.")
    if rng.random() < 0.5:
        lines.append(f"{name} was {rng.choice(FEELINGS)}.")
    return " ".join(lines)


def lost(rng: random.Random) -> str:
    """Somebody loses a thing in one of three places and gets it back there."""
    name, finder = _who(rng, 2)
    she, thing = PEOPLE[name], f"{rng.choice(COLOURS)} {rng.choice(THINGS)}"
    her = "her" if she == "she" else "his"
    places = rng.sample(world().places, 3)
    where = rng.choice(places)
    lines = [_intro(rng, name), f"On {_open_day(rng, *places)} {name} lost {article(thing)}."]
    lines.append(f"That day {she} had been at {_list([one.name for one in places])}.")
    for place in places:
        lines.append(f"{capital(she)} asked {place.keeper} at {place.name}.")
        if place is where:
            break
        lines.append(rng.choice(("Nobody had seen it there.", "It was not there.", f"But the {thing} was not there.")))
    lines.append(
        rng.choice(
            (
                f"There {finder} had found the {thing} under a bench.",
                f"{finder} had seen the {thing} and kept it there.",
            )
        )
    )
    lines.append(f"So {name} got the {thing} back at {where.name} on {where.street} and thanked {finder}.")
    if rng.random() < 0.5:
        lines.append(
            f'"I will look after {her} things better next time," {name} promised.'.replace(f"{her} things", "my things")
        )
    return " ".join(lines)


def advice(rng: random.Random) -> str:
    """One asks another how to do something, and later tells whether it worked."""
    name, other = _who(rng, 2)
    one = rng.choice(world().howtos)
    ask = rng.choice(one.asks)
    where = rng.choice(
        ("by the river", "on the square", "by the fountain", "in front of the library", "near the station")
    )
    lines = [_intro(rng, other), f"One {rng.choice(DAYS)} {name} met {other} {where}."]
    lines.append(f'"How do I {ask}?" asked {name}.')
    lines.append(f'"{one.reply[:-1]}," said {other}.')
    if one.follow and rng.random() < 0.6:
        asked, said = rng.choice(one.follow)
        lines.append(f'"{asked}" asked {name}. "{said[:-1]}," said {other}.')
    lines.append(
        rng.choice(
            (
                f"{name} thanked {other} and went home to try it.",
                f"The next week {name} told {other} that it had worked.",
                f"{name} wrote it down and thanked {other}.",
            )
        )
    )
    return " ".join(lines)


def guide(rng: random.Random) -> str:
    """A note on one place with all that is true of it."""
    place = rng.choice(world().places)
    kinds = rng.sample(facts.KINDS, rng.choice((3, 4, 5)))
    return " ".join(facts.answer(kind.name, place).text for kind in kinds)


def letter(rng: random.Random) -> str:
    """A letter between two people, with news that come back at its end."""
    name, other = _who(rng, 2)
    she = capital(PEOPLE[other])
    place, second = rng.sample(world().places, 2)
    day = _open_day(rng, place)
    lines = [
        f"Dear {name},",
        rng.choice(("I hope that you are well.", "it is long since you wrote.", "thank you for your letter.")),
    ]
    lines.append(_weather(rng))
    lines.append(f"My {pet_of(other)} is {rng.choice(('well', 'a little ill', 'fat and happy', 'getting old'))}.")
    lines.append(f"On {day} I went to {place.name}. {_place_line(rng, place)}")
    lines.append(
        rng.choice((f"Will you come with me to {second.name} next week?", f"Next week I want to go to {second.name}."))
    )
    lines.append(_place_line(rng, second))
    lines.append(f"How is your {pet_of(name)}? Is everything well on {street_of(name)}?")
    lines.append(f"Let us meet at {second.name} on {_open_day(rng, second)}.")
    lines.append(f"Yours, {other}.")
    if rng.random() < 0.5:
        lines.append(f"{she} put the letter in an envelope and took it to the post office on Bridge Street.")
    return " ".join(lines)


def quiz(rng: random.Random) -> str:
    """Questions with short answers: yes or no, one of the facts, a sum."""
    return "\n".join(quiz_line(rng) for _ in range(rng.randint(4, 7)))


def quiz_line(rng: random.Random) -> str:
    kind = rng.choices(("claim", "sum", "howto", "fact"), (0.5, 0.15, 0.15, 0.2))[0]
    if kind == "claim":
        statement, true = claim(rng)
        return f"Question: Is it true that {statement}?\nAnswer: {'yes' if true else 'no'}."
    if kind == "sum":
        return sum_line(rng)
    if kind == "howto":
        one = rng.choice(world().howtos)
        return f"Question: How do I {rng.choice(one.asks)}?\nAnswer: {one.reply}"
    asked = facts.question(rng)
    return f"Question: {asked.question}\nAnswer: {asked.answer.text}"


def claim(rng: random.Random) -> tuple[str, bool]:
    """A sentence on the town, without its stop, and whether it is true; true half of the time."""
    true = rng.random() < 0.5
    place, other = rng.sample(world().places, 2)
    kind = rng.randrange(4)
    if kind == 0:
        while other.street == place.street:
            other = rng.choice(world().places)
        return f"{place.name} is on {(place if true else other).street}", true
    if kind == 1:
        return f"{place.keeper} works at {(place if true else other).name}", true
    if kind == 2:
        while other.closed == place.closed or "no day" in (place.closed, other.closed):
            place, other = rng.sample(world().places, 2)
        return f"{place.name} is closed on {(place if true else other).closed}", true
    while other.opens == place.opens:
        other = rng.choice(world().places)
    return f"{place.name} opens at {(place if true else other).opens}", true


def sum_line(rng: random.Random) -> str:
    """What some of a good cost."""
    good = rng.choice(world().goods)
    told = [count for count in range(2, facts.MOST + 1) if not facts.untold(good, count)] or [1]
    return sum_of(good, rng.choice(told))


def sum_of(good: Good, count: int) -> str:
    return f"One {good.name} costs {facts.crowns(good.crowns)}. {capital(good.counted(count))} cost {facts.crowns(count * good.crowns)}."


def lesson(rng: random.Random) -> str:
    """Counting in the school."""
    name = rng.choice(list(PEOPLE))
    lines = [f"Marta Olsen asked {name} to count."]
    for _ in range(rng.randint(3, 6)):
        a, b = rng.randint(1, 9), rng.randint(1, 9)
        kind = rng.randrange(3)
        if kind == 0:
            lines.append(f"{capital(NUMBERS[a])} and {NUMBERS[b]} are {NUMBERS[a + b]}.")
        elif kind == 1:
            high, low = max(a, b), min(a, b)
            lines.append(f"{capital(NUMBERS[high])} less {NUMBERS[low]} is {NUMBERS[high - low]}.")
        else:
            b = min(b, facts.MOST)
            lines.append(f"{capital(NUMBERS[b])} times {NUMBERS[a]} is {NUMBERS[a * b]}.")
    lines.append(
        rng.choice(
            (
                f'"Well done, {name}," said Marta Olsen.',
                f"Then the bell rang and {name} went home to {street_of(name)}.",
            )
        )
    )
    return " ".join(lines)


def day(rng: random.Random) -> str:
    """A day of two friends between two places, told in order."""
    name, other = _who(rng, 2)
    place, second = rng.sample(world().places, 2)
    she = PEOPLE[name]
    lines = [_weather(rng), f"{name} got up early and went to {place.name}.", _place_line(rng, place)]
    lines.append(f"{other} was already there. {_intro(rng, other)}")
    lines.append(
        f"Together they went on to {second.name}." + (f" {_place_line(rng, second)}" if rng.random() < 0.7 else "")
    )
    lines.append(
        rng.choice(
            (
                f"They talked about the {pet_of(name)} of {name} and the {pet_of(other)} of {other}.",
                f"{other} told {name} about {_who(rng, 1)[0]}.",
            )
        )
    )
    lines.append(f"In the evening {name} was back on {street_of(name)}, and {other} on {street_of(other)}.")
    lines.append(
        rng.choice(
            (
                f"It had been a good day at {place.name} and at {second.name}.",
                f"{capital(she)} was {rng.choice(FEELINGS)}.",
            )
        )
    )
    return " ".join(lines)


KINDS: tuple[tuple[Callable[[random.Random], str], float], ...] = (
    (shopping, 0.2), (lost, 0.14), (advice, 0.2), (guide, 0.08), (letter, 0.1), (quiz, 0.12), (lesson, 0.04), (day, 0.12),
)  # fmt: skip


def document(rng: random.Random) -> str:
    kinds, shares = zip(*KINDS, strict=True)
    return str(rng.choices(kinds, shares)[0](rng))


def corpus(seed: int, characters: int, seen: set[str]) -> list[str]:
    """Different documents, none of them in `seen`, to which they are added."""
    rng = random.Random(f"prose/{seed}")
    found: list[str] = []
    total = 0
    while total < characters:
        text = document(rng)
        if text not in seen:
            seen.add(text)
            found.append(text)
            total += len(text)
    return found
