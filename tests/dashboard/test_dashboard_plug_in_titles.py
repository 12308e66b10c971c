"""A plug-in selector goes by its title on pages and in the report, also where the plug-in is not installed."""

import json

import pytest
from app_pages import drawn_page

from dashboard.charts import palette
from dashboard.pages.rows import scored
from dashboard.report.html_report import build
from dashboard.state import results
from engine.cli import main
from engine.records.manifest import read_manifest
from engine.selectors.base import REGISTRY, register_selector


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch):
    """As a new process: no titles, no tables read."""
    monkeypatch.setattr(palette, "_TITLES", {})
    results.read_table.cache_clear()
    scored.read.cache_clear()


@pytest.fixture
def run(tiny_llama, tiny_text, tmp_path):
    """A results folder with the scores and curves of a plug-in that is gone afterwards."""

    @register_selector("row_length", title="Length of the row", data_free=True)
    class RowLength:
        def score(self, run):
            return run.per_layer(lambda linear: linear.weight.float().norm(dim=1))

    texts = ["--corpus", str(tiny_text), "--eval-corpus", str(tiny_text), "--samples", "2", "--max-length", "16"]
    short = [*texts, "--eval-samples", "2", "--eval-length", "16", "--rates", "0,30%"]
    where = ["--out", str(tmp_path / "runs" / "one"), "--store", str(tmp_path / "store"), "--json"]
    try:
        assert main(["sweep", tiny_llama.id, "--selectors", "row_length,magnitude", *short, *where]) == 0
    finally:
        REGISTRY.remove("row_length")
    return tmp_path / "runs" / "one"


def test_the_manifest_names_plug_ins_only(run):
    spec = read_manifest(run)["files"]["sweep.parquet"]["spec"]["scores"]
    assert spec["selector_titles"] == {"row_length": "Length of the row"}


def test_a_page_the_rows_and_the_report_say_the_title(run, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(run.parent))

    app = drawn_page("curves", source="My results")
    figure = json.loads(app.get("plotly_chart")[0].proto.spec)
    assert {"Length of the row", "Magnitude"} <= {trace["name"] for trace in figure["data"]}
    monkeypatch.setattr(palette, "_TITLES", {})
    assert scored.read(run).selectors == ["magnitude", "row_length"]
    assert palette.title("row_length") == "Length of the row"
    monkeypatch.setattr(palette, "_TITLES", {})
    assert '"name":"Length of the row"' in build([run])


def test_names_that_would_be_confused_keep_the_id():
    assert palette.title("own") == "own"
    palette.learn_titles({"own": "LRP", "second": "Twin", "third": "Twin", "lrp": "something else"})
    assert [palette.title(name) for name in ("own", "second", "third", "lrp")] == [
        "LRP (own)", "Twin (second)", "Twin (third)", "LRP",
    ]  # fmt: skip


@pytest.mark.parametrize("titles", [None, "x", ["own"], 3])
def test_what_is_no_list_of_titles_is_left_out(titles):
    results.learn_titles({"spec": {"selector_titles": titles, "scores": None}})
    assert palette.title("own") == "own"
