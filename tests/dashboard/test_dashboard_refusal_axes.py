"""The trade-off where benign refusal does not vary, and a picker that says what the page shows."""

from functools import partial

import polars as pl
import pytest
from app_pages import run_page
from synthetic_refusal import points, sweep, write_refusal_run

from dashboard.charts import refusal_trade_off as refusal_chart, refusal_values as refusals
from dashboard.charts.formats import LN10
from dashboard.state import shipped


def drawn(benign):
    cells = refusals.cells(sweep().with_columns(benign=pl.when(pl.col("benign").is_not_null()).then(benign)), points())
    kept = refusals.edited(cells).filter(pl.col("malign").is_not_null(), domain="hate")
    return kept, cells.filter(pl.col("k") == 0, domain="hate")


def test_equal_benign_rates_give_way_to_perplexity():
    part, unedited = drawn(pl.lit(0.0))
    assert refusal_chart.stacked(part)
    figure = refusal_chart.trade_off(part, unedited, part["id"][0], 0.1, "a")
    selectors = [trace for trace in figure.data if trace.name in ("LRP", "IG", "Random")]
    at = {mark[0]: (x, y, colour) for trace in selectors for mark, x, y, colour in
          zip(trace.customdata, trace.x, trace.y, trace.marker.color, strict=True)}  # fmt: skip
    assert set(at) == set(part["id"])
    for row in part.iter_rows(named=True):
        x, y, colour = at[row["id"]]
        assert (x, y) == (pytest.approx(row["nll"] / LN10), row["malign"])
        assert 10**colour == pytest.approx(row["k"])
    assert len({x for x, _, _ in at.values()}) > 1
    low, high = figure.layout.xaxis.range
    assert all(low <= x <= high for trace in figure.data for x in trace.x if x is not None)
    notes = [note.text for note in figure.layout.annotations]
    assert f"all {part.height} edits refuse 0.0% of harmless prompts" in notes
    assert not figure.layout.shapes  # no strip of a limit that this axis does not have
    bars = [trace for trace in figure.data if trace.error_y.array is not None]
    assert bars
    assert all(trace.error_x.array is None for trace in bars)


def test_the_marks_of_the_shipped_model_are_not_stacked():
    """Many edits refuse no base prompt, but not equally many risk prompts: few marks lie on one another."""
    folder = shipped.demo_results_dir()
    table = pl.read_parquet(folder / "refusal_sweep.parquet")
    part = refusals.edited(refusals.cells(table, None)).drop_nulls(["malign", "benign"])
    figure = refusal_chart.trade_off(part, part.clear(), part["id"][0], 0.1, "a")
    marks = [trace for trace in figure.data if trace.customdata is not None]
    places = [place for trace in marks for place in zip(trace.x, trace.y, strict=True)]
    most = max(places.count(x) for x in set(places))
    assert most <= 0.1 * len(places)


page = partial(run_page, "refusal")


def shown(app):
    """The cell in detail, as its heading says."""
    assert not app.exception
    return next(block.value for block in app.header if "λ" in block.value or "k " in block.value).replace("\\", "")


def picked(app):
    """What the picker says: the browser keeps what it showed unless it is told another value."""
    picker = app.selectbox(key="cell").proto
    return picker.raw_value if picker.set_value else None


@pytest.mark.parametrize("change", ["domain", "selectors", "source"])
def test_the_picker_says_the_cell_of_the_page_after_a_change(tmp_path, change):
    run = write_refusal_run(tmp_path / "run")
    app = page(source="My results", folder=run)
    app.selectbox(key="cell").set_value("lrp/hate/0.2/0.01").run()
    assert shown(app) == "LRP, hate, λ 0.2, k 1%"
    if change == "domain":
        app.selectbox(key="domain").set_value("crime").run()
    elif change == "selectors":
        app.pills(key="selectors").set_value(["ig"]).run()
    else:
        app.selectbox(key="source").set_value("Paper").run()
    assert shown(app) != "LRP, hate, λ 0.2, k 1%"
    assert picked(app) == shown(app)
