"""Type sizes of all figures, in one place, and figures made larger for a projector."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

BASE_PX, TITLE_PX, NOTE_PX, CELL_PX = 12, 15, 11, 10
PRESENTATION = 1.4


def sized(figure: go.Figure, scale: float = 1.0) -> go.Figure:
    """Sets every type size; with `scale`, type, marks, lines, height and margins grow together. In place."""
    layout, base = figure.layout, BASE_PX * scale
    layout.font.size = base
    layout.legend.font.size = base
    layout.hoverlabel.font.size = base
    layout.title.font.size = scale * (layout.title.font.size or TITLE_PX)
    if layout.title.text:
        layout.title.text = _second_line(layout.title.text, BASE_PX * scale)
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        axis.tickfont.size = scale * (axis.tickfont.size or BASE_PX)
        axis.title.font.size = base
        _grow(axis.title, ("standoff",), scale)
        if axis.ticktext is not None:
            axis.ticktext = [_second_line(str(text), CELL_PX * scale) for text in axis.ticktext]
    for note in layout.annotations:
        note.font.size = scale * (note.font.size or BASE_PX)
    for coloraxis in figure.select_coloraxes():
        coloraxis.colorbar.tickfont.size = base
        coloraxis.colorbar.title.font.size = base
    _grow(layout, ("height",), scale)
    _grow(layout.margin, ("l", "r", "t", "b"), scale)
    for trace in figure.data:
        for part, names in (("marker", ("size",)), ("line", ("width",)), ("textfont", ("size",))):
            if part in trace and getattr(trace, part) is not None:
                _grow(getattr(trace, part), names, scale)
    return figure


def _second_line(text: str, size_px: float) -> str:
    """What stands in `<sub>` is a second line here: plotly would draw it at 70%, too small for a phone."""
    return text.replace("<sub>", f'<span style="font-size:{size_px:g}px;font-weight:normal">').replace(
        "</sub>", "</span>"
    )


def _grow(part: Any, names: tuple[str, ...], scale: float) -> None:
    for name in names:
        value = getattr(part, name, None) if name in part else None
        if isinstance(value, int | float):
            setattr(part, name, value * scale)
