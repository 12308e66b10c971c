"""A module's twin for probes: the same classes and settings on the CPU, small random numbers in the place of weights.

The module itself, its hooks, its configuration and torch's random state stay as they are."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

LARGEST = 2**20
_OWN_FORWARDS = ("forward", "_old_forward", "_hf_hook")  # set on one module, by accelerate or by an edit
_OF_ANY_MODULE = frozenset(vars(nn.Module()))

Replacement = Callable[[nn.Module, str], nn.Module | None]


def twin(
    module: nn.Module,
    generator: torch.Generator,
    dtype: torch.dtype,
    replacement: Replacement = lambda *_: None,
    largest: int = LARGEST,
) -> nn.Module:
    """The twin in eval mode, parameters in `dtype`. replacement: of a submodule and its path what stands for it, None
    for its own twin. largest: entries of a parameter that gets numbers; what reads a larger one does not run."""
    known: dict[int, Any] = {}

    def copied(original: nn.Module, path: str) -> nn.Module:
        if id(original) in known:
            return known[id(original)]
        other = replacement(original, path)
        if other is None:
            other = type(original).__new__(type(original))
            nn.Module.__init__(other)
            for name, value in vars(original).items():
                if name not in vars(other) and name not in _OWN_FORWARDS:
                    vars(other)[name] = configured(value) if hasattr(value, "_attn_implementation") else value
            other._non_persistent_buffers_set = set(original._non_persistent_buffers_set)
            for name, parameter in original._parameters.items():
                other.register_parameter(name, None if parameter is None else numbers(parameter))
            for name, buffer in original._buffers.items():
                other._buffers[name] = None if buffer is None else constant(buffer)
            for name, child in original._modules.items():
                other._modules[name] = None if child is None else copied(child, f"{path}.{name}".lstrip("."))
            other.training = False
        known[id(original)] = other
        return other

    def configured(config: Any) -> Any:
        if id(config) not in known:
            known[id(config)] = copy.deepcopy(config)
            known[id(config)]._attn_implementation = "eager"
        return known[id(config)]

    def numbers(parameter: Tensor) -> nn.Parameter:
        if parameter.numel() > largest:
            return nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), requires_grad=False)
        return nn.Parameter(torch.randn(parameter.shape, generator=generator).to(dtype), requires_grad=False)

    def constant(buffer: Tensor) -> Tensor:
        if not (buffer.is_meta or isinstance(buffer, FakeTensor)):
            return buffer.detach().cpu().clone()
        values = (
            torch.rand(buffer.shape, generator=generator) if buffer.is_floating_point() else torch.zeros(buffer.shape)
        )
        return values.to(buffer.dtype)

    return copied(module, "")


@contextmanager
def probing() -> Iterator[None]:
    """Inside: tensors with numbers on the CPU and no gradients, whatever holds outside."""
    with unset_fake_temporarily(), torch.device("cpu"), torch.no_grad():
        yield


def settings(module: nn.Module) -> tuple[Any, ...]:
    """What a probe of the module's twin depends on: equal for modules whose twins are equal."""
    shapes = tuple((name, parameter.shape) for name, parameter in module.named_parameters(recurse=False))
    buffers = tuple(id(buffer) for buffer in module.buffers(recurse=False))
    others = tuple(
        (name, value if isinstance(value, bool | int | float | str) else id(value))
        for name, value in vars(module).items()
        if name not in _OF_ANY_MODULE
    )
    children = tuple((name, settings(child)) for name, child in module.named_children())
    return (type(module), shapes, buffers, others, children)
