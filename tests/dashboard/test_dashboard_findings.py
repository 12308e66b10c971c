"""The sentences in the titles of curves: every one computed again, slowly, from the table that is drawn."""

import itertools
import math
import re

import numpy as np
import plotly.graph_objects as go
import polars as pl
import pytest
from scipy.stats import norm
from synthetic import SLOPES, sweep

import precomputed
from dashboard.charts import formats, palette, series
from dashboard.charts.findings import curve_findings as curves, finding_words as words
from dashboard.state import results

SHIPPED = precomputed.demo_dir() / "results"
SUPERSCRIPT = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number(text):
    """The logarithm of a number as pages write it."""
    plain = text.replace(",", "")
    if "×10" in plain:
        mantissa, exponent = plain.split("×10")
        return math.log(float(mantissa)) + int(exponent.translate(SUPERSCRIPT)) * math.log(10)
    return math.log(float(plain))


def table(values, errors=None, limit=math.inf):
    """limit: NLL above which a model is destroyed."""
    rows = [(name, value, None if errors is None else errors[name], value > limit) for name, value in values.items()]
    schema = {"selector": pl.String, "nll": pl.Float64, "error": pl.Float64, "destroyed": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")


def named(part):
    """Ids of the selectors at the start of a part of a sentence, and how many more it counts."""
    by_title = {palette.title(name): name for name in palette.STYLES}
    found = [by_title[one] for one in re.split(r", | and ", part) if one in by_title]
    more = re.search(r"(?:and |^All |^the other |^)(\d+)", part)
    return set(found), int(more[1]) if more else 0


def destroying(sentence, order):
    """What a sentence says of those that leave a model, and of those that destroy it: who, and how many more."""
    ends = sentence.partition("; ") if order == "morf" else sentence.rpartition("; ")[::-1]
    end, _, alive = ends if " destroy" in ends[0] else (sentence, "", "")
    return alive, end, named(re.split(" destroys? ", end)[0])


def holds(sentence, rows, order):
    """Is a sentence of two groups true of the table, by a loop over all pairs?"""
    values = {name: (nll, error) for name, nll, error, destroyed in rows.iter_rows() if not destroyed}
    if len(values) == 1:
        alive, _, (gone, more) = destroying(sentence, order)
        return alive.startswith(f"{palette.title(*values)}: perplexity ") and len(gone) + more == rows.height - 1
    first, second = sentence.split("; ")[:2]
    verbs = r"(?:keeps?|drives?|goes|go|stays?)"
    front = re.match(rf"(.*?) {verbs} (?:perplexity )?(below|above) (\S+)", first)
    back = re.match(rf"(.*?) {verbs} (?:perplexity )?(below|above) (\S+)", second)
    assert front
    assert back
    names, more = named(front[1])
    want = len(names) + more
    ordered = sorted(values, key=lambda name: values[name][0], reverse=order == "morf")
    group, rest = ordered[:want], ordered[want:]
    assert names <= set(group)
    names, more = named(back[1])
    assert len(names) + more == len(rest)
    low, high = (group, rest) if order == "lerf" else (rest, group)
    under, over = (front, back) if order == "lerf" else (back, front)
    assert (under[2], over[2]) == ("below", "above")
    assert all(values[name][0] < number(under[3]) for name in low)
    assert all(values[name][0] > number(over[3]) for name in high)
    if all(error is not None for _, error in values.values()):
        count = len(values) * (len(values) - 1) / 2
        z = norm.isf(0.05 / 2 / count)
        for one, other in itertools.product(low, high):
            (a, ea), (b, eb) = values[one], values[other]
            assert b - a > z * math.sqrt(ea**2 + eb**2)
    return True


@pytest.mark.parametrize("order", ["lerf", "morf"])
@pytest.mark.parametrize("errors", [True, False])
def test_every_sentence_of_random_tables_is_true_of_them(order, errors):
    noise = np.random.default_rng(5)
    names = ["lrp", "ig", "consensus2", "wanda", "magnitude", "random"]
    seen = set()
    for _ in range(300):
        count = int(noise.integers(2, len(names) + 1))
        values = {name: float(noise.normal(4, 10 ** noise.uniform(-2, 1.5))) for name in names[:count]}
        bars = {name: float(10 ** noise.uniform(-2, 0)) for name in values} if errors else None
        rows = table(values, bars, limit := noise.choice([math.inf, 6.0]))
        sentence = curves.harm(rows, order, "with 30% removed")
        lost = {name for name, value in values.items() if value > limit}
        values = {name: value for name, value in values.items() if name not in lost}
        if lost and not sentence.startswith("Only "):
            sentence, end, (who, more) = destroying(sentence, order)
            assert who <= lost
            assert len(who) + more == len(lost) or len(lost) == count
            count = len(values)
        if order == "lerf" and len(lost) > 2 and 0 < len(values) <= 4:
            ordered = sorted(values, key=values.__getitem__)
            low, high = (formats.perplexity(values[ordered[place]]) for place in (0, -1))
            who = words.listed(list(map(palette.title, ordered)))
            leave = "leave" if " and " in who else "leaves"
            said = f"Only {who} {leave} the model undestroyed with 30% removed: perplexity {low}"
            assert sentence == said + f" to {high}" * (high != low)
            continue
        if not values:
            assert end == "Every selector's mask destroys the model with 30% removed"
        elif len(values) == 1:
            assert sentence.startswith(f"{palette.title(next(iter(values)))}: perplexity ")
        elif ";" in sentence and "no clear gap" not in sentence:
            assert holds(sentence, rows, order)
            seen.add("groups")
        else:
            assert errors
            z = norm.isf(0.05 / (count * (count - 1)))
            apart = any(
                abs(values[a] - values[b]) > z * math.hypot(bars[a], bars[b])
                for a, b in itertools.combinations(values, 2)
            )
            ordered = sorted(values, key=values.__getitem__)
            each = [f"{formats.perplexity(values[name])} ({palette.title(name)})" for name in ordered]
            said = f"Perplexity runs from {each[0]} to {each[-1]}"
            assert (said if apart else "No difference beyond the errors") in sentence
            seen.add(apart)
    assert seen == ({"groups", True, False} if errors else {"groups"})


def test_noise_is_called_a_difference_at_most_as_often_as_the_level_says():
    noise = np.random.default_rng(11)
    names = [f"s{number}" for number in range(9)]
    called = 0
    for _ in range(1500):
        errors = noise.uniform(0.01, 0.1, len(names))
        values = 3.0 + errors * noise.standard_normal(len(names))
        found = [curves.Value(*one) for one in zip(names, values.tolist(), errors.tolist(), strict=True)]
        called += curves.any_apart(found)
        assert bool(curves.split(found).high) <= curves.any_apart(found)
    assert called / 1500 <= curves.LEVEL + 3 * math.sqrt(curves.LEVEL * (1 - curves.LEVEL) / 1500)


def test_lines_keep_words_with_hyphens_whole():
    assert words.lines("on held-out prompts", 9) == ["on", "held-out", "prompts"]  # as a wide screen joins them again


def test_a_bound_lies_on_its_side_and_has_three_digits():
    noise = np.random.default_rng(3)
    for nll in [*noise.uniform(-3, 900, 400).tolist(), math.log(10.0), math.log(9.999), math.log(1000.0), 0.0]:
        up, down = words.bound(nll, up=True), words.bound(nll, up=False)
        assert number(down) < nll < number(up)
        assert number(up) - number(down) < 0.025


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_the_shipped_curves(order):
    frame = results.read_run(SHIPPED).frame
    selectors = frame["selector"].unique().to_list()
    points = series.points(frame, "demo", selectors, ["lerf", "morf"], (0.0, 1.0))
    at = {}
    for row in frame.filter(order=order).iter_rows(named=True):
        if abs(row["rate"] - 0.3) < 1e-9:
            at.setdefault(row["selector"], []).append((row["nll"], row["nll_stderr"]))
    values, errors = {}, {}
    for name, cells in at.items():
        values[name] = sum(nll for nll, _ in cells) / len(cells)
        errors[name] = cells[0][1]
        if len(cells) > 1:
            spread = sum((nll - values[name]) ** 2 for nll, _ in cells) / (len(cells) - 1)
            errors[name] = math.sqrt(spread + (sum(error for _, error in cells) / len(cells)) ** 2)
    sentence = curves.curve(points, order)
    assert "with 30% removed" in sentence
    rows = table(values, errors, frame["saturated_above"][0] or math.inf)
    assert holds(sentence, rows, order) if ";" in sentence else "errors" in sentence


def test_where_every_mask_destroys_the_model_another_rate_is_told():
    frame = results.read_run(SHIPPED).frame.with_columns(saturated_above=pl.lit(5.0))
    points = series.points(frame, "demo", ["lrp", "ig"], ["lerf", "morf"], (0.0, 1.0))
    at_thirty = points.filter(order="morf", rate=0.3)
    assert at_thirty["nll"].min() > 5
    alive = points.filter(pl.col("order") == "morf", pl.col("nll") <= 5)
    assert f"with {alive['rate'].max():.0%} removed" in curves.curve(points, "morf") != curves.curve(points, "lerf")
    gaps = series.gaps(points)
    for row in gaps.iter_rows(named=True):
        both = min(row["nll_lerf"], row["nll_morf"]) > 5
        assert row["counted_gap"] == (None if both else min(5, row["nll_morf"]) - min(5, row["nll_lerf"]))
    best = max(gaps.filter(rate=0.3)["counted_gap"])
    assert f"{best:.2f} nats" in curves.gap(gaps)
    destroyed = points.filter(rate=0.3).with_columns(destroyed=pl.lit(True))
    assert curves.over_models([destroyed], "morf") == "No model has two selectors to compare"


@pytest.mark.parametrize("model", results.read_paper().models)
def test_published_curves_are_said_as_printed(model):
    frame = results.read_paper().frame.filter(model=model)
    points = series.points(frame, model, frame["selector"].unique().to_list(), ["lerf", "morf"], (0.0, 1.0))
    for order in ("lerf", "morf"):
        at = frame.filter(pl.col("order") == order, (pl.col("rate") - 0.3).abs() < 1e-9)
        values = dict(at.group_by("selector").agg(pl.col("nll").mean()).iter_rows())
        assert holds(curves.curve(points, order), table(values), order)


def made_up(slopes=SLOPES):
    frame = sweep(slopes).with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))
    return series.points(frame, "made-up-1B", list(slopes), ["lerf", "morf"], (0.0, 1.0))


def test_another_table_has_another_answer():
    assert curves.curve(made_up(), "lerf") == (
        "LRP and IG keep perplexity below 11.6 with 30% removed; Wanda and Random go above 44.7"
    )
    turned = made_up({"lrp": (9.0, 1.0), "wanda": (1.0, 20.0)})
    assert curves.curve(turned, "lerf").startswith(
        "Wanda keeps perplexity below 9.98 with 30% removed; LRP goes above 109"
    )
    assert curves.curve(turned, "morf").startswith("Wanda drives perplexity above")
    alike = made_up({"lrp": (1.0, 9.0), "ig": (1.01, 9.0)})
    assert curves.curve(alike, "lerf").startswith("No difference beyond the errors with 30% removed: perplexity 9.97")


def test_the_rate_is_one_that_all_have_and_what_is_not_finite_is_named():
    points = made_up().filter((pl.col("selector") != "ig") | (pl.col("rate") != 0.3))
    assert "with 10% removed" in curves.curve(points, "lerf") or "with 50% removed" in curves.curve(points, "lerf")
    broken = made_up().with_columns(nll=pl.when(selector="wanda").then(math.inf).otherwise("nll"))
    assert curves.curve(broken, "lerf").endswith("; not finite: Wanda")
    assert curves.curve(made_up().clear(), "lerf") == "Nothing is drawn"
    assert curves.curve(made_up(), "lerf", shift=None) == "Nothing is drawn"
    assert "11.6" not in curves.curve(made_up(), "lerf", shift=2.0)
    assert "below 1.57 times the unmasked model's" in curves.curve(made_up(), "lerf", shift=2.0)


def test_the_gap_names_the_largest_and_what_is_inverted_beyond_the_errors():
    gaps = series.gaps(made_up({"lrp": (1.0, 20.0), "ig": (3.0, 2.9), "wanda": (9.0, 2.0), "random": (6.0, 5.0)}))
    sentence = curves.gap(gaps)
    at = gaps.filter((pl.col("rate") - 0.3).abs() < 1e-9)
    largest = max(at.iter_rows(named=True), key=lambda row: row["log_gap"])
    assert sentence == f"LRP has the largest gap with 30% removed, {largest['log_gap']:.2f} nats; Wanda is inverted"
    flat = series.gaps(made_up({"lrp": (1.0, 1.1), "ig": (1.0, 1.0)}))
    assert curves.gap(flat) == "No gap is above 0 beyond its error with 30% removed"
    assert curves.gap(flat.clear()) == "No gap is known"


def test_over_models_the_leaders_are_counted():
    paper = results.read_paper()
    panels = [
        series.points(paper.frame, model, list(palette.STYLES), ["lerf", "morf"], (0.0, 1.0)) for model in paper.models
    ]
    for order, end in (("lerf", min), ("morf", max)):
        wins = {}
        for model in paper.models:
            cells = {}
            for row in paper.frame.filter(model=model, order=order).iter_rows(named=True):
                if abs(row["rate"] - 0.3) < 1e-9:
                    cells.setdefault(row["selector"], []).append(row["nll"])
            means = {name: sum(values) / len(values) for name, values in cells.items()}
            for name, value in means.items():
                if value == end(means.values()):
                    wins[name] = wins.get(name, 0) + 1
        sentence = curves.over_models(panels, order)
        most = max(wins.values())
        assert named(sentence.split(" is ")[0].split(" are ")[0])[0] == {n for n, won in wins.items() if won == most}
        assert f"in {most} of {len(paper.models)} models" in sentence
    without = [panels[0].filter(pl.col("selector") != "consensus2"), *panels[1:]]
    assert curves.over_models(without, "lerf").startswith("Consensus-2 is lowest in ")
    assert "of 4 models" in curves.over_models(without, "lerf"), "those that have the leader"
    assert curves.over_models([], "lerf") == "No model has two selectors to compare"


def test_pairs_told_apart():
    assert curves.differences(0, 3, 0.3) == "No difference beyond the errors between any two selectors with 30% removed"
    assert curves.differences(2, 3, 0.3).startswith("2 of 3 pairs")


def test_a_finding_takes_the_titles_place_and_the_plot_stays_as_large():
    figure = go.Figure().update_layout(
        height=400, margin={"t": 66, "b": 120}, title={"text": "old<br><sub>a &lt; b</sub>", "y": 0.94}
    )
    sentence = "Consensus-2, LRP and <IG> keep perplexity below 10.2 with 30% removed; the others go above 30.1"
    words.headed(figure, sentence)
    layout = figure.layout
    title, below = layout.title.text.split("<br><sub>")
    assert below == "a &lt; b</sub>"
    parts = title.split("<br>")
    assert len(parts) > 1
    assert all(len(part.replace("&lt;", "<").replace("&gt;", ">")) <= words.TITLE_LETTERS for part in parts)
    assert " ".join(parts) == sentence.replace("<", "&lt;").replace(">", "&gt;")
    assert layout.height - layout.margin.t - layout.margin.b == pytest.approx(400 - 66 - 120)
    assert (1 - layout.title.y) * layout.height == pytest.approx(0.06 * 400)
    assert words.headed(go.Figure(), "short").layout.title.text == "short"
    assert words.listed(["a"]) == "a"
    assert words.listed(list("abcd")) == "a, b, c and d"
    assert words.listed(list("abcdef")) == "a, b, c and 3 more"


def test_random_rankings_of_which_some_destroy_the_model_are_counted():
    cells = [(seed, order, rate, 9.0 if (seed, order) == (42, "lerf") and rate else 2.0)
             for seed in (42, 43, 44) for order in ("lerf", "morf") for rate in (0.0, 0.01, 0.1)]  # fmt: skip
    table = pl.DataFrame(cells, schema=["seed", "order", "rate", "nll"], orient="row")
    table = table.with_columns(model=pl.lit("m"), selector=pl.lit("random"))
    assert curves.seeds_apart(table, "m", "lerf", 7.0) == ", 1 of 3 fatal at 1%"
    assert curves.seeds_apart(table, "m", "morf", 7.0) == ""
    assert curves.seeds_apart(table, "m", "lerf", 1.0) == ""  # all of them do
    assert curves.seeds_apart(table, "m", "lerf", None) == ""
