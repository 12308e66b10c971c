"""Steering: vectors that are added to the residual stream while the model runs. No rows are changed."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.edits.edit import Edit
from engine.records.errors import InputError
from engine.records.hashing import Json

Vector = npt.NDArray[np.float32]
VERSION = 1  # part of cache keys: raise it when a steered pass does something else than before


@dataclass(frozen=True, eq=False)
class Steering:
    """h_L(t) + coefficient * v_L at the output of every block L of `vectors`, at all positions t: prompt and reply.

    Activation addition: Turner et al. 2023, arXiv:2308.10248; at all positions as in Panickssery et al. 2024,
    arXiv:2312.06681, and Arditi et al. 2024, arXiv:2406.11717. Stands beside `Edit` wherever a cell has one, and is
    carried out at the outputs (`engine.interventions.at_outputs`). It is for measurements: nothing exports it.

    vectors: block -> [d] float32, finite. coefficient: 0 or more, finite; 0 changes nothing. A negative one is an
    `InputError`, since vectors are built in the direction that raises refusal and the opposite one would lower it.
    """

    vectors: Mapping[int, Vector] = field(repr=False)
    coefficient: float

    def __post_init__(self) -> None:
        if not 0 <= self.coefficient < np.inf:
            raise InputError(
                f"a coefficient of steering must be 0 or more, got {self.coefficient:g}; this software only installs "
                "refusal, and the opposite direction would lower it"
            )
        kept = {block: np.ascontiguousarray(vector, dtype=np.float32) for block, vector in self.vectors.items()}
        if not kept or any(vector.ndim != 1 or not np.isfinite(vector).all() for vector in kept.values()):
            raise InputError("steering needs at least one block, and a finite vector [d] for each")
        object.__setattr__(self, "vectors", dict(sorted(kept.items())))

    @property
    def size(self) -> int:
        """Blocks whose output is changed."""
        return len(self.vectors) if self.coefficient else 0

    @cached_property
    def vectors_hash(self) -> str:
        """SHA-256 over the blocks and their vectors, float32 little-endian."""
        whole = hashlib.sha256()
        for block, vector in self.vectors.items():
            whole.update(f"{block}:{vector.size}:".encode() + vector.astype("<f4").tobytes())
        return whole.hexdigest()

    def record(self) -> Json:
        """What belongs into a key."""
        return {"steering": {"version": VERSION, "vectors": self.vectors_hash, "coefficient": self.coefficient}}


AnyEdit = Edit | Steering  # what a sequence of a batch can carry
