"""The C library's allocator as each side of a benchmark has it, in one process: the engine's way, and that of a plain
script. Nothing where the engine leaves the allocator alone."""

from __future__ import annotations

from engine.models import allocator

# glibc's own rule: it raises its limits to these by itself. Blocks above the first come from the system one by one,
# free memory at the end goes back to it above the second.
_BLOCK_BYTES, _KEPT_BYTES = 32 * 2**20, 64 * 2**20


def of_the_engine() -> None:
    _limits(allocator.BLOCK_BYTES, allocator.NEVER)


def of_a_plain_script() -> None:
    _limits(_BLOCK_BYTES, _KEPT_BYTES)


def _limits(block: int, kept: int) -> None:
    library = allocator.glibc()
    if library is not None:
        library.mallopt(allocator.M_MMAP_THRESHOLD, block)
        library.mallopt(allocator.M_TRIM_THRESHOLD, kept)
