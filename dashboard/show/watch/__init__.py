"""Watch it break, in the browser: plays what `charts.watch` computed, without a request and without a rerun."""

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

_FOLDER = Path(__file__).parent


@cache
def _component() -> Any:
    html, css, js = ((_FOLDER / f"watch.{ending}").read_text(encoding="utf-8") for ending in ("html", "css", "js"))
    return st.components.v2.component("selector_audit_watch", html=html, css=css, js=js)


def play(data: dict[str, Any], key: str) -> None:
    """The stage, at the place of the call. data: of `charts.watch.payload`."""
    _component()(data=data, key=key)
