"""Hasty questions: words of the same how-to with at most one stray; prompts that lose no word that tells a side."""

import random
from collections import Counter

import pytest

from precomputed.recipe import asking, demo_chat as chat, instructions, risk
from precomputed.recipe.world import world


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
