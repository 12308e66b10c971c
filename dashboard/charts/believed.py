"""Figures of whether results can be believed: stability against validity, controls of equal size, a number per
selector, what calibration on other text costs, what depths explain, what selectors make of weights that were rewritten,
and who is before whom under how many protocols."""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import axes, dots, formats, palette
from dashboard.charts.formats import LN10
from dashboard.charts.lines import finished, perplexity_scale
from dashboard.charts.matrix import matrix
from engine.stats.limits import Thresholds
from engine.studies.protocols.protocol_claims import ALL, OVERTURNED, UNDECIDED, flip_rate
from engine.studies.verdict.judged_selectors import SMALL_GAP

Row = dict[str, Any]
UNITS = {"row": "Rows", "neuron": "Neurons", "head": "Heads", "expert": "Experts"}
_GOAL = "#08A95B"  # colour of the corner that is aimed at
_NEAR = 0.05  # of the width: a mark whose name the line would cross
_PATTERNS = ("", "/", "x", ".")
_SYMBOLS = ("circle", "diamond", "square", "cross")
CONTROL_TITLES = {
    "lrp_layer_matched": "Random, LRP's layers",
    "ig_layer_matched": "Random, IG's layers",
    "rank_randomised": "Consensus-2, IG shuffled",
    "intersection": "Rows of both",
    "veto_lrp": "LRP without IG's",
    "veto_ig": "IG without LRP's",
}
_CONTROL_ORDER = ("consensus2", "lrp", "ig", *CONTROL_TITLES, "random")
_CONTROL_COLOUR = "#3F7FBF"  # the controls' own mark; their references have their selectors' looks
MOST_DRAWN = (-1.0, 2.0)  # of an interval of a share that depths explain


def selector_bars(
    frame: pl.DataFrame, columns: Sequence[tuple[str, str]], *, heading: str, below: str = "", title: str,
    text: Callable[[float], str], hover: Callable[[Row], str], tickformat: str = "", top: float | None = None,
) -> go.Figure:  # fmt: skip
    """Horizontal bars, one group per selector. columns: (column, name); several are told apart by their pattern."""
    selectors = palette.in_order(frame["selector"])[::-1]  # plotly draws from below
    rows = {row["selector"]: row for row in frame.iter_rows(named=True)}
    figure = go.Figure()
    for (column, name), pattern in zip(list(columns)[::-1], _PATTERNS[: len(columns)][::-1], strict=True):
        values = [rows[selector][column] for selector in selectors]
        figure.add_bar(
            x=values, y=[palette.title(selector) for selector in selectors], name=name, orientation="h",
            text=["–" if value is None else text(value) for value in values], textposition="outside",
            cliponaxis=False, customdata=[hover(rows[selector]) for selector in selectors],
            hovertemplate="<b>%{y}</b><br>%{customdata}<extra></extra>", showlegend=len(columns) > 1,
            marker={
                "color": [palette.style(selector).colour for selector in selectors],
                "pattern": {"shape": pattern, "solidity": 0.35},
            },
        )  # fmt: skip
    present = [value for column, _ in columns for value in frame[column].drop_nulls()]
    span = [min(0.0, *present, 0.0), (top if top is not None else max([*present, 1e-9])) * 1.2]
    figure.update_xaxes(title={"text": title, "standoff": 5}, tickformat=tickformat, range=span)
    figure.update_layout(legend={"traceorder": "reversed"})
    bottom = 110 if len(columns) > 1 else 60
    return finished(figure, heading, below, 130 + bottom + 24 * len(selectors) * len(columns), bottom)


def two_corpora(frame: pl.DataFrame, names: tuple[str, str]) -> go.Figure:
    """LeRF perplexity of each selector calibrated on one text and on the other: columns selector, nll_a, nll_b."""
    rows = list(palette.sorted_by_selector(frame).iter_rows(named=True))
    looks = [palette.style(row["selector"]) for row in rows]
    heights = [
        [None if (nll := axes.finite(row[name])) is None else nll / LN10 for row in rows] for name in ("nll_a", "nll_b")
    ]
    figure = go.Figure()
    for place, (look, ends) in enumerate(zip(looks, zip(*heights, strict=True), strict=True)):
        axes.joined(figure, {place: [end for end in ends if end is not None]}, color=look.colour)
    series = zip(("nll_a", "nll_b"), names, ("circle", "diamond-open"), heights, strict=True)
    for column, name, symbol, values in series:
        marks = []
        for place, (look, row) in enumerate(zip(looks, rows, strict=True)):
            hover = f"<b>{look.title}</b>, calibrated on {html.escape(name)}"
            hover += f"<br>perplexity {formats.perplexity(row[column])}"
            marks.append(dots.Dot(place, values[place], hover))
        dots.add(figure, f"calibrated on {name}", marks, [look.colour for look in looks], symbol)
    scale = perplexity_scale([end for ends in heights for end in ends if end is not None])
    titles = [look.title for look in looks]
    below = "both on the same evaluation text"
    return dots.finished(figure, titles, "LeRF perplexity", "What it costs", below, bottom=110, axis=scale)


def depth_shares(specific: pl.DataFrame) -> go.Figure:
    """The share of the advantage over random that depths explain, with its interval; 100%: all of it.
    specific: one order and rate of the table. Selectors without a clear advantage have no share and no mark. An
    advantage that is hardly clear leaves the share open over any range: a bar is cut at -100% and 200%."""
    columns = ("depth_share", "depth_share_low", "depth_share_high")
    known = specific.drop_nulls(columns)
    values, ends = known["depth_share"].to_list(), [*known["depth_share_low"], *known["depth_share_high"]]
    low = min([0.0, *values, *(max(end, MOST_DRAWN[0]) for end in ends)])
    high = max([1.0, *values, *(min(end, MOST_DRAWN[1]) for end in ends)])
    cut = any(not low <= end <= high for end in ends)
    below = f"further left: more than its depths{'; a bar that meets the edge goes on' if cut else ''}"
    figure = _depth_marks(specific, columns, 1.0, "share explained by depth", "Explained by depth", below)
    room = 0.04 * (high - low)
    return figure.update_xaxes(tickformat=".0%", range=[low - room, high + room])


def own_depths(specific: pl.DataFrame, order: str) -> go.Figure:
    """NLL of the selector's mask minus its layer-matched controls', with its interval. One order and rate."""
    better = "left of 0: less harm than random rows of its layers" if order == "lerf" else "right of 0: more harm"
    return _depth_marks(specific, ("difference", "low", "high"), 0.0, "nats per token from its own controls",
                  "Against its own layer-matched controls", better)  # fmt: skip


def _depth_marks(
    specific: pl.DataFrame, columns: tuple[str, str, str], unmoved: float, title: str, heading: str, below: str
) -> go.Figure:
    value, low, high = columns
    figure, titles = dots.by_selector(specific, lambda row: (row[value], _depth_hover(row), row[low], row[high]))
    figure.add_vline(unmoved, line=palette.DOTTED)
    return dots.finished(figure, titles, title, heading, below)


def _depth_hover(row: Row) -> str:
    lines = [f"{row['difference']:+.4f} nats per token from its controls: {row['answer']}"]
    if row["low"] is not None:
        lines.append(f"95% interval {row['low']:+.4f} to {row['high']:+.4f}, p {row['p_holm']:.2g} after Holm")
    lines.append(f"advantage over random {row['advantage']:+.4f}, its controls' {row['control_advantage']:+.4f}")
    if row["depth_share"] is not None:
        ends = f"{row['depth_share_low']:.0%} to {row['depth_share_high']:.0%}"
        lines.append(f"{row['depth_share']:.0%} explained by depth ({ends})")
    return "<br>".join(lines)


def before_after(
    wide: pl.DataFrame, rewrites: Mapping[str, str], *, unmoved: float, heading: str, below: str, title: str,
    text: Callable[[float], str],
) -> go.Figure:  # fmt: skip
    """A line per selector. wide: `selector` and a column per rewrite.
    rewrites: column -> its name, at most four. unmoved: the value of a selector that stays the same, drawn as a line.
    Values that are null or not finite have no mark."""
    rows = list(palette.sorted_by_selector(wide).iter_rows(named=True))
    titles, colours = ([getattr(palette.style(row["selector"]), of) for row in rows] for of in ("title", "colour"))
    figure, seen = go.Figure(), [unmoved]
    for (column, name), symbol, shift in zip(rewrites.items(), _SYMBOLS, dots.shifts(len(rewrites)), strict=False):
        values = [axes.finite(row[column]) for row in rows]
        seen += [value for value in values if value is not None]
        texts = ["–" if value is None else text(value) for value in values]
        hover = [f"<b>{one}</b>, {name}<br>{said}" for one, said in zip(titles, texts, strict=True)]
        marks = [dots.Dot(place + shift, value, hover[place]) for place, value in enumerate(values)]
        dots.add(figure, name, marks, colours, symbol, size=10)
    figure.add_vline(unmoved, line=palette.DOTTED)
    margin = max(0.08 * (max(seen) - min(seen)), 0.02)
    axis = {"range": [min(seen) - margin, max(seen) + margin]}
    return dots.finished(figure, titles, title, heading, below, row_px=38, bottom=110, axis=axis)


def order_matrix(claims: pl.DataFrame, heading: str) -> go.Figure:
    """Rows before columns: the share of protocols that put them so. claims: `protocols_claims`."""
    votes: dict[tuple[str, str], tuple[int, int]] = {}  # of (a, b) how many protocols put a before b, and of how many
    for row in claims.iter_rows(named=True):
        a, b, of = row["selector_a"], row["selector_b"], row["protocols"]
        votes[a, b], votes[b, a] = (row["protocols_for"], of), (row["protocols_against"], of)
    names = palette.in_order([name for pair in votes for name in pair])
    titles = [palette.title(name) for name in names]

    def told(a: str, b: str) -> str:
        if (a, b) not in votes:
            return ""
        count, of = votes[a, b]
        return f"<b>{palette.title(a)}</b> before <b>{palette.title(b)}</b><br>under {count} of {of} protocols"

    values = [[votes[a, b][0] / votes[a, b][1] if (a, b) in votes else None for b in names] for a in names]
    return matrix(
        values, titles, titles, heading=heading, below="share of protocols that put the row before the column",
        text=lambda value: f"{value:.0%}", hover=[[told(a, b) for b in names] for a in names], span=(0.0, 1.0),
        corner=("", "before"),
    )  # fmt: skip


def protocol_heading(claims: pl.DataFrame) -> str:
    """The flip rate of the table `protocols_claims`, and what it counts."""
    if (rate := flip_rate(claims)) is None:
        return "No protocol tells two scores apart"
    surely, perhaps = (f"{share:.0%}" for share in rate)
    counts = dict(claims["claim_verdict"].value_counts().iter_rows())
    every, turned, undecided = (counts.get(word, 0) for word in (ALL, OVERTURNED, UNDECIDED))
    return (
        f"Flip rate {surely}{f', perhaps {perhaps}' * (perhaps != surely)}: {turned} of {claims.height - undecided} "
        f"orders of scores {'turns' if turned == 1 else 'turn'} around under some protocol, {every or 'none'} "
        f"{'hold' if every > 1 else 'holds'} under all"
    )


def quadrant(
    verdicts: pl.DataFrame, stable: str, stable_from: float, limits: Thresholds, draws: pl.DataFrame | None = None
) -> go.Figure:
    """One point per selector, right is stable, up is sufficient. Selectors without a stability are not drawn.

    stable: the column of the stability, `spearman` or `jaccard`, of draws `draw_spearman` or `draw_jaccard`, and its
    limit; draws: the table with its intervals. Upwards goes what decides most verdicts: which share of random rows'
    harm the lowest scores avoid; where nobody knows it (published tables), the log gap in nats."""
    figure = go.Figure()
    known = "damage" in verdicts.columns and verdicts["damage"].is_finite().any()
    column, limit, goal = "log_gap", limits.log_gap, limits.log_gap
    if known:  # between the two a selector is sufficient in part
        column, limit, goal = "avoided", 1 - limits.invalid_damage, 1 - limits.faithful_damage
        verdicts = verdicts.with_columns(avoided=1 - pl.col("damage"))
    drawn = verdicts.filter(pl.col(stable).is_not_null(), pl.col(column).is_finite())
    ends = _intervals(draws, stable, limits.rate)
    of_drawn = [end for selector in drawn["selector"] for end in ends.get(selector, ())]
    left, right = _widened([*drawn[stable], *of_drawn, stable_from])
    right = min(right, 1.01)
    above = _beside_each_other(drawn, stable, column, goal)
    for row in palette.sorted_by_selector(drawn).iter_rows(named=True):
        look = palette.style(row["selector"])
        least, most = ends.get(row["selector"], (row[stable], row[stable]))
        hollow = least < stable_from <= most
        partly = row["validity"] == "partly" and row[column] >= goal
        why = ": gap too small" if SMALL_GAP in (row.get("reasons") or "") else ": in part"
        near = abs(row[stable] - stable_from) < _NEAR * (right - left)  # names stand beside the line of the limit
        side = "center" if not near else "right" if row[stable] >= stable_from else "left"
        figure.add_scatter(
            x=[row[stable]], y=[row[column]], mode="markers+text", name=look.title,
            text=[look.title + why * partly],
            textposition=f"{'top' if above[row['selector']] else 'bottom'} {side}", showlegend=False,
            textfont={"color": palette.REFERENCE},
            error_x=axes.intervals([(row[stable], *ends.get(row["selector"], (None, None)))], colour=look.colour),
            cliponaxis=False, marker={"color": look.colour, "symbol": look.symbol + "-open" * hollow, "size": 13},
            customdata=[_hover(row)], hovertemplate=f"<b>{look.title}</b><br>%{{customdata}}<extra></extra>",
        )  # fmt: skip
    low, high = _widened([*drawn[column], limit, goal], 0.25)  # with room for the zones' names
    for y0, y1, colour in ((low, limit, palette.REFERENCE), (goal, high, _GOAL)):
        figure.add_shape(
            type="rect", x0=stable_from, x1=right, y0=y0, y1=y1, opacity=0.13, fillcolor=colour, line={"width": 0},
            layer="below",
        )  # fmt: skip
    levels = {f"not sufficient below {limit:.0%}": limit, f"sufficient from {goal:.0%}": goal}
    for text, y in (levels if known else {f"limit {limit:g} nats": limit}).items():
        axes.level(figure, text, y=y, at="top left")
    for text, x, y in (
        ("stable, not sufficient", right, low), ("both: the goal", right, high), ("sufficient, not stable", left, high),
    ):  # fmt: skip
        figure.add_annotation(
            x=x, y=y, text=text, showarrow=False, font={"color": palette.REFERENCE},
            xanchor="right" if x == right else "left", yanchor="top" if y == high else "bottom",
        )  # fmt: skip
    figure.add_vline(stable_from, line=palette.DOTTED)
    title = f"less harm than random rows, {limits.rate:.0%} gone →" if known else "log gap (nats per token) →"
    ticks = ".0%" if known else ""
    figure.update_yaxes(title={"text": title}, range=[low, high], zeroline=False, tickformat=ticks)
    name = "Spearman" if "spearman" in stable else "Jaccard"
    compared = "other text" if stable.startswith("draw_") else "less text (nested)"
    axis = {"text": f"same rows from {compared} → ({name} ≥ {stable_from:g})"}
    figure.update_xaxes(title=axis, range=[left, right], zeroline=False)
    below = ["bars: 95% intervals over draws of text; hollow: stability not decided"] * bool(of_drawn)
    if known and (drawn[column].abs() < 1e-9).any():  # both harms count up to there
        below.append("0%: the model is destroyed, as by random rows")
    if any("gap too small" in trace.text[0] for trace in figure.data):
        below.append("gap too small: at some rate the highest rows do hardly more harm than the lowest")
    if absent := palette.in_order({*verdicts["selector"]} - {*drawn["selector"]}):
        below.append(f"not drawn: {', '.join(map(palette.title, absent))}")
    return finished(figure, "Stability against validity", "; ".join(below), 470)


def _beside_each_other(drawn: pl.DataFrame, stable: str, column: str, goal: float) -> dict[str, bool]:
    """Selector -> does its name stand above its mark? Of two that are near each other the second's is below, and that
    of a mark closely under the line of the goal."""
    sides: dict[str, bool] = {}
    before: tuple[str, float, float] | None = None
    marks = list(drawn.sort(stable).select("selector", stable, column).iter_rows())
    wide, high = (
        max(ends, default=0.0) - min(ends, default=0.0) for ends in ([mark[i] for mark in marks] for i in (1, 2))
    )
    for name, x, y in marks:
        near = before is not None and abs(x - before[1]) < 0.15 * wide and abs(y - before[2]) < 0.1 * high
        sides[name] = not (near and before is not None and sides[before[0]]) and not goal - 0.15 * high < y < goal
        before = (name, x, y)
    return sides


def _intervals(draws: pl.DataFrame | None, stable: str, rate: float) -> dict[str, tuple[float, float]]:
    """Selector -> both ends of the interval of its likeness between draws at a rate, where the table has them."""
    low, high = (f"{stable.removeprefix('draw_')}_{end}" for end in ("low", "high"))
    if draws is None or low not in draws.columns or not stable.startswith("draw_"):
        return {}
    of_rate = draws.filter((pl.col("rate") - rate).abs() < 1e-9).drop_nulls([low, high])
    return {name: (least, most) for name, least, most in of_rate.select("selector", low, high).iter_rows()}


_HOVERED = (
    ("draw_spearman", "Spearman between draws"), ("draw_jaccard", "Jaccard between draws"),
    ("spearman", "Spearman, nested"), ("jaccard", "Jaccard, nested"), ("log_gap", "log gap (nats)"),
    ("damage", "harm of the lowest scores, share of random rows'"),
)  # fmt: skip


def between_draws(draws: pl.DataFrame, limit: float, *, heading: str) -> go.Figure:
    """A mark per selector: Jaccard of masks between disjoint draws, the mean of all pairs with their range.
    draws: one rate of the table `draws`. Selectors whose overlap is not defined are not drawn."""

    def dot(row: dict[str, Any]) -> tuple[float, str, float, float]:
        value, least, most = row["jaccard"], row["jaccard_min"], row["jaccard_max"]
        rho = "not defined" if row["spearman"] is None else f"{row['spearman']:.4f}"
        return value, f"Jaccard {value:.4f} ({least:.4f} to {most:.4f})<br>Spearman {rho}", least, most

    known = draws.filter(pl.col("jaccard").is_not_null())
    figure, titles = dots.by_selector(known, dot)
    axes.level(figure, f"limit {limit:g}", x=limit, at="top left")
    axis = {"range": [max(0.0, min([limit, *known["jaccard_min"]]) - 0.05), 1.01]}
    below = "further right: another text gives the same mask"
    return dots.finished(figure, titles, "Jaccard between disjoint draws", heading, below, axis=axis)


def _hover(row: dict[str, object]) -> str:
    numbers = [f"{name} {row[column]:.4f}" for column, name in _HOVERED if row.get(column) is not None]
    nll = row["lerf_nll"]
    lines = [*numbers, f"LeRF perplexity {formats.perplexity(nll if isinstance(nll, float) else None)}"]
    if row["validity"]:
        lines.append(f"validity: {row['validity']}; stability: {row['stability']}")
    return "<br>".join(lines)


def _widened(values: Sequence[float], by: float = 0.15) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = max(by * (high - low), 0.02)
    return low - margin, high + margin


def control_title(control: str) -> str:
    """A control's name for people."""
    return CONTROL_TITLES.get(control, palette.title(control))


def in_control_order(controls: Sequence[str]) -> list[str]:
    """consensus2 and its parents, the controls, random last."""
    known = {name: place for place, name in enumerate(_CONTROL_ORDER)}
    return sorted(set(controls), key=lambda name: (known.get(name, len(known)), name))


def dumbbells(controls: pl.DataFrame) -> go.Figure:
    """Every control with the references that remove as many rows, on one perplexity axis.

    controls: one order and rate of `controls.parquet`. Seeds: the mark is their mean NLL, the thin line their
    range. A reference of the same size is, for a control that removes the rate's rows, consensus2 at the rate.
    What has no finite mean has no mark."""
    own = controls.filter(pl.col("size_matched_to").is_null())
    names = in_control_order(own["control"].to_list())
    figure, heights = go.Figure(), []
    legend: set[str] = set()
    for place, control in enumerate(names):
        of_control = own.filter(pl.col("control") == control)
        beside = references(controls, control)
        marks = [(control, of_control, True), *((name, frame, False) for name, frame in beside)]
        marks = [mark for mark in marks if math.isfinite(_mean_height(mark[1]))]
        ends = [_mean_height(frame) for _, frame, _ in marks]
        heights += ends
        if len(ends) > 1:
            axes.joined(figure, {place: (min(ends), max(ends))})
        for name, frame, is_control in marks:
            low, high = _reach(frame)
            heights += [low, high]
            figure.add_trace(_control_mark(name, frame, place, is_control, legend, control))
    figure.update_xaxes(title={"text": "perplexity", "standoff": 5}, **perplexity_scale(heights))
    figure.update_yaxes(**axes.places([_with_rows(own, name) for name in names]), automargin=True)
    return finished(figure, "Each control and references with as many rows", height=190 + 44 * len(names), bottom=120)


def references(controls: pl.DataFrame, control: str) -> list[tuple[str, pl.DataFrame]]:
    """What a control is compared with: frames of one mask per seed, by the name of the reference."""
    matched = controls.filter(pl.col("size_matched_to") == control)
    if matched.height:
        return [
            (name, matched.filter(pl.col("control") == name)) for name in in_control_order(matched["control"].to_list())
        ]
    own = controls.filter(pl.col("size_matched_to").is_null())
    full, part = own.filter(pl.col("control") == "consensus2"), own.filter(pl.col("control") == control)
    if control == "consensus2" or full.is_empty():
        return []
    same = full["rows_removed"][0] is not None and full["rows_removed"][0] == part["rows_removed"][0]
    return [("consensus2", full)] if same else []


def _mean_height(frame: pl.DataFrame) -> float:
    mean = frame["nll"].mean()
    return float(mean) / LN10 if isinstance(mean, float) else math.nan


def _reach(frame: pl.DataFrame) -> tuple[float, float]:
    return float(frame["nll"].min()) / LN10, float(frame["nll"].max()) / LN10  # type: ignore[arg-type]


def _with_rows(own: pl.DataFrame, control: str) -> str:
    rows = own.filter(pl.col("control") == control)["rows_removed"][0]
    return control_title(control) + (f"<br><sub>{rows:,} rows</sub>" if rows is not None else "")


def _control_mark(
    name: str, frame: pl.DataFrame, place: int, is_control: bool, legend: set[str], control: str
) -> go.Scatter:
    selector = name in palette.STYLES
    look = palette.style(name) if selector else None
    key = "control" if is_control and not selector else name
    mean, (low, high) = _mean_height(frame), _reach(frame)
    nll = mean * LN10
    rows = frame["rows_removed"][0]
    lines = [f"perplexity {formats.perplexity(nll)}", f"NLL {nll:.4f} nats per token"]
    if rows is not None:
        lines.append(f"{rows:,} rows removed")
    if frame.height > 1:
        lines.append(f"mean and range of {frame.height} seeds")
    role = "" if is_control else f", as large as {control_title(control)}"
    trace = go.Scatter(
        x=[mean], y=[place], mode="markers", legendgroup=key, showlegend=key not in legend,
        name=look.title if look else "the control",
        marker={
            "color": look.colour if look else _CONTROL_COLOUR, "symbol": look.symbol if look else "hexagon2",
            "size": 13 if is_control else 9, "line": {"width": 1.5 if is_control else 0, "color": "#808080"},
        },
        error_x=axes.intervals([(mean, low, high)] if frame.height > 1 else []),
        hovertemplate=f"<b>{control_title(name)}</b>{role}<br>" + "<br>".join(lines) + "<extra></extra>",
    )  # fmt: skip
    legend.add(key)
    return trace


def rank_shares(distribution: pl.DataFrame) -> go.Figure:
    """Where the rows of consensus2's masks stand: stacked shares per rate, with a pattern and a number each."""
    parts = (
        ("both", "in the masks of both LRP and IG", palette.style("consensus2").colour, ""),
        ("only_one", "in one of them", palette.style("ig").colour, "/"),
        ("neither", "in neither", palette.style("random").colour, "x"),
    )
    rows = distribution.sort("rate")
    labels = [formats.rate(rate) for rate in rows["rate"]]
    figure = go.Figure(
        [
            go.Bar(
                x=labels, y=rows[column].to_list(), name=name,
                text=["" if x is None or not 0.02 <= x < math.inf else f"{x:.1%}" for x in rows[column]],
                textposition="inside", insidetextanchor="middle", insidetextfont={"color": "#000000"},
                marker={
                    "color": colour,
                    "pattern": {"shape": shape, "solidity": 0.2, "fillmode": "overlay", "fgcolor": "#FFFFFF"},
                },
                hovertemplate=f"<b>{name}</b><br>%{{x}} removed: %{{y:.3%}}<extra></extra>",
            )
            for column, name, colour, shape in parts
        ]
    )  # fmt: skip
    figure.update_xaxes(type="category", title={"text": "rows removed", "standoff": 5})
    figure.update_yaxes(title="share of Consensus-2's mask", tickformat=".0%", range=[0, 1])
    figure.update_layout(barmode="stack")
    return finished(figure, "Where Consensus-2 takes its rows from")
