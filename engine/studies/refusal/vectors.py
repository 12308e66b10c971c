"""Vectors that steer towards refusal, from a domain's calibration pairs: once per domain, kept in the store. And one
way to make a model refuse, at one strength, and how its numbers are had: refusal, NLL, divergence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.corpora import Pair
from engine.data.onsets import OnsetPhrases, onset_tokens
from engine.data.prompts import prompt_ids, prompts_hash
from engine.edits.contrasts import checksum
from engine.edits.edit import UNEDITED, AnyEdit
from engine.measures.base import Average
from engine.measures.condition import BATCH_SIZE, Similarities, block_states, principal_direction, similarity
from engine.measures.divergence import Kl
from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import cache_key
from engine.results.store import Store
from engine.run.runner import Cell, Results
from engine.studies.refusal.refusal_inputs import Rate, Rates, RefusalInputs, sides


class Threshold(NamedTuple):
    """`holds` is true above the value, or below it. f1: on the numbers that it was chosen on."""

    value: float
    above: bool
    f1: float

    def holds(self, numbers: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Is each number on the side of the positives? The value itself is on neither."""
        given = np.asarray(numbers, dtype=np.float64)
        return given > self.value if self.above else given < self.value


def best_threshold(positive: Sequence[float], negative: Sequence[float]) -> Threshold:
    """The threshold and the side with the largest F1 = 2 TP / (2 TP + FP + FN) of finding the positives.

    Tried are all midpoints between neighbouring distinct numbers, and one below and one above all of them. Ties go to
    the wider gap between the neighbours, then to the lower value, then to `above`. `InputError` without numbers of
    each kind, or with one that is not finite."""
    if not len(positive) or not len(negative) or not np.isfinite([*positive, *negative]).all():
        raise InputError(
            f"a threshold needs finite numbers of both kinds, got {len(positive)} positives, {len(negative)} negatives"
        )
    yes, no = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    values = np.unique([*yes, *no])
    middle = (values[1:] + values[:-1]) / 2
    step = 1.0 if len(values) < 2 else float(values[-1] - values[0])
    cuts = np.array([values[0] - step, *middle, values[-1] + step])
    gaps = np.array([0.0, *np.diff(values), 0.0])
    best: tuple[float, float, float, bool] | None = None
    for above in (True, False):
        hits, wrong = ((numbers[:, None] > cuts if above else numbers[:, None] < cuts).sum(0) for numbers in (yes, no))
        f1 = 2 * hits / (hits + wrong + len(yes))  # 2 TP + FP + FN = TP + FP + positives
        for place in range(len(cuts)):
            candidate = (float(f1[place]), float(gaps[place]), -float(cuts[place]), above)
            best = candidate if best is None or candidate > best else best
    assert best is not None
    return Threshold(-best[2], best[3], best[0])


_ARRAYS = ("difference", "openings", "conditions")  # [blocks, d] each
_VERSION = 1  # part of the key: raise it when vectors are made in another way


@dataclass(frozen=True)
class Condition:
    """Steer a prompt only where its similarity to the condition vector at a block is beyond the threshold."""

    block: int
    direction: npt.NDArray[np.float32]
    threshold: Threshold

    @property
    def name(self) -> str:
        return f"block {self.block}, similarity {'>' if self.threshold.above else '<'} {self.threshold.value:.4g}"

    def of(self, sequences: Sequence[Sequence[int]]) -> Similarities:
        """What has to be measured of token sequences to know where the condition holds."""
        return Similarities(tuple(map(tuple, sequences)), self.block, self.direction)


@dataclass(frozen=True, eq=False)
class Vectors:
    """What one domain's pairs give, [blocks, d] float32 each. Both point towards refusal; nothing turns them round.

    difference: mean of the risk prompts' states minus mean of the base prompts', at the last prompt position: the
    difference in means of Arditi et al. 2024 (arXiv:2406.11717), taken at one position.
    openings: the base prompts, each followed by a refusing and by a complying opening; states are means over the
    opening's tokens; the first principal component around each pair's middle, with the sign of refusing. As in Lee et
    al. 2024 (arXiv:2409.05907), but prompt i has the i-th opening of each list, round and round, where CAST takes all
    combinations, and the unit vector is scaled by the distance of the two groups' means along it, so that a
    coefficient of 1 leads from complying to refusing in every model (**choices**).
    condition: the vector, block and threshold that tell risk from base prompts best (largest F1)."""

    difference: npt.NDArray[np.float32]
    openings: npt.NDArray[np.float32]
    condition: Condition


def vectors_of(loaded: LoadedModel, phrases: OnsetPhrases, pairs: Sequence[Pair], store: Store) -> Vectors:
    """The vectors of these pairs, from the store where they are known. `InputError` for swapped phrase lists."""
    onset_tokens(loaded.tokenizer, phrases)  # refuses swapped lists, which would turn the openings round
    risk, base = [pair.risk for pair in pairs], [pair.base for pair in pairs]
    spec = {
        "model": loaded.numeric_fingerprint,
        "version": _VERSION,
        "prompts": [prompts_hash(loaded.tokenizer, side) for side in (risk, base)],
        "phrases": [list(side) for side in phrases],
        "batch_size": BATCH_SIZE,
    }
    key = cache_key("steering vectors", spec)
    arrays, cell = store.load_arrays(key, lambda found: set(found) == set(_ARRAYS)), store.get(key)
    if arrays is None or cell is None or checksum(arrays) != cell.get("sha256"):
        arrays, found = _computed(loaded, phrases, risk, base)
        cell = {"sha256": checksum(arrays), "block": found.block, "threshold": list(found.threshold)}
        store.save_arrays(key, arrays, {"steering": "vectors"})
        store.put(key, cell)
    condition = Condition(cell["block"], arrays["conditions"][cell["block"]], Threshold(*cell["threshold"]))
    return Vectors(arrays["difference"], arrays["openings"], condition)


def _computed(
    loaded: LoadedModel, phrases: OnsetPhrases, risk: Sequence[str], base: Sequence[str]
) -> tuple[dict[str, npt.NDArray[Any]], Condition]:
    sides = [[prompt_ids(loaded.tokenizer, prompt) for prompt in prompts] for prompts in (risk, base)]
    at_end = [block_states(loaded, side, [1] * len(side)) for side in sides]
    whole = [block_states(loaded, side, [len(ids) for ids in side]) for side in sides]
    opened = [_opened(loaded, sides[1], some) for some in phrases]  # refusing, complying
    blocks = range(at_end[0].shape[1])
    conditions = [principal_direction(whole[0][:, block], whole[1][:, block]).float() for block in blocks]
    vectors = [
        best_threshold(*(similarity(side[:, block], conditions[block]).tolist() for side in whole)) for block in blocks
    ]
    best = max(blocks, key=lambda block: vectors[block].f1)  # of equal ones the first
    arrays = {
        "difference": (at_end[0].mean(0) - at_end[1].mean(0)).float().numpy(),
        "openings": torch.stack([_scaled(opened[0][:, block], opened[1][:, block]) for block in blocks]).numpy(),
        "conditions": torch.stack(conditions).numpy(),
    }
    return arrays, Condition(best, arrays["conditions"][best], vectors[best])


def _opened(loaded: LoadedModel, prompts: Sequence[list[int]], openings: Sequence[str]) -> Tensor:
    """Mean states over an opening's tokens, behind each prompt: [prompts, blocks, d] float64."""
    tokens = [list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in openings]
    last_tokens = [tokens[place % len(tokens)] for place in range(len(prompts))]
    return block_states(
        loaded, [[*ids, *more] for ids, more in zip(prompts, last_tokens, strict=True)], [len(s) for s in last_tokens]
    )


def _scaled(refusing: Tensor, complying: Tensor) -> Tensor:
    """The principal direction times how far the two means lie apart along it, [d] float32."""
    direction = principal_direction(refusing, complying)
    gap = (refusing.mean(0) - complying.mean(0)) @ direction
    return (gap * direction).float()


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
    _divergences: dict[tuple[Pair, ...], Cell[Average]] = field(default_factory=dict, init=False, repr=False)

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
        nll = results[self.run.nll(self.edit)]
        if not self.where:
            return nll.nats_per_token
        plain = results[self.run.nll(UNEDITED)]
        holds = self.where.holds(results, self.where.windows)
        nats = _either(holds, nll.window_nats, plain.window_nats)
        return NegativeLogLikelihood(nats, nll.window_tokens).nats_per_token

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
            texts = tuple(one.text for one in results[self.run.replies(UNEDITED, sides(pairs))][len(pairs) :])
            base = tuple(pair.base for pair in pairs)
            measure = Kl(base, texts, self.run.plan.batch_size, self.system, self.run.plan.thinking)
            self._divergences[key] = Cell(self.run.loaded, self.edit, measure)
        yield self._divergences[key]

    def divergence(self, results: Results, pairs: Sequence[Pair]) -> Average:
        """From the unedited model, on its replies to the pairs' base prompts."""
        [cell] = self.divergence_cells(results, pairs)
        average: Average = results[cell]
        if not self.where:
            return average
        holds = self.where.holds(results, self.where.prompts(sides(pairs)))[len(pairs) :]
        nothing = (0.0,) * len(average.sums)
        return Average(_either(holds, average.sums, nothing), average.counts)


def _either(holds: Sequence[bool], yes: Sequence[Any], no: Sequence[Any]) -> tuple[Any, ...]:
    """From the first where the condition holds, from the second elsewhere."""
    return tuple(a if true else b for true, a, b in zip(holds, yes, no, strict=True))
