"""Which settings of plans code of ours reads."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import pytest

RECORDS = ("spec", "calibration_spec", "_heldout_record", "__post_init__", "value")  # for the manifest, and checks


@contextmanager
def reads_of(*plans: type[Any]) -> Iterator[set[str]]:
    """The names of fields of these dataclasses that are read from now on. What dataclasses read to copy or compare a
    plan counts for none, nor what is read for a record."""
    reads: set[str] = set()
    with pytest.MonkeyPatch.context() as patch:
        for plan in plans:
            names = frozenset(one.name for one in fields(plan))

            def noted(self: Any, name: str, names: frozenset[str] = names) -> Any:
                if name in names:
                    caller = sys._getframe(1).f_code
                    copied = "dataclasses" in caller.co_filename or caller.co_filename == "<string>"
                    if not copied and caller.co_name not in RECORDS:
                        reads.add(name)
                return object.__getattribute__(self, name)

            patch.setattr(plan, "__getattribute__", noted)
        yield reads
