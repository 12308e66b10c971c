"""What a decoder block has besides rows: routers, convolutions, state-space parameters. No units, kept as they are."""

import re
from collections import Counter
from collections.abc import Iterable

from torch import nn
from torch.nn.modules.conv import _ConvNd

STATE_SPACE = ("A_log",)  # parameters of a Mamba layer that decide how its state fades
_ROUTER_CLASS = re.compile(r"(Router|Gate|Gating)$")
_ROUTER_NAMES = ("gate", "router", "shared_expert_gate")


def left_alone(block: nn.Module) -> dict[str, str]:
    """Path inside the block of each module that holds weights but no rows -> what it is.

    router: says which experts see a token, or how much one counts; a zero row there sends tokens elsewhere and removes
    no neuron. convolution: mixes positions. time step: Mamba's dt_proj, whose weight transformers reads without
    calling the Linear. Modules inside these are not named again.
    """
    found: dict[str, str] = {}
    for path, module in block.named_modules():
        if path and not any(path.startswith(f"{outer}.") for outer in found):
            kind = _kind(module, path.rpartition(".")[2], block.get_submodule(path.rpartition(".")[0]))
            if kind:
                found[path] = kind
    return found


def kept(blocks: Iterable[nn.Module]) -> str:
    """In words, over all blocks: `2 routers, 4 convolutions`; "" where there are none."""
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(left_alone(block).values())
        names = [name.rpartition(".")[2] for name, _ in block.named_parameters()]
        counts["state-space parameter"] += sum(name in STATE_SPACE for name in names)
    return ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count)


def _kind(module: nn.Module, name: str, parent: nn.Module) -> str:
    if isinstance(module, _ConvNd):
        return "convolution"
    routed = isinstance(getattr(parent, "experts", None), nn.Module)
    if _ROUTER_CLASS.search(type(module).__name__) or (routed and name in _ROUTER_NAMES):
        return "router"
    if name == "dt_proj" and hasattr(parent, "A_log"):
        return "time step"
    return ""
