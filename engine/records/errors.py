"""Errors that a user can act on: one line that says what, got, expected and the next step."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input. The command line prints its one line and exits with code 2, the dashboard shows it as is."""


class CheckFailed(Exception):
    """Everything ran, and what was to be checked does not hold. One line like an `InputError`'s, exit code 1."""


def unknown(kind: str, got: str, available: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not registered, with the nearest name as a suggestion."""
    names = sorted(available)
    nearest = difflib.get_close_matches(got, names, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return InputError(f"unknown {kind} {got!r}; {hint}available: {', '.join(names)}")
