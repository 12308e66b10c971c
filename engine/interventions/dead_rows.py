"""Leave out rows of Linears that a mask has killed, while it is measured.

The output of a row whose weights and bias are zero is zero. Where enough of a Linear's rows are, a smaller product
computes the others, and a gather puts each output in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from engine.models.forwards import set_forward
from engine.models.gated_mlps import gated_mlps
from engine.models.loading import LoadedModel
from engine.models.memory import none_without_memory
from engine.models.products import product

# Bytes that the rows kept, as outputs of one token, fill a multiple of. CPU: a cache line (16 rows in float32, 32 in
# bfloat16). CUDA: what NVIDIA's guide to matrix products asks for on cards from the A100 on (64 in half precision).
ALIGNED_BYTES = {"cpu": 64, "cuda": 128}
# What putting an output in its place costs, in multiplications of the product. CPU: 31 to 40, timed for 192 to 2,048
# inputs. CUDA: not timed; by the data sheet a card multiplies some 1,000 times while it reads and writes a number.
PLACING = {"cpu": 36, "cuda": 1000}
WORTH = 0.9  # share of the dense product's cost; above it a Linear is left as it is
_LIMIT_BYTES = 4_000_000_000  # of weights; the smaller copies come on top of them
_Steps = list[Callable[[], object]]


def alive_rows(linear: nn.Linear) -> Tensor:
    """Rows of which a weight or the bias is not zero: [rows] of bool."""
    alive = (linear.weight != 0).any(dim=1)
    return alive if linear.bias is None else alive | (linear.bias != 0)


def rounded_up(alive: int, itemsize: int, kind: str) -> int:
    """The next multiple of ALIGNED_BYTES[kind]. itemsize: bytes per number. kind: cpu or cuda"""
    step = ALIGNED_BYTES[kind] // itemsize
    return math.ceil(alive / step) * step


def kept_rows(rows: int, inputs: int, alive: int, itemsize: int, kind: str) -> int:
    """How many of a Linear's rows are computed while `alive` of them are not dead; `rows` where it is left as it is.

    One dead row at least is among them, whose zero the others read. The cost is kept / rows of the dense product and
    PLACING / inputs for the gather; above WORTH the Linear stays as it is.
    """
    if not alive:
        return 0
    kept = rounded_up(alive + 1, itemsize, kind)
    return kept if kept < rows and kept / rows + PLACING[kind] / max(inputs, 1) <= WORTH else rows


def linears_of_rows(loaded: LoadedModel) -> list[nn.Linear]:
    """Whose dead rows can be left out: all Linears with rows but gates and ups, whose neurons go whole. None on other
    devices than CPUs and CUDA cards, nor beyond 4 GB.
    """
    neurons = {id(linear) for gate, up, _ in gated_mlps(loaded.model) for linear in (gate, up)}
    modules = [loaded.model.get_submodule(layer.name) for layer in loaded.rows.layers]
    linears = [one for one in modules if type(one) is nn.Linear and id(one) not in neurons]
    size = sum(linear.weight.numel() * linear.weight.element_size() for linear in linears)
    return linears if loaded.device.partition(":")[0] in ALIGNED_BYTES and size <= _LIMIT_BYTES else []


def leave_out(linear: nn.Linear, kind: str, steps: _Steps) -> None:
    """The Linear computes its live rows only, until `steps` are taken back; all where there is no memory for a copy."""
    alive = alive_rows(linear)
    living = int(alive.sum())
    kept = kept_rows(linear.out_features, linear.weight.shape[1], living, linear.weight.element_size(), kind)
    if not living:
        set_forward(linear, zeros, steps)
    elif kept < linear.out_features:
        found = none_without_memory(partial(_smaller, linear, alive, kept - living))
        if found is not None:
            set_forward(linear, partial(_placed, *found), steps)


def zeros(linear: nn.Linear, input: Tensor) -> Tensor:
    """What a Linear without a live row says: [..., out_features]"""
    return input.new_zeros(*input.shape[:-1], linear.out_features)


def _smaller(linear: nn.Linear, alive: Tensor, dead: int) -> tuple[Tensor, Tensor | None, Tensor]:
    """Weights and bias of the live rows and of the first `dead` others, and where each output is among theirs."""
    gone = (~alive).nonzero().flatten()
    chosen = alive.clone()
    chosen[gone[:dead]] = True
    places = chosen.cumsum(0) - 1
    places[gone] = places[gone[0]].clone()
    rows = chosen.nonzero().flatten()
    return linear.weight[rows], None if linear.bias is None else linear.bias[rows], places


def _placed(weight: Tensor, bias: Tensor | None, places: Tensor, _: nn.Linear, input: Tensor) -> Tensor:
    found = product(input, weight, bias)
    return found.gather(-1, places.expand(*found.shape[:-1], -1))
