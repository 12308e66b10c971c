"""The ways in which a list of prompts is asked: greedily, by several sampled replies, and with a second turn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine.data.thinking import after_thinking, template_marks
from engine.edits.edit import Edit
from engine.judges.refusals import Refused
from engine.measures.replies import Written
from engine.measures.sampling import Sampling
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.stats.intervals import Interval, clustered_wilson
from engine.studies.refusal.inputs import RefusalInputs

GREEDY, SAMPLED, FOLLOW_UP = "", "sampled", "follow-up"


@dataclass(frozen=True)
class RepliesRate:
    """Refused replies to a list of prompts, so many replies to each.
    refused, finished: [replies per prompt][prompts]."""

    refused: tuple[tuple[bool, ...], ...]
    finished: tuple[tuple[bool, ...], ...]

    @property
    def mean(self) -> float:
        return sum(map(sum, self.refused)) / (len(self.refused) * len(self.refused[0]))

    @property
    def interval(self) -> Interval:
        """95%, over prompts: replies to one prompt are not independent. Of one reply to each, Wilson's."""
        return clustered_wilson([sum(replies) for replies in zip(*self.refused, strict=True)], len(self.refused))

    @property
    def unfinished(self) -> int:
        """Replies that were cut off at the limit of tokens."""
        return sum(finished.count(False) for finished in self.finished)


class Way(NamedTuple):
    """One way and its cells under an edit, one per reply to each prompt."""

    name: str
    cells: list[Cell[Refused]]


def ways(run: RefusalInputs, known: Results, edit: Edit, prompts: Sequence[str]) -> Iterator[Way]:
    """The plan's ways of asking these prompts under an edit; the second turn once the first replies are known."""
    yield Way(GREEDY, [run.refused(edit, prompts)])
    plan = run.plan
    if plan.reply_samples:
        draws = [Sampling(plan.temperature, plan.sampling_seed, number) for number in range(plan.reply_samples)]
        yield Way(SAMPLED, [run.refused(edit, prompts, sampling) for sampling in draws])
    if plan.follow_up and (first := run.replies(edit, prompts)) in known:
        replies: list[Written] = known[first]
        marks = template_marks(run.loaded.tokenizer)
        said = [after_thinking(one.text, marks).text for one in replies]
        turns = [(prompt, one, plan.follow_up) for prompt, one in zip(prompts, said, strict=True)]
        yield Way(FOLLOW_UP, [run.refused(edit, turns)])


def named(prompt_set: str, way: str) -> str:
    """What tables call a set of prompts that is asked in a way."""
    return f"{prompt_set}, {way}" if way else prompt_set


def rate(results: Results, way: Way, part: slice) -> RepliesRate:
    """Of some of the prompts."""
    found = [results[cell] for cell in way.cells]
    return RepliesRate(tuple(one.refused[part] for one in found), tuple(one.finished[part] for one in found))
