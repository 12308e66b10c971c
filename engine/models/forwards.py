"""Another forward for one module, also where accelerate has put hooks around the module's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

from torch import nn


def set_forward(
    module: nn.Module, forward: Callable[..., Any], steps: list[Callable[[], object]] | None = None
) -> None:
    """`module(...)` gives `forward(module, ...)` from now on; accelerate's hooks go on around it.

    steps: gets what takes it back, before anything changes.
    """
    name = "_old_forward" if hasattr(module, "_hf_hook") else "forward"
    if steps is not None:
        before = vars(module).get(name)
        steps.append(partial(delattr, module, name) if before is None else partial(setattr, module, name, before))
    setattr(module, name, MethodType(forward, module))
