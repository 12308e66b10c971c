"""Words and tables of Markdown, as the demo's README prints them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def listed(names: Iterable[str]) -> str:
    """ "a, b and c", or "none"."""
    every = list(names)
    if len(every) < 2:
        return every[0] if every else "none"
    return f"{', '.join(every[:-1])} and {every[-1]}"


def span(values: pl.Series | Sequence[float], digits: int = 2) -> str:
    """ ".93 to .96", or one number where both ends round to it."""
    ends = [f"{value:.{digits}f}" for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
