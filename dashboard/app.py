"""Entry point of the browser app: page settings and navigation. `serve.py` starts it."""

from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from dashboard.chat import live
from dashboard.pages.believed import believed_page as believed
from dashboard.pages.curves import curves_page as curves
from dashboard.pages.learn import learn_page as learn
from dashboard.pages.live import live_page as live_edit
from dashboard.pages.overview import overview_page as overview
from dashboard.pages.reference import reference_page as reference
from dashboard.pages.refusal import refusal_page as refusal
from dashboard.pages.rows import rows_page as rows
from dashboard.pages.runs import runs_page as runs
from dashboard.pages.tasks import tasks_page as tasks
from dashboard.pages.where import where_page as where
from dashboard.show import layout, menu, stage
from dashboard.state import offers

# Six destinations, each with the pages that stand above one another's. A page is one folder in `pages/` and one line
# here: its render function, its title, its path.
PAGES: dict[str, list[Page]] = {
    "Story": [
        st.Page(overview.render, title="Overview", default=True),
        st.Page(learn.render, title="Learn", url_path="learn"),
    ],
    "Audit": [
        st.Page(curves.render, title="Curves", url_path="curves"),
        st.Page(where.render, title="Where and who", url_path="where"),
        st.Page(believed.render, title="Can it be believed", url_path="believed"),
        st.Page(tasks.render, title="Tasks", url_path="tasks"),
    ],
    "Refusal": [st.Page(refusal.render, title="Refusal", url_path="refusal")],
    "Playground": [
        st.Page(live_edit.render, title="Live edit", url_path="live"),
        st.Page(rows.render, title="Rows", url_path="rows"),
    ],
    "Runs": [st.Page(runs.render, title="Runs", url_path="runs")],
    "Reference": [st.Page(reference.render, title="Reference", url_path="reference")],
}

_HERE = Path(__file__).parent
SIDEBAR_PX = 240

page = st.navigation(PAGES, position="hidden")
# The icon is a local file: named ones are fetched from a font host.
st.set_page_config(
    page_title=f"{page.title} · Selector Audit", page_icon=str(_HERE / "favicon.svg"), layout="wide",
    initial_sidebar_state="collapsed" if stage.on() else SIDEBAR_PX,
)  # fmt: skip
st.logo(str(_HERE / "wordmark.svg"), icon_image=str(_HERE / "favicon.svg"), size="large")
menu.show(PAGES, page)
stage.switch()
stage.controls(PAGES, page)
offers.compare()
with layout.survived():
    page.run()
live.first_page_shown.set()
