"""Entry point of the browser app: page settings and navigation. `serve.py` starts it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from dashboard.chat import live
from dashboard.pages.agreement import page as agreement
from dashboard.pages.controls import page as controls
from dashboard.pages.curves import page as curves
from dashboard.pages.depth import page as depth
from dashboard.pages.downstream import page as downstream
from dashboard.pages.judges import page as judges
from dashboard.pages.learn import page as learn
from dashboard.pages.live import page as live_edit
from dashboard.pages.overview import page as overview
from dashboard.pages.reference import page as reference
from dashboard.pages.refusal import page as refusal
from dashboard.pages.rows import page as rows
from dashboard.pages.runs import page as runs
from dashboard.pages.stability import page as stability
from dashboard.show import layout, menu, stage
from dashboard.state import basket

# Six destinations, each with the pages that stand above one another's. A page is one folder in `pages/` and one line
# here: its render function, its title, its path.
PAGES: dict[str, list[Page]] = {
    "Story": [
        st.Page(overview.render, title="Overview", default=True),
        st.Page(learn.render, title="Learn", url_path="learn"),
    ],
    "Audit": [
        st.Page(curves.render, title="Curves", url_path="curves"),
        st.Page(agreement.render, title="Agreement", url_path="agreement"),
        st.Page(depth.render, title="Depth", url_path="depth"),
        st.Page(stability.render, title="Stability", url_path="stability"),
        st.Page(controls.render, title="Controls", url_path="controls"),
        st.Page(downstream.render, title="Downstream", url_path="downstream"),
    ],
    "Refusal": [
        st.Page(refusal.render, title="Refusal", url_path="refusal"),
        st.Page(judges.render, title="Judges", url_path="judges"),
    ],
    "Playground": [
        st.Page(live_edit.render, title="Live edit", url_path="live"),
        st.Page(rows.render, title="Rows", url_path="rows"),
    ],
    "Runs": [st.Page(runs.render, title="Runs", url_path="runs")],
    "Reference": [st.Page(reference.render, title="Reference", url_path="reference")],
}
MOVED = {"paper": "Paper tables", "methods": "Methods"}  # addresses of earlier versions -> what Reference has of them

_HERE = Path(__file__).parent
SIDEBAR_PX = 240

moved = [st.Page(lambda: None, title=path, url_path=path, visibility="hidden") for path in MOVED]
page = st.navigation({**PAGES, "": moved}, position="hidden")
if page.url_path in MOVED:
    kept = {key: st.query_params.get_all(key) for key in st.query_params}
    st.switch_page(PAGES["Reference"][0], query_params=kept | {"document": MOVED[page.url_path]})
# The icon is a local file: named ones are fetched from a font host.
st.set_page_config(
    page_title=f"{page.title} · Selector Audit", page_icon=str(_HERE / "favicon.svg"), layout="wide",
    initial_sidebar_state="collapsed" if stage.on() else SIDEBAR_PX,
)  # fmt: skip
st.logo(str(_HERE / "wordmark.svg"), icon_image=str(_HERE / "favicon.svg"), size="large")
menu.show(PAGES, page)
stage.switch()
stage.controls(PAGES, page)
basket.show()
with layout.survived():
    page.run()
live.first_page_shown.set()
