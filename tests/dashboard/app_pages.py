"""A page of the app in Streamlit's own test harness, without a browser."""

import html
import json
import re
from html.parser import HTMLParser

from streamlit.testing.v1 import AppTest


def run_page(name, **parameters):
    """The page of this name after one run, with these settings in its address."""

    def script(name):
        from importlib import import_module

        import_module(f"dashboard.pages.{name}.{name}_page").render()

    app = AppTest.from_function(script, args=(name,), default_timeout=120)
    for key, value in parameters.items():
        app.query_params[key] = [str(one) for one in value] if isinstance(value, list) else str(value)
    return app.run()


def drawn_page(name, **parameters):
    """The same, of a page that must not fail."""
    app = run_page(name, **parameters)
    assert not app.exception
    return app


def run_live_edit(folder, **parameters):
    """Live edit of the model in a folder, before anything is asked of it."""
    settings = {
        "edit_model": "Another model", "edit_model_id": folder, "mode": "Remove by rate", "rank_selector": "Magnitude",
        "length": "20", "control": "false",
    }  # fmt: skip
    return run_page("live", **{**settings, **parameters})


def warnings_of(app):
    """Of a page that must not fail."""
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]


def shown_command(app):
    """The first command on the page; the menu Export has the page's address."""
    return next(block.value for block in app.code if block.value.startswith("selector-audit "))


def captions(app):
    return " ".join(caption.value for caption in app.caption).replace("\\", "")


def figures(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


class _Texts(HTMLParser):
    """What stands in elements of one class, without what is small beside it."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted, self.found, self.inside, self.small = wanted, [], 0, 0

    def handle_starttag(self, tag, attributes):
        classes = (dict(attributes).get("class") or "").split()
        if self.inside:
            self.inside += 1
            self.small += bool(self.small) or "sa-small" in classes
        elif self.wanted in classes:
            self.inside = 1
            self.found.append("")

    def handle_endtag(self, tag):
        self.inside -= bool(self.inside)
        self.small -= bool(self.small)

    def handle_data(self, text):
        if self.inside and not self.small:
            self.found[-1] += text


def texts(markup, name):
    """The text of every element of this class."""
    reader = _Texts(name)
    reader.feed(markup)
    return reader.found


def told(app, name):
    """The same of all HTML on the page, in its order."""
    return [text for element in app.get("html") for text in texts(element.proto.body, name)]


def replies(app):
    """The text in each card of Live edit, letter by letter."""
    return told(app, "sa-reply")


def stamps(app):
    """The word on each card that has one."""
    return [stamp.split(" ", 1)[1] for stamp in told(app, "sa-stamp")]


def above_figures(app):
    """The sentences that stand above the page's first figures."""
    found = [re.search('<div class="finding"><h2>(.*?)</h2>', block.proto.body) for block in app.get("html")]
    return [html.unescape(one[1]) for one in found if one]


def select(app, element, **selection):
    """Chooses rows, cells or points in a table or figure, as the browser tells it, and runs the page."""
    states = app._tree.get_widget_states()  # AppTest has no click for these
    state = states.widgets.add()
    state.id, state.string_value = element.proto.id, json.dumps({"selection": selection})
    return app._run(states)
