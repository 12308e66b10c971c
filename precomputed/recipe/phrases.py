# ruff: noqa: E501, SIM905  (lines of generated text)
"""Phrases and clauses in agreement: noun phrases, verb phrases, prepositional phrases, whole clauses."""

from __future__ import annotations

from precomputed.recipe import lexicon
from precomputed.recipe.scene import Person, Scene
from precomputed.recipe.words import article, gerund, past, plural, third, zipf


def noun(s: Scene) -> str:
    """A countable noun: one that comes back in this document, of its topic, or a general one."""
    draw = s.rng.random()
    if draw < 0.35:
        return s.rng.choice(s.nouns)
    if draw < 0.72:
        return zipf(s.rng, s.topic.nouns)
    return zipf(s.rng, lexicon.GENERAL_NOUNS)


def adjective(s: Scene, head: str) -> str:
    """An adjective that the head noun likes: each noun has its own ranking."""
    pool = s.topic.adjectives if s.chance(0.6) else lexicon.GENERAL_ADJECTIVES
    return zipf(s.rng, pool, key=f"adjective/{head}", exponent=0.8)


def link(s: Scene, head: str) -> str:
    return zipf(s.rng, lexicon.LINKS, key=f"link/{head}", exponent=0.8)


def noun_phrase(s: Scene, depth: int = 0) -> tuple[str, bool]:
    """(text, is plural). Modifiers between head and verb make agreement a matter of distance."""
    draw = s.rng.random()
    if draw < 0.1:
        who = s.rng.choice((s.first, s.second))
        return s.rng.choice((who.first, who.full, f"the {who.trade}")), False
    if draw < 0.17:
        return f"the {zipf(s.rng, s.topic.mass)}", False
    head = noun(s)
    many = s.chance(0.35)
    core = plural(head) if many else head
    if s.chance(0.4):
        core = f"{adjective(s, head)} {core}"
    if many:
        determiner = s.one_of(
            "the", "the", "these", "some", "most", "all", "many", f"the {number_word(s)}", "its", "their"
        )
        text = f"{determiner} {core}"
    else:
        text = article(core) if s.chance(0.3) else f"{s.one_of('the', 'the', 'this', 'each', 'every', 'that')} {core}"
    if depth == 0 and s.chance(0.28):
        text += " " + modifier(s, head, many)
    return text, many


def modifier(s: Scene, head: str, many: bool) -> str:
    """What follows a head noun: a place, a relative clause or a participle."""
    draw = s.rng.random()
    if draw < 0.4:
        return f"{link(s, head)} {noun_phrase(s, 1)[0]}"
    if draw < 0.55:
        return f"of {zipf(s.rng, (s.town, s.other_town))}"
    if draw < 0.75:
        who = s.rng.choice((s.first, s.second))
        return f"that {who.first} {past(verb(s, head))}"
    if draw < 0.9:
        tail = noun_phrase(s, 1)[0]
        return f"which {('need' if many else 'needs') if not s.past else 'needed'} {tail}"
    return f"{past(verb(s, head))} by {article(zipf(s.rng, s.topic.people))}"


def verb(s: Scene, head: str) -> str:
    """A transitive verb that the word `head` likes."""
    pool = s.topic.verbs if s.chance(0.65) else lexicon.GENERAL_VERBS
    return zipf(s.rng, pool, key=f"verb/{head}", exponent=0.8)


_NUMBERS = "two three four five six seven eight nine ten eleven twelve twenty thirty forty sixty".split()


def number_word(s: Scene) -> str:
    return zipf(s.rng, _NUMBERS, exponent=0.8)


def conjugate(s: Scene, word: str, many: bool) -> str:
    if s.past:
        return past(word)
    return word if many else third(word)


def be(s: Scene, many: bool) -> str:
    if s.past:
        return "were" if many else "was"
    return "are" if many else "is"


def adverbial(s: Scene) -> str:
    """Where, when or how, to end a clause with."""
    draw = s.rng.random()
    if draw < 0.25:
        return zipf(s.rng, lexicon.MANNER, key=f"manner/{s.topic.name}").replace("-", " ")
    if draw < 0.4:
        return f"in {s.rng.choice((s.month, s.season, s.town, s.town))}"
    if draw < 0.5:
        return f"on {s.rng.choice(lexicon.DAYS)}"
    if draw < 0.65:
        return f"with {noun_phrase(s, 1)[0]}"
    if draw < 0.85:
        head = noun(s)
        return f"{link(s, head)} the {head}"
    return f"for {number_word(s)} {s.one_of('days', 'years', 'weeks', 'hours', 'months')}"


def clause(s: Scene, subject: tuple[str, bool] | None = None) -> str:
    """Subject, verb, object, perhaps an adverbial; verbs agree with the subject in number and with the text in tense."""
    text, many = subject or noun_phrase(s)
    key = text.split()[-1]
    draw = s.rng.random()
    if draw < 0.14:
        body = f"{be(s, many)} {s.one_of('', 'very ', 'too ', 'not ', 'quite ')}{adjective(s, key)}"
    elif draw < 0.24:
        body = f"{be(s, many)} {past(verb(s, key))} by {noun_phrase(s, 1)[0]}"
    elif draw < 0.32:
        body = f"{s.one_of('could', 'would', 'must', 'should', 'might')} {verb(s, key)} {noun_phrase(s, 1)[0]}"
    elif draw < 0.4:
        body = f"{conjugate(s, s.one_of('start', 'stop', 'avoid', 'enjoy'), many)} {gerund(verb(s, key))} {noun_phrase(s, 1)[0]}"
    else:
        body = f"{conjugate(s, verb(s, key), many)} {noun_phrase(s, 0 if s.chance(0.2) else 1)[0]}"
    tail = f" {adverbial(s)}" if s.chance(0.4) else ""
    return f"{text} {body}{tail}"


def about(s: Scene, who: Person, named: bool) -> str:
    """A clause about a person, by name or by pronoun."""
    subject = s.rng.choice((who.first, who.full, f"the {who.trade}")) if named else who.he
    if s.chance(0.25):
        body = f"{conjugate(s, verb(s, who.trade), False)} {who.his} {noun(s)}"
        return f"{subject} {body} {adverbial(s)}"
    if s.chance(0.2):
        return f"{subject} {conjugate(s, s.one_of('help', 'thank', 'visit', 'ask', 'meet', 'tell'), False)} {s.second.first if who is s.first else s.first.first} {adverbial(s)}"
    return clause(s, (subject, False))


def compound(s: Scene) -> str:
    """A clause, alone or joined with another."""
    draw = s.rng.random()
    if draw < 0.55:
        return clause(s)
    if draw < 0.7:
        return f"{clause(s)}, {s.one_of('and', 'but', 'so', 'yet')} {clause(s)}"
    if draw < 0.85:
        return f"{s.one_of('when', 'because', 'although', 'if', 'while', 'since', 'before', 'until')} {clause(s)}, {clause(s)}"
    return f"{zipf(s.rng, lexicon.OPENERS).replace('-', ' ')}, {clause(s)}"
