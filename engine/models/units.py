"""What can be removed alone: rows, and the neurons of gated MLPs, each as the rows that make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.models.gated_mlps import gated_mlps
from engine.models.loading import LoadedModel

ROW, NEURON = "row", "neuron"


@dataclass(frozen=True)
class Units:
    """The units of one kind, U of them.

    rows [U, rows per unit] row ids, layer [U] index into `RowIndex.layers` of the first row's Linear, norm [U] float64:
    Euclidean norm of what belongs to the unit, the product of several. A sample is spread over it; it scores nothing.
    """

    kind: str
    rows: npt.NDArray[np.int64]
    layer: npt.NDArray[np.int64]
    norm: npt.NDArray[np.float64]

    @property
    def count(self) -> int:
        return len(self.rows)

    def scores(self, of_rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """A unit's score: the sum of its rows' scores. of_rows [N]; returns [U]"""
        return np.asarray(of_rows[self.rows].sum(axis=1, dtype=np.float64))


@torch.no_grad()
def rows_alone(loaded: LoadedModel) -> Units:
    """Every row of the row index."""
    layers = loaded.rows.layers
    linears = [loaded.model.get_submodule(layer.name) for layer in layers]
    return Units(
        ROW,
        np.arange(loaded.rows.n_rows, dtype=np.int64)[:, None],
        np.repeat(np.arange(len(layers)), [layer.rows for layer in layers]),
        np.concatenate([_norms(linear.weight, 1) for linear in linears]),
    )


@torch.no_grad()
def neurons(loaded: LoadedModel) -> Units:
    """Every neuron of a gated MLP (`gated_mlps`): row i of gate_proj and row i of up_proj.

    Zeroing either of them makes act(gate) * up zero, the input i of down_proj; so one gate row, its up row and the
    neuron have one effect. Empty where the model has no gated MLP. norm: of gate row, up row and down column.
    """
    of_module = {id(loaded.model.get_submodule(layer.name)): layer for layer in loaded.rows.layers}
    rows, layer, norm = [], [], []
    for gate, up, down in gated_mlps(loaded.model):
        first, second = of_module.get(id(gate)), of_module.get(id(up))
        if first is not None and second is not None:  # a vision tower's MLPs have no rows in the index
            number = np.arange(first.rows, dtype=np.int64)
            rows.append(np.stack([first.start + number, second.start + number], axis=1))
            layer.append(np.full(first.rows, first.index, dtype=np.int64))
            norm.append(_norms(gate.weight, 1) * _norms(up.weight, 1) * _norms(down.weight, 0))
    if not rows:
        return Units(NEURON, np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    return Units(NEURON, np.concatenate(rows), np.concatenate(layer), np.concatenate(norm))


UNITS: dict[str, Callable[[LoadedModel], Units]] = {ROW: rows_alone, NEURON: neurons}


def _norms(weight: Tensor, dim: int) -> npt.NDArray[np.float64]:
    """Euclidean norms along a dimension; float64 on the CPU, since not every device (MPS) has it."""
    return np.asarray(torch.linalg.vector_norm(weight.float(), dim=dim).cpu().double().numpy())
