"""The C library's allocator (glibc's): memory that a pass frees stays with the process, since the next pass wants as
much, and a fresh page is cleared by the system first. `tests/benchmarks/bench_allocator.py` times both."""

import ctypes
import os
from collections.abc import Mapping
from functools import cache
from typing import Any

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_BLOCK_BYTES = 2**30  # larger ones, as weights are, still come from the system and go back to it
_NEVER = 2**31 - 1  # the most that mallopt takes
_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Blocks of up to 1 GiB are kept for the process when they are freed, from now on; is that so?"""
    if any(name in environment for name in _OWN) or "glibc.malloc" in environment.get("GLIBC_TUNABLES", ""):
        return False
    return _asked()


def give_back_freed_memory() -> None:
    """What is kept and not in use goes back to the system now."""
    library = glibc()
    if library is not None:
        library.malloc_trim(0)


@cache
def _asked() -> bool:
    library = glibc()
    if library is None:
        return False
    blocks, kept = library.mallopt(_M_MMAP_THRESHOLD, _BLOCK_BYTES), library.mallopt(_M_TRIM_THRESHOLD, _NEVER)
    return bool(blocks and kept)


@cache
def glibc() -> Any:
    """The C library where it is glibc, else None."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") else None
    except (OSError, TypeError):  # Windows has no such handle
        return None
