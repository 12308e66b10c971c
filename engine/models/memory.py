"""Room on devices: what is free, how to free what a failed pass left, and doing less at a time where there is none."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from engine.models.allocator import give_back_freed_memory
from engine.records.errors import is_out_of_memory

T = TypeVar("T")


class Room(NamedTuple):
    """Bytes of a device."""

    free: int  # that this process can still get, what torch holds without using it included
    total: int


def room_on(device: torch.device) -> Room:
    """What is free now, and what there is. Of a device that is no card: of the host's memory."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Room(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total)
    return Room(free_host_bytes(), host_bytes())


def has_own_memory(device: torch.device) -> bool:
    """Is it a card, whose memory is not the host's?"""
    return device.type not in ("cpu", "mps", "meta")


def free_host_bytes() -> int:
    """Memory that programs can still get; all of it where the system does not tell what is in use."""
    give_back_freed_memory()
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return host_bytes()


def host_bytes() -> int:
    """The machine's memory; 0 where the system does not tell."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0


def none_without_memory(work: Callable[[], T]) -> T | None:
    """What `work` gives, None where memory ran out; what the failed work held is free then. Other errors go on."""
    try:
        return work()
    except (RuntimeError, MemoryError) as error:  # torch.OutOfMemoryError is a RuntimeError
        if not is_out_of_memory(error):
            raise
    # Here the failed work's tensors, which the traceback kept, can go.
    release()
    return None


def release() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    give_back_freed_memory()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
