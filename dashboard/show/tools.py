"""What every page shows in the same way: figures, the menu Export, notes at the foot."""

import io
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import urlencode

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from dashboard.charts import figure_size, in_words, line_ends
from dashboard.charts.findings import finding_words as words
from dashboard.show import layout, paper, stage

Content = TypeVar("Content", str, bytes)
AT_ONCE_CELLS = 50_000  # of a table whose downloads are made with the page, in some 10 ms


def show(
    figure: go.Figure, name: str, *, key: str | None = None, clickable: bool = False, brush: bool = False,
    finding: str = "", below: str | None = None, hero: bool = False,
) -> list[dict[str, Any]]:  # fmt: skip
    """A figure at the place of the call, in words (`in_words`) for who cannot see it; the camera saves it as `name`.
    clickable: returns the clicked points (plotly's dictionaries); needs `key`. brush: clickable, and a drag over the
    figure chooses the points in its box. finding: a sentence in the place of the title; below: how to read the figure,
    None for what stands there. hero: in the place of the page's first figure, with both above it on the page."""
    top = figure.layout.margin.t or 0
    staged = stage.on()
    if finding:
        letters = (words.TITLE_LETTERS, words.BELOW_LETTERS) if not staged else words.STAGE_LETTERS
        words.headed(figure, finding, below, *letters)
    figure = in_words.as_text(figure)
    title, small = in_words.headings(figure)
    alt = in_words.described(figure)
    paper.remember(figure, name, " ".join(f"{one}." for one in (title, small) if one))
    if hero:
        layout.finding(title, small)
        figure_size.stretchable(figure, top, low=staged)
    if staged:
        figure_size.sized(figure, figure_size.STAGE, figure_size.STAGE_LEAST_PX)
        line_ends.labelled(figure, figure_size.STAGE_LEAST_PX)
    else:
        figure_size.sized(figure)
        if hero:
            line_ends.labelled(figure, figure_size.BASE_PX)
    shared: dict[str, Any] = {"config": layout.figure_config(name), "alt": alt, "key": key}
    if not (clickable or brush):
        st.plotly_chart(figure, **shared)
        return []
    if brush:
        figure.update_layout(dragmode="select")
    modes: Any = ("points", "box") if brush else ("points",)
    state: Any = st.plotly_chart(figure, on_select="rerun", selection_mode=modes, **shared)
    return list(state["selection"]["points"])


def say_not_finite(*values: pl.Series) -> None:
    """How many values have no mark, if there are any."""
    count = sum(len(column) - int(column.is_finite().sum()) for column in values)
    if count:
        st.caption(f"{count} value(s) are missing or not finite and have no mark.")


def clicked(key: str) -> list[dict[str, Any]]:
    """The points of a clickable figure that were clicked before this run, also above the figure itself."""
    state: Any = st.session_state.get(key)
    return list(state["selection"]["points"]) if state else []


def end(frame: pl.DataFrame | None, name: str, *notes: str, provenance: Iterable[str] = ()) -> None:
    """Ends a page: the menu Export beside its heading, with link, downloads of `frame` (what is shown, exact; None =
    nothing), figures for papers and where the numbers come from; below the page its notes.
    name: of the downloaded files, without ending."""
    origin = list(dict.fromkeys(provenance))
    with layout.export_place(), st.popover("Export", icon=":material/ios_share:"):
        layout.footnote("This page with everything chosen on it; the button in the corner copies it.")
        st.code(link(), language=None, wrap_lines=True)
        if frame is not None:
            layout.footnote("The values that are shown, exact.")
            with st.container(horizontal=True):
                download_csv("CSV", frame, f"{name}.csv")
                st.download_button(
                    "Parquet", _made(frame, lambda: _parquet(frame)), file_name=f"{name}.parquet",
                    mime="application/vnd.apache.parquet", on_click="ignore",
                )  # fmt: skip
        figures = paper.some() and paper.wanted()
        if origin:
            layout.footnote("Where the numbers come from:", *origin)
    if figures:
        paper.offer([*notes, *origin])
    layout.footnote(*notes)


def download_csv(label: str, frame: pl.DataFrame, name: str) -> None:
    """A button that saves a table, exact, and runs nothing again."""
    st.download_button(label, _made(frame, frame.write_csv), file_name=name, mime="text/csv", on_click="ignore")


def _made(frame: pl.DataFrame, make: Callable[[], Content]) -> Content | Callable[[], Content]:
    """The content of a file; of a large table how to make it, which is done when somebody asks for it."""
    return make if frame.height * frame.width > AT_ONCE_CELLS else make()


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
