"""Figures of the audit pages: what stands where, and that nothing is told by colour alone."""

import math

import numpy as np
import polars as pl
import pytest
from made_up_audit import controls, repeated

from dashboard.charts import believed, learn as learn_chart, lines, matrix
from dashboard.charts.lines import Axis
from dashboard.pages.learn import steps as lesson_answers
from dashboard.pages.rows import scored
from dashboard.state import results
from engine.stats.limits import Thresholds
from engine.studies.verdict.judged_selectors import SMALL_GAP

LN10 = math.log(10)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it, of #RRGGBB or rgb(r, g, b)."""
    if colour.startswith("#"):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    else:
        parts = [float(part) / 255 for part in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scale", [matrix.SEQUENTIAL, matrix.DIVERGING, matrix.GREY_TO_TEAL])
def test_numbers_can_be_read_on_every_cell(scale):
    from plotly.colors import sample_colorscale

    values = [count / 50 for count in range(51)]
    figure = matrix.matrix(
        [values], [str(value) for value in values], ["row"], heading="", text=matrix.number,
        hover=[[""] * 51], span=(0.0, 1.0), scale=scale,
    )  # fmt: skip
    for note in figure.layout.annotations:
        (behind,) = sample_colorscale(scale, [values[int(note.x)]])
        light, dark = sorted((luminance(note.font.color), luminance(behind)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, values[int(note.x)]


def test_matrices_of_a_model_are_its_groups_wherever_their_rows_lie(tmp_path, monkeypatch):
    """Also where rows of one matrix are not neighbours, as those of an expert are not, and where a name is missing."""
    generator = np.random.default_rng(5)
    count = 300
    rows = pl.DataFrame(
        {
            "block": generator.integers(0, 3, count), "projection": generator.choice(["up_proj", "q_proj", None], count)
        }
    ).with_columns(sublayer=pl.lit("mlp"))  # fmt: skip
    monkeypatch.setattr(results, "read_table", lambda *_: results.Table(rows, ""))
    scored.layers.cache_clear()
    found, by = scored.layers(tmp_path), scored.MATRIX
    values = generator.standard_normal(count)
    expected = rows.with_columns(value=values).group_by(by, maintain_order=True).agg(pl.len(), pl.col("value").mean())
    scored.layers.cache_clear()
    assert found.frame.select(by).equals(expected.select(by))
    assert found.frame["rows"].to_list() == expected["len"].to_list()
    assert found.means(values).tolist() == pytest.approx(expected["value"].to_list())
    assert [found.frame.select(by).row(place) for place in found.of_row] == rows.select(by).rows()


@pytest.mark.parametrize("known", [True, False])
def test_quadrants_shade_what_is_stable_and_invalid(known):
    """By the harm of the lowest scores, or by the log gap where no table has it."""
    verdicts = repeated()["verdicts"]
    if not known:
        verdicts = verdicts.with_columns(damage=pl.lit(None, pl.Float64))
    by_gap = believed.quadrant(verdicts, "jaccard", 0.8, Thresholds())
    assert ("gap" in by_gap.layout.yaxis.title.text) is not known
    bottom, top = by_gap.layout.yaxis.range
    assert bottom < top  # up is valid: more of random rows' harm avoided, a larger gap
    points = {trace.name: (trace.x[0], trace.y[0]) for trace in by_gap.data}
    shade = by_gap.layout.shapes[0]
    inside = [name for name, (x, y) in points.items() if shade.x0 <= x <= shade.x1 and shade.y0 <= y <= shade.y1]
    assert inside == ["Wanda"]
    goal = by_gap.layout.shapes[1]
    assert (shade.y1, goal.y0) == pytest.approx((0.2, 0.5) if known else (1.0, 1.0))  # between them: in part
    if known:
        assert points["LRP"][1] == pytest.approx(1 - verdicts.filter(selector="lrp")["damage"].item())
        for why, word in ((SMALL_GAP, ": gap too small"), (None, ": in part"), ("errors: too small", ": in part")):
            part = verdicts.with_columns(validity=pl.lit("partly"), reasons=pl.lit(why))
            for trace in believed.quadrant(part, "jaccard", 0.8, Thresholds()).data:
                assert trace.text[0] == trace.name + word * (trace.y[0] >= 0.5)
    lost = verdicts.with_columns(
        jaccard=pl.when(pl.col("selector") != "lrp").then("jaccard"), damage=pl.lit(1.0 if known else None, pl.Float64)
    )
    said = believed.quadrant(lost, "jaccard", 0.8, Thresholds()).layout.title.text
    assert "not drawn: " in said
    assert "LRP" in said.partition("not drawn: ")[2]
    assert "Wanda" not in said
    assert ("0%: the model is destroyed" in said) == known
    draws = pl.DataFrame({"selector": ["wanda"], "rate": [0.3], "jaccard_low": [0.1], "jaccard_high": [0.95]})
    with_ends = verdicts.with_columns(draw_jaccard=pl.col("jaccard"))
    drawn = believed.quadrant(with_ends, "draw_jaccard", 0.8, Thresholds(), draws).data
    assert [one.name for one in drawn if one.marker.symbol.endswith("-open")] == ["Wanda"]  # reaches over the limit
    bars = {one.name: one.error_x for one in drawn}
    at = points["Wanda"][0]
    assert (bars["Wanda"].arrayminus[0], bars["Wanda"].array[0]) == pytest.approx((at - 0.1, 0.95 - at))
    assert not bars["LRP"].visible
    by_spearman = believed.quadrant(verdicts, "spearman", 0.95, Thresholds())
    for figure, stable in ((by_gap, "Jaccard"), (by_spearman, "Spearman")):
        assert f"less text (nested) → ({stable} ≥ " in figure.layout.xaxis.title.text


def test_stability_is_the_horizontal_axis_of_every_figure_and_its_limit_the_verdicts():
    limit = Thresholds().spearman
    verdicts = repeated()["verdicts"]
    quadrant = believed.quadrant(verdicts, "spearman", limit, Thresholds())
    lesson = pl.DataFrame({"selector": ["lrp"], "size": [8], "spearman": [0.9], "rate": [0.3], "log_gap": [2.0]})
    learn = learn_chart.stable_and_valid(lesson, lesson_answers.STABLE)
    assert (learn.data[0].x, learn.data[0].y) == ((0.9,), (2.0,))
    for figure in (quadrant, learn):
        assert "Spearman" in figure.layout.xaxis.title.text
        upright = [shape.x0 for shape in figure.layout.shapes if shape.type == "line" and shape.x0 == shape.x1]
        assert upright == [limit]
        notes = [figure.layout.xaxis.title, *figure.layout.annotations]
        assert any(f"{limit:g}" in note.text for note in notes)


def test_each_text_and_each_share_is_drawn_by_its_own_name():
    """Neither figure has error bars, so none of these marks is in test_dashboard_intervals.py."""
    costs = pl.DataFrame({"selector": ["ig", "lrp"], "nll_a": [2.0, 3.0], "nll_b": [2.5, math.inf]})
    _, way, first, _, second, _ = believed.two_corpora(costs, ("<one>", "two")).data
    assert (list(way.x), list(way.y)) == ([pytest.approx(2.0 / LN10), pytest.approx(2.5 / LN10)], [1, 1])
    assert (first.name, list(first.x)) == ("calibrated on &lt;one&gt;", [3.0 / LN10, 2.0 / LN10])
    assert (second.name, list(second.x)) == ("calibrated on two", [None, 2.5 / LN10])
    assert all("two<br>" in hover for hover in second.customdata)
    shares = pl.DataFrame({"rate": [0.3, 0.1], "both": [0.5, 0.6], "only_one": [0.3, 0.25], "neither": [0.2, 0.15]})
    assert [(bar.name, list(bar.y)) for bar in believed.rank_shares(shares).data] == [
        ("in the masks of both LRP and IG", [0.6, 0.5]), ("in one of them", [0.25, 0.3]), ("in neither", [0.15, 0.2]),
    ]  # fmt: skip


def test_lines_leave_gaps_and_tell_selectors_apart_without_colour():
    frame = pl.DataFrame(
        {"selector": ["lrp", "lrp", "ig", "ig"], "size": [8, 16, 8, 16], "nll": [1.0, None, math.inf, 2.0]}
    )
    figure = lines.lines(
        frame, Axis("size", "windows", "category"), Axis("nll", "perplexity", "perplexity"), heading="h",
        hover=lambda row: f"{row['size']} windows", reference=(1.5, "unmasked"),
    )  # fmt: skip
    lrp, ig = figure.data
    assert (list(lrp.x), list(lrp.y)) == (["8", "16"], [pytest.approx(1.0 / LN10), None])
    assert list(ig.y) == [None, pytest.approx(2.0 / LN10)]
    assert list(ig.customdata) == ["8 windows", "16 windows"]
    assert (lrp.line.dash, lrp.marker.symbol) != (ig.line.dash, ig.marker.symbol)
    assert figure.layout.shapes[0].y0 == pytest.approx(1.5 / LN10)


def test_controls_that_are_not_finite_have_no_mark():
    table = controls()["controls"].filter(order="lerf")
    rate = table["rate"][0]
    table = table.filter(rate=rate)
    whole = believed.dumbbells(table)
    broken = table.with_columns(
        nll=pl.when(pl.col("control") == "intersection").then(math.inf).otherwise(pl.col("nll"))
    )
    figure = believed.dumbbells(broken)
    assert all(math.isfinite(value) for trace in figure.data for value in trace.x)
    assert len(figure.layout.yaxis.ticktext) == len(whole.layout.yaxis.ticktext)
    assert sum("Rows of both</b><br>" in (trace.hovertemplate or "") for trace in whole.data) == 1
    assert not any("Rows of both</b><br>" in (trace.hovertemplate or "") for trace in figure.data)
    assert all(map(math.isfinite, figure.layout.xaxis.range))
    none = believed.dumbbells(table.with_columns(nll=pl.lit(math.nan)))
    assert not none.data
