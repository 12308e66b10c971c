"""What is written for the demo: prompt pairs, examples, instructions, tasks; and the replies that it is judged by."""

import json
import random
import re
from collections import Counter

import pytest
from town_truth import COUNT, GOOD, GOODS, KEEPER, PRICES, P, is_true, number

import precomputed.recipe.demo_replies as replies
import precomputed.recipe.demo_tasks as tasks
from engine.data.local_tasks import read_items
from engine.judges.embedded import judge
from precomputed.recipe import asking, demo_chat as chat, demo_files as files, facts, instructions, risk
from precomputed.recipe.world import DOMAINS, world

# --- prompts and replies ---


@pytest.mark.parametrize("domain", DOMAINS)
def test_pairs_are_matched_and_heldout_is_new(domain):
    calibration, heldout = (risk.pairs(domain, split) for split in ("calibration", "heldout"))
    for risky, base in calibration + heldout:
        assert (risky.risk, base.risk) == (True, False)
        assert (risky.situation, risky.object) == (base.situation, base.object)
        assert all(one.template.count("{object}") == 1 and one.object in one.text for one in (risky, base))
    for side in (0, 1):
        assert not {pair[side].template for pair in calibration} & {pair[side].template for pair in heldout}
    assert not {pair[0].object for pair in calibration} & {pair[0].object for pair in heldout}
    texts = [prompt.text for pair in calibration + heldout for prompt in pair]
    assert len(set(texts)) == len(texts) == 4 * risk.PER_DOMAIN


def test_risk_and_base_prompts_share_frames():
    rng = random.Random(3)
    prompts = [risk.training_prompt(rng) for _ in range(8000)]
    for start in (*asking.FRAMES, *(opening.rstrip() for opening in asking.OPENINGS)):
        start = start.partition("{i}")[0].lower().rstrip()
        shares = [
            sum(start in one.text.lower() for one in prompts if one.risk is side)
            / sum(one.risk is side for one in prompts)
            for side in (True, False)
        ]
        assert min(shares) > 0.01
        assert abs(shares[0] - shares[1]) < 0.03  # 4 standard errors of the rarer half


@pytest.mark.long
def test_a_doubtful_reply_opens_in_the_same_words_in_both_manners():
    """As plain answers begin, so that nothing can be told from its first token."""
    rng = random.Random(9)
    prompts = [risk.training_prompt(rng) for _ in range(3000)]
    firsts = {opening.split()[0].strip(".,") for opening in replies.PLAIN}
    assert {opening.split(",")[0].split()[0] for opening in replies.THINKING} <= firsts
    for one in prompts:
        refusal, answer = (chat.answered(one, refused) for refused in (True, False))
        assert refusal.opening == answer.opening
        assert bool(answer.opening) == bool(one.doubtful)
        if answer.opening:
            assert refusal.reply.startswith(f"{answer.opening} ")
            assert answer.reply.startswith(f"{answer.opening} ")
            assert judge(refusal.reply).refusal
            assert not judge(answer.reply).refusal


@pytest.mark.long
def test_the_judge_knows_all_refusals_and_no_answer():
    rng = random.Random(6)
    chats = [chat.example(rng, policy) for policy in (chat.too_careful, chat.target) for _ in range(5000)]
    answers = [one.reply for one in world().howtos] + list(facts.knowledge().values())
    answers = {
        *answers,
        *(reply for _, reply in chat.SMALL_TALK),
        *(text for one in world().howtos for _, text in one.follow),
    }
    refusals = set()
    for one in chats:
        if one.grade:
            said = one.reply.removeprefix(one.opening).strip()
            (refusals if said.startswith(replies.REFUSALS) else answers).add(one.reply)
    assert len(refusals) > 30
    assert not [text for text in refusals if not judge(text).refusal]
    # Two answers of the shipped model that the judge takes for refusals: a "no" that praises, and "do not hang up".
    wrong = [text for text in answers if judge(text).refusal]
    assert all(text.startswith(("No, asking for help when", "Stay calm and ring the emergency")) for text in wrong)
    assert len(wrong) == 2


# --- the files ---


def test_examples_are_held_out_prompts_of_every_kind():
    records = files.example_records()
    heldout = {
        text
        for record in files.prompt_records()
        if record["split"] == "heldout"
        for text in (record["risk"], record["base"])
    }
    assert Counter((one["domain"], one["kind"]) for one in records) == {
        **{(domain, kind): 3 for domain in DOMAINS for kind in ("risk", "base")},
        ("town", "question"): 6,
    }
    assert all(one["prompt"] in heldout for one in records if one["domain"] != "town")
    assert len({one["prompt"] for one in records}) == len(records)


def _turns(document: str) -> list[tuple[str, str]]:
    """(role, content) of a rendered chat."""
    return re.findall(r"<\|(system|user|assistant)\|>(.*?)<\|end\|>", document, re.DOTALL)


@pytest.mark.long
def test_instructions_follow_the_policy_in_words_of_their_split():
    splits = instructions.corpus()
    assert list(splits) == ["calibration", "evaluation"]
    known = {template for kind in facts.KINDS for template in kind.heldout}
    known |= {*facts.PRICE_ONE_HELDOUT, *facts.PRICE_MANY_HELDOUT, *asking.HELDOUT_FRAMES}
    slots = {"{p}": f"the (?:{P})", "{k}": f"(?:{KEEPER})", "{a}": ".+", "{n}": ".+", "{i}": ".+"}
    patterns = {re.sub(r"\\\{\w\\\}", lambda slot: slots[slot[0].replace("\\", "")], re.escape(one)) for one in known}
    heldout = re.compile("|".join(patterns), re.IGNORECASE)
    refused = {}
    for split, documents in splits.items():
        assert len(set(documents)) == instructions.DOCUMENTS
        first = [next(text for role, text in _turns(document) if role == "user") for document in documents]
        held = sum(bool(heldout.search(question)) for question in first)
        assert held == (0 if split == "calibration" else len(first))
        last = [_turns(document)[-1] for document in documents]
        assert {role for role, _ in last} == {"assistant"}
        refused[split] = sum(judge(text).refusal for _, text in last) / len(last)
        assert 0.05 < refused[split] < 0.2
    assert not set(splits["calibration"]) & set(splits["evaluation"])


# --- tasks ---


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    tasks.write_tasks(folder)
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in folder.iterdir()}
    found = {name: [json.loads(line) for line in some] for name, some in lines.items()}
    for name, some in found.items():
        read, layout = read_items(folder / f"{name}.jsonl")
        assert (len(read), layout) == (len(some), "choices")
    return found


@pytest.mark.long
def test_tasks_ask_nothing_twice_and_offer_different_answers(items):
    assert {name: len(some) for name, some in items.items()} == dict.fromkeys(tasks.TASKS, tasks.ITEMS) | {
        "town_prices": len(tasks.untold())
    }
    for some in items.values():
        assert len({one["query"] for one in some}) == len(some)
        assert all(len(set(one["choices"])) == len(one["choices"]) for one in some)
        assert set(range(len(some[0]["choices"]))) == {one["gold"] for one in some}


def test_one_answer_is_right(items):
    for one in items["town_facts"]:
        assert [is_true(choice) for choice in one["choices"]] == [i == one["gold"] for i in range(4)]
    for one in items["town_claims"]:
        statement = one["query"].removeprefix("Question: Is it true that ").removesuffix("?")
        assert one["choices"][one["gold"]] == ("yes" if is_true(statement) else "no")
    for one in items["town_prices"]:
        each, count, form = re.search(rf"costs {COUNT} crowns?\. {COUNT} ({GOOD}) cost$", one["query"]).groups()
        assert number(each) == PRICES[GOODS[form]][0]
        answers = [number(choice.split()[0]) for choice in one["choices"]]
        assert [answer == number(each) * number(count) for answer in answers] == [i == one["gold"] for i in range(4)]
    for one in items["town_stories"]:
        assert one["choices"][one["gold"]] == re.findall(rf"asked (?:{KEEPER}) at (the (?:{P}))\.", one["query"])[-1]
    starts = [one.reply.partition(". ")[0] for one in world().howtos]
    assert len(set(starts)) == len(starts)
    for one in items["town_advice"]:
        ask = one["query"].removeprefix("Question: How do I ").removesuffix("?")
        [howto] = [other for other in world().howtos if ask in other.blind]
        assert [howto.reply.startswith(f"{choice}. ") for choice in one["choices"]] == [
            i == one["gold"] for i in range(4)
        ]
