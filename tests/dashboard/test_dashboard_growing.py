"""Curves of a run under way: what the progress file tells, on the card of the run; nonsense in it draws nothing."""

import json

import pytest
from app_pages import run_page
from synthetic import sweep

from dashboard.charts import curves
from dashboard.state import jobs, results

COLUMNS = ["selector", "seed", "order", "rate", "rows_removed", "nll", "nll_stderr", "tokens"]


def so_far(rows):
    frame = sweep({"lrp": (1.0, 9.0), "wanda": (3.0, 6.0)})
    frame = frame.with_columns(seed=None) if "seed" not in frame.columns else frame
    return {"table": "sweep", "columns": COLUMNS, "rows": [list(row) for row in frame.select(COLUMNS).rows()][:rows]}


def test_what_is_measured_is_drawn_and_no_more():
    frame = sweep({"lrp": (1.0, 9.0), "wanda": (3.0, 6.0)})
    some = so_far(5)
    figures = curves.growing(some)
    drawn = [
        (trace.legendgroup, order, rate)
        for order, figure in figures.items()
        for trace in figure.data
        if trace.legendgroup
        for rate in trace.x
    ]
    begun = {(row[0], row[2]) for row in some["rows"] if row[3]}  # of which rows were removed
    assert sorted(drawn) == sorted((row[0], row[2], row[3]) for row in some["rows"] if (row[0], row[2]) in begun)
    assert len({figure.layout.xaxis.range for figure in figures.values()}) == 1
    assert not curves.growing({**some, "rows": [row for row in some["rows"] if not row[3]]})
    whole = curves.growing(so_far(frame.height))
    assert set(whole) == {"lerf", "morf"}


@pytest.mark.parametrize(
    "wrong",
    [None, {}, [], "text", {"columns": ["selector"], "rows": [[1]]}, {"columns": 3, "rows": 4},
     {"columns": COLUMNS, "rows": [["lrp"]]}, {"columns": COLUMNS, "rows": [[None] * 8]},
     {"columns": ["no column"], "rows": [[1]]}],
)  # fmt: skip
def test_what_is_none_draws_nothing(wrong):
    assert curves.growing(wrong) == {}


def test_a_value_that_is_not_finite_leaves_a_gap():
    told = so_far(3)
    told["rows"][1][5] = None
    (figure,) = curves.growing(told).values()
    (curve,) = [trace for trace in figure.data if trace.legendgroup]
    assert [y is None for y in curve.y] == [False, True, False]


def test_the_card_of_the_run_has_the_curves(tmp_path, monkeypatch, registry, child):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    child("import time; time.sleep(600)")
    job = registry.start(jobs.analysis("demo", ("sweep",), tmp_path / "out", "quick"))
    card = run_page("runs", runs_view="Start")
    assert not card.get("plotly_chart")
    told = {"stage": "cells", "done": 5, "total": 20, "seconds_left": 3.0, "so_far": so_far(5)}
    (job.files / "progress.json").write_text(json.dumps(told))
    card.run()
    assert not card.exception
    assert len(card.get("plotly_chart")) == len(curves.growing(told["so_far"]))
    registry.cancel(job)
    job.process.wait(60)
    card.run()
    assert card.get("plotly_chart")  # what was finished is kept, and shown
