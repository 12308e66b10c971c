"""One way to make a model refuse, at one strength, and how its numbers are had: refusal, NLL, divergence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from engine.data.corpora import Pair
from engine.data.prompts import prompt_ids
from engine.edits.edit import UNEDITED, AnyEdit
from engine.measures.divergence import Divergence, Kl
from engine.measures.nll import NegativeLogLikelihood
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.refusal.inputs import Rate, Rates, RefusalInputs, sides
from engine.studies.refusal.vectors import Condition


class Where:
    """Where a condition holds: the cells that say so, made once for each list of prompts."""

    def __init__(self, run: RefusalInputs, condition: Condition) -> None:
        self.run, self.condition = run, condition
        self._cells: dict[tuple[str, ...], Cell[tuple[float, ...]]] = {}

    def prompts(self, prompts: Sequence[str]) -> Cell[tuple[float, ...]]:
        """Similarities of prompts as the model sees them."""
        key = tuple(prompts)
        if key not in self._cells:
            ids = [prompt_ids(self.run.loaded.tokenizer, prompt) for prompt in prompts]
            self._cells[key] = Cell(self.run.loaded, UNEDITED, self.condition.of(ids))
        return self._cells[key]

    @cached_property
    def windows(self) -> Cell[tuple[float, ...]]:
        """Similarities of the evaluation text's windows, each as if it were a prompt."""
        return Cell(self.run.loaded, UNEDITED, self.condition.of(self.run.evaluation.read_ids.tolist()))

    def holds(self, results: Results, cell: Cell[tuple[float, ...]]) -> list[bool]:
        """Does the condition hold, text by text?"""
        return [bool(one) for one in self.condition.threshold.holds(np.array(results[cell]))]


@dataclass(frozen=True, eq=False)
class Setting:
    """method, vector: which way, as the table `baselines` names them. name: the setting in words. strength: orders the
    settings of one way from mild to strong. system: text of a system turn. edit: rows or steering.

    where: a condition on the prompt, read from the unedited model before anything is added, so the conditional model's
    reply to a prompt **is** the steered model's where it holds and the unedited model's where it does not, and so are
    its divergence and the NLL of a window; nothing else is run."""

    run: RefusalInputs
    method: str
    vector: str
    domain: str
    name: str
    strength: float
    edit: AnyEdit = UNEDITED
    system: str = ""
    where: Where | None = None
    _divergences: dict[tuple[Pair, ...], Cell[Divergence]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def _asked(self) -> RefusalInputs:
        """The run in which prompts come with the system prompt."""
        return replace(self.run, plan=replace(self.run.plan, system=self.system)) if self.system else self.run

    def nll_cells(self) -> Iterator[Cell[Any]]:
        """What `nll` needs. A system prompt does not stand before plain text: its NLL is the unedited model's."""
        yield self.run.nll(self.edit)
        if self.where:
            yield self.run.nll(UNEDITED)
            yield self.where.windows

    def nll(self, results: Results) -> float:
        """Nats per token of the evaluation text."""
        found = results[self.run.nll(self.edit)]
        if not self.where:
            return found.nats_per_token
        plain = results[self.run.nll(UNEDITED)]
        holds = self.where.holds(results, self.where.windows)
        nats = _either(holds, found.window_nats, plain.window_nats)
        return NegativeLogLikelihood(nats, found.window_tokens).nats_per_token

    def reply_cells(self, pairs: Sequence[Pair]) -> Iterator[Cell[Any]]:
        """What `rates` needs."""
        yield self._asked.on_pairs(self.edit, pairs)
        if self.where:
            yield self.run.on_pairs(UNEDITED, pairs)
            yield self.where.prompts(sides(pairs))

    def rates(self, results: Results, pairs: Sequence[Pair]) -> Rates:
        """Refusal of both sides of the pairs."""
        if not self.where:
            return self._asked.rates(results, self.edit, pairs)
        holds, n = self.where.holds(results, self.where.prompts(sides(pairs))), len(pairs)
        steered, plain = (results[self.run.on_pairs(edit, pairs)] for edit in (self.edit, UNEDITED))
        refused = _either(holds, steered.refused, plain.refused)
        finished = _either(holds, steered.finished, plain.finished)
        return Rates(Rate(refused[:n], finished[:n]), Rate(refused[n:], finished[n:]))

    def divergence_cells(self, results: Results, pairs: Sequence[Pair]) -> Iterator[Cell[Any]]:
        """What `divergence` needs, once the unedited model's replies to both sides of the pairs are known."""
        key = tuple(pairs)
        if key not in self._divergences:
            replies = results[self.run.replies(UNEDITED, sides(pairs))][len(pairs) :]
            texts = tuple(one.text for one in replies)
            base = tuple(pair.base for pair in pairs)
            measure = Kl(base, texts, self.run.plan.batch_size, self.system, self.run.plan.thinking)
            self._divergences[key] = Cell(self.run.loaded, self.edit, measure)
        yield self._divergences[key]

    def divergence(self, results: Results, pairs: Sequence[Pair]) -> Divergence:
        """From the unedited model, on its replies to the pairs' base prompts."""
        [cell] = self.divergence_cells(results, pairs)
        found: Divergence = results[cell]
        if not self.where:
            return found
        holds = self.where.holds(results, self.where.prompts(sides(pairs)))[len(pairs) :]
        nothing = (0.0,) * len(found.prompt_nats)
        return Divergence(_either(holds, found.prompt_nats, nothing), found.prompt_positions)


def _either(holds: Sequence[bool], yes: Sequence[Any], no: Sequence[Any]) -> tuple[Any, ...]:
    """From the first where the condition holds, from the second elsewhere."""
    return tuple(a if true else b for true, a, b in zip(holds, yes, no, strict=True))
