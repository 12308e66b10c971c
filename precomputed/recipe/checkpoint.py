"""Where a training stands, in one safetensors file: an interrupted training goes on and ends with the same bits."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]


def save(path: Path, tensors: Tensors, record: dict[str, Any]) -> None:
    """Replace the file at once: who is interrupted here keeps the checkpoint before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part")
    save_file({name: value.contiguous() for name, value in tensors.items()}, scratch, {"record": json.dumps(record)})
    os.replace(scratch, path)


def load(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the record that `save` wrote."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, json.loads(file.metadata()["record"])


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin with `prefix` and a slash, without these."""
    return {name.removeprefix(f"{prefix}/"): value for name, value in tensors.items() if name.startswith(f"{prefix}/")}


def named(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}/{name}": value for name, value in tensors.items()}


def optimizer_tensors(optimizers: Sequence[torch.optim.Optimizer]) -> Tensors:
    """What each optimizer remembers of every parameter, by the numbers of both."""
    return {
        f"{which}/{number}/{kind}": value
        for which, optimizer in enumerate(optimizers)
        for number, one in optimizer.state_dict()["state"].items()
        for kind, value in one.items()
    }


def restore_optimizers(optimizers: Sequence[torch.optim.Optimizer], tensors: Tensors) -> None:
    for which, optimizer in enumerate(optimizers):
        state: dict[int, Tensors] = {}
        for name, value in under(str(which), tensors).items():
            number, kind = name.split("/")
            state.setdefault(int(number), {})[kind] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
