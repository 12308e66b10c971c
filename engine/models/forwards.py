"""Another forward for one module, also where accelerate has put hooks around the module's own."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import nn


def set_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """`module(...)` gives `forward(module, ...)` from now on; accelerate's hooks go on around it."""
    setattr(module, "_old_forward" if hasattr(module, "_hf_hook") else "forward", MethodType(forward, module))
