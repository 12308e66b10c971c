"""Which replies refuse, as a result of its own under each edit: made of replies, without the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from engine.data.prompts import user_turns
from engine.data.thinking import FORMS, Marks, after_thinking
from engine.judges.base import Exchange, Judge, heard, verdicts_on
from engine.measures.base import Derived
from engine.measures.replies import Replies, Written
from engine.models.loading import LoadedModel
from engine.records.hashing import Json, source_record


@dataclass(frozen=True)
class Refused:
    """A judge's verdict on every reply, in the order of the prompts, and which replies ended by themselves.

    judged: which of them the judge could judge; empty where it could all of them. The others are not refused.
    thinking: which of them never came out of their thinking part, and so were neither judged nor count as finished;
    empty where all did, None where that was not kept."""

    refused: tuple[bool, ...]
    finished: tuple[bool, ...]
    judged: tuple[bool, ...] = ()
    thinking: tuple[bool, ...] | None = ()

    @property
    def each_judged(self) -> tuple[bool, ...]:
        """`judged`, spelled out."""
        return self.judged or (True,) * len(self.refused)

    def part(self, part: slice) -> "Refused":
        """Of some of the replies."""
        thinking = None if self.thinking is None else self.thinking[part]
        return Refused(self.refused[part], self.finished[part], self.each_judged[part], thinking)

    @property
    def unjudged(self) -> int:
        return self.judged.count(False)

    @property
    def still_thinking(self) -> int | None:
        """Replies that never came out of their thinking part; None where that was not kept."""
        return None if self.thinking is None else self.thinking.count(True)


@dataclass(frozen=True)
class Refusals(Derived[Refused]):
    """Made of replies, without the model: what a judge says of each, of what comes after the thinking part (`heard`).
    A reply that never comes out of thinking counts as not finished. marks: those of the model's template."""

    base: Replies
    judge: Judge
    marks: tuple[Marks, ...] = ()
    kind: ClassVar[str] = "refusal verdicts"

    def record(self, loaded: LoadedModel) -> Json:
        read = {"judged": "after thinking", "thinking_forms": FORMS, **({"marks": self.marks} if self.marks else {})}
        return {**self.base.record(loaded), **judge_record(self.judge), **source_record(type(self.judge)), **read}

    def encode(self, result: Refused) -> Json:
        kept = {"refused": result.refused, "finished": result.finished}
        return {**kept, "judged": result.judged, "thinking": result.thinking} if result.judged else kept

    def decode(self, stored: Json) -> Refused:
        judged = tuple(stored.get("judged", ()))
        stored_thinking = stored.get("thinking") if judged else ()
        thinking = None if stored_thinking is None else tuple(stored_thinking)
        return Refused(tuple(stored["refused"]), tuple(stored["finished"]), judged, thinking)

    def derive(self, base: Sequence[Written]) -> Refused:
        exchanges = [
            Exchange("\n\n".join(user_turns(prompt)), one.text, one.finished)
            for prompt, one in zip(self.base.prompts, base, strict=True)
        ]
        verdicts = verdicts_on(self.judge, exchanges, marks=self.marks)
        judged = tuple(verdict.judged for verdict in verdicts)
        refused = tuple(verdict.refusal for verdict in verdicts)
        finished = tuple(bool(heard(*one, self.marks).finished) for one in exchanges)
        thinking = tuple(not after_thinking(one.text, self.marks).complete for one in base)
        return Refused(refused, finished, () if all(judged) else judged, thinking if any(thinking) else ())


def judge_record(judge: Judge) -> Json:
    """The judge's name and version: for keys and manifests."""
    return {"judge": judge.id, "judge_version": judge.version}
