"""Every page has a title of its own in the browser's tab, and one heading of the first order."""

from pathlib import Path

import pytest
import streamlit as st
from app_pages import run_page
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
H1 = {
    "overview": "Which importance scores can you trust?", "learn": "Learn", "curves": "Curves",
    "where": "Where and who", "believed": "Can it be believed", "tasks": "Tasks", "refusal": "Refusal",
    "live": "Live edit", "rows": "Rows", "runs": "Runs", "reference": "Reference",
}  # fmt: skip


@pytest.fixture
def pages(monkeypatch):
    """The pages of the app; asked for one by its number, the app opens it, without drawing it."""
    found, told = [], []

    def navigation(groups, **_):
        found[:] = [page for pages in groups.values() for page in pages]
        page = found[st.session_state["nth"]]
        page.run = lambda: None
        return page

    monkeypatch.setattr(st, "navigation", navigation)
    monkeypatch.setattr(st, "set_page_config", lambda page_title, **_: told.append(page_title))
    return found, told


def test_every_page_has_a_browser_title_of_its_own(pages):
    found, told = pages
    app = AppTest.from_file(str(APP), default_timeout=60)
    for nth in range(len(H1)):
        app.session_state["nth"] = nth
        app.run()
        assert not app.exception
        assert told[-1] == f"{found[nth].title} · Selector Audit"
    assert len(found) == len(H1)
    assert len(set(told)) == len(H1)


@pytest.mark.long
@pytest.mark.parametrize("name", H1)
def test_every_page_has_one_heading_of_the_first_order(name):
    app = run_page(name)
    assert not app.exception
    assert [title.value for title in app.title] == [H1[name]]
    written = [block.value for block in app.markdown] + [block.proto.body for block in app.get("html")]
    assert not [text for text in written if text.startswith("# ") or "\n# " in text or "<h1" in text]


FOLDER = "/home/somebody/models/made-up-1B"


@pytest.fixture(scope="module")
def of_a_local_model(tmp_path_factory):
    """A full run of a model in a folder, whose tables have its whole path, as earlier versions wrote it."""
    from unittest.mock import patch

    import made_up_audit
    import synthetic

    with patch.dict(synthetic.MODEL, {"id": FOLDER, "revision": ""}), patch.object(made_up_audit, "NAME", FOLDER):
        return made_up_audit.write_audit(tmp_path_factory.mktemp("run"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("overview", ""), ("curves", ""), ("where", "Agreement"), ("where", "Depth"), ("believed", "Verdict"),
        ("believed", "Stability"), ("believed", "Controls"), ("tasks", ""), ("rows", ""),
    ],
)  # fmt: skip
def test_no_page_shows_where_a_model_lies(of_a_local_model, name, part):
    app = run_page(name, source="My results", folder=of_a_local_model, part=part)
    assert not app.exception
    assert not app.warning
    kinds = ("title", "header", "subheader", "markdown", "caption", "text", "info")
    shown = [block.value for kind in kinds for block in app.get(kind)]
    shown += [block.proto.body for block in app.get("html")]
    shown += [chart.proto.alt + chart.proto.spec for chart in app.get("plotly_chart")]
    shown += [element.value.to_csv() for element in app.dataframe]
    shown += [option for box in app.selectbox for option in box.options]
    assert any("made-up-1B" in text.replace("\\", "") for text in shown)
    assert [text for text in shown if "somebody/" in text] == []
