"""Errors that a user can act on: one line that says what, got, expected and the next step. Lack of memory. No torch."""

import difflib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """Wrong input. The command line prints its one line and exits with code 2, the dashboard shows it as is."""


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}
_ODD_PLACE = {
    errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EIO, errno.ENOTEMPTY, errno.EEXIST,
    errno.ENOENT,
}  # fmt: skip
_LONGEST_NAME = 200  # characters of a path that are printed


def disk_problem(error: OSError) -> str | None:
    """What a disk did not do and what helps, in one line; None for failures that are no matter of files."""
    path = error.filename2 or error.filename
    if path is None and error.errno == errno.ENOENT:
        return None
    named = "a file" if path is None else os.fsdecode(path) if isinstance(path, str | bytes) else str(path)
    named = named if len(named) <= _LONGEST_NAME else f"{named[:_LONGEST_NAME]}…"
    what = f"cannot read or write {named} ({error.strerror})"
    if error.errno in _NO_ROOM:
        return f"{what}; what was there before is whole: free some space, or name another place"
    if error.errno in _NOT_ALLOWED:
        return f"{what}; make it readable and writable, or name another place"
    return f"{what}; name another place" if error.errno in _ODD_PLACE else None


def is_panic(error: BaseException) -> bool:
    """Did a library's Rust code fail (polars, tokenizers)? That is none of its errors, and not even an `Exception`."""
    return type(error).__name__ == "PanicException"


class CheckFailed(Exception):
    """Everything ran, and what was to be checked does not hold. One line like an `InputError`'s, exit code 1."""


class Ended(Exception):
    """Nothing is wrong: a command did its part, and goes no further. One line for stdout, exit code 0.
    answer: the same for machines (`--json`)."""

    def __init__(self, line: str, answer: Mapping[str, Any]) -> None:
        super().__init__(line)
        self.answer = dict(answer)


def unknown(kind: str, got: str, available: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not registered, with the nearest name as a suggestion."""
    names = sorted(available)
    nearest = difflib.get_close_matches(got, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return InputError(f"unknown {kind} {got!r}; {hint}available: {', '.join(names)}")


# Beside torch's own exception, by the texts of others: CUDA's bare error (an AcceleratorError), the libraries for
# matrix products and convolutions, which say that they could not be set up where they found no room for their
# workspace, Apple's and Intel's devices, and torch's allocator on the host, which raises a plain RuntimeError.
TEXTS = (
    "out of memory", "not enough memory: you tried to allocate", "DefaultCPUAllocator",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
    "CUDNN_STATUS_ALLOC_FAILED", "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "CUDNN_STATUS_NOT_INITIALIZED",
)  # fmt: skip


def is_out_of_memory(error: BaseException) -> bool:
    """Would less at a time, or more room, have helped? By the kind of the error and, of a RuntimeError, its text."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in TEXTS)


@contextmanager
def memory_needed(told: Callable[[BaseException], InputError]) -> Iterator[None]:
    """Inside, a lack of memory is the error that `told` makes of it; other errors go on."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise told(error) from None
