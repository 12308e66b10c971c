"""The trade-off of one selector, and a picker that says what the page shows."""

import random
from functools import partial

import polars as pl
import pytest
from app_pages import run_page
from synthetic_refusal import write_refusal_run

from dashboard.charts import refusal_trade_off as refusal_chart, refusal_values as refusals
from dashboard.pages.refusal import edit_grid
from dashboard.state import shipped


@pytest.mark.parametrize("seed", range(3))
def test_the_frontier_is_the_cells_that_no_cheaper_one_equals(seed):
    draw = random.Random(seed)
    rows = [(draw.randrange(9) / 9, draw.randrange(12) / 9, draw.random() < 0.7) for _ in range(40)]
    cells = pl.DataFrame(rows, schema=["malign", "nll", "feasible"], orient="row")
    by_hand = {
        (malign, nll) for malign, nll, feasible in rows
        if feasible and not any(f and n <= nll and m >= malign and (m, n) != (malign, nll) for m, n, f in rows)
    }  # fmt: skip
    best = refusal_chart.frontier(cells)
    assert {row[:2] for row in best.rows()} == by_hand
    assert best["malign"].is_sorted()


def test_few_marks_of_the_shipped_model_lie_on_one_another():
    """Edits of one selector and domain differ in perplexity, though many refuse no harmless prompt."""
    folder = shipped.demo_results_dir()
    cells = refusals.cells(pl.read_parquet(folder / "refusal_sweep.parquet"), None)
    for (_, _), part in refusals.edited(cells).drop_nulls(["malign", "benign"]).group_by("selector", "domain"):
        figure = refusal_chart.trade_off(part, part.clear(), part["id"][0], 0.1, "a")
        marks = [trace for trace in figure.data if trace.customdata is not None]
        places = [place for trace in marks for place in zip(trace.x, trace.y, strict=True)]
        assert len(places) == part.height
        assert max(places.count(x) for x in set(places)) <= 2


page = partial(run_page, "refusal")


def shown(app):
    """The cell in detail, as its heading says."""
    assert not app.exception
    return next(block.value for block in app.header if "λ" in block.value or "k " in block.value).replace("\\", "")


def picked(app):
    """What the picker says: the browser keeps what it showed unless it is told another value."""
    picker = app.selectbox(key="cell").proto
    return picker.raw_value if picker.set_value else None


@pytest.mark.parametrize("change", ["domain", "selector", "source"])
def test_the_picker_says_the_cell_of_the_page_after_a_change(tmp_path, change):
    run = write_refusal_run(tmp_path / "run")
    app = page(source="My results", folder=run, show=edit_grid.GRID)
    app.selectbox(key="cell").set_value("lrp/hate/0.2/0.01").run()
    assert shown(app) == "LRP, hate, λ 0.2, k 1%"
    if change == "domain":
        app.selectbox(key="domain").set_value("crime").run()
    elif change == "selector":
        app.selectbox(key="selector").set_value("ig").run()
    else:
        app.selectbox(key="source").set_value("Paper").run()
    assert shown(app) != "LRP, hate, λ 0.2, k 1%"
    assert picked(app) == shown(app)
