"""Near relatives: cases that take the same way through the code as one that is always tried."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def relatives(cases: Iterable[Any], guards: Container[Any]) -> list[Any]:
    """All cases: those among `guards` in the first run, the others in the long one."""
    return [case if case in guards else pytest.param(case, marks=pytest.mark.long) for case in cases]
