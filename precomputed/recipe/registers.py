# ruff: noqa: E501  (lines of generated text)
"""The registers: one function per kind of text, scene -> paragraphs, each a list of sentences."""

from __future__ import annotations

from collections.abc import Callable

from precomputed.recipe import lexicon
from precomputed.recipe.phrases import (
    about,
    adjective,
    adverbial,
    be,
    clause,
    compound,
    conjugate,
    link,
    noun,
    noun_phrase,
    number_word,
    verb,
)
from precomputed.recipe.scene import Scene
from precomputed.recipe.words import article, past, plural, sentence, zipf

Register = Callable[[Scene], list[str]]


def _some(s: Scene, low: int, high: int) -> list[str]:
    return [sentence(compound(s)) for _ in range(s.rng.randint(low, high))]


def entry(s: Scene) -> list[str]:
    """Encyclopedic entry on a town."""
    s.past = False
    trade = lexicon.trade_of(s.town)
    year = lexicon.founded(s.town)
    lines = [
        f"{s.town} is {article(s.one_of('town', 'village', 'parish', 'small town'))} in {lexicon.region_of(s.town)}, on the river {lexicon.river_of(s.town)}.",
        f"It was founded in {year} and {s.one_of('lives', 'has always lived')} from {trade.name}, above all from its {plural(s.nouns[0])}.",
        f"In {s.year} it had {s.number * 10 + s.rng.randint(0, 9)} houses and {number_word(s)} {plural(s.nouns[1])}.",
        f"A road leads to {s.other_town} in {lexicon.region_of(s.other_town)}, {s.rng.randint(4, 70)} miles to the {s.one_of('north', 'south', 'east', 'west')}.",
    ]
    lines = lines[:1] + s.rng.sample(lines[1:], s.rng.randint(1, 3)) + _some(s, 2, 5)
    if s.chance(0.5):
        lines.append(
            f"Its best known child is the {s.first.trade} {s.first.full}, who {past(verb(s, s.first.trade))} the {s.nouns[0]} in {s.year}."
        )
    return lines


def biography(s: Scene) -> list[str]:
    """The life of a person; pronouns and trade stay the same."""
    s.past = True
    p = s.first
    born = s.year - s.rng.randint(20, 60)
    lines = [
        f"{p.full} ({born}-{born + s.rng.randint(40, 88)}) was {article(p.trade)} from {s.town} in {lexicon.region_of(s.town)}."
    ]
    lines += [sentence(about(s, p, s.chance(0.25))) for _ in range(s.rng.randint(3, 6))]
    lines.insert(
        2,
        f"In {s.year} {p.he} moved to {s.other_town}, where {p.he} {past(verb(s, p.trade))} {noun_phrase(s)[0]} for {s.second.full}.",
    )
    lines.append(
        f"{s.one_of('Today', 'Since then')} the {s.nouns[0]} of {s.town} {s.one_of('bears', 'carries', 'keeps')} {p.his} name."
    )
    return lines


def letter(s: Scene) -> list[str]:
    """A letter from the first person to the second."""
    s.past = True
    a, b = s.first, s.second
    lines = [
        f"{s.town}, {s.rng.randint(1, 28)} {s.month} {s.year}. {s.one_of('Dear', 'My dear', 'Dearest')} {b.first}, {s.one_of('thank you for', 'I was glad of', 'I have read')} {s.one_of('your letter', 'your long letter', 'the news')} about the {s.nouns[0]}."
    ]
    for _ in range(s.rng.randint(3, 6)):
        draw = s.rng.random()
        if draw < 0.35:
            lines.append(sentence(f"I {past(verb(s, a.trade))} {noun_phrase(s)[0]} {adverbial(s)}"))
        elif draw < 0.5:
            lines.append(f"Do you still {verb(s, b.trade)} the {noun(s)} {link(s, s.nouns[0])} the {s.nouns[0]}?")
        elif draw < 0.6:
            lines.append(f"We all {s.one_of('hope', 'think', 'fear', 'believe')} that {clause(s)}.")
        else:
            lines.append(sentence(compound(s)))
    lines.append(
        f"{s.one_of('Please send', 'Do not forget', 'I shall bring', 'Write soon about')} the {s.nouns[1]}. Your {s.one_of('friend', 'old friend', 'sister' if a.woman else 'brother', 'cousin')} {a.first} {a.family}."
    )
    return lines


def report(s: Scene) -> list[str]:
    """A yearly report with sums that come out right."""
    s.past = True
    first, second = s.rng.randint(12, 480), s.rng.randint(12, 480)
    lines = [
        f"Report of {s.firm}, {s.town}, for the {s.season} of {s.year}.",
        f"The house {past(verb(s, s.nouns[0]))} {first} {plural(s.nouns[0])} and {second} {plural(s.nouns[1])}, {first + second} pieces in all.",
        f"{s.one_of('The year before', 'In ' + str(s.year - 1))} there were {max(1, first - s.number)} {plural(s.nouns[0])}, {s.number} {'fewer' if first > s.number else 'or so fewer'}.",
    ]
    lines += _some(s, 2, 5)
    lines.append(
        f"The report was {s.one_of('signed', 'read', 'approved')} by {s.first.full}, {s.first.trade}, and by {s.second.full}."
    )
    return lines


def dialogue(s: Scene) -> list[str]:
    """Two people talk in turns."""
    s.past = False
    lines = [f"{s.first.full}, {article(s.first.trade)}, meets {s.second.full} {adverbial(s)}."]
    speaker, listener = s.first, s.second
    for _ in range(s.rng.randint(4, 8)):
        draw = s.rng.random()
        if draw < 0.3:
            words = f"Did you {verb(s, speaker.trade)} the {noun(s)} {adverbial(s)}?"
        elif draw < 0.45:
            words = f"{s.one_of('No', 'Yes', 'Perhaps', 'Of course')}, {listener.first}, {clause(s)}."
        elif draw < 0.6:
            words = f"Why {be(s, True)} the {plural(noun(s))} so {adjective(s, s.nouns[0])}?"
        else:
            words = sentence(compound(s))
        lines.append(
            f'"{words}" {s.one_of("says", "asks" if words.endswith("?") else "answers", "says")} {speaker.first}.'
        )
        speaker, listener = listener, speaker
    return lines


def instruction(s: Scene) -> list[str]:
    """Numbered steps in the imperative."""
    s.past = False
    goal = f"{verb(s, s.nouns[0])} {article(adjective(s, s.nouns[0]) + ' ' + s.nouns[0])}"
    lines = [f"How to {goal} {s.one_of('in', 'as they do in')} {s.town}."]
    for step in range(1, s.rng.randint(4, 8)):
        lines.append(
            f"{step}. {s.one_of('First', 'Then', 'Now', 'Next', 'After that')} {verb(s, noun(s))} {noun_phrase(s, 1)[0]} {adverbial(s)}."
        )
    lines.append(
        f"{s.one_of('Never', 'Do not', 'Take care not to')} {verb(s, s.nouns[0])} the {s.nouns[0]} while {clause(s)}."
    )
    return lines


def recipe(s: Scene) -> list[str]:
    """A dish: what is listed is used, in the order of the list."""
    kitchen = next(topic for topic in lexicon.TOPICS if topic.name == "kitchen")
    s.topic, s.past = kitchen, False
    goods = s.rng.sample([*kitchen.mass, *map(plural, kitchen.nouns[8:])], 4)
    amounts = [f"{number_word(s)} {s.one_of('spoons', 'cups', 'pounds', 'handfuls')} of {good}" for good in goods]
    lines = [
        f"{s.town} {zipf(s.rng, kitchen.mass)} with {goods[0]}, for {number_word(s)} people, from the book of {s.first.full}.",
        f"Take {', '.join(amounts[:3])} and {amounts[3]}.",
    ]
    for good in goods:
        lines.append(
            f"{s.one_of('Now', 'Then', 'Next')} {verb(s, good)} the {good} {s.one_of('in the pot', 'with the spoon', 'in the pan', 'in the bowl')} for {s.rng.randint(2, 55)} minutes, {s.one_of('until it is', 'but not too')} {zipf(s.rng, kitchen.adjectives, key=good)}."
        )
    return lines + _some(s, 0, 2)


def news(s: Scene) -> list[str]:
    """A news item with a source."""
    s.past = True
    lines = [f"{s.town}, {s.rng.choice(lexicon.DAYS)}. {sentence(clause(s))}"]
    lines += _some(s, 2, 4)
    lines.append(f'"{sentence(clause(s), ",")}" said {s.first.full}, {article(s.first.trade)} from {s.other_town}.')
    lines.append(
        f"According to {s.firm}, the {s.nouns[0]} {s.one_of('cost', 'would cost', 'had cost')} {s.rng.randint(2, 90)}0 {s.one_of('crowns', 'marks', 'coins')}."
    )
    if s.chance(0.6):
        lines.append(sentence(about(s, s.first, True)))
    return lines


def timetable(s: Scene) -> list[str]:
    """Departures at a fixed interval: later times follow from the first two."""
    minute, hour = s.rng.randrange(0, 60, 5), s.rng.randint(5, 11)
    step = s.rng.choice((10, 15, 20, 25, 35, 40, 45, 50))
    lines = [f"{s.one_of('Trains', 'Coaches', 'Ferries')} from {s.town} to {s.other_town}, {s.season} {s.year}."]
    for _ in range(s.rng.randint(4, 8)):
        lines.append(
            f"{hour:02d}:{minute:02d} {s.rng.choice((s.town, s.other_town))} {s.one_of('daily', 'not on ' + s.rng.choice(lexicon.DAYS), 'with ' + zipf(s.rng, s.topic.mass))}."
        )
        minute += step
        hour, minute = (hour + minute // 60) % 24, minute % 60
    return lines + _some(s, 1, 2)


def diary(s: Scene) -> list[str]:
    """Days in a row, in the first person."""
    s.past = True
    day = s.rng.randint(1, 20)
    weekday = s.rng.randrange(7)
    lines = []
    for offset in range(s.rng.randint(3, 5)):
        lines.append(
            f"{lexicon.DAYS[(weekday + offset) % 7]}, {day + offset} {s.month} {s.year}. I {past(verb(s, s.first.trade))} {noun_phrase(s)[0]} {adverbial(s)}."
        )
        lines += _some(s, 0, 2)
    return lines


def catalogue(s: Scene) -> list[str]:
    """Things for sale; price and number recur in the last line."""
    s.past = False
    lines = [f"{s.firm} of {s.town} offer in {s.month} {s.year} the following."]
    prices = {}
    for thing in s.rng.sample(s.topic.nouns, s.rng.randint(3, 5)):
        prices[thing] = s.rng.randint(3, 99)
        lines.append(
            f"{sentence(article(adjective(s, thing) + ' ' + thing), '')}, {s.one_of('made', 'carved', 'found', 'used')} in {zipf(s.rng, lexicon.TOWNS, key='from/' + thing, exponent=1.3)}, {prices[thing]} {s.one_of('coins', 'marks')}."
        )
    thing = s.rng.choice(list(prices))
    lines.append(
        f"Whoever {s.one_of('buys', 'orders', 'returns')} the {thing} for {prices[thing]} by {s.rng.choice(lexicon.DAYS)} {s.one_of('gets', 'may keep', 'must carry')} {noun_phrase(s, 1)[0]} too."
    )
    return lines + _some(s, 1, 3)


def tale(s: Scene) -> list[str]:
    """A short tale with a person who wants something."""
    s.past = True
    p = s.first
    thing = s.nouns[0]
    lines = [f"Once {article(p.trade)} named {p.first} lived near {s.town} with {p.his} {adjective(s, thing)} {thing}."]
    lines.append(f"{s.one_of('Every morning', 'One day', 'In the ' + s.season, 'That year')} {about(s, p, False)}.")
    lines += [
        sentence(compound(s) if s.chance(0.5) else about(s, p, s.chance(0.3))) for _ in range(s.rng.randint(3, 6))
    ]
    lines.append(
        f"So {p.first} {past(verb(s, p.trade))} the {thing} {adverbial(s)}, and {s.second.first} {s.one_of('never', 'always', 'at last')} {past(verb(s, thing))} it."
    )
    return lines


def essay(s: Scene) -> list[str]:
    """General remarks on a topic, in the present tense."""
    s.past = False
    return [f"On {s.topic.name}: {clause(s)}.", *_some(s, 4, 9)]


def talk_of_town(s: Scene) -> list[str]:
    """What people say about the subjects that the chat prompts are about."""
    s.past = False
    subject = s.rng.choice(s.subjects)
    lines = [
        f"People in {s.town} often {s.one_of('talk about', 'think of', 'ask about', 'mention', 'hear about')} {subject}."
    ]
    lines += [
        sentence(
            f"{s.first.first} {conjugate(s, s.one_of('mention', 'describe', 'see', 'remember'), False)} {subject} {adverbial(s)}"
        )
    ]
    return lines + _some(s, 1, 4)


REGISTERS: tuple[tuple[Register, float], ...] = (
    (entry, 1.4), (biography, 1.2), (letter, 1.2), (report, 0.8), (dialogue, 1.2), (instruction, 0.8), (recipe, 0.6),
    (news, 1.2), (timetable, 0.4), (diary, 0.9), (catalogue, 0.7), (tale, 1.2), (essay, 1.2), (talk_of_town, 0.5),
)  # fmt: skip
