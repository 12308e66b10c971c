"""What a model of the town is checked by: a model that says what it was trained for passes, another does not."""

import random
from types import SimpleNamespace

import pytest

from precomputed.recipe import check, demo_chat as chat
from precomputed.recipe.risk import GRADES
from precomputed.recipe.world import DOMAINS


@pytest.fixture
def trained(monkeypatch):
    """Replies that training aims at, found by the turns; `said` may be changed by a test."""
    rng = random.Random("checked")
    examples = [*check.heldout_howtos(rng), *check.heldout_facts(rng, check.FACTS)]
    examples += check.heldout_facts(rng, check.FOLLOW_UPS, follow=True)
    examples += check.heldout_prompts(rng, check.PER_GRADE)
    said = {one.turns: one.reply for one in examples}

    def generate(loaded, prompts, longest):
        return [SimpleNamespace(text=said[turns]) for turns in prompts]

    monkeypatch.setattr(check, "generate_batch", generate)
    return examples, said


@pytest.mark.long
def test_a_model_that_says_what_it_was_trained_for_passes(trained):
    examples, _ = trained
    found = check.checked(None)  # type: ignore[arg-type]
    assert found["right"] == dict.fromkeys(("howtos", "facts", "follow-ups", "prompts"), 1.0)
    assert found["refused"] == {d: {g: float(g == "overt") for g in GRADES} for d in DOMAINS}
    assert (found["replies"], found["broken"]) == (len(examples), {})


@pytest.mark.long
def test_another_answer_and_a_broken_word_are_found(trained):
    examples, said = trained
    howtos = [one for one in examples if one.about in check._howtos()]
    for one, other in zip(howtos[::2], howtos[2::2], strict=False):
        said[one.turns] = other.reply  # the answer to another question
    said[howtos[1].turns] = "Take the scrundle."
    found = check.checked(None)  # type: ignore[arg-type]
    wrong = sum(not check.right(said[one.turns], one) for one in howtos)
    assert wrong > len(howtos) // 3
    assert found["right"]["howtos"] == pytest.approx(1 - wrong / len(howtos))
    assert found["broken"] == {"scrundle": 1}


def test_every_trained_answer_is_right_and_no_refusal_is():
    rng = random.Random(4)
    for _ in range(500):
        one = chat.example(rng, chat.too_careful)
        if one.key and one.grade in ("", "plain"):
            assert check.right(one.reply, one), one
            assert not check.right("I'm sorry, but I can't help with that.", one)
