"""An edit: which units are changed, what is done to them, and where it came from; and steering, which edits no unit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from engine.edits.masks import Mask, checked_mask, removed_count
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.stats.removal_order import removal_order

if TYPE_CHECKING:
    from engine.models.row_index import Side
    from engine.models.units import Units

ZERO = "zero"
Kind = Literal["refusal", "language model", "hand-made"]


@dataclass(frozen=True, eq=False)
class Edit:
    """Units (rows of the row index), an intervention, and how the units were chosen. Equal content, equal hash.

    side: `output` where the units are rows, acted on at the outputs of their Linears; `input` where they are columns of
    the column index (`engine.models.units`: neurons, heads), acted on at the inputs.
    make: gives the ascending int64 ids whenever they are wanted, so that the thousand edits of an audit can all
    be the beginnings of a few removal orders and cost no memory. size: how many there are. intervention: an id of
    `engine.interventions`. kind, spec: where the edit came from, for records and cards; no part of the hash."""

    make: Callable[[], Mask] = field(repr=False)
    size: int
    intervention: str = ZERO
    kind: Kind = "hand-made"
    spec: Json = field(default_factory=dict)
    side: Side = "output"

    @property
    def units(self) -> Mask:
        """Ascending int64 ids."""
        return self.make()

    @cached_property
    def mask_hash(self) -> str:
        return mask_hash(self.units)

    def record(self) -> Json:
        """What of an edit belongs into a key: the units, and what is done to them unless they are zeroed rows."""
        more = {} if self.intervention == ZERO or not self.size else {"intervention": self.intervention}
        more |= {"side": self.side} if self.side == "input" and self.size else {}
        return {"mask": self.mask_hash, **more}


def edit_of(
    rows: npt.ArrayLike, n_rows: int, *, intervention: str = ZERO, kind: Kind = "hand-made", spec: Json | None = None
) -> Edit:
    """The edit of these row ids, in any order. Errors: InputError where they are no set of rows of this model."""
    mask = checked_mask(rows, n_rows)
    return Edit(lambda: mask, len(mask), intervention, kind, spec or {})


def first_of(
    order: npt.NDArray[np.int64],
    count: int,
    *,
    intervention: str = ZERO,
    ids: npt.NDArray[np.int64] | None = None,
    side: Side = "output",
) -> Edit:
    """The edit of the first `count` units of a removal order, which is kept instead of a copy of its beginning. ids [U,
    ids per unit]: what each unit names, no id twice; None where unit i is row i. side: as of `Edit`."""

    def make() -> Mask:
        removed = np.zeros(order.size, dtype=np.bool_)
        removed[order[:count]] = True
        chosen = np.flatnonzero(removed).astype(np.int64)
        return chosen if ids is None else np.sort(ids[chosen].reshape(-1))

    return Edit(make, count if ids is None else count * ids.shape[1], intervention, side=side)


NO_ROWS: Mask = np.zeros(0, dtype=np.int64)
UNEDITED = Edit(lambda: NO_ROWS, 0)


def mask_hash(mask: Mask) -> str:
    """SHA-256 of the row ids as 64-bit little-endian numbers."""
    return hashlib.sha256(mask.astype("<i8").tobytes()).hexdigest()


Vector = npt.NDArray[np.float32]
VERSION = 1  # part of cache keys: raise it when a steered pass does something else than before


@dataclass(frozen=True, eq=False)
class Steering:
    """h_L(t) + coefficient * v_L at the output of every block L of `vectors`, at all positions t: prompt and reply.

    Activation addition: Turner et al. 2023, arXiv:2308.10248; at all positions as in Panickssery et al. 2024,
    arXiv:2312.06681, and Arditi et al. 2024, arXiv:2406.11717. Stands beside `Edit` wherever a cell has one, and is
    carried out at the outputs (`engine.interventions.at_outputs`). It is for measurements: nothing exports it.

    vectors: block -> [d] float32, finite. coefficient: 0 or more, finite; 0 changes nothing. A negative one is an
    `InputError`, since vectors are built in the direction that raises refusal and the opposite one would lower it."""

    vectors: Mapping[int, Vector] = field(repr=False)
    coefficient: float

    def __post_init__(self) -> None:
        if not 0 <= self.coefficient < np.inf:
            raise InputError(
                f"a coefficient of steering must be 0 or more, got {self.coefficient:g}; this software only installs "
                "refusal, and the opposite direction would lower it"
            )
        arrays = {block: np.ascontiguousarray(vector, dtype=np.float32) for block, vector in self.vectors.items()}
        if not arrays or any(vector.ndim != 1 or not np.isfinite(vector).all() for vector in arrays.values()):
            raise InputError("steering needs at least one block, and a finite vector [d] for each")
        object.__setattr__(self, "vectors", dict(sorted(arrays.items())))

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
        return {"steering": {"version": VERSION, "vectors": self.vectors_hash, "coefficient": self.coefficient}}


AnyEdit = Edit | Steering  # what a sequence of a batch can carry


@dataclass(frozen=True, eq=False)
class Ranking:
    """One global ranking of all rows, or of units of another kind; of a seeded selector one per seed. Sorted once per
    order: the edits of all rates share it. ids, side: what the edit of a unit names, and where it acts
    (`engine.models.units`); None: unit i is row i."""

    selector: str
    seed: int | None
    scores: npt.NDArray[np.floating]  # [N], higher = more important
    intervention: str = ZERO
    ids: npt.NDArray[np.int64] | None = None
    side: Side = "output"
    _orders: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)
    _edits: dict[tuple[str, int], Edit] = field(default_factory=dict, repr=False)

    def order(self, order: str) -> npt.NDArray[np.int64]:
        """All rows (or units, by number) in the order of their removal, `lerf` or `morf`."""
        if order not in self._orders:
            self._orders[order] = removal_order(self.scores, order)
        return self._orders[order]

    def edit(self, order: str, rate: float) -> Edit:
        """The edit of the first `round(rate * N)` rows or units."""
        return self.first(order, removed_count(rate, self.scores.size))

    def first(self, order: str, count: int) -> Edit:
        edit = first_of(self.order(order), count, intervention=self.intervention, ids=self.ids, side=self.side)
        return self._edits.setdefault((order, count), edit)

    def over(self, units: Units, intervention: str) -> Ranking:
        """The ranking of these units by the rows' scores (`Units.scores`), under another intervention."""
        if units.are_rows:
            return Ranking(self.selector, self.seed, self.scores, intervention, _orders=self._orders)
        scores = units.scores(np.asarray(self.scores, dtype=np.float32))
        return Ranking(self.selector, self.seed, scores, intervention, units.ids, units.side)


def rankings(scores: Mapping[str, npt.ArrayLike], seeds: Sequence[int], intervention: str = ZERO) -> Iterator[Ranking]:
    """The rankings behind `scores`: [N] gives one, [seeds, N] one per seed."""
    for selector, values in scores.items():
        array = np.asarray(values, dtype=np.float32)
        if array.ndim == 1:
            yield Ranking(selector, None, array, intervention)
        else:
            for seed, row in zip(seeds, array, strict=True):
                yield Ranking(selector, seed, row, intervention)
