"""Replies as a picture to share: prompt, replies with their stamps, edit and link on one card, saved as PNG by the
browser, whose typefaces write every script."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

from dashboard.show import tools

_FOLDER = Path(__file__).parent
_HEIGHT_PX = 460  # of the card at the width of a page, with its button


@dataclass(frozen=True)
class Column:
    """A reply with its heading and a stamp in that colour."""

    title: str
    stamp: str
    colour: str
    text: str


def offer(prompt: str, columns: Sequence[Column], edit: str) -> None:
    """The switch, and below it the card. edit: what was removed of which model, in words."""
    if st.toggle("Picture to share", key="share-card", help="Prompt, replies, edit and link as one PNG."):
        replies = "; ".join(f"{one.title}, {one.stamp}: {one.text}" for one in columns)
        st.iframe(document(prompt, columns, edit, tools.link()), height=_HEIGHT_PX, alt=f"{prompt} {replies}. {edit}")


def document(prompt: str, columns: Sequence[Column], edit: str, link: str) -> str:
    """A page of its own that draws the card and saves it; it asks nobody for anything."""
    content = {"prompt": prompt, "edit": edit, "link": link, "columns": [asdict(one) for one in columns]}
    html, script = ((_FOLDER / f"share.{ending}").read_text(encoding="utf-8") for ending in ("html", "js"))
    data = json.dumps(content).replace("<", "\\u003c")  # no text ends the script that holds it
    return html.replace("__SCRIPT__", script).replace("__DATA__", data)
