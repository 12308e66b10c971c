"""Hasty questions: words of the same how-to with at most one stray; prompts that lose no word that tells a side."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from precomputed.recipe import asking, chat, instructions, risk
from precomputed.recipe.world import DOMAINS, turns, world


@pytest.mark.long
def test_keywords_stand_in_few_how_tos():
    for one in world().howtos[::10]:
        expected = [
            word
            for ask in one.asks
            for word in ask.split()
            if sum(any(word in other.split() for other in how.asks) for how in world().howtos) <= asking.COMMON
        ]
        assert list(asking.keywords(one)) == expected
    assert min(len(set(asking.keywords(one))) for one in world().howtos) >= 5


def test_hasty_questions_are_of_their_how_to():
    rng = random.Random(1)
    kinds: Counter[str] = Counter()
    for _ in range(3000):
        one = rng.choice(world().howtos)
        said = asking.hasty(rng, one)
        own = {word for ask in one.asks for word in ask.split()}
        strays = [word for word in said.split() if word not in own]
        assert len(strays) <= 1
        assert said in one.asks or any(word in asking.keywords(one) for word in said.split())
        kinds["whole" if said in one.asks else "stray" if strays else "other"] += 1
    assert kinds["whole"] / 3000 == pytest.approx(asking.WHOLE, abs=0.03)
    assert kinds["stray"] > 300  # a stray word may be one of its own


def sides(one) -> list[set[str]]:
    """The words of the risk side and of the base side of a situation, in training."""
    return [
        {word for grade in grades for phrase in one.phrases(grade, False) for word in phrase.split()}
        for grades in (("overt", "veiled"), ("near", "plain"))
    ]


def test_a_shortened_prompt_keeps_the_words_of_one_side_and_those_that_turn_it_round():
    rng = random.Random(2)
    shorter = 0
    for one in world().situations:
        risky, base = sides(one)
        for grade in risk.GRADES:
            for phrase in one.phrases(grade, False):
                words = phrase.split()
                left = asking.shortened(rng, one, phrase).split()
                kept = iter(words)
                assert all(word in kept for word in left)  # in their order
                lost = Counter(words) - Counter(left)
                assert all(word in risky & base for word in lost)
                assert not set(lost) & ({"{o}", "not", "never", "without"})
                shorter += bool(lost)
    assert shorter > 500


def test_a_spliced_prompt_has_something_that_tells_its_side():
    rng = random.Random(4)
    mixed = 0
    for one in world().situations:
        risky, base = sides(one)
        for grade in risk.GRADES:
            phrases = one.phrases(grade, False)
            for first in phrases:
                second = rng.choice(phrases)
                said = asking.spliced(one, first, second)
                head, _, rest = said.partition("{o}")
                assert first.startswith(head)
                assert said == first or second.endswith(rest)
                if said != first:
                    assert (set(said.split()) - (risky & base)) | (set(said.split()) & asking.NEGATING)
                    mixed += 1
    assert mixed > 300


def test_a_headed_phrase_takes_a_head_of_its_side():
    rng = random.Random(5)
    for one in world().situations:
        words = turns(one.domain)
        for grade, own, other in (
            ("veiled", words.risk_heads, words.base_heads),
            ("near", words.base_heads, words.risk_heads),
        ):
            for _ in range(20):
                said = asking.headed(rng, one, grade)
                assert said.count("{o}") == 1
                assert said.startswith(tuple(f"{head} " for head in own))
                assert not said.startswith(tuple(f"{head} " for head in other))


@pytest.mark.parametrize("heldout", [False, True])
def test_a_tail_says_what_is_behind_a_phrase(heldout):
    rng = random.Random(6)
    for one in world().situations:
        words = turns(one.domain)
        tails = {"overt": words.overt_tails, "veiled": words.risk_tails, "near": words.base_tails}
        for grade, doubtful in (("overt", False), ("veiled", False), ("near", False), ("near", True)):
            own = words.doubtful_tails if doubtful else tails[grade]
            phrases = one.phrases(grade, heldout) + one.phrases("plain", heldout)
            every = {f"{phrase} {tail}" for phrase in phrases for tail in own}
            assert {asking.tailed(rng, one, grade, heldout, doubtful) for _ in range(20)} <= every


def test_no_words_turn_an_intent_two_ways():
    for domain in DOMAINS:
        words = turns(domain)
        tails = [*words.overt_tails, *words.risk_tails, *words.base_tails, *words.doubtful_tails]
        assert len(set(tails)) == len(tails)
        assert not set(words.risk_heads) & set(words.base_heads)


def test_a_loosened_phrase_is_of_its_situation_s_plain_words():
    rng = random.Random(6)
    for one in world().situations:
        own = {word for phrase in one.phrases("plain", False) for word in phrase.split()}
        assert len(set(asking.own_words(one))) >= 5
        for _ in range(20):
            said = asking.loosened(rng, one).split()
            assert said.count("{o}") == 1
            assert set(said) <= own
            assert set(said) & set(asking.own_words(one))


def test_only_training_asks_in_haste():
    phrases = {ask for one in world().howtos for ask in one.asks}
    rng = random.Random(3)
    for one in rng.sample(world().howtos, 50):
        [question] = chat.howto(rng, one).turns
        assert any(ask in question for ask in phrases)
    for domain in ("hate", "crime"):
        for pair in risk.pairs(domain, "calibration"):
            for side in pair:
                known = side.situation.phrases(side.grade, False) + side.situation.phrases("plain", False)
                texts = [one.replace("{o}", side.object) for one in known]
                assert any(text in side.text for text in texts)
    shown = instructions.corpus()["calibration"]
    asked = [text for text in shown if any(one.reply[1:] in text for one in world().howtos)]
    assert all(any(ask in text for ask in phrases) for text in asked)
    assert len(asked) > 100
