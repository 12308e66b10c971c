"""Room on devices: what is free, how to free what a failed pass left, what glibc's allocator keeps for the next pass
(a fresh page is cleared by the system first: `tests/benchmarks/bench_allocator.py`). Where a pass finds no memory:
fewer sequences at a time, or one line that says what would help."""

import ctypes
import gc
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from engine.records.errors import InputError, is_out_of_memory, memory_needed

T = TypeVar("T")
R = TypeVar("R")
_SINGLE = {"replies": "reply", "windows": "window", "requests": "request"}
_fitted: weakref.WeakKeyDictionary[nn.Module, dict[str, int]] = weakref.WeakKeyDictionary()


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


def on_a_card(budget: int, bytes_each: int) -> int:
    """Elements of a budget that a card allows by its memory's size, never by what is free, so that equal runs do the
    same; all where no card is there."""
    if not torch.cuda.is_available():
        return budget
    return min(budget, torch.cuda.get_device_properties(0).total_memory // bytes_each)


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


def in_parts(
    model: nn.Module, what: str, items: Sequence[T], work: Callable[[Sequence[T]], R]
) -> Iterator[tuple[Sequence[T], R]]:
    """`work` on the items, all at once where there is room, else on halves, and on halves of these.

    `work` has to be without effect when it fails. Later calls for the same `what` (replies, windows) of this model
    begin with as many as did fit (`largest_batch`). Results differ by rounding at most. Errors: InputError where one
    alone does not fit."""
    done = 0
    while done < len(items):
        batch = items[done : done + largest_batch(model, what, len(items))]
        result = none_without_memory(partial(work, batch))
        if result is None:
            if len(batch) == 1:
                raise too_much("", 1, what)
            take_fewer(model, what, len(batch) // 2)
            continue
        yield batch, result
        done += len(batch)


def take_fewer(model: nn.Module, what: str, size: int) -> None:
    """From now on `in_parts` takes `size` at a time at most."""
    _fitted.setdefault(model, {})[what] = largest_batch(model, what, size)


def largest_batch(model: nn.Module, what: str, wanted: int) -> int:
    """How many at a time: `wanted`, unless fewer had to be taken before."""
    return min(wanted, _fitted.get(model, {}).get(what, wanted))


def saying_what_fits(where: str, at_once: int, what: str, option: str = "--batch-size") -> AbstractContextManager[None]:
    """Turns lack of memory inside into the `InputError` of `too_much`."""
    return memory_needed(lambda _: too_much(where, at_once, what, option))


def too_much(where: str, at_once: int, what: str, option: str = "") -> InputError:
    """Out of memory with so many at once. A smaller batch is advised only where there is one, and an option for it."""
    at_place = f" {where}" if where else ""
    many = f"{at_once} {what}" if at_once > 1 else f"a single {_SINGLE[what]}"
    if at_once > 1 and option:
        return InputError(f"out of memory{at_place} with {many} per pass; give a smaller {option}")
    return InputError(
        f"out of memory{at_place} with {many} per pass; use shorter texts, --dtype bfloat16, a larger device, or "
        "--device-map auto over several"
    )


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_BLOCK_BYTES = 2**30  # larger ones, as weights are, still come from the system and go back to it
_NEVER = 2**31 - 1  # the most that mallopt takes
_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Blocks of up to 1 GiB are kept for the process when they are freed, from now on; is that so?"""
    if any(name in environment for name in _OWN) or "glibc.malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    library = glibc()
    asked = ((_M_MMAP_THRESHOLD, _BLOCK_BYTES), (_M_TRIM_THRESHOLD, _NEVER))
    answers = [library.mallopt(*one) for one in asked] if library is not None else [False]
    return all(answers)


def give_back_freed_memory() -> None:
    """What is kept and not in use goes back to the system now."""
    library = glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def glibc() -> Any:
    """The C library where it is glibc, else None."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError):  # Windows has no such handle
        return None
