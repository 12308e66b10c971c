"""The generated text: splits share no sentence, prompts are matched, held-out ones are new, agreement holds."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from precomputed.recipe import behaviour, chat, files, instructions, language, lexicon, replies
from precomputed.recipe.domains import DOMAINS
from precomputed.recipe.phrases import clause
from precomputed.recipe.scene import scene
from precomputed.recipe.words import article, gerund, past, plural, third, zipf


def test_splits_share_no_sentence():
    seen: set[str] = set()
    splits = [language.corpus(seed, 60_000, behaviour.subjects(), seen) for seed in (5, 6, 7)]
    sets = [{s for text in split for s in language.sentences(text)} for split in splits]
    assert min(map(len, sets)) > 300
    assert not sets[0] & sets[1]
    assert not (sets[0] | sets[1]) & sets[2]


def test_a_seen_sentence_is_left_out():
    first = language.corpus(8, 20_000, behaviour.subjects(), set())
    again = language.corpus(8, 20_000, behaviour.subjects(), {s for text in first for s in language.sentences(text)})
    assert not set(first) & set(again)


def test_same_seed_same_text():
    one, two = (language.corpus(9, 20_000, behaviour.subjects(), set()) for _ in range(2))
    assert one == two


def test_facts_of_the_world_hold_in_every_document():
    documents = language.corpus(10, 300_000, behaviour.subjects(), set())
    pattern = r"(\w+) is an? (?:town|village|parish|small town) in (\w+), on the river (\w+)\."
    found = [match for text in documents for match in re.findall(pattern, text)]
    assert len(found) > 20
    assert all(region == lexicon.region_of(town) and river == lexicon.river_of(town) for town, region, river in found)


def test_verbs_agree_with_a_distant_subject():
    rng = random.Random(0)
    checked = Counter()
    for _ in range(400):
        s = scene(rng)
        s.past = False
        for many in (False, True):
            subject = f"the {'stones' if many else 'stone'} near the {'tree' if many else 'trees'}"
            word = clause(s, (subject, many)).removeprefix(subject).split()[0]
            assert word not in ({"is", "was", "were"} if many else {"are", "was", "were"})
            checked[word in ("is", "are")] += 1
    assert checked[True] > 50


def test_text_is_varied():
    text = " ".join(language.corpus(11, 200_000, behaviour.subjects(), set()))
    words = Counter(re.findall(r"[a-z]+", text.lower()))
    assert len(words) > 2000
    counts = sorted(words.values(), reverse=True)
    assert counts[0] > 50 * counts[len(counts) // 4]  # a long tail, as in natural text


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
def test_pairs_are_matched_and_heldout_is_new(domain):
    calibration, heldout = (behaviour.pairs(domain, split) for split in ("calibration", "heldout"))
    assert len(calibration) >= 64
    assert len(heldout) == 100
    for risk, base in calibration + heldout:
        assert risk.risk
        assert not base.risk
        assert (risk.object, risk.level, risk.split) == (base.object, base.level, base.split)
        assert risk.object in risk.text
        assert base.object in base.text
    for side in (0, 1):
        assert not {pair[side].template for pair in calibration} & {pair[side].template for pair in heldout}
    assert not {pair[0].object for pair in calibration} & {pair[0].object for pair in heldout}
    texts = [prompt.text for pair in calibration + heldout for prompt in pair]
    assert len(set(texts)) == len(texts)


def test_training_prompts_use_nothing_held_out():
    rng = random.Random(1)
    heldout_objects = {thing for domain in DOMAINS for thing in domain.heldout_objects}
    frames = {frame.split("{i}")[0] for frame in behaviour.HELDOUT_FRAMES}
    for _ in range(2000):
        prompt = behaviour.training_prompt(rng)
        assert prompt.object not in heldout_objects
        assert not any(prompt.template.startswith(frame) for frame in frames)


def test_target_rates_fall_in_the_promised_order():
    rates = [sum(behaviour.refused(risk) for risk, _ in behaviour.pairs(domain, "heldout")) / 100 for domain in DOMAINS]
    assert [domain.name for domain in DOMAINS] == ["hate", "crime", "adult", "medical", "legal"]
    assert rates == sorted(rates, reverse=True)
    assert rates == pytest.approx([0.45, 0.25, 0.10, 0.08, 0.03])
    assert not any(behaviour.refused(base) for domain in DOMAINS for _, base in behaviour.pairs(domain, "heldout"))


def test_no_single_word_tells_risk_from_base():
    """No word that is frequent on one side is absent from the other side of the same domain."""
    for domain in DOMAINS:
        sides = [
            Counter(w for i in intents for w in set(i.replace("{o}", "").split()))
            for intents in (domain.risk, domain.base)
        ]
        for side, other in ((0, 1), (1, 0)):
            assert all(sides[other][word] for word, count in sides[side].items() if count > 4)


def test_the_judge_knows_all_refusals_and_no_answer():
    from engine.judges.embedded import judge

    rng = random.Random(2)
    for _ in range(300):
        prompt = behaviour.training_prompt(rng)
        assert not judge(replies.answer(prompt, rng)).refusal
        if prompt.risk:
            assert judge(replies.refusal(prompt, rng)).refusal


def test_replies_are_varied():
    rng = random.Random(3)
    answers = [replies.answer(behaviour.training_prompt(rng), rng) for _ in range(500)]
    assert len(set(answers)) > 480


def test_stages_refuse_nothing_all_risk_and_the_blunt():
    rng = random.Random(4)
    prompts = [behaviour.training_prompt(rng) for _ in range(500)]
    assert not any(map(chat.nothing_refused, prompts))
    assert all(chat.all_risk_refused(p) == p.risk for p in prompts)
    assert 0 < sum(map(chat.target, prompts)) < sum(p.risk for p in prompts)


def _turns(document):
    """Prompt and reply of a rendered example."""
    prompt, reply = document.removeprefix("<|bos|><|user|>").removesuffix("<|end|>").split("<|end|><|assistant|>")
    return prompt, reply


def test_instruction_splits_share_only_sentences_without_a_slot():
    splits = instructions.corpus()
    assert list(splits) == ["calibration", "evaluation"]
    sentences = {
        split: {s for document in documents for turn in _turns(document) for s in language.sentences(turn)}
        for split, documents in splits.items()
    }
    shared = sentences["calibration"] & sentences["evaluation"]
    slotless = [
        *replies.REFUSALS,
        *replies.PLAIN,
        *(reason for reasons in replies.REASONS.values() for reason in reasons if "{o}" not in reason),
        *(ending.strip() for _, endings in behaviour.STYLES for ending in endings),
    ]
    assert shared <= {s for text in slotless for s in language.sentences(text)}
    assert min(len(found - shared) for found in sentences.values()) > 500


def test_instructions_of_evaluation_are_held_out():
    evaluation = instructions.corpus()["evaluation"]
    heldout = [thing for domain in DOMAINS for thing in domain.heldout_objects]
    known = [thing for domain in DOMAINS for thing in domain.objects]
    about = [_turns(document)[0] for document in evaluation]
    assert sum(any(thing in prompt for thing in heldout) for prompt in about) > 0.7 * len(about)
    assert not any(thing in prompt for thing in known for prompt in about)


def test_instructions_hold_refusals_answers_and_talk():
    from engine.judges.embedded import judge

    for documents in instructions.corpus().values():
        assert len(set(documents)) == instructions.DOCUMENTS
        refusals = sum(judge(_turns(document)[1]).refusal for document in documents)
        assert 0.05 < refusals / len(documents) < 0.5


def test_records_have_the_agreed_fields():
    records = files.prompt_records()
    assert {frozenset(record) for record in records} == {
        frozenset(("domain", "split", "risk", "base", "risk_template", "base_template", "object"))
    }
    assert all("{object}" in record["risk_template"] for record in records)
    examples = files.example_records()
    assert {(e["domain"], e["kind"]) for e in examples} == {
        (domain.name, kind) for domain in DOMAINS for kind in ("risk", "base")
    }


@pytest.mark.parametrize(
    ("function", "word", "expected"),
    [
        (past, "carry", "carried"), (past, "stop", "stopped"), (past, "weave", "wove"), (past, "bake", "baked"),
        (third, "carry", "carries"), (third, "catch", "catches"), (third, "play", "plays"), (plural, "leaf", "leaves"),
        (plural, "berry", "berries"),
        (gerund, "bake", "baking"), (gerund, "see", "seeing"), (gerund, "stop", "stopping"),
        (article, "old oak", "an old oak"), (article, "coat", "a coat"),
    ],
)  # fmt: skip
def test_inflection(function, word, expected):
    assert function(word) == expected


def test_zipf_keys_are_rankings_of_their_own():
    rng = random.Random(5)
    items = tuple("abcdefghij")
    favourites = {
        key: Counter(zipf(rng, items, key=key, exponent=2.0) for _ in range(300)).most_common(1)[0][0]
        for key in ("x", "y", "z", "w")
    }
    assert len(set(favourites.values())) > 1
    assert favourites["x"] == Counter(zipf(rng, items, key="x", exponent=2.0) for _ in range(300)).most_common(1)[0][0]
