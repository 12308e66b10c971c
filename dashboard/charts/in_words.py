"""A figure in words, for who cannot see it, read off the figure itself."""

import html
import re
from typing import Any

import plotly.graph_objects as go

MOST_MARKS = 24  # of a figure with more of them the names stand alone
_PLACEHOLDER = re.compile(r"%\{(\w+)(?:\[(\d+)\])?(?::([^}]*))?\}")


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
        told = [_hover(trace, place) for trace in marks for place, x in enumerate(trace.x) if x is not None]
    else:
        told = [_plain(trace.name or "") for trace in seen]
    panels = [_plain(note.text) for note in figure.layout.annotations if note.xref == note.yref == "paper"]
    lists = ("; ".join(dict.fromkeys(filter(None, names))) for names in (told, panels))
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
