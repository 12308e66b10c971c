"""Figures for papers: the figures of a page at the width of a column, saved by the browser as SVG, PNG or PDF."""

import base64
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
from plotly.offline import get_plotlyjs

from dashboard.charts import figure_size, palette
from dashboard.show import selection

_FOLDER = Path(__file__).parent
_KEY, _SHOWN, _MODEL = "paper-figures", "figures-of-this-run", "model-of-this-page"  # session state
_SOME = "a-figure-in-this-run"
WIDTHS_IN = (3.25, 6.75)  # one column, two columns
CSS_PX = 96  # per inch, by the definition of CSS
TYPE_PT, CAPTION_PT = 8, 7
FONT = "Source Sans for figures, Arial, Liberation Sans, Helvetica, sans-serif"
_TOP_PX = 12
_ROOM_PX = 260  # below the figure: its caption and the buttons


def remember(figure: go.Figure, name: str, said: str) -> None:
    """Keeps a figure of this run, its type not yet sized for the screen, and its caption's first sentences for `offer`,
    where figures for papers are wanted."""
    st.session_state[_SOME] = True
    if st.session_state.get(_KEY):
        st.session_state.setdefault(_SHOWN, {})[name] = (go.Figure(figure), said)


def some() -> bool:
    """Has this run shown a figure since this was last asked?"""
    asked = bool(st.session_state.pop(_SOME, False))
    if not asked and _KEY in st.session_state:
        st.session_state[_KEY] = st.session_state[_KEY]  # a switch that is not drawn would be forgotten
    return asked


def about(model: str) -> None:
    """Tells which model this page shows, for captions that do not say so, as those of published values."""
    st.session_state[_MODEL] = (selection.page(), model)


def wanted() -> bool:
    """The switch; whether `offer` is to follow. (The camera above a figure saves it as SVG as it is.)"""
    help_text = "At the end of the page: 3.25 or 6.75 inches wide, with a caption, as SVG, PNG (600 dpi) or PDF."
    return st.toggle("Figures for papers, below", key=_KEY, help=help_text)


def offer(lines: Sequence[str]) -> None:
    """One figure of the page with its caption. lines: notes and provenance for the caption."""
    shown: dict[str, tuple[go.Figure, str]] = st.session_state.pop(_SHOWN, {})
    where, model = st.session_state.pop(_MODEL, ("", ""))
    named = where == selection.page() and model and not any(model in one for one in lines)
    with st.container(horizontal=True):
        name = selection.choose("Figure", list(shown), "paper_figure")
        width_in = selection.switch("Width", WIDTHS_IN, "paper_width", default=WIDTHS_IN[0], title="{:g} in".format)
    figure, said = shown[name]
    drawn = for_paper(figure, width_in)
    caption = " ".join(filter(None, (said, f"Model {model}." if named else "", *lines))).replace("`", "")
    page, height = document(drawn, f"{name}-{width_in:g}in", caption), round(drawn.layout.height or 450) + _ROOM_PX
    st.iframe(page, height=height, alt=f"The figure {name} for a paper. {caption}")


def document(figure: go.Figure, name: str, caption: str) -> str:
    """A page of its own that draws the figure with its caption below and saves both in one image; it asks nobody for
    anything. figure: of `for_paper`."""
    drawing = {
        "figure": json.loads(figure.to_json()), "name": name, "caption": caption, "font": _font(),
        "family": FONT, "caption_px": CAPTION_PT * CSS_PX / 72,
        "css_px": CSS_PX,
    }  # fmt: skip
    html, script = ((_FOLDER / f"paper.{ending}").read_text(encoding="utf-8") for ending in ("html", "js"))
    data = json.dumps(drawing).replace("<", "\\u003c")  # no text ends the script that holds it
    return html.replace("__SCRIPT__", script).replace("__PLOTLY__", get_plotlyjs()).replace("__DATA__", data)


@cache
def _font() -> str:
    """Streamlit's own typeface (SIL Open Font License) to be written into each image, base64; empty where its files
    lie elsewhere: then the image names a common one."""
    folder = Path(st.__file__).parent / "static" / "static" / "media"
    files = sorted(folder.glob("SourceSans*Upright*.woff2"))
    return base64.b64encode(files[0].read_bytes()).decode() if files else ""


def for_paper(figure: go.Figure, width_in: float) -> go.Figure:
    """A copy, light whatever the page's theme is, with its title taken away. The height is that of the page's figure
    without the title, all of it scaled to type of `TYPE_PT` points; the browser adds what a long legend needs."""
    drawn = go.Figure(figure)
    layout = drawn.layout
    if layout.height and layout.margin.t:
        layout.height -= max(layout.margin.t - _TOP_PX, 0)
        layout.margin.t = min(layout.margin.t, _TOP_PX)
    layout.title = {"text": ""}
    figure_size.sized(drawn, TYPE_PT * CSS_PX / 72 / figure_size.BASE_PX)
    drawn.update_layout(
        template="plotly_white", width=round(width_in * CSS_PX), paper_bgcolor="white", plot_bgcolor="white",
        font={"family": FONT, "color": "black"}, hovermode=False, legend={"tracegroupgap": 0},
    )  # fmt: skip
    for note in layout.annotations:
        if note.font.color == palette.REFERENCE:  # 3.9:1 on white
            note.font.color = palette.TEXT_ON_LIGHT
    return drawn
