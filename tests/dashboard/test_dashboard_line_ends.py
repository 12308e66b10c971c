"""Names at line ends: where they stand, that they keep apart, and which figures have none."""

import itertools

import numpy as np
import plotly.graph_objects as go
import pytest
from scipy.optimize import minimize

from dashboard.charts import line_ends


def drawn(ys, **more):
    figure = go.Figure()
    for number, y in enumerate(ys):
        figure.add_scatter(
            x=[0.0, 0.5, 0.9][: len(y)], y=y, name=f"line {number}", mode="lines+markers", line={"color": "#112233"}
        )
    figure.update_layout(margin={"r": 10, "b": 240}, **more)
    return figure


def names(figure):
    return [note for note in figure.layout.annotations if note.name == "line end"]


def test_every_name_stands_at_the_last_point_that_is_drawn():
    figure = drawn([[1.0, 2.0, 3.0], [1.0, 5.0, None], [1.0, float("nan"), float("inf")]])
    first, second, third = names(line_ends.labelled(figure, 24))
    assert [(note.x, note.y) for note in (first, second, third)] == [(0.9, 3.0), (0.5, 5.0), (0.0, 1.0)]
    assert [note.text for note in (first, second, third)] == ["line 0", "line 1", "line 2"]
    assert {note.font.size for note in names(figure)} == {24}
    assert {note.font.color for note in names(figure)} == {"#112233"}
    assert figure.layout.showlegend is False
    assert figure.layout.margin.b == 4 * 24
    assert figure.layout.margin.r > 6 * 24 * 0.5 + 10
    low, high = figure.layout.yaxis.range
    assert low < 1
    assert high > 5
    assert figure.layout.xaxis.range[0] < 0 < 0.9 < figure.layout.xaxis.range[1] < 1


def test_names_of_lines_that_end_together_keep_apart_and_within_the_plot():
    figure = line_ends.labelled(drawn([[1.0, 2.0, 3.0 + 0.001 * k] for k in range(6)] + [[0.0, 0.0, 0.0]]), 24)
    low, high = figure.layout.yaxis.range
    places = np.array([(note.ay - low) / (high - low) for note in names(figure)])
    assert np.all(np.diff(places[:6]) >= 24 / line_ends.LEAST_STAGE_PX)
    assert places.min() >= 0
    assert places.max() <= 1 + 1e-9
    assert places[6] == pytest.approx((0 - low) / (high - low))


@pytest.mark.parametrize("seed", range(4))
def test_they_are_moved_as_little_as_that_takes(seed):
    rng = np.random.default_rng(seed)
    places, gap = rng.random(6) * (0.3 if seed % 2 else 1.0) + 0.2 * (seed % 2), 0.11
    found = np.array(line_ends.apart(places, gap))
    order = np.argsort(places)
    limits = [{"type": "ineq", "fun": lambda v, a=a, b=b: v[b] - v[a] - gap} for a, b in itertools.pairwise(order)]
    best = minimize(
        lambda v: ((v - places) ** 2).sum(), np.linspace(0, 1, 6)[np.argsort(order)], bounds=[(0, 1)] * 6,
        constraints=limits, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    assert best.success
    np.testing.assert_allclose(found, best.x, atol=1e-5)


def test_error_bars_levels_and_categories_are_within_the_axes():
    figure = go.Figure(
        go.Scatter(
            x=["8", "16"], y=[1.0, 2.0], name="a", mode="lines", line={"color": "#112233"},
            error_y={"type": "data", "array": [0.1, 5.0], "visible": True},
        )
    )  # fmt: skip
    figure.add_hline(y=-4.0)
    line_ends.labelled(figure, 24)
    assert figure.layout.yaxis.range[0] < -4
    assert figure.layout.yaxis.range[1] > 7
    assert figure.layout.xaxis.range[0] < 0
    assert figure.layout.xaxis.range[1] > 1
    assert names(figure)[0].x == 1  # plotly would read "16" as a place


def test_what_is_no_line_or_has_a_long_name_stays_in_the_legend():
    figure = drawn([[1.0, 2.0, 3.0]])
    figure.add_scatter(x=[0.9], y=[3.0], mode="markers", name="at numerical ceiling")
    figure.add_scatter(x=[None], y=[None], mode="lines", name="laid over", line={"color": "#112233"})
    line_ends.labelled(figure, 24)
    assert [note.text for note in names(figure)] == ["line 0"]
    assert figure.layout.showlegend is True
    assert figure.layout.margin.b == 240
    assert [trace.showlegend for trace in figure.data] == [False, None, None]
    long = drawn([[1.0, 2.0, 3.0]])
    long.data[0].name = "n" * (line_ends.MOST_LETTERS + 1)
    assert names(line_ends.labelled(long, 24)) == []
