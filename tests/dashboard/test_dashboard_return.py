"""Who comes back to a page finds what was chosen on it."""

from streamlit.testing.v1 import AppTest


def script():
    import streamlit as st

    from dashboard.show import selection

    where = st.session_state.get("where", "one")
    selection.page = lambda: where
    if where == "nowhere":
        return
    selection.choose("Domain", ["hate", "crime", "legal"], "domain")
    selection.prompt("Prompt", "prompt", 100)


def at(app, where):
    app.session_state["where"] = where
    app.run()
    assert not app.exception


def test_settings_of_a_page_come_back_and_are_its_own(monkeypatch):
    from dashboard.show import selection

    monkeypatch.setattr(selection, "page", selection.page)  # put back afterwards
    app = AppTest.from_function(script, default_timeout=60).run()
    assert app.text_area(key="prompt").value == ""
    app.selectbox(key="domain").set_value("crime")
    app.text_area(key="prompt").set_value("my own words").run()
    at(app, "nowhere")
    at(app, "two")
    app.selectbox(key="domain").set_value("legal").run()
    at(app, "nowhere")
    at(app, "one")
    assert app.selectbox(key="domain").value == "crime"
    assert app.text_area(key="prompt").value == "my own words"
    at(app, "nowhere")
    at(app, "two")
    assert app.selectbox(key="domain").value == "legal"


def audit():
    import streamlit as st

    from dashboard.show import selection

    where = st.session_state.get("where", "one")
    selection.page = lambda: where
    keys = {"one": "rate", "two": "mask_rate", "three": "control_rate", "four": "own_rate"}
    rates = [0.1, 0.3] if where == "three" else [0.1, 0.3, 0.5]
    selection.rate(rates, keys[where], shared=None if where == "four" else "rate")


def test_a_rate_goes_along_from_page_to_page_whatever_its_key_is(monkeypatch):
    from dashboard.show import selection

    monkeypatch.setattr(selection, "page", selection.page)  # put back afterwards
    app = AppTest.from_function(audit, default_timeout=60).run()
    assert app.select_slider(key="rate").value == 0.3
    app.select_slider(key="rate").set_value(0.5).run()
    at(app, "two")
    assert app.select_slider(key="mask_rate").value == 0.5
    at(app, "three")  # which has no such rate, and does not make it forgotten
    assert app.select_slider(key="control_rate").value == 0.3
    at(app, "four")
    assert app.select_slider(key="own_rate").value == 0.3
    at(app, "two")
    assert app.select_slider(key="mask_rate").value == 0.5
    app.select_slider(key="mask_rate").set_value(0.1).run()
    at(app, "one")
    assert app.select_slider(key="rate").value == 0.1


def every_kind():
    import streamlit as st

    from dashboard.show import selection

    where = st.session_state.get("where", "one")
    selection.page = lambda: where
    if where == "nowhere" or st.session_state.get("left"):
        return
    selection.choose("Source", ["shipped", "mine"], "source", keep=True)
    selection.choose("Domain", ["hate", "crime", "legal"], "domain")
    selection.switch("Order", ["LeRF", "MoRF"], "order", default="LeRF")
    selection.choose_several("Selectors", ["LRP", "IG", "Random"], "selectors")
    selection.rate_range("Rates", [0.1, 0.3, 0.5], "rates", title=str)
    selection.rate([0.1, 0.3, 0.5], "rate")
    selection.toggle("Control", "control")
    selection.number("Row", 0, 9, "row", default=5)
    selection.text("Name", "name", default="an example")
    selection.prompt("Prompt", "prompt", 100)


def values(app):
    found = {
        one.key: one.value
        for one in (*app.selectbox, *app.select_slider, *app.toggle, *app.number_input, *app.text_input, *app.text_area)
    }
    return found | {one.key: one.value for one in app.get("button_group")}


def test_a_run_that_ends_before_its_widgets_does_not_lose_what_was_chosen(monkeypatch):
    """As it does where another page is opened right after the choice."""
    from dashboard.show import selection

    monkeypatch.setattr(selection, "page", selection.page)  # put back afterwards
    app = AppTest.from_function(every_kind, default_timeout=60).run()
    first = values(app)
    app.selectbox(key="source").set_value("mine")
    app.selectbox(key="domain").set_value("legal")
    app.button_group(key="order").set_value("MoRF")
    app.button_group(key="selectors").set_value(["LRP", "IG"])
    app.select_slider(key="rates").set_range(0.1, 0.3)
    app.select_slider(key="rate").set_value(0.5)
    app.toggle(key="control").set_value(True)
    app.number_input(key="row").set_value(7)
    app.text_input(key="name").set_value("  mine ")
    app.text_area(key="prompt").set_value("my own words")
    app.session_state["left"] = True
    app.run()
    app.session_state["left"] = False
    at(app, "nowhere")
    app.query_params.clear()  # as in the browser, where another page has neither its settings nor its widgets
    for key in first:
        del app.session_state[key]
    at(app, "one")
    chosen = {
        "source": "mine", "domain": "legal", "order": "MoRF", "selectors": ["LRP", "IG"], "rates": (0.1, 0.3),
        "rate": 0.5, "control": True, "row": 7, "name": "mine", "prompt": "my own words",
    }  # fmt: skip
    assert values(app) == chosen
    assert not [key for key, value in chosen.items() if first[key] == value]


def test_what_is_in_the_address_is_made_by_a_widget_that_comes_back():
    """Streamlit's own widgets forget what they were at when their page is left."""
    import ast
    from pathlib import Path

    import dashboard

    found = []
    pages = Path(dashboard.__file__).parent / "pages"
    for path in sorted(pages.rglob("*.py")):
        if path.parent.name in ("rows", "runs"):  # also a place in a list, which begins anew
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and any(one.arg == "bind" for one in node.keywords):
                found.append((path.parent.name, ast.unparse(node.func)))
    assert found == []
