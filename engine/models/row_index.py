"""The row index as data: which rows of which Linears a model has. Made by `rows` from a model's modules, and by
`plain_layouts` from a configuration; no torch."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError

if TYPE_CHECKING:
    import polars as pl

Sublayer = Literal["attention", "mlp"]
Side = Literal["output", "input"]  # of a Linear: what it gives (its rows), what it reads (its columns)
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Layer:
    """One `nn.Linear` of a decoder block; its rows are `start .. start + rows - 1` of the row index.

    An expert and GPT-2's Conv1D are shown as such (`engine.models.experts`, `engine.models.experts`).

    side `input`: of a column index (`engine.models.units`), and the rows are the Linear's inputs, its columns."""

    index: int
    name: str  # module path from the model: model.get_submodule(name) is the Linear
    block: int
    sublayer: Sublayer
    projection: str
    start: int
    rows: int
    side: Side = "output"


@dataclass(frozen=True)
class RowIndex:
    """All prunable rows of a model: block by block, then q, k, v, o, gate, up, down, then row. Other projections follow
    in the order of their modules; of routed experts the gate rows of every expert, then up, then down rows. Embeddings,
    the LM head, norms, routers, convolutions and a vision tower are never in it."""

    layers: tuple[Layer, ...]

    @property
    def n_rows(self) -> int:
        return self.layers[-1].start + self.layers[-1].rows

    @property
    def n_blocks(self) -> int:
        return self.layers[-1].block + 1

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.array([layer.start for layer in self.layers], dtype=np.int64)

    def layer_of(self, row_ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Index into `layers` of each row id; same shape as `row_ids`."""
        ids = np.asarray(row_ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.n_rows):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise InputError(f"row id {wrong} is outside this model's rows 0..{self.n_rows - 1}")
        return (np.searchsorted(self._starts, ids, side="right") - 1).astype(np.int64)

    def frame(self) -> pl.DataFrame:
        """The contract's table, one line per row: row_id, block, sublayer, projection, row."""
        import polars as pl  # here, since who counts rows makes no table

        of_row = np.repeat(np.arange(len(self.layers)), [layer.rows for layer in self.layers])
        row_ids = np.arange(self.n_rows, dtype=np.int64)
        return pl.DataFrame(
            {
                "row_id": row_ids,
                "block": np.array([layer.block for layer in self.layers], dtype=np.int32)[of_row],
                "sublayer": pl.Series([layer.sublayer for layer in self.layers]).gather(of_row),
                "projection": pl.Series([layer.projection for layer in self.layers]).gather(of_row),
                "row": (row_ids - self._starts[of_row]).astype(np.int32),
            }
        )

    def signature(self) -> str:
        """SHA-256 of the layout: equal if and only if a mask of one model names the same rows of the other."""
        layout = [[layer.name, layer.block, layer.sublayer, layer.projection, layer.rows] for layer in self.layers]
        return hashlib.sha256(json.dumps(layout, separators=(",", ":")).encode()).hexdigest()
