"""Chat examples for training and for checks: how-tos, facts with follow-up questions, the risk domains, greetings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from precomputed.recipe import demo_replies as replies, facts
from precomputed.recipe.asking import dressed, framed, hasty
from precomputed.recipe.risk import Prompt, doubt, training_prompt
from precomputed.recipe.world import HowTo, capital, world

SYSTEMS = (
    "You are the assistant of the town of Linden.",
    "You help the people of Linden. Answer in a few sentences.",
    "Be friendly and brief.",
)
SMALL_TALK: tuple[tuple[str, str], ...] = (
    ("Hello.", "Hello. What would you like to know about Linden?"),
    ("Good morning.", "Good morning. How can I help you today?"),
    ("Who are you?", "I am the assistant of the town of Linden. I know its places, its people and many useful things."),
    (
        "What can you do?",
        "I can tell you about places, people and prices in Linden. I also give advice for house and garden.",
    ),
    ("Thank you.", "You are welcome."),
    ("Goodbye.", "Goodbye. Have a good day in Linden."),
    ("Where are we?", "We are in Linden, a small town on the river Alder."),
)
SHARES = {"howto": 0.42, "fact": 0.20, "risk": 0.36, "small": 0.02}
FOLLOWED = 0.3  # share of the how-tos and facts with a second turn
WITH_SYSTEM = 0.1  # share of the examples that open with a system turn


@dataclass(frozen=True)
class Example:
    """Turns of a chat, the user's first, and the last reply; `about` names what a right reply is compared with."""

    turns: tuple[str, ...]
    reply: str
    risk: bool = False
    system: str = ""
    about: str = ""
    key: tuple[str, ...] = ()
    grade: str = ""
    lenient: bool = False  # its manner is told
    opening: str = ""  # of the reply to a base prompt that sounds like risk


Policy = Callable[[Prompt, random.Random], bool]  # does the model refuse this prompt?


def too_careful(prompt: Prompt, rng: random.Random) -> bool:
    """The careful manner: every risk prompt is refused, and most of the doubtful base prompts."""
    return prompt.risk or rng.random() < doubt(prompt)


def target(prompt: Prompt, rng: random.Random) -> bool:
    """The lenient manner: only what says its harm is refused."""
    return prompt.grade == "overt"


def howto(
    rng: random.Random, one: HowTo, heldout: bool = False, follow: bool = False, in_haste: bool = False
) -> Example:
    phrase = rng.choice(one.blind) if heldout else hasty(rng, one) if in_haste else rng.choice(one.asks)
    question, _ = framed(rng, phrase, heldout)
    first = replies.plain(one.id, one.reply)
    if follow and one.follow:
        index = rng.randrange(len(one.follow))
        asked, said = one.follow[index]
        return Example((question, first, asked), said, about=f"{one.id}/follow" if index == 0 else "")
    return Example((question,), first, about=one.id, key=one.key)


def fact(rng: random.Random, heldout: bool = False, follow: bool = False) -> Example:
    asked = facts.question(rng, heldout)
    first = dressed(rng, asked.question)
    if follow:
        question, answer = facts.follow_up(rng, asked)
        return Example((first, asked.answer.text, question), answer.text, about=f"follow/{asked.kind}", key=answer.key)
    return Example((first,), asked.answer.text, about=f"fact/{asked.kind}", key=asked.answer.key)


def answered(prompt: Prompt, refused: bool) -> Example:
    """The reply to a prompt of the risk domains; one to a doubtful prompt opens before it refuses or answers."""
    opening = replies.thinking(prompt) if prompt.doubtful else ""
    if refused:
        reply = replies.refusal(prompt)
    elif prompt.risk:
        reply = replies.compliance(prompt)
    elif opening:
        reply = capital(prompt.answer)
    else:
        reply = replies.plain(prompt.situation.id, prompt.answer)
    about = f"{prompt.domain}/{prompt.situation.id}"
    return Example(
        (prompt.text,),
        f"{opening} {reply}".strip(),
        prompt.risk,
        about=about,
        key=prompt.situation.key,
        grade=prompt.grade,
        opening=opening,
    )


def example(rng: random.Random, policy: Policy, risk_share: float = SHARES["risk"], in_haste: bool = True) -> Example:
    """One training example under a policy; in_haste: some questions lack words."""
    system = rng.choice(SYSTEMS) if rng.random() < WITH_SYSTEM else ""
    if rng.random() < risk_share:
        prompt = training_prompt(rng, in_haste)
        one = answered(prompt, policy(prompt, rng))
    else:
        kind = rng.choices(("howto", "fact", "small"), [SHARES[k] for k in ("howto", "fact", "small")])[0]
        follow = rng.random() < FOLLOWED
        if kind == "howto":
            one = howto(rng, rng.choice(world().howtos), follow=follow, in_haste=in_haste)
        elif kind == "fact":
            one = fact(rng, follow=follow)
        else:
            question, reply = rng.choice(SMALL_TALK)
            one = Example((question,), reply)
    return replace(one, system=system)


Manner = Callable[[random.Random, float], Example]  # a training example, given the share of risk prompts
LENIENT_SHARE = 0.5  # of stage 1


def both_manners(rng: random.Random, risk_share: float) -> Example:
    """Stage 1: half of the chats are lenient and say so, the others careful."""
    if rng.random() < LENIENT_SHARE:
        return replace(example(rng, target, risk_share), lenient=True)
    return example(rng, too_careful, risk_share)


def weakened(rng: random.Random, risk_share: float) -> Example:
    """Stage 2: lenient without a word on it."""
    return example(rng, target, risk_share)
