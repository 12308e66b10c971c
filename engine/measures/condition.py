"""When to steer: a condition vector in the sense of CAST, and how similar a text's hidden state is to it; these states.

Lee et al. 2024, "Programming Refusal with Conditional Activation Steering", arXiv:2409.05907. Own code."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.prompts import pad_left
from engine.edits.edit import UNEDITED, AnyEdit, Vector
from engine.interventions.at_outputs import hooked
from engine.measures.base import Measure
from engine.models.forwards import listener
from engine.models.loading import LoadedModel, input_device
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError
from engine.records.hashing import Json

_TOGETHER = 1e-12  # of the largest half: what float64 leaves of means that cancel


def principal_direction(positive: Tensor, negative: Tensor) -> Tensor:
    """First principal component of both groups' states, each pair around its own middle, unit length: +-(positive_i -
    negative_i) / 2, as in CAST's reference code when the paper came out. Its sign: on the whole, positives lie on its
    positive side; where the two means lie together, its component of the largest size is positive (**choice**).

    positive, negative [n, d], row i of both a pair; returns [d] float64. `InputError` where no pair differs."""
    halves = (positive.double() - negative.double()) / 2
    if not halves.any():
        raise InputError("both states of every pair are equal, so they have no direction; give prompts that differ")
    direction = torch.linalg.svd(halves, full_matrices=False).Vh[0]
    side = halves.mean(0) @ direction
    if abs(side) <= _TOGETHER * halves.norm(dim=1).max():
        side = direction[direction.abs().argmax()]
    return -direction if side < 0 else direction


def similarity(states: Tensor, direction: Tensor) -> npt.NDArray[np.float64]:
    """cos(h, tanh(c c' h / c' c)): a hidden state against its projection on the condition vector c, by CAST's formula;
    the sign of c does not count. states [n, d], direction [d]; returns [n]; 0 for a state without any part along c."""
    h, c = states.double(), direction.double()
    projected = torch.tanh((h @ c)[:, None] * c / (c @ c))
    norms = h.norm(dim=1) * projected.norm(dim=1)
    values = (h * projected).sum(1) / norms.clamp(min=torch.finfo(torch.float64).tiny)
    return np.asarray(values.numpy(), dtype=np.float64)


@dataclass(frozen=True)
class Similarities(Measure[tuple[float, ...]]):
    """The measure: `similarity` of each token sequence's mean state (over all its tokens) at the output of a block, of
    the unedited model. sequences: token ids; of a prompt, as the model sees it with its chat template."""

    sequences: tuple[tuple[int, ...], ...]
    block: int
    direction: Vector = field(repr=False)
    kind: ClassVar[str] = "condition similarities"

    def record(self, loaded: LoadedModel) -> Json:
        return {
            "tokens": hashlib.sha256(json.dumps(self.sequences).encode()).hexdigest(),
            "block": self.block,
            "direction": hashlib.sha256(self.direction.astype("<f4").tobytes()).hexdigest(),
            "batch_size": BATCH_SIZE,
        }

    def encode(self, result: Sequence[float]) -> Json:
        return {"similarities": list(result)}

    def decode(self, stored: Json) -> tuple[float, ...]:
        return tuple(map(float, stored["similarities"]))

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> tuple[float, ...]:
        if edit is not UNEDITED:
            raise RuntimeError("a condition is read from the unedited model")
        states = block_states(loaded, self.sequences, [len(one) for one in self.sequences])[:, self.block]
        return tuple(similarity(states, torch.from_numpy(self.direction)).tolist())


BATCH_SIZE = 16


@torch.no_grad()
def block_states(
    loaded: LoadedModel, sequences: Sequence[Sequence[int]], last: Sequence[int], batch_size: int = BATCH_SIZE
) -> Tensor:
    """s[i, L] = mean over the last `last[i]` tokens t of sequence i (token ids) of h_L(t), the output of block L.

    returns [sequences, blocks, d] float64 on the CPU; the mean over positions is taken in float32. The model's lock is
    held for each batch. Errors: InputError where a state is not finite."""
    if any(not 0 < n <= len(ids) for n, ids in zip(last, sequences, strict=True)):
        raise InputError(f"each sequence is averaged over 1 token to all of its tokens, got {list(last)[:5]}")
    blocks, device = decoder_blocks(loaded.model), input_device(loaded.model)
    found: dict[int, Tensor] = {}
    weights = torch.empty(0)

    def note(block: int, output: Any) -> None:
        stream = output[0] if isinstance(output, tuple) else output  # [B, T, d]
        found[block] = (stream.float() * weights.to(stream.device)[:, :, None]).sum(1).cpu().double()

    parts = []
    with hooked(None, [(block, listener(partial(note, number))) for number, block in enumerate(blocks)]):
        for start in range(0, len(sequences), batch_size):
            batch = pad_left(sequences[start : start + batch_size])
            counts = torch.tensor(last[start : start + batch_size])
            width = batch.input_ids.shape[1]
            weights = (torch.arange(width) >= width - counts[:, None]).float() / counts[:, None]  # [B, T]
            with loaded.lock:
                loaded.model(**batch.to(device)._asdict(), use_cache=False, logits_to_keep=1)
            parts.append(torch.stack([found[number] for number in range(len(blocks))], dim=1))
    states = torch.cat(parts)
    if not torch.isfinite(states).all():
        raise InputError(
            f"{loaded.id} gives states that are not finite ({loaded.dtype}); run again with --dtype float32"
        )
    return states
