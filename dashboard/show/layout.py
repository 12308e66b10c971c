"""What every page has: the stage it begins with, how to read it, problems that say what to do, the provenance line."""

import html
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import FragmentHandledException

from dashboard.charts import formats
from engine.data.thinking import parts
from engine.records.errors import InputError

_EXPORT = "place-of-the-export"  # session state, within a run
NOT_DRAWN = "This page could not be drawn"
FOLDED = "Thinking part"
STILL_THINKING, NOTHING = "(the thinking part has not ended)", "(nothing after the thinking part)"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~:$&^=])")
# Addresses become links after the backslashes are gone: an invisible joiner keeps them text. The hub's own may be one.
_ADDRESS = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//(?!huggingface\.co/))|(?<=www)(?=\.)|(?<=@)", re.IGNORECASE)
_JOINER = "\u2060"
_CODE = re.compile(r"`([^`\n]+)`")
_REMEDIES: dict[type[Exception], Callable[[Any], None]] = {}
_EMOJI = re.compile(r":[\w+-]+:")  # Streamlit draws these everywhere in a text that has one unescaped, as code has


def heading(title: str, line: str = "") -> DeltaGenerator:
    """The page's title, the one `h1` of the page, and beside it one short line on how to read its first figure, where
    that has no line of its own.
    At its right end the page's `export_place`. Returns the page's stage: this heading, then its `bar` of settings, then
    its `hero`. It fills the window and no more (frame.css), so whatever else the page has stands below it."""
    stage = st.container(key="stage")
    with stage, st.container(horizontal=True, vertical_alignment="center", gap="medium", key="heading"):
        st.title(title, anchor=False, width="content")
        st.caption(line, width="stretch")
        st.session_state[_EXPORT] = st.container(width="content", key="export")
    return stage


def export_place() -> DeltaGenerator:
    """Where this run's menu Export goes: beside the heading, else at the place of the call."""
    heading_place: DeltaGenerator | None = st.session_state.pop(_EXPORT, None)
    return heading_place or st.container()


def bar(stage: DeltaGenerator) -> DeltaGenerator:
    """The page's settings in one row, above its first figure."""
    return stage.container(horizontal=True, vertical_alignment="bottom", gap="small", key="bar")


def drawer(place: DeltaGenerator) -> DeltaGenerator:
    """The settings that are changed less often: at the end of the bar `place`, folded. (In a popover they would leave
    the page's address whenever it is closed.)"""
    return place.expander("More settings", type="compact")


def hero(stage: DeltaGenerator) -> DeltaGenerator:
    """The place of the first figure, or of two beside each other: as high as the window leaves it."""
    return stage.container(key="hero")


def finding(title: str, below: str = "") -> None:
    """What the figure below says, as the `h2` that it is, and how to read it. (In a figure lines do not break by
    themselves.)"""
    small = f"<p>{html.escape(below)}</p>" if below else ""
    st.html(f'<div class="finding"><h2>{html.escape(title)}</h2>{small}</div>')


def how_to_read(text: str) -> None:
    st.caption(f"**How to read this.** {text}")


def section(title: str, anchor: str | Literal[False] = False) -> None:
    """A part of the page, an `h2`; parts of it have `st.subheader`, an `h3`."""
    st.header(title, anchor=anchor)


def plain(text: str) -> str:
    """Text that markdown shows as it is: file names, errors and models' names may hold anything, also what is no
    Unicode, which becomes question marks."""
    return _MARKDOWN.sub(r"\\\1", _ADDRESS.sub(_JOINER, formats.shown(text)))


def worded(text: str) -> str:
    """As `plain`, but what stands between two backticks, such as a command to type, is shown as code."""
    parts = _CODE.split(formats.shown(text))
    if any(_EMOJI.search(part) for part in parts[1::2]):
        return plain("".join(parts))
    return "".join(f"`{part}`" if place % 2 else plain(part) for place, part in enumerate(parts))


def verdict(refusal: bool, judged: bool = True) -> str:
    if not judged:
        return ":material/help: **not judged**"
    return ":material/block: **refuses**" if refusal else ":material/chat: **answers**"


def reply(text: str, place: DeltaGenerator, *, empty: str) -> None:
    """A reply as plain text, never as markdown, its thinking part folded apart. place: where, of which only the last
    reply shown is seen where that is `st.empty()`; empty: said for none."""
    thinking = parts(text)
    if thinking.said == text:
        place.text(text or empty, width="stretch")
        return
    with place.container():
        if thinking.thinking:
            with st.expander(FOLDED):
                st.text(thinking.thinking, width="stretch")
        st.text(thinking.said or (NOTHING if thinking.complete else STILL_THINKING), width="stretch")


def problem(error: Exception) -> None:
    """One line that says what is wrong and what to do, and below it what a `remedy` offers."""
    st.warning(worded(str(error)))
    for kind, offer in _REMEDIES.items():
        if isinstance(error, kind):
            offer(error)


def remedy(kind: type[Exception], offer: Callable[[Any], None]) -> None:
    """Problems of this kind come with what `offer` draws below them."""
    _REMEDIES[kind] = offer


@contextmanager
def told() -> Iterator[None]:
    """What cannot be shown inside becomes one line on the page; the rest of the page goes on."""
    try:
        yield
    except InputError as error:
        problem(error)


@contextmanager
def survived() -> Iterator[None]:
    """Whatever a page cannot draw becomes one line on it, and its traceback goes to the log of the server.
    Tables that are each what their names say may still not go together, in more ways than can be listed."""
    try:
        yield
    except FragmentHandledException:  # the part of the page says so itself
        raise
    except Exception as error:
        logging.getLogger(__name__).exception("a page could not be drawn")
        problem(
            InputError(
                f"{NOT_DRAWN} ({type(error).__name__}): tables of these results do not go together, or the software "
                "has a fault; the log of the server says where; choose other results, or run the command that made "
                "them again"
            )
        )


def progress_in(place: DeltaGenerator) -> Callable[[str, int, int], Any]:
    """What is done, how much of how much: a bar in `place`."""
    return lambda what, done, total: place.progress(min(done / max(total, 1), 1.0), text=f"{what}: {done} of {total}")


def queued_in(place: DeltaGenerator) -> Callable[[float], Any]:
    """Seconds that another session has kept the model: a line in `place`."""
    return lambda seconds: place.info(f"Queued: another session is using this model ({seconds:.0f} s).")


def footnote(*lines: str) -> None:
    """Small plain lines under a figure; what stands between two backticks is shown as code."""
    body = "<br>".join(_CODE.sub(r"<code>\1</code>", html.escape(line)) for line in lines if line)
    st.html(f'<div style="font-size:0.85rem;line-height:1.45;opacity:0.75">{body}</div>')


def style(file: Path) -> None:
    """The rules of a file of ours, for the page that is open."""
    st.html(f"<style>{file.read_text(encoding='utf-8')}</style>")


@cache
def component(folder: Path, name: str) -> Any:
    """A component of ours: its HTML, style and script lie in `folder` under its name."""
    html_of, css, js = ((folder / f"{name}.{end}").read_text(encoding="utf-8") for end in ("html", "css", "js"))
    return st.components.v2.component(f"selector_audit_{name}", html=html_of, css=css, js=js)


def figure_config(filename: str) -> dict[str, object]:
    """Plotly's settings for a chart: only the camera, which saves `filename` as SVG."""
    return {
        "displaylogo": False,
        "displayModeBar": True,
        "modeBarButtonsToRemove": [
            "zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetScale2d",
        ],
        "toImageButtonOptions": {"format": "svg", "filename": filename},
        "responsive": True,
    }  # fmt: skip
