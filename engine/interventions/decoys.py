"""Decoys: neurons of huge weights and outputs that nothing reads, planted so that no logit changes a bit.

Each chosen MLP is widened while the block lasts: rows behind the rows of its inner Linears, columns of zeros behind
those of down_proj. A row that was there keeps its number within its Linear; the row index is made anew."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.interventions.rewrite_names import DECOYS
from engine.interventions.rewrites import NoRewriteError, swap
from engine.interventions.uninterrupted import Undone
from engine.models.links import Mlp, mlps
from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.models.rows import row_index
from engine.records.hashing import Json

_Rows = npt.NDArray[np.int64]


class _MoreRows(nn.Linear):
    """A Linear with further rows. The first are multiplied apart: a larger product may sum in another order."""

    def __init__(self, linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features + len(weight)
        self.first = linear.out_features
        self.weight = _fixed(torch.cat([linear.weight, weight]))
        self.register_parameter("bias", None if bias is None else _fixed(torch.cat([linear.bias, bias])))

    def forward(self, input: Tensor) -> Tensor:
        cut, bias = self.first, self.bias
        parts = ((self.weight[part], None if bias is None else bias[part]) for part in (slice(cut), slice(cut, None)))
        return torch.cat([functional.linear(input, *part) for part in parts], dim=-1)


class _MoreColumns(nn.Linear):
    """A Linear with further columns of zeros, whose product, exactly zero, is added to the first ones'."""

    def __init__(self, linear: nn.Linear, more: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features + more, linear.out_features
        self.first = linear.in_features
        self.weight = _fixed(torch.cat([linear.weight, linear.weight.new_zeros(linear.out_features, more)], dim=1))
        self.bias = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        cut, weight = self.first, self.weight
        known = functional.linear(input[..., :cut].contiguous(), weight[:, :cut].contiguous(), self.bias)
        return known + functional.linear(input[..., cut:], weight[:, cut:])


@dataclass(frozen=True, eq=False)
class Decoys:
    """Copies of neurons drawn by seed, each inner row times 2^power, with zeros in their columns of down_proj. copied:
    per MLP the neurons that its decoys are copies of, none for an MLP without decoys."""

    mlps: tuple[Mlp, ...]
    copied: tuple[_Rows, ...]
    seed: int
    power: int
    left_out: str = ""
    id: str = DECOYS

    @property
    def units(self) -> int:
        """Neurons that are added."""
        return sum(one.size for one in self.copied)

    def record(self) -> Json:
        return {"rewrite": self.id, "seed": self.seed, "decoys": self.units, "power": self.power}

    def install(self, loaded: LoadedModel, undo: Undone) -> LoadedModel:
        for mlp, copied in zip(self.mlps, self.copied, strict=True):
            if not copied.size:
                continue
            factor = 2.0**self.power
            for path in mlp.inner:
                linear = loaded.model.get_submodule(path)
                rows = torch.from_numpy(copied).to(linear.weight.device)
                bias = None if linear.bias is None else linear.bias[rows] * factor
                _replace(loaded.model, path, _MoreRows(linear, linear.weight[rows] * factor, bias), undo)
            down = loaded.model.get_submodule(mlp.down)
            _replace(loaded.model, mlp.down, _MoreColumns(down, copied.size), undo)
        return replace(loaded, rows=row_index(loaded.model))

    def rows_of(self, widened: RowIndex) -> _Rows:
        """The decoys' row ids in the widened model's row index, ascending: the last rows of their Linears."""
        added = {path: one.size for mlp, one in zip(self.mlps, self.copied, strict=True) for path in mlp.inner}
        parts = [
            np.arange(layer.start + layer.rows - added[layer.name], layer.start + layer.rows)
            for layer in widened.layers
            if layer.name in added
        ]
        return np.concatenate(parts).astype(np.int64)


def planted(loaded: LoadedModel, seed: int, decoys: int, power: int) -> Decoys:
    """`decoys` neurons spread over the MLPs by seed, each a copy of a neuron of its MLP, drawn without repeats. Errors:
    NoRewriteError where no MLP can be widened."""
    found, without = mlps(loaded.model, loaded.rows)
    if not found:
        raise NoRewriteError(without or "it has no MLP of Linears")
    draw = np.random.default_rng([seed, 1])
    counts = np.bincount(draw.integers(0, len(found), decoys), minlength=len(found))
    copied = tuple(
        draw.choice(mlp.neurons, size=min(int(count), mlp.neurons), replace=False).astype(np.int64)
        for mlp, count in zip(found, counts, strict=True)
    )
    return Decoys(found, copied, seed, power, without)


def _replace(model: nn.Module, path: str, linear: nn.Linear, undo: Undone) -> None:
    parent, _, name = path.rpartition(".")
    swap(model.get_submodule(parent), name, linear.eval(), undo)


def _fixed(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)
