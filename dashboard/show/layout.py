"""What every page has: a heading with "how to read this", problems that say what to do, the provenance line."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from engine.records.errors import InputError

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~:$&^=])")


def heading(title: str, how_to_read: str) -> None:
    """The page's title and one sentence on how to read it."""
    st.header(title, anchor=False)
    st.caption(f"**How to read this.** {how_to_read}")


def plain(text: str) -> str:
    """Text that markdown shows as it is: file names, errors and models' names may hold anything."""
    return _MARKDOWN.sub(r"\\\1", text)


def verdict(refusal: bool, judged: bool = True) -> str:
    """A judge's verdict as markdown."""
    if not judged:
        return ":material/help: **not judged**"
    return ":material/block: **refuses**" if refusal else ":material/chat: **answers**"


def problem(error: Exception) -> None:
    """One line that says what is wrong and what to do."""
    st.warning(plain(str(error)))


@contextmanager
def told() -> Iterator[None]:
    """What cannot be shown inside becomes one line on the page; the rest of the page goes on."""
    try:
        yield
    except InputError as error:
        problem(error)


def footnote(*lines: str) -> None:
    """Small plain lines under a figure."""
    body = "<br>".join(html.escape(line) for line in lines if line)
    st.html(f'<div style="font-size:0.85rem;line-height:1.45;opacity:0.75">{body}</div>')


def figure_config(filename: str, image_format: str) -> dict[str, object]:
    """Plotly's settings for a chart: only the camera, which saves `filename` as svg or png."""
    return {
        "displaylogo": False,
        "displayModeBar": True,
        "modeBarButtonsToRemove": [
            "zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d",
        ],
        "toImageButtonOptions": {"format": image_format, "filename": filename, "scale": 2},
        "responsive": True,
    }  # fmt: skip
