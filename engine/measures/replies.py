"""Replies to prompts under an edit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from engine.data.prompts import Prompt, prompt_ids, prompts_hash
from engine.data.thinking import kept_marks, opened, thinks
from engine.edits.edit import UNEDITED, AnyEdit
from engine.interventions.at_outputs import sees_sequences
from engine.measures.base import Measure, Passes
from engine.measures.generation import further_ends, generate_under
from engine.measures.sampling import Sampling
from engine.models.loading import LoadedModel
from engine.records.hashing import Json


class Written(NamedTuple):
    """A reply as it is kept. finished: it ended by itself, not at the limit of tokens."""

    text: str
    finished: bool


@dataclass(frozen=True)
class Replies(Measure[list[Written]]):
    """The measure: replies of at most `max_new_tokens`, in the order of the prompts. system: text of a system turn
    before every prompt, "" for none; thinking: the template's thinking mode left on. Both are part of what is hashed as
    the prompts. sampling: how tokens are drawn, None for greedy replies."""

    prompts: tuple[Prompt, ...]
    max_new_tokens: int
    batch_size: int
    system: str = ""
    sampling: Sampling | None = None
    thinking: bool = False
    kind: ClassVar[str] = "replies"
    _hashes: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def size(self) -> int:
        return len(self.prompts)

    def record(self, loaded: LoadedModel) -> Json:
        if loaded.tokenizer_hash not in self._hashes:  # many cells share a measure
            self._hashes[loaded.tokenizer_hash] = prompts_hash(loaded.tokenizer, self.prompts, **self._how)
        return {
            "prompts": self._hashes[loaded.tokenizer_hash],
            "reply_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
            "together": self.together(loaded),
            **({"further_ends": ends} if (ends := further_ends(loaded.model, loaded.tokenizer)) else {}),
            **({"thinking_marks": marks} if (marks := self._marks(loaded)) else {}),
            **({"sampling": self.sampling.record(self.prompts)} if self.sampling else {}),
        }

    @property
    def _how(self) -> dict[str, Any]:
        return {"system": self.system, "thinking": self.thinking}

    def encode(self, result: Sequence[Written]) -> Json:
        return {"replies": [one.text for one in result], "finished": [one.finished for one in result]}

    def decode(self, stored: Json) -> list[Written]:
        return [Written(*pair) for pair in zip(stored["replies"], stored["finished"], strict=True)]

    def passes(self, loaded: LoadedModel) -> tuple[Passes, ...]:
        longest = max(len(prompt_ids(loaded.tokenizer, prompt, **self._how)) for prompt in self.prompts)
        at_once = min(self.batch_size, self.together(loaded) * self.size)
        return (Passes(self.size, longest, self.max_new_tokens - 1, at_once, logits=1),)

    def together(self, loaded: LoadedModel) -> int:
        """As many edits as fill a batch with their replies; prompts that fill one alone are answered edit by edit."""
        edits = self.batch_size // len(self.prompts)
        return edits if edits > 1 and sees_sequences(loaded) else 1

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> list[Written]:
        return self._written(loaded, [UNEDITED])[0]  # the edit is in the weights already

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[list[Written]]:
        return self._written(loaded, edits)

    def _marks(self, loaded: LoadedModel) -> list[str]:
        """What the text of replies has of a thinking part beyond what is decoded; of most models nothing."""
        if not thinks(loaded.tokenizer):
            return []
        begun = opened(loaded.tokenizer, prompt_ids(loaded.tokenizer, self.prompts[0], **self._how))
        return [*kept_marks(loaded.tokenizer).values(), *([begun] if begun else [])]

    def _written(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[list[Written]]:
        generated = generate_under(
            loaded, edits, self.prompts, self.max_new_tokens, self.batch_size, sampling=self.sampling, **self._how
        )
        return [[Written(reply.text, reply.finished) for reply in replies] for replies in generated]
