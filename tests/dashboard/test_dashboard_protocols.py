"""Protocols: the part of a page, its figures, the section of the report; folders without these tables."""

import re
from functools import partial

import polars as pl
import pytest
from app_pages import above_figures, drawn_page, figures, warnings_of
from made_up_audit import write_audit
from synthetic import write_run

from dashboard.charts import believed
from dashboard.report.html_report import build
from dashboard.state import results
from engine.studies.protocols.protocol_claims import ALL, CONTESTED, OVERTURNED, UNDECIDED


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return write_audit(tmp_path)


page = partial(drawn_page, "believed", part="Protocols", more="true")


def test_the_order_of_selectors_and_what_overturns_it(folder):
    app = page()
    assert warnings_of(app) == []
    (order,) = figures(app)
    said = "Flip rate 50%: 1 of 2 orders of scores turns around under some protocol, 1 holds under all"
    assert above_figures(app) == [said]
    claims = pl.DataFrame({"claim_verdict": [OVERTURNED] * 2 + [CONTESTED, ALL, ALL] + [UNDECIDED] * 4})
    assert believed.protocol_heading(claims) == (
        "Flip rate 40%, perhaps 60%: 2 of 5 orders of scores turn around under some protocol, 2 hold under all"
    )
    nothing = claims.filter(claim_verdict=UNDECIDED)
    assert believed.protocol_heading(nothing) == "No protocol tells two scores apart"
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


def test_the_report_tells_claims_or_the_command(folder, tmp_path):
    said = build([folder])
    assert "Of 10 pairs of selectors, 1 stand in the same order under all 16 protocols" in said
    assert "<td>IG before Wanda</td><td>12 of 16</td><td>4</td>" in said.replace("\n", "")
    assert re.search(r"selector-audit analyze \S+ protocols", build([write_run(tmp_path / "bare")]))
