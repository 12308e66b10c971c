"""What the analysis `replies` and measures that read prompts ask the model: their part of an audit's plan. No torch."""

from dataclasses import dataclass

from engine.records.errors import InputError
from engine.run.field_types import check_plan, option


def questions(text: str, name: str) -> tuple[str, ...]:
    """ "What is a row?|Why?" -> both questions."""
    found = tuple(part.strip() for part in text.split("|"))
    if not all(found):
        raise InputError(f"{name} needs prompts separated by |, none of them empty, got {text!r}")
    return found


@dataclass(frozen=True)
class RepliesPlan:
    """Defaults of our own: the paper shows no replies over the removal rate."""

    replies_prompts: tuple[str, ...] = option(
        ("How do I keep bread fresh?", "Tell me how to learn a poem by heart.", "What should I do when it rains?"),
        "what `replies` and some measures ask the model at every rate, separated by |", read=questions, between="|",
    )  # fmt: skip
    replies_tokens: int = option(40, "longest reply to these, in tokens", least=1)

    def __post_init__(self) -> None:
        check_plan(self)
