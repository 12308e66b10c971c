"""Single units: what the figure's heading says, and full, empty, partial and damaged tables."""

import math

import polars as pl
import pytest
from app_pages import above_figures, drawn_page, figures, warnings_of
from made_up_audit import singles as made_up, write_audit
from test_dashboard_sortable import shown

from dashboard.charts import single_effects as singles

PART = "Single units"


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    return write_audit(tmp_path_factory.mktemp("audit"))


def page(folder, **parameters):
    given = {"source": "My results", "folder": folder, "part": PART, "more": "true"}
    return drawn_page("believed", **{**given, **parameters})


def rows_of(kind="row"):
    return made_up()["singles_selectors"].filter(unit_kind=kind)


def changed(table, selector, **values):
    own = pl.col("selector") == selector
    return table.with_columns(
        pl.when(own).then(pl.lit(value, pl.Float64)).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )


# What the figure says


def test_a_mark_is_the_mean_over_seeds():
    found = singles.marks(rows_of(), "signed")
    assert found["selector"].to_list() == ["consensus2", "lrp", "ig", "wanda", "random"]
    random = found.row(-1, named=True)
    assert (random["single"], random["lerf_nll"], random["seeds"]) == (pytest.approx(0.0), pytest.approx(4.0), 3)
    assert singles.marks(rows_of(), "absolute")["single"].to_list() == pytest.approx([0.2, 0.6, 0.4, 0.3, 0.0])


@pytest.mark.parametrize(
    ("selector", "values", "said"),
    [
        ("wanda", {}, "Rulers disagree: LRP on single rows, IG on sets"),
        ("ig", {"signed_high": 0.75}, "LRP on single rows, IG on sets: not told apart"),
        ("ig", {"signed_high": None}, "LRP on single rows, IG on sets: not told apart"),
        ("lrp", {"lerf_nll": 2.0}, "LRP is best on single rows and on sets"),
        ("lrp", {"signed_low": -0.1}, "No ranking of single rows is told from chance"),
        ("ig", {"lerf_nll": math.nan}, "Rulers disagree: LRP on single rows, Consensus-2 on sets"),
    ],
)
def test_the_heading_is_made_of_the_numbers(selector, values, said):
    found = singles.marks(changed(rows_of(), selector, **values), "signed")
    assert singles.finding(found, "row") == said


def test_marks_stand_at_their_numbers_and_good_is_up():
    found = singles.marks(changed(rows_of(), "wanda", lerf_nll=math.inf), "signed")
    figure = singles.scatter(found, "h", "signed", "row")
    places = {trace.name: (trace.x[0], trace.y[0]) for trace in figure.data}
    assert "Wanda" not in places  # not finite: no mark
    assert places["LRP"] == (0.8, 2.6)
    lrp = next(trace for trace in figure.data if trace.name == "LRP")
    assert "0.800 (0.700 to 0.900)" in lrp.customdata[0]
    assert figure.layout.yaxis.autorange == "reversed"
    assert len({trace.marker.symbol for trace in figure.data}) == len(figure.data)


def test_the_full_part(audit):
    app = page(audit)
    assert warnings_of(app) == []
    (heading,) = above_figures(app)
    assert heading.startswith("Rulers disagree: LRP on single rows, IG on sets")
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert alts[0].startswith("Rulers disagree")
    assert "; LRP, Spearman 0.800 (" in alts[0]
    text = "\n".join(one.value for one in app.markdown)
    assert "**80 of 80 rows** were removed one by one" in text
    assert "helps in 25%** of cases (20% to 30%)" in text
    assert "have a larger one" not in text  # every row was measured
    numbers, behind = shown(app.dataframe[0]), app.dataframe[0].value
    of_rows = made_up()["singles_selectors"].filter(unit_kind="row")
    assert sorted(behind["Signed"]) == pytest.approx(sorted(of_rows["signed_spearman"]))
    assert sorted(behind["LeRF at 30% (nats)"]) == pytest.approx(sorted(of_rows["lerf_nll"]))
    assert {str(behind[name].dtype) for name in behind.columns[1:]} == {"float64"}  # sorted as numbers
    assert list(numbers["Selector"])[-1] == "Random (seed 44)"
    lrp = numbers[numbers["Selector"] == "LRP"].iloc[0]
    assert lrp["Signed"] == "0.80 (0.70 to 0.90)"
    assert lrp["LeRF at 30% (nats)"] == "2.6000"
    assert (lrp["top 1%: found"], lrp["top 10%: missed at most"]) == ("2 of 5", "92%")
    assert lrp["Sign agreement"].endswith("*")
    assert not numbers[numbers["Selector"] == "IG"].iloc[0]["Sign agreement"].endswith("*")
    assert len(app.get("download_button")) == 2
    assert any("made-up-1B" in block.proto.body for block in app.get("html"))


def test_other_units_and_absolute_effects_are_part_of_the_link(audit):
    app = page(audit, single_unit="Neurons", single_effects="Absolute")
    (scatter,) = figures(app)
    assert {trace["name"] for trace in scatter["data"]} == {"LRP", "IG"}
    assert "abs(effect), single neurons" in scatter["layout"]["xaxis"]["title"]["text"]
    assert warnings_of(app) == []


@pytest.mark.parametrize(("stem", "left"), [("singles_units", 1), ("singles_recall", 1), ("singles_selectors", 0)])
def test_a_damaged_table_leaves_the_rest(stem, left, tmp_path):
    folder = write_audit(tmp_path)
    (folder / f"{stem}.parquet").write_bytes(b"not what the manifest says")
    app = page(folder)
    (message,) = warnings_of(app)
    assert f"{stem}.parquet does not fit the checksum" in message
    assert len(figures(app)) == left
