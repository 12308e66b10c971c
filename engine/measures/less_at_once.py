"""Where a pass finds no memory: fewer sequences at a time, or one line that says what would help."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from torch import nn

from engine.models.memory import none_without_memory
from engine.records.errors import InputError, is_out_of_memory

T = TypeVar("T")
R = TypeVar("R")
_SINGLE = {"replies": "reply", "windows": "window", "requests": "request"}
_fitted: weakref.WeakKeyDictionary[nn.Module, dict[str, int]] = weakref.WeakKeyDictionary()


def in_parts(
    model: nn.Module, what: str, items: Sequence[T], work: Callable[[Sequence[T]], R]
) -> Iterator[tuple[Sequence[T], R]]:
    """`work` on the items, all at once where there is room, else on halves, and on halves of these.

    `work` has to be without effect when it fails. Later calls for the same `what` (replies, windows) of this model
    begin with as many as did fit (`largest_batch`). Results differ by rounding at most. Errors: InputError where one
    alone does not fit."""
    done = 0
    while done < len(items):
        part = items[done : done + largest_batch(model, what, len(items))]
        found = none_without_memory(partial(work, part))
        if found is None:
            if len(part) == 1:
                raise too_much("", 1, what)
            take_fewer(model, what, len(part) // 2)
            continue
        yield part, found
        done += len(part)


def take_fewer(model: nn.Module, what: str, size: int) -> None:
    """From now on `in_parts` takes `size` at a time at most."""
    _fitted.setdefault(model, {})[what] = largest_batch(model, what, size)


def largest_batch(model: nn.Module, what: str, wanted: int) -> int:
    """How many at a time: `wanted`, unless fewer had to be taken before."""
    return min(wanted, _fitted.get(model, {}).get(what, wanted))


@contextmanager
def saying_what_fits(where: str, at_once: int, what: str, option: str = "--batch-size") -> Iterator[None]:
    """Turns lack of memory inside into the `InputError` of `too_much`."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise too_much(where, at_once, what, option) from None


def too_much(where: str, at_once: int, what: str, option: str = "") -> InputError:
    """Out of memory with so many at once. A smaller batch is advised only where there is one, and an option for it."""
    place = f" {where}" if where else ""
    many = f"{at_once} {what}" if at_once > 1 else f"a single {_SINGLE[what]}"
    if at_once > 1 and option:
        return InputError(f"out of memory{place} with {many} per pass; give a smaller {option}")
    return InputError(
        f"out of memory{place} with {many} per pass; use shorter texts, --dtype bfloat16, a larger device, or "
        "--device-map auto over several"
    )
