"""What passes through a model take, from its shapes alone: no weights are there, and nothing is computed.

Every operation is called on tensors that have shapes and types but no numbers (torch's FakeTensor); the storages that
live at once are added up, and the FLOPs of matrix products counted by torch's own formulas. Fused attention is counted
as it works: it never keeps the [T, T] weights.

Where decoder blocks repeat, two passes go through the first few of them only, one period more in the second, and what
that period adds is counted for each of the others."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import decoder_blocks


class PassCost(NamedTuple):
    """Of one pass. peak_bytes: beyond what was there before it. left_bytes: of that what is there after it, as a cache
    is. flops: two per multiply and add of a matrix product."""

    peak_bytes: int
    left_bytes: int
    flops: int


class DryModel(NamedTuple):
    """A model without numbers, and how to take the costs of what is done with it, one after the other; each may be done
    twice. weight_bytes: of all blocks, however few a pass goes through. passed: those of these rows that it meets."""

    model: nn.Module
    weight_bytes: int
    costs: Callable[..., list[PassCost]]
    passed: Callable[[RowIndex], RowIndex]

    def cost(self, work: Callable[[], object]) -> PassCost:
        return self.costs(work)[0]


@contextmanager
def dry(skeleton: nn.Module, dtype: torch.dtype) -> Iterator[DryModel]:
    """Inside, `cost(work)` says what `work` takes, which may pass anything through `model`. The skeleton is used up.
    Tensors made inside have no numbers; `.tolist()` and whatever depends on numbers is an error of torch there."""
    meter, shaped = _Meter(), skeleton.to(dtype)
    with FakeTensorMode(allow_non_fake_inputs=True), _FusedAttention(meter), meter:
        model: Any = shaped.to_empty(device="cpu").eval().requires_grad_(False)
        model.tie_weights()  # `to_empty` gives each place of a shared parameter a tensor of its own
        weight_bytes = meter.alive_bytes

        blocks = decoder_blocks(model)
        start, period = _start_and_period(model, blocks)

        def cost(work: Callable[[], object]) -> PassCost:
            before = meter.alive_bytes
            meter.peak_bytes, meter.flops = before, 0
            work()
            return PassCost(meter.peak_bytes - before, meter.alive_bytes - before, meter.flops)

        def through(count: int, works: Iterable[Callable[[], object]]) -> list[PassCost]:
            others = [*blocks[count:]]
            del blocks[count:]
            measured = [cost(work) for work in works]
            blocks.extend(others)
            return measured

        def costs(*works: Callable[[], object]) -> list[PassCost]:
            few, periods = through(start, works), (len(blocks) - start) // period
            pairs = zip(few, through(start + period, works) if periods else few, strict=True)
            return [PassCost(*(a + periods * (b - a) for a, b in zip(*pair, strict=True))) for pair in pairs]

        def passed(rows: RowIndex) -> RowIndex:
            return RowIndex(tuple(layer for layer in rows.layers if layer.block < len(blocks)))

        yield DryModel(model, weight_bytes, costs, passed)


def _start_and_period(model: Any, blocks: nn.ModuleList) -> tuple[int, int]:
    """How many blocks a first pass goes through, and after how many they repeat; all where that spares none."""
    total = len(blocks)
    settings = vars(model.config.get_text_config()).values()
    of_blocks = [one for one in settings if isinstance(one, list | tuple) and len(one) == total]  # as `layer_types`
    kinds = [(*_kind(block), *(values[number] for values in of_blocks)) for number, block in enumerate(blocks)]
    for period in range(1, total // 3):
        start = max(period + total % period, 2)  # the first block alone is given embeddings, which somebody keeps
        if 2 * start + period < total and kinds[period:] == kinds[:-period]:
            return start, period
    return total, 1


def _kind(block: nn.Module) -> Iterator[object]:
    """Equal for blocks that do the same: classes, settings and shapes of their modules."""
    yield [(name, tensor.shape, tensor.dtype) for name, tensor in block.state_dict().items()]
    for path, module in block.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, bool | int | float | str)}
        yield path, type(module), {**plain, "layer_idx": None}  # whose entry in the cache


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
