"""The texts of a figure: of what plotly reads as markup only what our own titles are made of; and the figure in words,
read off itself, for who cannot see it."""

import html
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go

MOST_MARKS = 24  # of a figure with more of them the names stand alone
_PLACEHOLDER = re.compile(r"%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}")
# Plotly draws some HTML wherever a text stands, links among it. Ours has these, and the size that `figure_size` gives.
_FOREIGN = re.compile(
    r'<(?=[a-z/])(?!/?(?:b|br|sub|sup|extra)>|span style="font-size:[0-9.]+px;font-weight:normal">|/span>)',
    re.IGNORECASE,
)


def headings(figure: go.Figure) -> tuple[str, str]:
    """What stands in a figure's title, and in small letters below it, without tags and line breaks."""
    title, _, small = (figure.layout.title.text or "").partition("<sub>")
    return _plain(title), _plain(small)


def described(figure: go.Figure) -> str:
    """Its title, the line below, and what is drawn: of few marks the first two lines of each one's hover text, else the
    names in the legend; and the names of panels. Of a matrix the title says what there is to say."""
    seen = [trace for trace in figure.data if trace.type in ("scatter", "bar") and trace.hoverinfo != "skip"]
    seen = [trace for trace in seen if trace.x is not None and trace.marker.opacity != 0.0]
    marks = [trace for trace in seen if trace.type == "bar" or "lines" not in (trace.mode or "")]
    if marks and sum(len(trace.x) for trace in marks) <= MOST_MARKS:
        texts = [_hover(trace, place) for trace in marks for place, x in enumerate(trace.x) if x is not None]
    else:
        texts = [_plain(trace.name or "") for trace in seen]
    panels = [_plain(note.text) for note in figure.layout.annotations if note.xref == note.yref == "paper"]
    lists = ("; ".join(dict.fromkeys(filter(None, names))) for names in (texts, panels))
    return " ".join(f"{one}." for one in (*headings(figure), *lists) if one)


def _hover(trace: Any, place: int) -> str:
    def filled(found: re.Match[str]) -> str:
        value = trace[found[1]][place]
        value = value[int(found[2])] if found[2] else value
        return format(value, found[3].replace("~", "")) if found[3] else str(value)

    template = re.sub("<extra>.*", "", trace.hovertemplate or trace.name or "")
    lines = _PLACEHOLDER.sub(filled, template).split("<br>")
    return ", ".join(filter(None, map(_plain, lines[:2])))


def _plain(text: str) -> str:
    return html.unescape(" ".join(re.sub("<[^>]+>", "", text.replace("<br>", " ")).split()))


def as_text(figure: go.Figure) -> go.Figure:
    """The figure, or a copy in which every other tag is written out; values and numbers stay as they are."""
    drawn: dict[str, Any] = figure.to_dict()
    plain = _made_plain(drawn)
    return figure if plain is drawn else go.Figure(plain)


def _made_plain(value: Any) -> Any:
    """A value with its texts made plain; the same object where there is nothing to do."""
    if isinstance(value, str):
        return _FOREIGN.sub("&lt;", value) if _FOREIGN.search(value) else value
    if isinstance(value, dict):
        plain_values = {name: _made_plain(one) for name, one in value.items()}
        return plain_values if any(plain_values[name] is not one for name, one in value.items()) else value
    if isinstance(value, (list, tuple)):
        items = [_made_plain(one) for one in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        items = value.tolist()
        plain = _made_plain(items)
        return value if plain is items else plain
    return value
