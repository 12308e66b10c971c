"""Figures from frames: the numbers that are drawn, the axis, marks, and what cannot be drawn."""

import math

import polars as pl
import pytest
from synthetic import SLOPES, sweep, write_run

from dashboard.charts import curves as curve_chart, palette, series
from dashboard.charts.axes import decade_ticks
from dashboard.state import results

LN10 = math.log(10)


@pytest.fixture
def drawn(tmp_path):
    return points(tmp_path, sweep())


def points(tmp_path, frame):
    curves = results.read_run(write_run(tmp_path / "run", frame))
    selectors = curves.frame["selector"].unique().to_list()
    return series.points(curves.frame, "made-up-1B", selectors, ["lerf", "morf"], (0.0, 1.0))


def traces(figure, name):
    return [trace for trace in figure.data if trace.name == name]


def test_heights_are_log10_perplexity(drawn):
    figure = curve_chart.curves(drawn, "morf", baseline=2.0)
    (lrp,) = traces(figure, "LRP")
    assert list(lrp.x) == [0.0, 0.1, 0.3, 0.5]
    assert list(lrp.y) == pytest.approx([(2 + 20 * rate) / LN10 for rate in lrp.x])
    assert figure.layout.yaxis.type in (None, "linear")


def test_every_selector_has_its_look_and_exact_values_in_the_hover(drawn):
    figure = curve_chart.curves(drawn, "lerf", baseline=2.0)
    assert [trace.name for trace in figure.data] == ["LRP", "IG", "Wanda", "Random"]
    for selector in SLOPES:
        look = palette.style(selector)
        (trace,) = traces(figure, look.title)
        assert (trace.line.color, trace.line.dash, trace.marker.symbol) == (look.colour, look.dash, look.symbol)
    (lrp,) = traces(figure, "LRP")
    assert "500 rows" in lrp.customdata[-1]
    assert "NLL 2.5000 ± 0.0980 nats" in lrp.customdata[-1]
    (random,) = traces(figure, "Random")
    assert "3 seeds" in random.customdata[-1]


def test_what_is_destroyed_stands_in_order_in_a_zone_above_the_axis(drawn):
    """LRP's MoRF at 0, 10, 30 and 50% has 2, 4, 8 and 12 nats: the limit of 7 is the axis's end, 8 and 12 are above."""
    plain, figure = (curve_chart.curves(drawn, "morf", baseline=2.0, saturated=limit) for limit in (None, 7.0))
    (before,), (lrp,) = traces(plain, "LRP"), traces(figure, "LRP")
    assert list(before.y) == pytest.approx([nll / LN10 for nll in (2, 4, 8, 12)])
    assert list(lrp.y[:2]) == pytest.approx(list(before.y[:2]))
    (zone,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert zone.y0 == pytest.approx(7 / LN10)
    assert zone.y0 < lrp.y[2] < lrp.y[3] < zone.y1 == figure.layout.yaxis.range[1]
    assert list(lrp.error_y.array[2:]) == [0.0, 0.0]
    assert lrp.error_y.array[1] == before.error_y.array[1] > 0
    assert any(note.text == "destroyed: above 1,097" for note in figure.layout.annotations)
    lerf = curve_chart.curves(drawn, "lerf", baseline=2.0, saturated=7.0)
    assert lerf.layout.yaxis.range == figure.layout.yaxis.range  # one axis for both orders
    unharmed = curve_chart.curves(drawn, "morf", baseline=2.0, saturated=12.5)
    assert unharmed.layout.yaxis.range == plain.layout.yaxis.range
    assert not [shape for shape in unharmed.layout.shapes if shape.type == "rect"]


def gemma(orders):
    paper = results.read_paper()
    return series.points(paper.frame, "Gemma-3-12B", ["wanda", "mean_activation", "magnitude"], orders, (0.0, 0.9))


def test_ceiling_cells_are_ringed_in_a_band_above_all_others():
    drawn = gemma(["morf"])
    figure = curve_chart.curves(drawn, "morf", baseline=None)
    (rings,) = traces(figure, "at numerical ceiling")
    assert sorted(rings.x) == [0.85, 0.9, 0.9]
    (band,) = (shape for shape in figure.layout.shapes if shape.type == "rect")
    assert len(set(rings.y)) == 1
    assert band.y0 < rings.y[0] < band.y1 == figure.layout.yaxis.range[1]
    highest = max(drawn.filter(~pl.col("plateau"))["nll"]) / LN10
    assert highest < band.y0 < highest + 3  # not 10^241
    others = [y for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True) if y < band.y0]
    assert max(others) == pytest.approx(highest)
    assert any(note.text == "at or above the ceiling" for note in figure.layout.annotations)
    assert any("241" in trace.customdata[-1] for trace in figure.data if trace.customdata is not None)


def test_a_gap_at_the_ceiling_does_not_stretch_its_axis():
    gaps = series.gaps(gemma(["lerf", "morf"]))
    figure = curve_chart.gap(gaps)
    (band,) = (shape for shape in figure.layout.shapes if shape.type == "rect")
    assert band.y0 < 2 * gaps.filter(~pl.col("at_ceiling"))["log_gap"].max()
    (wanda,) = traces(figure, "Wanda")
    assert band.y0 < wanda.y[-1] < band.y1
    assert f"{gaps.filter(selector='wanda').sort('rate')['log_gap'][-1]:.3f}" in wanda.customdata[-1]


def test_infinite_and_missing_values_are_arrows_not_gaps_in_silence(tmp_path):
    frame = sweep({"lrp": (1.0, 2.0)}).with_columns(
        nll=pl.when((pl.col("rate") == 0.5) & (pl.col("order") == "morf")).then(math.inf).otherwise("nll")
    )
    figure = curve_chart.curves(points(tmp_path, frame), "morf", baseline=2.0)
    (line,) = traces(figure, "LRP")
    assert line.y[-1] is None
    arrows = [trace for trace in figure.data if trace.marker.symbol == "arrow-up"]
    assert [(trace.x[0], trace.y[0]) for trace in arrows] == [(0.5, figure.layout.yaxis.range[1])]
    assert all(math.isfinite(end) for end in figure.layout.yaxis.range)


@pytest.mark.parametrize(
    ("low", "high"), [(1.4, 1.6), (1.0, 2.3), (0.0, 12.0), (0.5, 250.0), (1.0, 6.0), (-0.5, 0.5), (3.0, 3.001)]
)
def test_ticks_are_few_inside_and_powers_of_ten(low, high):
    ticks = decade_ticks(low, high)
    assert 2 <= len(ticks) <= 9
    assert all(low <= tick <= high for tick in ticks)
    if high - low > 2.5:
        assert all(tick == round(tick) for tick in ticks)


def test_who_destroys_the_model_stands_back_and_who_always_does_shares_a_name():
    rates = (0.0, 0.1, 0.3)
    nlls = {"fisher": (1, 1.2, 2), "lrp": (1, 1.2, 9), "random": (1, 9, 9), "ig": (1, 9, 9), "wanda": (1, 9, 8)}

    def figure(names, order="lerf"):
        cells = [(name, rate, float(nll)) for name in names for rate, nll in zip(rates, nlls[name], strict=True)]
        frame = pl.DataFrame(cells, schema=["selector", "rate", "nll"], orient="row")
        frame = frame.with_columns(
            pl.lit(order).alias("order"), pl.lit(None, pl.Float64).alias("bar"), destroyed=pl.col("nll") > 5, seeds=1,
            interval=None, rows_removed=None, tokens=None, plateau=False, printed=None,
        )  # fmt: skip
        return curve_chart.curves(frame, order, baseline=1.0, saturated=5.0)

    def back(drawn):
        return {trace.name for trace in drawn.data if trace.opacity is not None}

    assert back(figure(nlls)) == {"IG", "Wanda"}  # LRP keeps the language where random rows no longer do
    assert back(figure(nlls, "morf")) == set()
    assert back(figure(["random", "ig", "wanda"])) == set()  # where nobody is left, nobody stands back

    two = {name: nlls[name] for name in ("fisher", "random", "ig", "wanda")}  # of them each has its own
    for order in ("lerf", "morf"):
        assert not [note for note in figure(two, order).layout.annotations if note.name == "line end"]
    nlls["magnitude"] = (1, 8, 8)
    [joint] = [note for note in figure(nlls, "morf").layout.annotations if note.name == "line end"]
    assert joint.text == "3 scores"
    alone = {trace.name for trace in figure(nlls, "morf").data if trace.showlegend is False}
    assert alone == {"IG", "Wanda", "Magnitude"}


def test_few_small_rates_have_the_same_room_each_and_keep_their_values():
    def figure(rates):
        frame = pl.DataFrame({"rate": rates}).with_columns(
            pl.lit("lrp").alias("selector"), pl.lit("lerf").alias("order"), pl.lit(2.0).alias("nll"), seeds=1,
            bar=None, interval=None, rows_removed=None, tokens=None, plateau=False, printed=None, destroyed=False,
        )  # fmt: skip
        return curve_chart.curves(frame, "lerf", baseline=1.0)

    steps = figure([0.0, 0.0025, 0.01, 0.3])
    assert list(map(float, steps.data[0].x)) == [0.0, 0.0025, 0.01, 0.3]
    assert list(steps.layout.xaxis.ticktext) == ["0%", "0.25%", "1%", "30%"]
    assert steps.layout.xaxis.categoryarray == tuple(steps.data[0].x)
    assert figure([0.0, 0.1, 0.2, 0.3]).layout.xaxis.type != "category"
