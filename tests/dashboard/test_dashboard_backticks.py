"""Commands stand as code or in quotation marks: nowhere on a page do people see a backtick."""

import json
import re

import polars as pl
import pytest
from app_pages import run_page
from made_up_audit import write_audit
from synthetic import add_table

from engine.results.tables import spec

MARKDOWN = ("markdown", "caption", "info", "warning", "error", "success")
PAGES = ("overview", "curves", "where", "believed", "tasks", "refusal")
PARTS = ("Exact controls", "Verdict", "Single units", "Second domain", "Protocols")
CASES = [*((name, {}) for name in PAGES), *(("believed", {"part": part, "more": "true"}) for part in PARTS)]
CASES.append(("reference", {"document": "Paper tables"}))


def strings(value):
    """Every text inside of a figure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from strings(one)


def seen(app):
    """What people see with a backtick in it: where there is no markdown, and where markdown escapes it."""
    assert not app.exception
    found = [block.value for block in app.text]
    for element in app.dataframe:
        found += element.value.columns.to_list()
        for _, column in element.value.items():
            found += [cell for cell in column if isinstance(cell, str)]
    for chart in app.get("plotly_chart"):
        found += strings(json.loads(chart.proto.spec)["data"])
        found += strings(json.loads(chart.proto.spec)["layout"])
    found += [re.sub("<code>.*?</code>", "", block.proto.body, flags=re.DOTALL) for block in app.get("html")]
    found += [metric.value for metric in app.metric]
    shown = [text for text in found if "`" in text and "<style>" not in text and "<script>" not in text]
    return shown + [block.value for kind in MARKDOWN for block in app.get(kind) if "\\`" in block.value]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Verdicts of an earlier version, whose reasons name a command."""
    folder = write_audit(tmp_path_factory.mktemp("earlier"))
    old = pl.read_parquet(folder / "verdicts.parquet").select(list(spec("verdicts").schema()))
    add_table(folder, "verdicts", old)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(("name", "more"), CASES)
@pytest.mark.parametrize("source", ["Shipped model", "My results", "Paper"])
def test_no_page_shows_a_backtick(earlier, tmp_path, name, more, source):
    assert seen(run_page(name, source=source, folder=earlier, **more)) == []
    if source == "My results":
        assert seen(run_page(name, source=source, folder=tmp_path, **more)) == []
