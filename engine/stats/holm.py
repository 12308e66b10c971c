"""Holm's correction of p values of several tests."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from engine.records.errors import InputError

LEVEL = 0.05  # of adjusted p
Question = TypeVar("Question", bound=Hashable)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p of every test, in the given order (Holm 1979), valid however the tests depend on each other.
    With the p in ascending order, adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)), j from 1."""
    if not all(0 <= p <= 1 for p in p_values):
        raise InputError(f"p values must be in [0, 1], got {list(p_values)}")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def adjusted(p_values: Mapping[Question, float]) -> dict[Question, float]:
    """p by what was asked, adjusted by Holm over all of them."""
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))
