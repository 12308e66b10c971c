"""Skip what a mask has killed: the same function without dead MLP neurons, while measured."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.edits.masks import Mask
from engine.interventions.uninterrupted import Undone
from engine.models.links import gated_mlps
from engine.models.loading import LoadedModel
from engine.models.memory import none_without_memory

VERSION = {"cpu": 5, "cuda": 6}  # part of cache keys: smaller matrices round differently in the last bits
# Bytes that the neurons kept, as outputs of one token, fill a multiple of. CPU: a cache line (16 neurons in float32, 32
# in bfloat16). CUDA: what NVIDIA's guide to matrix products asks for on cards from the A100 on.
ALIGNED_BYTES = {"cpu": 64, "cuda": 128}
# Of MLP weights; the smaller copies come on top of them. A card's lets Llama-3.1-8B (11.3 GB) in, which pays there: an
# H200 took 2.06 s for a cell of 65,536 tokens with none removed, 1.45 and 1.19 s with 30 and 50% (card-8B).
LIMIT_BYTES = {"cpu": 4_000_000_000, "cuda": 16_000_000_000}
LEAST_GONE = 0.05  # share of an MLP's neurons; for less, copying the rest does not pay

Alive = npt.NDArray[np.bool_]  # [rows of a Linear]


def compacts(loaded: LoadedModel) -> bool:
    """On CPUs for up to 4 GB of gated MLPs, on CUDA cards up to 16; elsewhere dead neurons stay dense zeros. A property
    of the model and the kind of device, never of the load."""
    linears = [linear for mlp in gated_mlps(loaded.model) for linear in mlp]
    size = sum(weight.numel() * weight.element_size() for linear in linears for weight in linear.parameters())
    return bool(linears) and size <= LIMIT_BYTES.get(_kind(loaded), 0)


def kept_neurons(neurons: int, alive: int, itemsize: int, kind: str) -> int:
    """How many neurons an MLP keeps while `alive` of them are not dead; `neurons` where it is left as it is.

    A product's time follows the width that its kernel works in, so `alive` is rounded up to a multiple of
    ALIGNED_BYTES[kind] / itemsize, and a few dead neurons, which add exact zeros, stay. Seen on 2 cores in float32, as
    share of the dense time: 1149 of 1536 neurons .90 to 1.01, 1152 of them .67 to .74, 1535 of them 1.28 to 1.54.
    Where less than LEAST_GONE of the neurons would go, none goes.

    itemsize: bytes per number of the weights. kind: cpu or cuda."""
    step = ALIGNED_BYTES[kind] // itemsize
    count = min(neurons, math.ceil(alive / step) * step)
    return count if neurons - count >= LEAST_GONE * neurons else neurons


@contextmanager
def compacted(loaded: LoadedModel, mask: Mask | None = None) -> Iterator[None]:
    """Inside: gated MLPs without their dead neurons, for evaluation only. Outside: the very same parameters.

    mask: the rows that are zero now, so that a card is not asked for its weights; a CPU's tell of rows that were zero
    before as well. A neuron is dead when its gate row or its up row is all zero, or when all rows of down_proj are; how
    many go is `kept_neurons`' to say. An MLP for whose smaller copy there is no memory stays as it is. To be used
    inside `zeroed`, whose lock it relies on."""
    with Undone() as steps, steps:
        kind = _kind(loaded)
        alive = _alive_in(loaded, mask) if mask is not None and kind == "cuda" else _alive_rows
        with torch.no_grad():
            for gate, up, down in gated_mlps(loaded.model) if compacts(loaded) else ():
                _compact(gate, up, down, kind, steps, *map(alive, (gate, up, down)))
        yield


def _kind(loaded: LoadedModel) -> str:
    return loaded.device.partition(":")[0]


def _alive_rows(linear: nn.Linear) -> Alive:
    """Rows of which a weight or the bias is not zero."""
    alive = (linear.weight != 0).any(dim=1)
    return (alive if linear.bias is None else alive | (linear.bias != 0)).numpy(force=True)


def _alive_in(loaded: LoadedModel, mask: Mask) -> Callable[[nn.Linear], Alive]:
    """The rows that are not in the mask."""
    alive = np.ones(loaded.rows.n_rows, dtype=np.bool_)
    alive[mask] = False
    layers = {loaded.model.get_submodule(layer.name): layer for layer in loaded.rows.layers}

    def of_linear(linear: nn.Linear) -> Alive:
        if linear not in layers:  # of an MLP beside the decoder blocks, as a vision tower's
            return np.ones(linear.out_features, dtype=np.bool_)
        return alive[layers[linear].start :][: layers[linear].rows]

    return of_linear


def _compact(gate: nn.Linear, up: nn.Linear, down: nn.Linear, kind: str, steps: Undone, *alive_rows: Alive) -> None:
    of_gate, of_up, of_down = alive_rows
    chosen = of_gate & of_up & of_down.any()
    neurons, alive = len(chosen), int(chosen.sum())
    kept_count = kept_neurons(neurons, alive, gate.weight.element_size(), kind)
    if kept_count == neurons:
        return
    chosen[np.flatnonzero(~chosen)[: kept_count - alive]] = True
    smaller = none_without_memory(
        partial(_smaller, gate, up, down, torch.from_numpy(np.flatnonzero(chosen)).to(gate.weight.device))
    )
    for linear, name, values in smaller or ():
        steps.swap(linear, name, nn.Parameter(values, requires_grad=False))


def _smaller(gate: nn.Linear, up: nn.Linear, down: nn.Linear, kept: Tensor) -> list[tuple[nn.Linear, str, Tensor]]:
    slices = [(linear, name, value[kept]) for linear in (gate, up) for name, value in linear.named_parameters()]
    return [*slices, (down, "weight", down.weight[:, kept].contiguous())]
