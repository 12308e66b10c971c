"""Other forwards of modules, also within accelerate's hooks, attention functions replaced for a while, and hooks that
hear one thread's passes alone."""

import inspect
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import MethodType, ModuleType
from typing import Any

from torch import nn


def set_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """`module(...)` gives `forward(module, ...)` from now on; accelerate's hooks go on around it."""
    setattr(module, "_old_forward" if hasattr(module, "_hf_hook") else "forward", MethodType(forward, module))


def listener(told: Callable[[Any], object]) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    """A forward hook that tells the outputs of this thread's passes: another thread may pass the same model."""
    own = threading.get_ident()

    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if threading.get_ident() == own:
            told(output)

    return hook


def last_logits_only(model: nn.Module) -> dict[str, int]:
    """Arguments with which this model's forward makes logits of the last position alone; none where it knows no such
    thing. For passes that look at what is inside."""
    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(type(model).forward).parameters else {}


AttentionFunction = Callable[..., Any]


def wrapped_attention(
    modelings: Iterable[ModuleType], wrap: Callable[[AttentionFunction], AttentionFunction], undo: ExitStack
) -> None:
    """Every attention function that these modules may choose becomes `wrap` of it, until `undo` is closed."""
    for modeling in modelings:
        interface = type(modeling.ALL_ATTENTION_FUNCTIONS)()
        for name, function in modeling.ALL_ATTENTION_FUNCTIONS.items():
            interface[name] = wrap(function)
        for name, value in (
            ("eager_attention_forward", wrap(modeling.eager_attention_forward)),
            ("ALL_ATTENTION_FUNCTIONS", interface),
        ):
            undo.callback(setattr, modeling, name, getattr(modeling, name))
            setattr(modeling, name, value)
