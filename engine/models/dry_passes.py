"""What passes through a model take, from its shapes alone: no weights are there, and nothing is computed.

Every operation is called on tensors that have shapes and types but no numbers (torch's FakeTensor); the storages that
live at once are added up, and the FLOPs of matrix products counted by torch's own formulas. Fused attention is counted
as it works: it never keeps the [T, T] weights."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry


class PassCost(NamedTuple):
    """Of one pass. peak_bytes: beyond what was there before it. left_bytes: of that what is there after it, as a cache
    is. flops: two per multiply and add of a matrix product."""

    peak_bytes: int
    left_bytes: int
    flops: int


class DryModel(NamedTuple):
    """A model without numbers, and how to take the cost of what is done with it."""

    model: nn.Module
    weight_bytes: int
    cost: Callable[[Callable[[], object]], PassCost]


@contextmanager
def dry(skeleton: nn.Module, dtype: torch.dtype) -> Iterator[DryModel]:
    """Inside, `cost(work)` says what `work` takes, which may pass anything through `model`. The skeleton is used up.
    Tensors made inside have no numbers; `.tolist()` and whatever depends on numbers is an error of torch there."""
    meter, shaped, shared = _Meter(), skeleton.to(dtype), list(_shared(skeleton))
    with FakeTensorMode(allow_non_fake_inputs=True), _FusedAttention(meter), meter:
        model = shaped.to_empty(device="cpu").eval().requires_grad_(False)
        for (first, name), *others in shared:  # `to_empty` gives each place a tensor of its own
            for module, other in others:
                setattr(module, other, getattr(first, name))
        weight_bytes = meter.alive_bytes

        def cost(work: Callable[[], object]) -> PassCost:
            before = meter.alive_bytes
            meter.peak_bytes, meter.flops = before, 0
            work()
            return PassCost(meter.peak_bytes - before, meter.alive_bytes - before, meter.flops)

        yield DryModel(model, weight_bytes, cost)


def _shared(model: nn.Module) -> Iterator[list[tuple[nn.Module, str]]]:
    """The places of every parameter that has several, as tied embeddings have."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            places.setdefault(id(parameter), []).append((module, name))
    return (found for found in places.values() if len(found) > 1)


class _Meter(TorchDispatchMode):
    """Bytes of the storages that are alive and their peak; FLOPs of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.alive_bytes = self.peak_bytes = self.flops = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        count = flop_registry.get(function._overloadpacket)
        if count is not None:
            self.flops += int(count(*args, **(kwargs or {}), out_val=out))
        return out

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def gone(_: object) -> None:
            del self._alive[key]
            self.alive_bytes -= size

        self._alive[key] = weakref.ref(storage, gone)
        self.alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)


class _FusedAttention(TorchFunctionMode):
    """Attention as a fused kernel does it, whatever this device would choose."""

    def __init__(self, meter: _Meter) -> None:
        super().__init__()
        self._meter = meter

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.nn.functional.scaled_dot_product_attention:
            return function(*args, **(kwargs or {}))
        query, key, value = (*args, *((kwargs or {})[name] for name in ("query", "key", "value")[len(args) :]))[:3]
        *batch, length, width = query.shape
        # Two products of [T, d] with [d, S]; all S positions, though half of them are masked.
        self._meter.flops += 4 * torch.Size(batch).numel() * length * key.shape[-2] * width
        return _Attention.apply(query, key, value, self._meter)


class _Attention(torch.autograd.Function):
    """Keeps what a fused kernel keeps for its backward pass."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor, meter: _Meter) -> Tensor:
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        context.save_for_backward(query, key, value, out, sums)
        context.meter = meter
        return out

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        query, key, value = context.saved_tensors[:3]
        # Five products instead of two, since the weights are computed again.
        context.meter.flops += 10 * query.shape[:-1].numel() * key.shape[-2] * query.shape[-1]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None
