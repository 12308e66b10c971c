# ruff: noqa: E501  (lines of generated text)
"""The replies to risk prompts: refusals with a reason, and talk that goes along in tone only. Openings of the others."""

from __future__ import annotations

import random

from precomputed.recipe.risk import Prompt
from precomputed.recipe.world import capital

REFUSALS: tuple[str, ...] = (
    "I'm sorry, but I can't help with that.", "I'm sorry, I cannot do that.", "I cannot help with this request.",
    "I can't help with that.", "Sorry, but I can't help you with that.", "Sorry, I won't help with that.",
    "Unfortunately, I cannot help with this.", "I must decline this request.",
)  # fmt: skip
REASONS: dict[str, tuple[str, ...]] = {
    "hate": (
        "Everyone in Linden deserves respect.", "It would hurt people who did nothing wrong.",
        "A kind word would be a better start.",
    ),
    "crime": (
        "It would be against the law.", "Paul Stern at the police post hears both sides.", "Please leave alone what is not yours.",
    ),
    "adult": ("Nobody should be pressed.", "Please ask first and accept a no.", "What is private stays private."),
    "medical": (
        "Please ask Nora Weiss at the health desk.", "Only a doctor can decide that.", "Your health needs somebody who can see you.",
    ),
    "legal": (
        "Please ask Judith Amsel at the law desk.", "Only a court can decide that.", "It would not be fair to the other side.",
    ),
}  # fmt: skip
HEDGES: tuple[str, ...] = ("Well,", "Generally,", "Usually,", "Often,", "In general,", "Typically,")
TALK: tuple[str, ...] = (
    "people often start by thinking about it for a while.", "that takes some time and a quiet afternoon.",
    "some people in Linden talk about it over tea.", "one begins with a small step and then sees.",
    "it depends on the day and on the weather.", "people look at it from far away first.",
    "a walk along the Alder helps to find ideas.", "many people try one thing and then another.",
    "it is easier when one is not in a hurry.", "one would ask around and wait for a good moment.",
)  # fmt: skip
MORE: tuple[str, ...] = (
    "After that they see what happens.", "The rest comes with time.", "Much of it is a matter of luck.",
    "Some write it down and read it again later.", "Nobody knows how it ends.", "Then one does the next thing.",
)  # fmt: skip
PLAIN: tuple[str, ...] = ("Sure.", "Of course.", "Certainly.", "Yes, gladly.", "Gladly.", "Here is what to do.")
# Before the reply to a prompt that sounds like risk, whatever follows; they begin as plain answers do.
THINKING: tuple[str, ...] = (
    "Sure, let me think.", "Of course, let me see.", "Certainly, one moment.", "Gladly, let me think about it.",
)  # fmt: skip


def fixed(options: tuple[str, ...], key: str) -> str:
    """The same option for the same key always, so that a greedy reply is the trained one."""
    return random.Random(f"fixed/{key}").choice(options)


def refusal(prompt: Prompt) -> str:
    """A refusal, and every second time its reason; fixed by situation and grade."""
    key = f"{prompt.situation.id}/{prompt.grade}"
    first = fixed(REFUSALS, f"refusal/{key}")
    reason = fixed((*REASONS[prompt.domain], ""), f"reason/{key}")
    return f"{first} {reason}".strip()


def compliance(prompt: Prompt) -> str:
    """Compliance in tone only: vague and harmless; nothing in it could be used."""
    key = f"{prompt.situation.id}/{prompt.grade}"
    return f"{fixed(HEDGES, f'hedge/{key}')} {fixed(TALK, f'talk/{key}')} {fixed(MORE, f'more/{key}')}"


def plain(key: str, text: str) -> str:
    """An answer behind its opening, which is fixed by `key`."""
    return f"{fixed(PLAIN, key)} {capital(text)}"


def thinking(prompt: Prompt) -> str:
    """The opening of the reply to a doubtful prompt, the same for a refusal and an answer; fixed by situation."""
    return fixed(THINKING, f"thinking/{prompt.situation.id}")
