"""Type sizes of all figures, in one place, and figures made larger for a stage."""

import re
from typing import Any

import plotly.graph_objects as go

BASE_PX, TITLE_PX, NOTE_PX, CELL_PX = 12, 15, 11, 10
STAGE, STAGE_LEAST_PX = 2.0, 24  # how much larger figures are on stage, and their smallest type
_TITLE_ROOM_PX = 40  # of the margins that figures are made with: one line of title and one below it
_STAGE_STEPS = 4  # labels of steps that have room beside each other at that size
_STAGE_ROWS = 18  # of a matrix, in which numbers of that size have room in a window of 800 px
_LEADING_ZERO = re.compile(r"^([−-]?)0\.(?=\d)")
_ONE_LINE = re.compile("(?:<br>)+(?=<sub>)")
_LEAST_TOP_PX, _LEAST_BOTTOM_PX = 28, 48  # the camera; ticks and the axis title
_COLORBAR_PX = 80  # of a horizontal one with its title and ticks, above the plot


def sized(figure: go.Figure, scale: float = 1.0, least_px: float = 0.0) -> go.Figure:
    """Sets every type size; with `scale`, type, marks, lines, height and margins grow together; no type is smaller than
    `least_px`. Numbers in the cells of a matrix lose the zero before their point then, so that they fit, and are left
    out where they would stand in each other; the colour tells. In place."""

    def px(size: float) -> float:
        return max(scale * size, least_px)

    layout, base = figure.layout, px(BASE_PX)
    layout.font.size = base
    layout.legend.font.size = base
    layout.hoverlabel.font.size = base
    layout.title.font.size = px(layout.title.font.size or TITLE_PX)
    if layout.title.text:
        layout.title.text = _second_line(layout.title.text, px(BASE_PX))
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        if axis.tickfont.size or scale > 1:  # else the figure's own
            axis.tickfont.size = px(axis.tickfont.size or BASE_PX)
        axis.title.font.size = base
        if axis.nticks and scale > 1:
            axis.nticks = max(3, round(axis.nticks / (1.25 * scale)))  # larger labels leave room for fewer
        _grow(axis.title, ("standoff",), scale)
        if axis.type == "category" and scale > 1 and len(axis.ticktext or ()) > _STAGE_STEPS:
            last = len(axis.ticktext) - 1
            axis.ticktext = [text if (last - place) % 2 == 0 else "" for place, text in enumerate(axis.ticktext)]
        if axis.ticktext is not None:
            axis.ticktext = [_second_line(str(text), px(CELL_PX)) for text in axis.ticktext]
    notes = layout.to_plotly_json().get("annotations", [])
    if least_px and len({note["y"] for note in notes if _in_cell(note)}) > _STAGE_ROWS:
        notes = [note for note in notes if not _in_cell(note)]
    for note in notes:
        if _in_cell(note) and least_px:
            note["text"] = _LEADING_ZERO.sub(r"\1.", note["text"])
        font = note.setdefault("font", {})
        if least_px and font.get("size") == NOTE_PX:  # a line's or a zone's: its name alone has room
            note["text"] = note["text"].partition(": ")[0]
        font["size"] = px(font.get("size") or BASE_PX)
    layout.annotations = notes  # at once: plotly looks for each among all of them
    for scale_of in (*figure.select_coloraxes(), *figure.select_traces(selector={"type": "heatmap"})):
        scale_of.colorbar.update(tickfont_size=base, title_font_size=base)
    if scale == 1 and not least_px:
        return figure
    _grow(layout, ("height",), scale)
    _grow(layout.margin, ("l", "r", "t", "b"), scale)
    for trace in figure.data:
        for part, names in (("marker", ("size",)), ("line", ("width",))):
            if part in trace and getattr(trace, part) is not None:
                _grow(getattr(trace, part), names, scale)
        if "textfont" in trace and isinstance(trace.textfont.size, int | float):
            trace.textfont.size = px(trace.textfont.size)
    return figure


def _in_cell(note: dict[str, Any]) -> bool:
    return bool((note.get("font") or {}).get("size") == CELL_PX)


def stretchable(figure: go.Figure, top: float, *, low: bool = False) -> go.Figure:
    """A figure without its title, which stands above it on the page, that may be drawn at any height: the legend stands
    at the lower edge and takes the room that it needs. In place.
    top: margin above the plot before the title was made longer. low: the window may leave little height, so that names
    beside rows take one line each."""
    layout = figure.layout
    less = (layout.margin.t or 0) - max(top - _TITLE_ROOM_PX, _LEAST_TOP_PX)
    layout.margin.t = (layout.margin.t or 0) - less
    if layout.height:
        layout.height -= less
    layout.title = None
    if layout.legend.y is not None and layout.legend.y < 0:
        layout.legend.update(yref="container", y=0, yanchor="bottom")
        layout.margin.b = min(layout.margin.b or 0, _LEAST_BOTTOM_PX)
    for axis in figure.select_yaxes() if low else ():
        if axis.ticktext is not None:
            axis.ticktext = [_ONE_LINE.sub(" · ", str(text)) for text in axis.ticktext]
    for coloraxis in figure.select_coloraxes():
        if coloraxis.colorbar.orientation == "h":  # below the plot its distance would be a share of the height
            coloraxis.colorbar.update(yref="container", y=0.94, yanchor="top", title_side="bottom")
            layout.margin.t += _COLORBAR_PX  # where plotly makes the room itself, it moves the axis title into the plot
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
        elif isinstance(value, list | tuple):  # of marks, one for each
            setattr(part, name, [one * scale for one in value])
