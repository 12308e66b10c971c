"""What can be removed alone or in sets: rows, the neurons of gated MLPs, attention heads, and routed experts.

A unit has rows, whose scores make its own, and a place where an edit acts. A row is acted on at its output. A neuron
and a head are acted on at one place that all of the unit goes through: the input of down_proj, or the slice of o_proj's
input that is the head's. What gate, up and q rows of the unit say then reaches nothing, so they need no edit of their
own.

- Neuron i: rows i of gate_proj and up_proj, input i of down_proj: act(gate) * up.
- Head h: its rows of q_proj and its slice of o_proj's input. In grouped-query attention the k and v rows serve several
  heads: they stay as they are, since the other heads read them, and their scores count to every head of the group in
  equal parts. Without grouping they are the head's alone and count to it in full.
- Expert: all rows of its projections, edited where they are, so that it says nothing. The router stays as it is: tokens
  are sent to the expert as before, and get nothing from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.models.experts import gated_experts, has_experts, routed
from engine.models.links import attentions, gated_mlps
from engine.models.loading import LoadedModel
from engine.models.row_index import Layer, RowIndex, Side

ROW, NEURON, HEAD, EXPERT = "row", "neuron", "head", "expert"


@dataclass(frozen=True)
class Units:
    """The units of one kind, U of them. rows [U, rows per unit] row ids, layer [U] index into `RowIndex.layers` of the
    first row's Linear, norm [U] float64: Euclidean norm of what belongs to the unit; a sample is spread over it.

    columns [U, columns per unit] column ids (`column_index`) where an edit of the unit acts; None: at `rows`.
    weights [rows per unit] float64: what each of the rows counts in the unit's score; None: 1 each."""

    kind: str
    rows: npt.NDArray[np.int64]
    layer: npt.NDArray[np.int64]
    norm: npt.NDArray[np.float64]
    columns: npt.NDArray[np.int64] | None = None
    weights: npt.NDArray[np.float64] | None = None

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def are_rows(self) -> bool:
        return self.kind == ROW

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """What an edit of each unit names: [U, ids per unit]."""
        return self.rows if self.columns is None else self.columns

    @property
    def side(self) -> Side:
        """Are these ids rows (outputs) or columns (inputs)?"""
        return "output" if self.columns is None else "input"

    def scores(self, of_rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """A unit's score: the sum of its rows' scores, each times its weight. of_rows [N]; returns [U]"""
        if self.weights is None:
            return np.asarray(of_rows[self.rows].sum(axis=1, dtype=np.float64))
        return np.asarray(of_rows[self.rows].astype(np.float64) @ self.weights)


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
    """Every neuron of a gated MLP (`gated_mlps`) or of a routed expert that is one (`gated_experts`): row i of
    gate_proj, row i of up_proj and input i of down_proj. Zeroing either of the rows makes act(gate) * up zero. Empty
    where the model has no gated MLP. norm: of gate row, up row and down column."""
    of_module = {id(loaded.model.get_submodule(layer.name)): layer for layer in loaded.rows.layers}
    inputs = _inputs(loaded)
    rows, layer, norm, columns = [], [], [], []
    for gate, up, down in chain(gated_mlps(loaded.model), gated_experts(loaded.model)):
        first, second = of_module.get(id(gate)), of_module.get(id(up))
        if first is not None and second is not None:  # a vision tower's MLPs have no rows in the index
            number = np.arange(first.rows, dtype=np.int64)
            rows.append(np.stack([first.start + number, second.start + number], axis=1))
            layer.append(np.full(first.rows, first.index, dtype=np.int64))
            norm.append(_norms(gate.weight, 1) * _norms(up.weight, 1) * _norms(down.weight, 0))
            columns.append(inputs[of_module[id(down)].name] + number[:, None])
    if not rows:
        return _none(NEURON, 2)
    return Units(NEURON, np.concatenate(rows), np.concatenate(layer), np.concatenate(norm), np.concatenate(columns))


@torch.no_grad()
def heads(loaded: LoadedModel) -> Units:
    """Every head of an attention whose heads are slices of its last Linear's input (`attentions`); empty where none is
    such. rows: of q_proj, then of k_proj and v_proj, with weights 1 and 1 / (heads that share them). norm: of the rows
    of q_proj and of the columns of the last Linear."""
    inputs = _inputs(loaded)
    rows, layer, norm, columns, groups = [], [], [], [], []
    for one in attentions(loaded.model, loaded.rows)[0]:
        head, inside = np.arange(one.heads), np.arange(one.size)
        own = head[:, None] * one.size + inside
        shared = (head // one.group)[:, None] * one.size + inside
        rows.append(np.concatenate([one.q.start + own, one.k.start + shared, one.v.start + shared], axis=1))
        layer.append(np.full(one.heads, one.q.index, dtype=np.int64))
        columns.append(inputs[one.output.name] + own)
        read, written = (loaded.model.get_submodule(place.name).weight for place in (one.q, one.output))
        sizes = [_norms(read.view(one.heads, -1), 1), _norms(written.t().reshape(one.heads, -1), 1)]
        norm.append(sizes[0] * sizes[1])
        groups.append((one.size, one.group))
    if len(set(groups)) != 1:  # none, or heads of several sizes, which no one table of rows holds
        return _none(HEAD, 3)
    [(size, group)] = set(groups)
    weights = np.repeat([1.0, 1 / group, 1 / group], size)
    return Units(
        HEAD, np.concatenate(rows), np.concatenate(layer), np.concatenate(norm), np.concatenate(columns), weights
    )


@torch.no_grad()
def experts(loaded: LoadedModel) -> Units:
    """Every routed expert: the rows of its projections, in the order of the row index. norm: of all its weights. Empty
    where no tensor holds routed experts, or they have different sizes."""
    groups: dict[str, list[Layer]] = {}
    for layer in loaded.rows.layers:
        if routed(loaded.model.get_submodule(layer.name)):
            groups.setdefault(layer.name.rpartition(".")[0], []).append(layer)
    rows = [
        np.concatenate([np.arange(layer.start, layer.start + layer.rows, dtype=np.int64) for layer in layers])
        for layers in groups.values()
    ]
    if len({one.size for one in rows}) != 1:
        return _none(EXPERT, 1)
    norm = [
        sum(float(_norms(loaded.model.get_submodule(one.name).weight.flatten(), 0)) ** 2 for one in layers) ** 0.5
        for layers in groups.values()
    ]
    first = np.array([layers[0].index for layers in groups.values()], dtype=np.int64)
    return Units(EXPERT, np.stack(rows), first, np.array(norm))


UNITS: dict[str, Callable[[LoadedModel], Units]] = {ROW: rows_alone, NEURON: neurons, HEAD: heads, EXPERT: experts}


def without(loaded: LoadedModel, kind: str) -> str:
    """Why some or all sublayers of a model have no units of this kind, in words; "" where all have."""
    if kind == HEAD:
        found, why = attentions(loaded.model, loaded.rows)
        sizes = {(one.size, one.group) for one in found}
        return "its attentions have heads of different sizes" if len(sizes) > 1 else why
    if kind == EXPERT and not experts(loaded).count:
        return "its routed experts have different sizes" if has_experts(loaded.model) else "no routed experts"
    if kind == NEURON and not any(True for _ in chain(gated_mlps(loaded.model), gated_experts(loaded.model))):
        return "no MLP of gate_proj, up_proj and down_proj with an activation of 0 at 0"
    return ""


def _inputs(loaded: LoadedModel) -> dict[str, int]:
    """Path of a Linear -> id of its first column."""
    return {layer.name: layer.start for layer in column_index(loaded).layers}


def _none(kind: str, width: int) -> Units:
    nothing = np.zeros((0, width), dtype=np.int64)
    return Units(kind, nothing, np.zeros(0, dtype=np.int64), np.zeros(0), nothing)


def _norms(weight: Tensor, dim: int) -> npt.NDArray[np.float64]:
    """Euclidean norms along a dimension; float64 on the CPU, since not every device (MPS) has it."""
    return np.asarray(torch.linalg.vector_norm(weight.float(), dim=dim).cpu().double().numpy())


def column_index(loaded: LoadedModel) -> RowIndex:
    """Inputs of down_proj of gated MLPs and experts, one per neuron, and of attention's last Linear, a slice per head.
    A `RowIndex` whose layers have the side `input`: column j of such a Linear has the id start + j, and `rows` is how
    many there are. In the order of the row index. No layers where the model has neither."""
    model, rows = loaded.model, loaded.rows
    readers = {id(down) for _, _, down in chain(gated_mlps(model), gated_experts(model))}
    readers |= {id(model.get_submodule(one.output.name)) for one in attentions(model, rows)[0]}
    layers: list[Layer] = []
    start = 0
    for layer in rows.layers:
        linear = model.get_submodule(layer.name)
        if id(linear) in readers:
            layers.append(replace(layer, index=len(layers), start=start, rows=linear.in_features, side="input"))
            start += linear.in_features
    return RowIndex(tuple(layers))
