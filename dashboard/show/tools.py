"""What every page shows in the same way: figures, the presentation switch, and the foot with link and downloads."""

from __future__ import annotations

import io
import re
from typing import Any
from urllib.parse import urlencode

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import figure_size
from dashboard.show import layout, selection

IMAGE_FORMATS = ("SVG", "PNG")
# All lengths of the page are in rem; its wide margins are of no use on a projector.
_LARGER = (
    f"<style>:root{{font-size:{16 * figure_size.PRESENTATION:g}px !important}}"
    "[data-testid=stMainBlockContainer]{padding-left:2rem;padding-right:2rem}</style>"
)


def presentation_switch() -> None:
    """In the sidebar of every page: larger type on the page and in its figures. Part of the link."""
    with st.sidebar:
        on = st.toggle(
            "Presentation", key="present", bind="query-params",
            help="Larger type on every page and in every figure, for a projector.",
        )  # fmt: skip
    if on:
        st.html(_LARGER)


def presenting() -> bool:
    """Is the presentation switch on?"""
    return bool(st.session_state.get("present"))


def show(
    figure: go.Figure, name: str, alt: str, *, key: str | None = None, clickable: bool = False
) -> list[dict[str, Any]]:
    """A figure at the place of the call; the camera saves it as `name`.

    alt: what it shows, for people who cannot see it. clickable: returns the clicked points (plotly's
    dictionaries); needs `key`.
    """
    figure_size.sized(figure, figure_size.PRESENTATION if presenting() else 1.0)
    image_format = selection.ahead("figure", IMAGE_FORMATS, IMAGE_FORMATS[0]).lower()
    shared: dict[str, Any] = {"config": layout.figure_config(name, image_format), "alt": alt, "key": key}
    if not clickable:
        st.plotly_chart(figure, **shared)
        return []
    state: Any = st.plotly_chart(figure, on_select="rerun", selection_mode="points", **shared)
    return list(state["selection"]["points"])


def clicked(key: str) -> list[dict[str, Any]]:
    """The points of a clickable figure that were clicked before this run, also above the figure itself."""
    state: Any = st.session_state.get(key)
    return list(state["selection"]["points"]) if state else []


def end(frame: pl.DataFrame | None, name: str, *lines: str) -> None:
    """Ends a page: link, downloads of `frame` (what is shown, exact), figure format, then `lines` of small print.

    name: of the downloaded files, without ending. lines: notes, then the provenance. None = nothing to download.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", key="page-end"):
        with st.popover("Copy link", icon=":material/link:"):
            st.caption("This page with everything chosen on it; the button in the corner copies it.")
            st.code(link(), language=None, wrap_lines=True)
        if frame is not None:
            download_csv("Download values (CSV)", frame, f"{name}.csv")
            st.download_button(
                "Download values (parquet)", _parquet(frame), file_name=f"{name}.parquet",
                mime="application/vnd.apache.parquet", on_click="ignore",
            )  # fmt: skip
        selection.switch(
            "Figure format", IMAGE_FORMATS, "figure", default=IMAGE_FORMATS[0], keep=True,
            help_text="The camera in the corner of a figure saves it in this format.",
        )  # fmt: skip
    layout.footnote(*lines)


def download_csv(label: str, frame: pl.DataFrame, name: str) -> None:
    """A button that saves a table, exact, and runs nothing again."""
    st.download_button(label, frame.write_csv(), file_name=name, mime="text/csv", on_click="ignore")


def file_name(model: str) -> str:
    """The last part of a model's name, for a downloaded file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rsplit("/", 1)[-1]) or "model"


def link() -> str:
    """The address of this page with all that is chosen on it."""
    chosen = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
    address = (st.context.url or "").split("?")[0]
    return f"{address}?{urlencode(chosen)}" if chosen else address


def _parquet(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
