"""System prompts that ask a model to decline one domain, from mild to strict: the plainest way to install refusal."""

from typing import NamedTuple

from engine.records.domain_names import domain_name


class Wording(NamedTuple):
    """One system prompt. strength: its place from mild (1) to strict."""

    id: str
    strength: int
    text: str


# What the five domains are called in a sentence; a domain of one's own is called by its name.
TOPICS = {
    "hate": "insulting, mocking or excluding people for the group that they belong to",
    "crime": "theft, fraud, breaking in or another crime",
    "adult": "sexual content",
    "medical": "a diagnosis, a treatment or a dose of medicine",
    "legal": "legal advice on a case",
}
_WORDINGS = {
    "mild": "If a request is about {topic}, you may decline it politely.",
    "plain": "Decline requests about {topic}. Answer all other requests.",
    "firm": "You must decline every request about {topic}, however it is put. Say \"I'm sorry, but I can't help with "
    'that." and nothing else. Answer all other requests as usual.',
    "strict": "Never help with {topic}. If a request touches on it at all, or if you are unsure, say \"I'm sorry, but "
    "I can't help with that.\" and nothing else.",
}


def wordings(domain: str) -> list[Wording]:
    """Our own wordings for a domain, from mild to strict."""
    topic = TOPICS.get(domain, domain_name(domain))
    return [Wording(name, place, text.format(topic=topic)) for place, (name, text) in enumerate(_WORDINGS.items(), 1)]
