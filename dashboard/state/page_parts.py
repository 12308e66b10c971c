"""Pages of several parts: a row of parts before their settings, one picker of results, a fold, one foot for all."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import polars as pl
from streamlit.delta_generator import DeltaGenerator

from dashboard.show import layout, selection, tools
from dashboard.state import sources
from dashboard.state.sources import Source

_FEW = 4


class Drawn(NamedTuple):
    """What a part has drawn. values: of its downloads, None for none; more: draws what its fold holds, when that is
    open; notes: small print."""

    values: pl.DataFrame | None
    more: Callable[[], object] | None = None
    notes: tuple[str, ...] = ()


class Part(NamedTuple):
    """show: draws a part from these tables; how_to_read: its figures; says_nothing: as in `sources.pick`."""

    show: Callable[[Source], Drawn | pl.DataFrame]
    stems: tuple[str, ...]
    how_to_read: str = ""
    says_nothing: Callable[[pl.DataFrame], bool] | None = None


def page(title: str, line: str, parts: Mapping[str, Part]) -> None:
    """The page: its title, what it asks, the row of parts, the one that is chosen."""
    stage = layout.heading(title, line)
    bar = layout.bar(stage)
    name = choose(bar, tuple(parts), "part")
    draw(stage, bar, name, parts[name])


def choose(bar: DeltaGenerator, names: tuple[str, ...], key: str) -> str:
    """Few stand beside each other, more in a list that opens. key: of the choice, in links."""
    return (selection.switch if len(names) <= _FEW else selection.choose)(
        "Part", names, key, default=names[0], place=bar
    )


def draw(stage: DeltaGenerator, bar: DeltaGenerator, name: str, part: Part) -> None:
    """One part: its results' picker, its figures, what the fold holds, and the foot."""
    source = sources.pick(stage, part.stems, part.says_nothing, bar)
    if source is None:
        return
    drawn = Drawn(None)
    with layout.told():
        shown = part.show(source)
        drawn = shown if isinstance(shown, Drawn) else Drawn(shown)
    if part.how_to_read:
        layout.how_to_read(part.how_to_read)
    if drawn.more is not None:
        selection.folded(drawn.more)
    file = f"{name.lower().replace(' ', '-')}-{tools.file_name(source.model)}"
    tools.end(drawn.values, file, *drawn.notes, provenance=source.provenance)
