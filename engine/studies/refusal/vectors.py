"""Vectors that steer towards refusal, from a domain's calibration pairs: once per domain, kept in the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.corpora import Pair
from engine.data.onsets import OnsetPhrases, onset_tokens
from engine.data.prompts import prompt_ids, prompts_hash
from engine.edits.contrasts import checksum
from engine.measures.condition import BATCH_SIZE, Similarities, block_states, principal_direction, similarity
from engine.models.loading import LoadedModel
from engine.records.hashing import cache_key
from engine.results.store import Store
from engine.stats.threshold import Threshold, best_threshold

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
    found = [
        best_threshold(*(similarity(side[:, block], conditions[block]).tolist() for side in whole)) for block in blocks
    ]
    best = max(blocks, key=lambda block: found[block].f1)  # of equal ones the first
    arrays = {
        "difference": (at_end[0].mean(0) - at_end[1].mean(0)).float().numpy(),
        "openings": torch.stack([_scaled(opened[0][:, block], opened[1][:, block]) for block in blocks]).numpy(),
        "conditions": torch.stack(conditions).numpy(),
    }
    return arrays, Condition(best, arrays["conditions"][best], found[best])


def _opened(loaded: LoadedModel, prompts: Sequence[list[int]], openings: Sequence[str]) -> Tensor:
    """Mean states over an opening's tokens, behind each prompt: [prompts, blocks, d] float64."""
    tokens = [list(loaded.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in openings]
    said = [tokens[place % len(tokens)] for place in range(len(prompts))]
    return block_states(
        loaded, [[*ids, *more] for ids, more in zip(prompts, said, strict=True)], [len(s) for s in said]
    )


def _scaled(refusing: Tensor, complying: Tensor) -> Tensor:
    """The principal direction times how far the two means lie apart along it, [d] float32."""
    direction = principal_direction(refusing, complying)
    gap = (refusing.mean(0) - complying.mean(0)) @ direction
    return (gap * direction).float()
