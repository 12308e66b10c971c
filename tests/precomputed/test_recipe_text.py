"""The texts of the town: every fact is that of town.toml, held-out words stay out, numbers add up."""

import random
import re
from collections import Counter
from dataclasses import fields, replace

import pytest
from town_truth import PLACES, PRICES, SAID, is_true, says

from precomputed.recipe import asking, demo_chat as chat, demo_files as files, demo_tasks as tasks, facts, prose, risk
from precomputed.recipe.world import DOMAINS, Place, world


@pytest.fixture(scope="module")
def splits():
    return files.corpus(training=1_200_000)


@pytest.fixture(scope="module")
def chats():
    rng = random.Random("many chats")
    return [chat.example(rng, policy) for policy in (chat.too_careful, chat.target) for _ in range(12_000)]


@pytest.fixture(scope="module")
def training(splits, chats):
    """Much of what training sees, in small letters; each text once."""
    said = {text for one in chats for text in (*one.turns, one.reply)}
    return "\n".join([*splits["training"], *sorted(said)]).lower()


# --- facts ---


@pytest.mark.long
def test_every_fact_in_prose_is_that_of_the_town(splits):
    found = Counter()
    for document in splits["training"]:
        found += says(document)
    kinds = Counter(kind for kind, _ in found)
    assert {fields for _, fields in SAID} | {"person"} <= set(kinds)
    assert all(kinds[fields] == len(PLACES) for fields in ("street", "near", "opens", "closes", "closed", "offers"))
    assert kinds["person"] == len(PLACES)
    assert kinds["price"] == len(PRICES)


def test_every_fact_in_replies_is_that_of_the_town(chats):
    found = Counter()
    for text in {text for one in chats for text in (*one.turns[1::2], one.reply)}:
        found += says(text)
    assert len({place for fields, place in found if fields == "street"}) == len(PLACES)
    assert len({name for kind, name in found if kind == "price"}) == len(PRICES)
    written = [text for one in world().howtos for text in (one.reply, *(said for _, said in one.follow))]
    written += [one.reply for one in world().situations]
    assert sum((says(text) for text in written), Counter()).total() > 150


def test_a_wrong_fact_would_be_found():
    assert is_true("the library is on Mill Street")
    assert not is_true("the library is on Hill Road")
    assert not is_true("One loaf costs four crowns")
    assert not is_true("Anton Reiss works at the library")
    with pytest.raises(AssertionError, match="not one statement"):
        is_true("the library is nice")


@pytest.mark.parametrize("field", [field.name for field in fields(Place) if field.name != "name"])
def test_prose_of_another_town_would_be_found(field, monkeypatch):
    """Every place has the field of the next one that has another: what prose says with it is no fact of town.toml."""
    places = world().places
    others = [
        next(p for p in (*places[i:], *places) if getattr(p, field) != getattr(places[i], field)) for i in range(32)
    ]
    moved = tuple(replace(one, **{field: getattr(other, field)}) for one, other in zip(places, others, strict=True))
    by_name = {one.name: one for one in moved}
    goods = tuple(replace(one, place=by_name[one.place.name]) for one in world().goods)
    other_town = replace(world(), places=moved, goods=goods, by_name=by_name)
    for module in (prose, facts):
        monkeypatch.setattr(module, "world", lambda: other_town)
    found = 0
    for document in prose.corpus(20, 60_000, set()):
        try:
            says(document)
        except (AssertionError, KeyError):
            found += 1
    assert found > 5


def test_claims_in_prose_have_the_right_answer(splits):
    claims = re.findall(r"Is it true that ([^?]*)\?\nAnswer: (yes|no)\.", "\n".join(splits["training"]))
    assert len(claims) > 300
    assert all(is_true(statement) == (said == "yes") for statement, said in claims)
    assert 0.4 < sum(said == "yes" for _, said in claims) / len(claims) < 0.6


# --- what is held out ---


@pytest.mark.long
def test_held_out_words_are_in_no_text_of_training(training):
    known = [ask for one in world().howtos for ask in one.asks]
    assert sum(ask.lower() in training for ask in known) > 0.6 * len(known)  # half of the questions lack words
    asks = [ask for one in world().howtos for ask in one.blind]
    frames = [frame.partition("{i}")[0] for frame in asking.HELDOUT_FRAMES]
    assert not [words for words in (*asks, *frames) if words.lower() in training]
    for one in world().situations:
        asked = "\n".join(
            phrase.replace("{o}", thing)
            for other in world().of_domain(one.domain)
            for grade in risk.GRADES
            for phrase in other.phrases(grade, heldout=False)
            for thing in other.objects
        )
        assert not set(one.heldout_objects) & {thing for other in world().situations for thing in other.objects}
        for thing in one.heldout_objects:  # known elsewhere in the town, never asked about in this domain
            assert not re.search(rf"\b{thing}\b", asked), thing
        for phrase in (phrase for grade in risk.GRADES for phrase in one.phrases(grade, heldout=True)):
            longest = max(phrase.split("{o}"), key=len).strip().lower()
            if longest in training:
                assert not any(phrase.replace("{o}", thing).lower() in training for thing in one.objects), phrase


@pytest.mark.long
def test_held_out_questions_on_facts_are_in_no_text_of_training(training):
    for kind in facts.KINDS:
        for template in kind.heldout:
            assert not [place for place in world().places if facts.asked(template, place).lower() in training], template
    for good in world().goods:
        for template in facts.PRICE_ONE_HELDOUT:
            assert template.format(a=good.name).lower() not in training
    assert not set(facts.PRICE_MANY_HELDOUT) & set(facts.PRICE_MANY)


@pytest.mark.long
def test_untold_prices_are_in_no_text_of_training(training):
    assert len(tasks.untold()) > 20
    for good, count in tasks.untold():
        assert not re.search(rf"\b{good.counted(count)} (cost|for)\b", training), (good, count)


def test_same_seed_same_text():
    one, two = (prose.corpus(9, 20_000, set()) for _ in range(2))
    assert one == two
    assert not set(one) & set(prose.corpus(9, 20_000, set(one)))


def test_no_single_word_tells_risk_from_base():
    """No word that is frequent on one side is absent from the other side of the same domain."""
    for domain in DOMAINS:
        sides = [
            Counter(
                word
                for one in world().of_domain(domain)
                for grade in grades
                for phrase in getattr(one, grade)
                for word in set(phrase.split())
            )
            for grades in (("overt", "veiled"), ("near", "plain"))
        ]
        for side, other in (sides, sides[::-1]):
            assert not [word for word, count in side.items() if count > 12 and not other[word]]


def test_no_document_is_in_two_splits(splits):
    assert list(splits) == ["evaluation", "calibration", "training"]
    documents = [document for split in splits.values() for document in split]
    assert len(set(documents)) == len(documents)
    sizes = {"evaluation": files.EVALUATION_CHARACTERS, "calibration": files.CALIBRATION_CHARACTERS}
    for split, characters in sizes.items():
        assert characters <= sum(map(len, splits[split])) < characters + 2000
    assert not any("\n\n" in document for document in documents)  # blank lines stand between documents
