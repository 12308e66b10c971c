"""Leave out rows of Linears that a mask has killed, while it is measured.

The output of a row whose weights and bias are zero is zero. Where enough of a Linear's rows are, a smaller product
computes the others, and a gather puts each output in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from engine.interventions.uninterrupted import Undone
from engine.models.forwards import set_forward
from engine.models.gated_mlps import gated_mlps
from engine.models.loading import LoadedModel
from engine.models.memory import none_without_memory
from engine.models.products import product

# Bytes that the rows kept, as outputs of one token, fill a multiple of. CPU: a cache line (16 rows in float32, 32 in
# bfloat16). CUDA: what NVIDIA's guide to matrix products asks for on cards from the A100 on (64 in half precision).
ALIGNED_BYTES = {"cpu": 64, "cuda": 128}
# What putting an output in its place costs, in multiplications of the product. CPU: medians of the benchmark
# `dead-rows` were 39 and 41. CUDA: not timed; by the data sheet a card multiplies some 1,000 times while it reads and
# writes a number.
PLACING = {"cpu": 41, "cuda": 1000}
WORTH = 0.9  # share of the dense product's cost; above it a Linear is left as it is
_LIMIT_BYTES = 4_000_000_000  # of weights; the smaller copies come on top of them


def alive_rows(linear: nn.Linear) -> Tensor:
    """Rows of which a weight or the bias is not zero: [rows] of bool."""
    alive = (linear.weight != 0).any(dim=1)
    return alive if linear.bias is None else alive | (linear.bias != 0)


def rounded_up(alive: int, itemsize: int, kind: str) -> int:
    """The next multiple of ALIGNED_BYTES[kind]. itemsize: bytes per number. kind: cpu or cuda"""
    step = ALIGNED_BYTES[kind] // itemsize
    return math.ceil(alive / step) * step


def kept_shape(shape: tuple[int, int], alive: tuple[int, int], itemsize: int, kind: str) -> tuple[int, int]:
    """How much of a Linear is computed, as rows and inputs; `shape` where it is left as it is.

    shape: rows and inputs. alive: how many rows are not dead, and how many inputs are not always zero. Of the rows kept
    one at least is dead, whose zero the others read. Of rows R and inputs I, r and i cost r i / (R I) of the dense
    product, with PLACING / I to put the outputs in their places where r < R, and PLACING i / (R I) to gather the inputs
    where i < I. What costs least is taken, if it costs at most WORTH.
    """
    (rows, inputs), placing = shape, PLACING[kind]
    if not alive[0] or not inputs:
        return 0 if not alive[0] else rows, inputs

    def cost(some: tuple[int, int]) -> float:
        placed = placing * (some[0] < rows) / inputs + placing * (some[1] < inputs) * some[1] / (rows * inputs)
        return some[0] * some[1] / (rows * inputs) + placed

    fewer = min(rows, rounded_up(alive[0] + 1, itemsize, kind)), min(inputs, rounded_up(alive[1], itemsize, kind))
    best = min([fewer, (fewer[0], inputs), (rows, fewer[1])], key=cost)
    return best if cost(best) <= WORTH else shape


def linears_of_rows(loaded: LoadedModel) -> list[nn.Linear]:
    """Whose dead rows can be left out: all Linears with rows but gates and ups, whose neurons go whole. None on other
    devices than CPUs and CUDA cards, nor beyond 4 GB.
    """
    neurons = {id(linear) for gate, up, _ in gated_mlps(loaded.model) for linear in (gate, up)}
    modules = [loaded.model.get_submodule(layer.name) for layer in loaded.rows.layers]
    linears = [one for one in modules if type(one) is nn.Linear and id(one) not in neurons]
    size = sum(linear.weight.numel() * linear.weight.element_size() for linear in linears)
    return linears if loaded.device.partition(":")[0] in ALIGNED_BYTES and size <= _LIMIT_BYTES else []


def leave_out(linear: nn.Linear, kind: str, steps: Undone, live_inputs: Tensor | None = None) -> None:
    """The Linear computes its live rows only, until `steps` are taken back; all where there is no memory for a copy.

    live_inputs: [in] of bool, inputs that are not always zero; None for all.
    """
    alive, shape = alive_rows(linear), (linear.weight.shape[0], linear.weight.shape[1])
    if live_inputs is None:
        live_inputs = alive.new_ones(shape[1])
    counts = int(alive.sum()), int(live_inputs.sum())
    kept = kept_shape(shape, counts, linear.weight.element_size(), kind)
    if not counts[0]:
        set_forward(linear, zeros, steps)
    elif kept != shape:
        found = none_without_memory(partial(_smaller, linear, alive, live_inputs.to(alive.device), kept))
        if found is not None:
            set_forward(linear, found, steps)


def zeros(linear: nn.Linear, input: Tensor) -> Tensor:
    """What a Linear without a live row says: [..., out_features]"""
    return input.new_zeros(*input.shape[:-1], linear.out_features)


class _Smaller:
    """weight [r, i], bias [r]. places [out]: where each output is among the r, None for all in their order. inputs [i]:
    which are read, None for all.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, places: Tensor | None = None, inputs: Tensor | None = None
    ) -> None:
        self._weight, self._bias, self._places, self._inputs = weight, bias, places, inputs

    def __call__(self, linear: nn.Linear, input: Tensor) -> Tensor:
        found = product(_gathered(input, self._inputs), self._weight, self._bias)
        return _gathered(found, self._places)


def with_inputs(weight: Tensor, live: Tensor) -> Callable[[nn.Linear, Tensor], Tensor]:
    """The forward of a Linear of this weight that reads these inputs only. live [in] of bool"""
    inputs = live.nonzero().flatten()
    return _Smaller(weight[:, inputs], inputs=inputs)


def _smaller(linear: nn.Linear, alive: Tensor, live_inputs: Tensor, kept: tuple[int, int]) -> _Smaller:
    weight = linear.weight.detach()
    bias = None if linear.bias is None else linear.bias.detach()
    places = inputs = None
    if kept[0] < len(alive):
        chosen, gone = _filled(alive, kept[0])
        places = chosen.cumsum(0) - 1
        places[gone] = places[gone[0]].clone()
        rows = chosen.nonzero().flatten()
        weight, bias = weight[rows], None if bias is None else bias[rows]
    if kept[1] < len(live_inputs):
        inputs = _filled(live_inputs, kept[1])[0].nonzero().flatten()
        weight = weight[:, inputs].contiguous()
    return _Smaller(weight, bias, places, inputs)


def _filled(alive: Tensor, kept: int) -> tuple[Tensor, Tensor]:
    """`kept` of them, the live ones first among them; and which are not alive."""
    gone = (~alive).nonzero().flatten()
    chosen = alive.clone()
    chosen[gone[: kept - int(alive.sum())]] = True
    return chosen, gone


def _gathered(values: Tensor, numbers: Tensor | None) -> Tensor:
    """Of the last dimension. As indexing, which takes a CPU longer (`dead-rows`)."""
    return values if numbers is None else values.gather(-1, numbers.expand(*values.shape[:-1], -1))
