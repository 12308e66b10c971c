"""Every figure with error bars, compared with its table: centres, both ends, which marks have none, and the hover."""

import ast
import math
import sys
from pathlib import Path
from statistics import NormalDist

import plotly.graph_objects as go
import polars as pl
import pytest
from drawn import check, levels, says

import dashboard
from dashboard.charts import (
    axes,
    believed,
    curves,
    judges,
    learn,
    lines,
    mask_parts as parts,
    overview,
    refusal_edits,
    refusal_rates,
    refusal_values,
    single_effects as singles,
    task_dots as tasks,
)
from dashboard.charts.formats import LN10  # fmt: skip
from dashboard.pages.tasks import tasks_page
from engine.stats.limits import Thresholds

# Pairwise distinct values and lengths on both sides, so that a swap, a mirror or a wrong side shows.
ENDS = ((0.41, 0.32, 0.63), (0.24, 0.21, 0.57), (0.72, 0.46, 0.86), (0.53, 0.48, 0.67), (0.35, 0.04, 0.37),
        (0.64, 0.56, 0.83), (0.15, 0.03, 0.26), (0.82, 0.65, 0.88))  # fmt: skip
BARE = (0.46, None, None)  # a value without an interval
NAMES = {"lrp": "LRP", "ig": "IG", "wanda": "Wanda"}
Drawn = tuple[go.Figure, list[tuple[object, ...]]]


def columns(*names: str) -> list[str]:
    """Of each name the column of the value and those of both ends."""
    return [f"{name}{end}" for name in names for end in ("", "_low", "_high")]


def before_and_after() -> Drawn:
    change = refusal_values.RateChange
    sets = [change("a", True, ENDS[0], ENDS[1], 9), change("b", False, ENDS[2], ENDS[3], 9),
            change("c", True, BARE, ENDS[4], None), change("d", True, (None,) * 3, ENDS[5], 9)]  # fmt: skip
    before = [("unedited", "x", place, *one.before) for place, one in enumerate(sets) if one.before[0] is not None]
    return refusal_rates.changes(sets), before + [("edited", "x", i, *one.after) for i, one in enumerate(sets)]


def changes_of_tables() -> Drawn:
    """The same from a cell, the unedited cell, an operating point and further prompts."""
    names = columns("malign", "benign")
    numbers = iter(ENDS)

    def rates(*kinds: str) -> dict[str, float | None]:
        return dict(zip(columns(*kinds), (value for _ in kinds for value in next(numbers)), strict=True))

    place = {"selector": "lrp", "domain": "hate", "lambda": 0.5, "k": 0.02}
    cell = place | rates("malign", "benign") | {"malign_n": 5, "benign_n": 6}
    before = rates("malign", "benign")
    point = rates("unedited_malign", "edited_malign", "unedited_benign", "edited_benign") | {"pairs": 7}
    further = {"before": ENDS[6], "after": ENDS[1]}
    row = dict(zip(columns(*further), (*further["before"], *further["after"]), strict=True))
    transfer = pl.DataFrame([place | row | {"prompts": "more", "kind": "benign", "n": 3}])
    sets = refusal_values.rate_changes(cell, before, point, transfer, published=False)
    assert [(one.malign, one.n) for one in sets] == [(True, 5), (False, 6), (True, 7), (False, 7), (False, 3)]
    triples = [
        (side, "x", number, *(table[name] for name in columns(kind)))
        for number, (old, new, kinds) in enumerate((
            (before, cell, ("malign",) * 2), (before, cell, ("benign",) * 2),
            (point, point, ("unedited_malign", "edited_malign")), (point, point, ("unedited_benign", "edited_benign")),
            (row, row, ("before", "after")),
        ))
        for side, table, kind in zip(("unedited", "edited"), (old, new), kinds, strict=True)
    ]  # fmt: skip
    assert set(names) < set(cell)
    return refusal_rates.changes(sets), triples


def edit_among_random_masks() -> Drawn:
    point = dict(zip(columns("edited_malign"), ENDS[0], strict=True)) | {"unedited_malign": 0.1, "control_malign": 0.2}
    figure = refusal_rates.controls(point | {"control_malign_max": 0.3}, None)
    assert [hover.partition(" of")[0] for hover in figure.data[1].customdata] == ["mean", "largest"]
    return figure, [("edit", "x", 0, *ENDS[0]), *((figure.data[1].name, "x", 1, x, None, None) for x in (0.2, 0.3))]


def edit_without_an_interval() -> Drawn:
    return refusal_rates.controls({"edited_malign": 0.4}, None), [("edit", "x", 0, 0.4, None, None)]


def composed(kind: str) -> Drawn:
    numbers = [*ENDS[:5], BARE]
    places = [(mask, domain) for mask in ("hate", "crime", "none") for domain in ("hate", "crime")]
    other = {"malign": "benign", "benign": "malign"}[kind]
    rows = [
        {"mask_domain": mask, "evaluated_domain": domain, "rows_removed": 5, "malign_n": 40, "benign_n": 40}
        | dict(zip(columns(kind, other), (*mine, 0.01, 0.0, 0.02), strict=True))
        for (mask, domain), mine in zip(places, numbers, strict=True)
    ]
    wanted = [
        (f"{domain} prompts", "x", place // 2, *mine)
        for place, ((_, domain), mine) in enumerate(zip(places, numbers, strict=True))
    ]
    return refusal_rates.composed(pl.DataFrame(rows), kind), wanted


def ways() -> Drawn:
    rows = [
        {"method": "row_mask", "vector": vector, "setting": setting, "kl": 0.1, "edited_nll": 2.0, "pairs": 40}
        | {"unedited_malign": 0.1}
        | dict(zip(columns("edited_malign", "edited_benign"), (*malign, *benign), strict=True))
        for vector, setting, malign, benign in (
            ("lrp", "a", ENDS[0], ENDS[1]), ("ig", None, (None,) * 3, (None,) * 3), ("wanda", "b", ENDS[2], ENDS[3]),
        )
    ]  # fmt: skip
    malign, benign = "risk prompts refused", "harmless prompts refused"
    wanted = [(malign, "x", 0, *ENDS[0]), (malign, "x", 2, *ENDS[2])]
    return refusal_rates.ways(pl.DataFrame(rows), "h", "b"), [
        *wanted, (benign, "x", 0, *ENDS[1]), (benign, "x", 2, *ENDS[3]),
    ]  # fmt: skip


def trade_off() -> Drawn:
    """Bars on the operating point and the chosen cell, on no other."""
    rows = [
        {"selector": "lrp", "domain": "hate", "lambda": 0.5, "k": k, "rows_removed": 5, "nll": 2 + k, "feasible": k < 3}
        | {"id": f"lrp/{k}", "point": point, "rescue": False}
        | dict(zip(columns("malign", "benign"), (*malign, *benign), strict=True))
        for k, point, malign, benign in (
            (1, False, ENDS[0], ENDS[1]), (2, True, ENDS[2], ENDS[3]), (3, False, ENDS[4], ENDS[5]),
            (4, False, ENDS[6], ENDS[7]),
        )
    ]  # fmt: skip
    frame = pl.DataFrame(rows)
    figure = refusal_edits.trade_off(frame, frame.clear(), "lrp/3", 0.1, "h")
    hovers = dict(mark for trace in figure.data for mark in trace.customdata or ())
    for row in rows:
        assert all(says(hovers[row["id"]], row[name]) for name in columns("malign", "benign"))
    return figure, [("", "y", row["nll"] / LN10, *(row[name] for name in columns("malign"))) for row in rows[1:3]]


def selectors_before_and_after() -> Drawn:
    rows = [
        {"selector": name, "domain": domain, "lambda": 0.5, "k": 0.02, "rescue": False, "control_malign": 0.2}
        | {"unedited_benign": 0.02, "edited_benign": 0.05}
        | dict(zip(columns("unedited_malign", "edited_malign"), (*ENDS[4], *after), strict=True))
        for domain, name, after in (
            ("hate", "lrp", ENDS[0]), ("hate", "ig", ENDS[1]), ("crime", "lrp", ENDS[2]), ("crime", "ig", BARE),
        )
    ]  # fmt: skip
    figure = refusal_edits.edits(pl.DataFrame(rows), "malign", "lrp/hate/0.5/0.02", "h")
    assert "harmless ones: 2% before, 5% after" in figure.layout.title.text
    for chosen, rings in (("lrp/hate/0.5/0.02", 1), ("", 0)):  # the mean's marks have no edit to ring
        drawn = refusal_edits.edits(pl.DataFrame(rows), "malign", chosen, "h").data
        assert sum(sum(width > 0 for width in one.marker.line.width) for one in drawn if one.name == "edited") == rings
    order = ["lrp", "ig"]  # by their means
    wanted = [
        ("edited", "x", order.index(row["selector"]), *(row[n] for n in columns("edited_malign"))) for row in rows
    ]
    before, random = (
        [t for t in figure.data if t.name == f"{side}_malign" and t.x] for side in ("unedited", "control")
    )
    assert [list(trace.x) for trace in before] == [[pytest.approx(ENDS[4][0])] * 2] * 3
    assert [list(trace.x) for trace in random] == [[pytest.approx(0.2)] * 2] * 3
    sizes = [list(trace.marker.size) for trace in figure.data if trace.name == "edited" and trace.customdata]
    assert sizes[1][0] > sizes[1][1] == sizes[2][0] == sizes[2][1] == sizes[0][0] == sizes[0][1]
    (p, low, high), (q, below, above) = ENDS[0], ENDS[2]
    mean, ends = (p + q) / 2, (math.hypot(p - low, q - below) / 2, math.hypot(high - p, above - q) / 2)
    ig = (ENDS[1][0] + BARE[0]) / 2  # one of its ends is not known
    means = [("edited", "x", 0, mean, mean - ends[0], mean + ends[1]), ("edited", "x", 1, ig, None, None)]
    return figure, means + wanted


def at_one_rate() -> Drawn:
    rows = [
        {"selector": name, "rate": rate, "accuracy": value, "error": error, "bar": 2 * error, "item_error": error,
         "chance": 0.25, "rows_removed": 9, "seeds": 1, "items": 7}
        for name, rate, value, error in (
            ("lrp", 0.0, 0.9, 0.01), ("ig", 0.0, 0.9, 0.01), ("lrp", 0.3, 0.41, 0.09), ("ig", 0.3, 0.63, 0.05),
            ("lrp", 0.1, 0.7, 0.02),
        )
    ]  # fmt: skip
    table, order = pl.DataFrame(rows), ["ig", "lrp"]
    other = table.with_columns(accuracy=pl.col("accuracy") / 2)
    figure = tasks.at_rate({"Mean": table, "<b>": other}, 0.3, "", tasks_page._hover)
    assert [NAMES[name] for name in order] == list(figure.layout.yaxis.ticktext)
    far = NormalDist().inv_cdf(1 - 0.05 / 2)  # what two selectors must clear chance by, in errors
    marks = {(trace.name, trace.xaxis): trace.marker.symbol for trace in figure.data if trace.x[0] is not None}
    for axis, panel in (("x", table), ("x2", other)):
        for row in panel.filter(rate=0.3).iter_rows(named=True):  # open: not told from chance
            over = row["accuracy"] - far * row["error"] > 0.25
            assert marks[NAMES[row["selector"]], axis].endswith("-open") is not over
    triples = [
        (NAMES[row["selector"]], "x", order.index(row["selector"]), row["accuracy"],
         row["accuracy"] - far * row["error"], row["accuracy"] + far * row["error"])
        for panel in (table, other) for row in panel.to_dicts() if row["rate"] == 0.3
    ]  # fmt: skip
    unknown = table.with_columns(pl.lit(None, pl.Float64).alias(name) for name in ("error", "item_error"))
    without = tasks.at_rate({"Mean": unknown}, 0.3, "", tasks_page._hover)
    assert not any(trace.error_x.visible for trace in without.data)
    return figure, triples


def against_own_layers(shares: bool) -> Drawn:
    ours, theirs = ("depth_share", "difference") if shares else ("difference", "depth_share")
    ends = {"difference": ("difference", "low", "high"), "depth_share": columns("depth_share")}
    rows = [
        {"selector": name, "order": "lerf", "answer": "better", "p_holm": 0.01, "advantage": 1.2}
        | {"control_advantage": 0.3}
        | dict(zip((*ends[ours], *ends[theirs]), (*mine, *other), strict=True))
        for name, mine, other in (
            ("ig", ENDS[0], ENDS[1]), ("lrp", ENDS[2], ENDS[3]), ("wanda", (None,) * 3 if shares else BARE, ENDS[4]),
        )
    ]  # fmt: skip
    frame = pl.DataFrame(rows)
    figure = believed.depth_shares(frame) if shares else believed.own_depths(frame, "lerf")
    wanted = [("LRP", "x", 0, *ENDS[2]), ("IG", "x", 1, *ENDS[0])]
    return figure, wanted if shares else [*wanted, ("Wanda", "x", 2, *BARE)]


def dumbbells() -> Drawn:
    """Mean and range over seeds; one mask alone has no bar."""
    seeds = {"consensus2": (2.5,), "random": (4.0, 4.1, 4.6), "lrp": (3.0, 3.7)}
    rows = [
        {"control": name, "size_matched_to": None, "rows_removed": 24, "nll": nll, "seed": seed}
        for name, nlls in seeds.items() for seed, nll in enumerate(nlls)
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema_overrides={"size_matched_to": pl.String})
    wanted = []
    for place, name in enumerate(("consensus2", "lrp", "random")):
        nlls = [nll / LN10 for nll in seeds[name]]
        ends = (min(nlls), max(nlls)) if len(nlls) > 1 else (None, None)
        title = {"consensus2": "Consensus-2", "lrp": "LRP", "random": "Random"}[name]
        wanted.append((title, "x", place, sum(nlls) / len(nlls), *ends))
        if name != "consensus2":  # beside each control of its size
            wanted.append(("Consensus-2", "x", place, 2.5 / LN10, None, None))
    return believed.dumbbells(frame), wanted


def refused_bars() -> Drawn:
    numbers = {("x", "one"): ENDS[0], ("y", "one"): ENDS[1], ("x", "two"): ENDS[2], ("y", "two"): BARE}
    rows = [
        {"group": group, "name": name, "share": share, "low": low, "high": high}
        for (group, name), (share, low, high) in numbers.items()
    ]
    wanted = [(name, "x", place, *mine) for place, ((_, name), mine) in enumerate(numbers.items())]
    return learn.refusals(pl.DataFrame(rows), "h"), wanted


def single_rows(sets: bool) -> Drawn:
    """Two seeds of IG are averaged, ends and all; a seed without an interval leaves none."""
    rows = [("lrp", None, *ENDS[0], 2.6), ("ig", 1, *ENDS[1], 3.0), ("ig", 2, *ENDS[2], 3.2), ("wanda", None, *BARE, 2)]
    names = ["selector", "seed", "signed_spearman", "signed_low", "signed_high", "lerf_nll"]
    found = singles.marks(pl.DataFrame(rows, schema=names, orient="row"), "signed")
    ig = [sum(pair) / 2 for pair in zip(ENDS[1], ENDS[2], strict=True)]
    wanted = [("LRP", (2.6, 0), *ENDS[0]), ("IG", (3.1, 1), *ig), ("Wanda", (2.0, 2), *BARE)]
    figure = (singles.scatter if sets else singles.intervals)(found, "h", "signed", "row")
    return figure, [(name, "x", places[0] if sets else places[1], *mine) for name, places, *mine in wanted]


def between_draws() -> Drawn:
    rows = [(name, *mine, 0.9) for name, mine in (("wanda", ENDS[0]), ("lrp", ENDS[1]), ("ig", (None,) * 3))]
    names = ["selector", "jaccard", "jaccard_min", "jaccard_max", "spearman"]
    figure = believed.between_draws(pl.DataFrame(rows, schema=names, orient="row"), 0.8, heading="h")
    return figure, [("LRP", "x", 0, *ENDS[1]), ("Wanda", "x", 1, *ENDS[0])]


def judged_rates() -> Drawn:
    rows = [
        {"source": source, "judge": judge, "measure": measure, "replies": 50, "cases": 5}
        | dict(zip(("value", "low", "high"), ENDS[i], strict=True))
        for i, (measure, judge, source) in enumerate(
            (measure, judge, source) for measure in ("refused", "recall") for judge in ("a", "b") for source in "st"
        )
    ]  # fmt: skip
    places = {"s": 0, "t": 1}
    wanted = [(row["judge"], "x", places[row["source"]], *(row[n] for n in ("value", "low", "high"))) for row in rows]
    return judges.rates(pl.DataFrame(rows), ["a", "b"], "h"), wanted


def removal_budgets() -> Drawn:
    """Seeds of random by their mean, from the least to the greatest end; an open interval has no bar."""
    rows = [("lrp", None, "lerf", ENDS[2], 0.8), ("lrp", None, "morf", ENDS[6], 0.2), ("ig", None, "lerf", BARE, None),
            ("random", 1, "lerf", ENDS[0], 0.5), ("random", 2, "lerf", ENDS[1], 0.5)]  # fmt: skip
    frame = pl.DataFrame(
        [(name, seed, order, *mine, beyond, 2.0) for name, seed, order, mine, beyond in rows],
        schema=["selector", "seed", "order", *columns("budget"), "beyond", "factor"], orient="row",
    )  # fmt: skip
    lerf, morf = "lowest scores first", "highest scores first"
    wanted = [
        (f"LRP, {lerf}", "x", 0, *ENDS[2]), (f"IG, {lerf}", "x", 1, *BARE),
        (f"Random, {lerf}", "x", 2, (ENDS[0][0] + ENDS[1][0]) / 2, ENDS[1][1], ENDS[0][2]),
        (f"LRP, {morf}", "x", 0, *ENDS[6]),
    ]  # fmt: skip
    said = "By LRP, 72% of the rows can go before perplexity doubles; at random, 32.5%"
    assert overview.budget_finding(frame) == said
    none = frame.with_columns(budget=pl.when(pl.col("order") == "lerf").then("budget").otherwise(0.0))
    symbols = {trace.name: trace.marker.symbol for trace in overview.budgets(none).data}
    assert [symbols[f"IG, {lerf}"], symbols[f"LRP, {morf}"]] == ["triangle-right", "triangle-left-open"]
    one_order = overview.budgets(frame.filter(order="lerf"))
    assert "open" not in one_order.layout.title.text
    assert [trace.name for trace in one_order.data][-2:] == ["Random, lowest scores first", lerf]
    return overview.budgets(frame), wanted


def restored() -> Drawn:
    """Errors in nats become shares of the mask's harm, here 2 nats."""
    names = [
        "selector", "order", "rate", "part", "name", "rows_removed", "nll_alone", "nll_without", "nll", "dense_nll",
        "restored", "stderr_blocks", "blocks",
    ]  # fmt: skip
    of_nats = 1 / 2.7764451  # t.ppf(.975, 4) of scipy: five blocks
    shares = (("k_proj", 0.1, 0.3 * of_nats, 5), ("q_proj", 0.85, 0.2 * of_nats, 5), ("o_proj", 0.05, None, 5))
    rows = [("lrp", "lerf", 0.1, "projection", name, 5, 0.7, 0.9, 2.5, 0.5, *pair) for name, *pair in shares]
    wanted = [("", "x", 0, 0.85, 0.75, 0.95), ("", "x", 1, 0.1, 0.1 - 0.15, 0.1 + 0.15), ("", "x", 2, 0.05, None, None)]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    assert parts.finding(frame) == "85% of the harm of LRP's mask (LeRF, 10%) goes when its rows of q_proj are put back"
    return parts.restored(frame), wanted


def stable_and_valid() -> Drawn:
    """Intervals over draws, at the verdicts' rate alone; upwards what is left of 1 of the damage."""
    places = {"lrp": (ENDS[0], 0.9), "ig": (ENDS[1], 0.4), "wanda": (BARE, 0.1)}
    verdicts = pl.DataFrame([
        {"selector": name, "draw_jaccard": ends[0], "damage": damage, "lerf_nll": 2.0, "validity": "not",
         "stability": "not"} for name, (ends, damage) in places.items()
    ])  # fmt: skip
    draws = pl.DataFrame([
        {"selector": name, "rate": rate, "jaccard_low": low, "jaccard_high": high}
        for rate in (0.1, 0.3) for name, ((_, low, high), _) in places.items() if rate == 0.3 or name == "wanda"
    ])  # fmt: skip
    draws = pl.concat([draws, pl.DataFrame({"selector": ["wanda"], "rate": [0.5], "jaccard_low": [0.1],
                                            "jaccard_high": [0.9]})], how="vertical_relaxed")  # fmt: skip
    figure = believed.quadrant(verdicts, "draw_jaccard", 0.8, Thresholds(), draws)
    return figure, [(NAMES[name], "x", 1 - damage, *ends) for name, (ends, damage) in places.items()]


def lines_of(kind: str) -> Drawn:
    """Errors in the unit of the axis; what is null or not finite has none."""
    unit = LN10 if kind == "perplexity" else 1.0
    rows = [("lrp", 8, 0.5, 0.1), ("lrp", 16, 0.7, None), ("ig", 8, 0.6, 0.3), ("ig", 16, 0.4, math.inf),
            ("wanda", 8, math.inf, 0.2), ("wanda", 16, 0.2, 0.05)]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["selector", "size", "y", "e"], orient="row")
    figure = lines.lines(
        frame, lines.Axis("size", "s", "category"), lines.Axis("y", "y", kind), heading="h", error="e",
        hover=lambda row: f"{row['y']}",
    )  # fmt: skip
    return figure, _with_errors(rows, unit)


def perplexity_curve() -> Drawn:
    rows = [("lrp", 0.1, 2.0, 0.1), ("lrp", 0.3, 2.5, 0.25), ("lrp", 0.5, 3.0, None), ("lrp", 0.7, math.inf, 0.1)]
    frame = pl.DataFrame(rows, schema=["selector", "rate", "nll", "bar"], orient="row").with_columns(
        interval="bar", rows_removed=5, printed=pl.lit(None, pl.String), seeds=1, tokens=9, plateau=False
    )
    lesson = learn.curves(frame.with_columns(order=pl.lit("lerf")), "lrp", ["lerf"], 1.5, 0.3, (4,))
    assert levels(lesson) == [("x", 0.3), *(("y", pytest.approx((1.5 + math.log(factor)) / LN10)) for factor in (1, 4))]
    figure = go.Figure([curves.curve(frame, "lrp", 1.5)])
    return figure, [
        (trace, axis, place, value - 1.5 / LN10, *((low - 1.5 / LN10, high - 1.5 / LN10) if low else (None, None)))
        for trace, axis, place, value, low, high in _with_errors(rows, LN10)
    ]


def _with_errors(rows: list[tuple], unit: float) -> list[tuple]:
    return [
        (NAMES[name], "y", str(x) if isinstance(x, int) else x, y / unit)
        + (((y - error) / unit, (y + error) / unit) if error and math.isfinite(error) else (None, None))
        for name, x, y, error in rows if math.isfinite(y)
    ]  # fmt: skip


VALUE, NOTHING = ("value",), ()
CASES = {
    "before and after": (before_and_after,), "before and after, of the tables": (changes_of_tables,),
    "edit among random masks": (edit_among_random_masks,), "edit without an interval": (edit_without_an_interval,),
    "composed, malign": (lambda: composed("malign"),), "composed, benign": (lambda: composed("benign"),),
    "ways": (ways,), "trade-off": (trade_off, NOTHING), "selectors before and after": (selectors_before_and_after,),
    "tasks at one rate": (at_one_rate, VALUE),
    "depth share": (lambda: against_own_layers(True),), "own layers": (lambda: against_own_layers(False),),
    "controls": (dumbbells, NOTHING), "learn": (refused_bars, VALUE),
    "singles and sets": (lambda: single_rows(True),), "singles alone": (lambda: single_rows(False),),
    "between draws": (between_draws,), "stable and valid": (stable_and_valid, VALUE), "judges": (judged_rates,),
    "budget": (removal_budgets, VALUE), "parts": (restored, NOTHING),
    "lines": (lambda: lines_of("number"), VALUE),
    "lines of perplexity": (lambda: lines_of("perplexity"), NOTHING), "curve": (perplexity_curve, NOTHING),
}  # fmt: skip


# What marks are compared with: the unedited model, no difference, limits, chance and all rows, random rows' mean.
LEVELS = {
    "edit among random masks": [("x", 0.1)], "ways": [("x", 0.1)], "between draws": [("x", 0.8)],
    "depth share": [("x", 1)], "own layers": [("x", 0)], "singles and sets": [("x", 0)], "singles alone": [("x", 0)],
    "tasks at one rate": [("x", 0.25), ("x", 0.25), ("x", 0.45), ("x", 0.9)], "budget": [("x", (0.41 + 0.24) / 2)],
    "stable and valid": [("x", 0.8), ("y", 1 - 0.8), ("y", 1 - 0.5)],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_bars_reach_from_both_ends_of_the_table(name):
    draw, *hover = CASES[name]
    figure, rows = draw()
    assert any(row[-1] is not None for row in rows) or name == "edit without an interval"
    check(figure, rows, **({"hover": hover[0]} if hover else {}))
    assert levels(figure) == [(axis, pytest.approx(number)) for axis, number in LEVELS.get(name, ())]


def test_a_line_joins_the_outermost_marks_of_each_control():
    figure, rows = dumbbells()
    joined = {trace.y[0]: tuple(trace.x) for trace in figure.data if trace.mode == "lines"}
    at = {place: [value for _, _, other, value, *_ in rows if other == place] for place in range(3)}
    assert joined == {
        place: pytest.approx((min(values), max(values))) for place, values in at.items() if len(values) > 1
    }


def test_the_line_of_a_further_draw_is_its_prediction_interval():
    line = {"edited_malign": 0.6, "unedited_malign": 0.1, "draws_low": 0.07, "draws_high": 0.44}
    draws = pl.DataFrame({"malign": [0.2, 0.3], "seed": [0, 1], "k": [0.02, None]})
    figure = refusal_rates.among_draws(line, draws)
    (joined,) = [trace for trace in figure.data if trace.mode == "lines"]
    assert (list(joined.x), list(joined.y)) == ([0.07, 0.44], [1, 1])
    edit, marks = (trace for trace in figure.data if trace.mode == "markers")
    assert (list(edit.x), list(edit.y), list(marks.x), list(marks.y)) == ([0.6], [0], [0.2, 0.3], [1, 1])
    assert not any(trace.error_x.visible for trace in (edit, marks))
    assert levels(figure) == [("x", 0.1)]


def functions_with_bars() -> set[str]:
    """`module.function` for every function of the dashboard that gives a trace error bars; a function that makes them
    without `axes.intervals` or `axes.errors` fails."""
    found = set()
    root = Path(dashboard.__file__).parent
    for path in root.rglob("*.py"):
        for function in ast.parse(path.read_text("utf-8")).body:
            name = f"{path.stem}.{getattr(function, 'name', '')}"
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("axes.intervals", "axes.errors"):
                    found.add(name)
                texts = [key for key in getattr(node, "keys", ()) if isinstance(key, ast.Constant)]
                own = isinstance(node, ast.Dict) and "array" in [text.value for text in texts]
                assert not own or name in ("axes.intervals", "axes.errors"), f"{name} makes its own error bars"
                if isinstance(node, ast.keyword) and node.arg in ("error_x", "error_y"):
                    assert ast.unparse(node.value).startswith(("axes.intervals(", "axes.errors(")), name
    return found


def test_every_function_that_draws_bars_is_among_the_cases(monkeypatch):
    called = set()
    for name in ("intervals", "errors"):
        made = getattr(axes, name)

        def recorded(*given, made=made, **options):
            frame = sys._getframe(1)
            while frame.f_code.co_name.startswith("<"):  # of a comprehension
                frame = frame.f_back
            called.add(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
            return made(*given, **options)

        monkeypatch.setattr(axes, name, recorded)
    for draw, *_ in CASES.values():
        draw()
    assert called == functions_with_bars()
    assert len(called) > 7
