"""Protocols: the part of a page, its figures, the section of the report; folders without these tables."""

import json
import math
import re
from functools import partial

import polars as pl
import pytest
from app_pages import above_figures, drawn_page
from made_up_audit import protocols as made_up, write_audit
from synthetic import write_run

from dashboard.charts import protocols
from dashboard.report.report import build
from dashboard.state import results


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return write_audit(tmp_path)


page = partial(drawn_page, "believed", part="Protocols", more="true")


def figures(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def told(app):
    return [warning.value.replace("\\", "") for warning in app.warning]


def test_the_order_of_selectors_and_what_overturns_it(folder):
    app = page()
    assert told(app) == []
    order, _ = figures(app)
    assert above_figures(app) == ["1 of 10 orders holds under every protocol; 1 turns around under some"]
    names = order["layout"]["yaxis"]["ticktext"]
    shares = order["data"][0]["z"]
    lrp, ig, wanda = (names.index(name) for name in ("LRP", "IG", "Wanda"))
    assert (shares[lrp][wanda], shares[wanda][lrp]) == (1.0, 0.0)
    assert (shares[ig][wanda], shares[wanda][ig]) == (0.75, 0.25)
    assert shares[lrp][lrp] is None
    lines = app.dataframe[0].value.to_dict("records")
    assert [(line["Claim"], line["Verdict"]) for line in lines[:2]] == [
        ("LRP before Wanda", "holds under all"), ("IG before Wanda", "turns around under some"),
    ]  # fmt: skip
    assert [lines[1][name] for name in ("Protocols that agree", "The other way round", "No difference")] == [12, 4, 0]
    assert lines[1]["The other way round under"].startswith("zero heads, NLL, MoRF 30%; ")
    assert {line["Verdict"] for line in lines[2:]} == {"no difference seen"}
    said = " ".join(block.value for block in app.markdown).replace("\\", "")
    assert "Of 10 pairs of selectors, 1 stand in the same order under all 16 protocols" in said
    captions = " ".join(block.value for block in app.caption).replace("\\", "")
    assert "The model has 80 rows, 0 neurons (no MLP of gate_proj), 4 heads." in captions


def test_areas_with_their_intervals(folder):
    _, areas = figures(page(protocol_unit="Heads"))
    assert areas["layout"]["title"]["text"].split("<br>")[0] == "Largest area: LRP (zero), IG (mean)"
    marks = {one["name"]: one for one in areas["data"] if len(one["x"]) > 1}
    names = areas["layout"]["yaxis"]["ticktext"]
    assert dict(zip(names, marks["mean"]["x"], strict=True)) == {
        "LRP": 2.0, "IG": 2.5, "Consensus-2": 1.0, "Wanda": 0.5, "Random": 0.0,
    }  # fmt: skip
    unknown = page(protocol_metric="KL to the unedited model")
    assert len(figures(unknown)) == 1
    assert [box.value for box in unknown.info] == [
        "No area can be told here: without random, or where random removal does no harm."
    ]


def test_a_broken_models_area_has_no_mark(folder):
    table = made_up()["protocols_areas"].with_columns(
        area=pl.when(selector="ig").then(math.nan).otherwise("area"), area_low=None, area_high=None
    )
    own = table.filter(unit_kind="row", metric="nll").with_columns(pl.col("area_low", "area_high").cast(pl.Float64))
    assert protocols.best(own) == [("zero", "lrp"), ("mean", "lrp")]
    drawn = protocols.areas(own, "", "")
    assert drawn.data[0].x[list(drawn.layout.yaxis.ticktext).index("IG")] is None
    assert protocols.area_text({"area": -1.0, "area_low": None, "area_high": None}) == "−1.00"


def test_the_report_tells_claims_or_the_command(folder, tmp_path):
    said = build([folder])
    assert "Of 10 pairs of selectors, 1 stand in the same order under all 16 protocols" in said
    assert "<td>IG before Wanda</td><td>12 of 16</td><td>4</td>" in said.replace("\n", "")
    assert re.search(r"selector-audit analyze \S+ protocols", build([write_run(tmp_path / "bare")]))
