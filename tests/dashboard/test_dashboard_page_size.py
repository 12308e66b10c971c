"""Every part of the merged pages is small: before its fold at most 30 controls and 250 words of our own."""

import re

import pytest
from app_pages import drawn_page

from dashboard.pages.believed.believed_page import PARTS as BELIEVED
from dashboard.pages.refusal.refusal_page import PARTS as REFUSAL
from dashboard.pages.where.where_page import PARTS as WHERE

MOST_CONTROLS, MOST_WORDS = 30, 250
WORDS = {"title", "header", "subheader", "markdown", "caption", "text", "info", "warning", "html"}
OF_MANY = {"button_group", "segmented_control", "pills"}  # each of their options is a control
QUIET = {"plotly_chart", "dataframe", "metric", "code", "iframe"}
PLACES = [
    *(("where", "part", part) for part in WHERE),
    *(("believed", "part", part) for part in BELIEVED),
    ("tasks", "part", ""),
    *(("refusal", "section", part) for part in REFUSAL),
]


def before_the_fold(block):
    """What stands before it, in the order of the page; what other folds hold is closed."""
    for child in block.children.values():
        label = getattr(child, "label", None)
        if label == "More":
            return
        if child.type == "popover":  # closed, the menu Export
            continue
        if hasattr(child, "children") and label is None:
            yield from before_the_fold(child)
        else:
            yield child


def words(element):
    """Of our own: kept replies are results."""
    text = element.proto.body if element.type == "html" else element.value
    return [] if 'class="sa-kept"' in text else re.findall(r"\w[\w.,%'’-]*", re.sub("<[^>]*>", " ", text))


@pytest.mark.first_run("Edits|Verdict|Agreement|tasks|Replies|rows are")
@pytest.mark.parametrize(("name", "key", "part"), PLACES)
def test_before_its_fold(name, key, part):
    shown = list(before_the_fold(drawn_page(name, **{key: part}).main))
    told = [one for one in shown if one.type in WORDS and (part, one.type) != ("Replies", "text")]  # its prompts
    controls = sum(len(one.options) if one.type in OF_MANY else 1 for one in shown if one.type not in WORDS | QUIET)
    assert controls <= MOST_CONTROLS
    assert 10 < sum(len(words(one)) for one in told) <= MOST_WORDS
