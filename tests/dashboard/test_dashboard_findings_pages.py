"""The sentences in the titles of Overview to Refusal: computed again by loops, and tables with another answer."""

import math
import re
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from shipped_lines import SHIPPED, frame, shipped, title

from dashboard.charts import believed as controls_chart, formats, judges, palette, refusal_values
from dashboard.charts.findings import belief_findings as believed, curve_findings as curves, refusal_findings as refusal
from dashboard.charts.refusal_values import RateChange
from dashboard.pages.tasks.tasks_page import over_seeds
from dashboard.state import results
from engine.studies.estimate_words import downstream_mean


def test_judged_of_verdicts():
    def verdicts(flags):
        valid = {"fisher": "sufficient", "consensus2": "faithful"}
        lines = [{"selector": n, "stability": s, "stable_but_invalid": b} for n, s, b in flags]
        return frame([{**line, "validity": valid.get(line["selector"], "not")} for line in lines])

    assert believed.judged(verdicts([("lrp", "stable", False), ("wanda", "stable", True)])) == (
        "Wanda is stable but not sufficient; no score is shown to be both"
    )
    both = [("fisher", "not", False), ("consensus2", "stable", False), ("wanda", "stable", True)]
    assert believed.judged(verdicts(both)) == (
        "Wanda is stable but not sufficient; Fisher is sufficient but not stable; Consensus-2 is stable and sufficient"
    )
    assert believed.judged(verdicts([("ig", "unknown", False), ("wanda", "stable", True)])) == (
        "Wanda is stable but not sufficient; no score is shown to be both"
    )
    assert (
        believed.judged(verdicts([("lrp", "stable", False)])) == "None of the 1 stable selector is judged insufficient"
    )
    assert believed.judged(verdicts([("lrp", "not", False)])).startswith("No selector is judged stable")
    unjudged = verdicts([("lrp", None, None)]).with_columns(pl.col("stable_but_invalid").cast(pl.Boolean))
    assert "without verdicts" in believed.judged(unjudged)


def test_draws_by_their_least_pair_and_their_mean():
    lines = shipped("draws", 0.3)
    sentence = believed.between_draws(frame(lines), 0.8)
    always = [row["selector"] for row in lines if row["jaccard_min"] >= 0.8]
    mean = [row["selector"] for row in lines if row["jaccard_min"] < 0.8 <= row["jaccard"]]
    assert (len(always), mean) == (6, ["grad_x_input"])  # what the sentence rests on today
    least = min(row["jaccard_min"] for row in lines if row["selector"] in always)
    said = float(sentence.split("Jaccard ")[1].split(" ")[0])
    assert said <= least < said + 0.01
    assert sentence.startswith(", ".join(map(title, palette.in_order(always)[:3])))
    assert sentence.endswith("Gradient x input reaches 0.8 only in the mean of pairs")
    every = believed.between_draws(frame([row for row in lines if row["selector"] in always]), 0.8)
    assert every.startswith("All 6 selectors: another text changes the mask little")
    other = frame(
        [
            {"selector": "lrp", "jaccard": 0.9, "jaccard_min": 0.85},
            {"selector": "ig", "jaccard": 0.82, "jaccard_min": 0.7},
            {"selector": "wanda", "jaccard": 0.5, "jaccard_min": 0.4},
        ]
    )
    told = believed.between_draws(other, 0.8)
    assert told.startswith("LRP: another text changes the mask little, Jaccard 0.85 or more in every pair; ")
    assert told.endswith("IG reaches 0.8 only in the mean of pairs; Wanda falls short of 0.8")
    assert believed.between_draws(other.clear(), 0.8) == "No overlap of two draws is defined"


@pytest.mark.parametrize("column", ["spearman", "jaccard", "nll"])
def test_less_text(column):
    lines = shipped("stability", 0.3)
    size = min(row["size"] for row in lines)
    small = {row["selector"]: row[column] for row in lines if row["size"] == size and row[column] is not None}
    sentence = believed.less_text(frame(lines), column, "X")
    if column == "nll":
        whole = {row["selector"]: row["nll"] for row in lines if row["size"] == row["reference_size"]}
        most = max(small, key=lambda name: abs(small[name] - whole[name]))
        assert f"{title(most)} changes most" in sentence
        assert f"{formats.perplexity(whole[most])} becomes {formats.perplexity(small[most])}" in sentence
    else:
        low, high = min(small, key=small.__getitem__), max(small, key=small.__getitem__)
        assert f"X is {small[low]:.2f} ({title(low)}) to {small[high]:.2f} ({title(high)})" in sentence
    one = frame([row for row in lines if row["size"] == row["reference_size"]])
    assert "nothing to compare" in believed.less_text(one, column, "X")


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_specific(order):
    lines = [row for row in shipped("specific") if row["order"] == order]
    better = [row["selector"] for row in lines if row["answer"] == "better"]
    sentence = believed.own_depths(frame(lines).with_columns(rate=0.3), order)
    assert sentence.startswith("No selector") == (not better)
    assert sentence.startswith(f"All {len(lines)} selectors") == (len(better) == len(lines) > 1)
    worse = [row["selector"] for row in lines if row["answer"] == "worse"]
    assert sentence.endswith("do worse" if len(worse) > 1 else "does worse") == bool(worse)
    known = [row for row in lines if row["depth_share"] is not None]
    low, high = (end(known, key=lambda row: row["depth_share"]) for end in (min, max))
    told = believed.depth_share(frame(lines))
    assert f"{low['depth_share']:.0%} ({title(low['selector'])}) to {high['depth_share']:.0%}" in told
    overlap = low["depth_share_high"] >= high["depth_share_low"]
    assert told.endswith("no difference beyond the errors") == overlap
    near = frame(lines).with_columns(
        depth_share_low=pl.col("depth_share") - 2, depth_share_high=pl.col("depth_share") + 2
    )
    assert believed.depth_share(near).endswith("no difference beyond the errors")
    assert "No selector has a clear" in believed.depth_share(frame(lines).with_columns(depth_share=math.nan))


def test_controls_in_words():
    def answers(**given):
        return {name: SimpleNamespace(answer=said, survives=kept) for name, (said, kept) in given.items()}

    better = answers(ig=("better", None), random=("worse", None))
    assert believed.at_equal_size(better, "LeRF at 30%") == "IG beats Consensus-2 at equal size, LeRF at 30%"
    lost = answers(veto_lrp=("equal", False), intersection=("equal", False))
    sentence = believed.at_equal_size(lost, "LeRF at 30%")
    assert sentence.startswith("No control beats Consensus-2 at equal size beyond the errors")
    assert sentence.endswith("Rows of both and LRP without IG's only by removing fewer rows")
    means = {}
    for row in shipped("controls", 0.3):
        if row["order"] == "lerf" and row["size_matched_to"] is None:
            means.setdefault(row["control"], []).append(row["nll"])
    means = {name: sum(values) / len(values) for name, values in means.items()}
    table = frame([row for row in shipped("controls", 0.3) if row["order"] == "lerf"])
    least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    assert believed.as_measured(table, "under LeRF at 30%") == (
        f"{controls_chart.control_title(least)} has perplexity {formats.perplexity(means[least])}, "
        f"{controls_chart.control_title(most)} {formats.perplexity(means[most])} under LeRF at 30%; no errors are known"
    )


def test_the_other_tabs_of_controls():
    (row,) = shipped("rank_distribution", 0.3)
    sentence = believed.rank_distribution(frame(shipped("rank_distribution")), 0.3)
    assert sentence.startswith(f"{row['both']:.0%} of Consensus-2's mask at 30%")
    assert f"{row['neither']:.0%} in neither" in sentence
    summary = frame([{"selector": "lrp", "share": 0.0}, {"selector": "wanda", "share": 0.5}])
    assert believed.dangerous(summary, "share", "dangerous groups") == (
        "Wanda has 50% of its rows in dangerous groups; 1 of 2 masks hold none"
    )
    assert believed.dangerous(summary.head(1), "share", "dangerous groups") == "No mask holds dangerous groups"
    lines = shipped("domain", 0.3)
    low = min(lines, key=lambda row: row["jaccard"])
    assert f"{low['jaccard']:.2f} ({title(low['selector'])}) to" in believed.two_texts(frame(lines), 0.3)
    far = max((row for row in lines if not row["saturated"]), key=lambda row: abs(row["nll_a"] - row["nll_b"]))
    assert f"for {title(far['selector'])}: perplexity {formats.perplexity(far['nll_a'])} against" in (
        believed.two_costs(frame(lines))
    )
    moved = [row["selector"] for row in shipped("invariance_verdicts") if row["invariance"] == "moved"]
    assert believed.rewrites(frame(shipped("invariance_verdicts"))).startswith(title(palette.in_order(moved)[0]))
    still = frame([{"selector": "lrp", "invariance": "exact"}])
    assert believed.rewrites(still) == "None of 1 rankings moves when the weights are rewritten"
    fooled = frame([{"selector": "lrp", "protected": 0.1}, {"selector": "wanda", "protected": 0.9}])
    assert believed.decoys(fooled, "30%") == "Wanda puts most rows without effect among its top 30%"
    assert believed.decoys(fooled.head(1), "30%").startswith("No ranking")


def test_accuracy_above_chance_by_a_loop():
    table = frame([row for row in shipped("downstream") if row["order"] == "lerf"])
    for task in [None, *table["task"].unique().to_list()]:
        part = downstream_mean(table) if task is None else table.filter(task=task)
        at = [row for row in part.to_dicts() if abs(row["rate"] - 0.3) < 1e-9]
        cells = {}
        for row in at:
            cells.setdefault(row["selector"], []).append(row)
        z = norm.isf(0.05 / len(cells))
        above = []
        for name, seeds in cells.items():
            mean = sum(row["accuracy"] for row in seeds) / len(seeds)
            spread = sum((row["accuracy"] - mean) ** 2 for row in seeds) / max(len(seeds) - 1, 1)
            error = math.hypot(math.sqrt(spread), sum(row["stderr"] for row in seeds) / len(seeds))
            if mean - z * error > seeds[0]["chance"]:
                above.append((mean, name))
        sentence = curves.accuracy(over_seeds(part), "T")
        assert sentence.startswith("T: no selector stays") == (not above)
        if len(above) == len(cells):
            assert sentence.startswith(f"T: all {len(cells)} selectors stay")
        else:
            best = sorted(above, key=lambda one: -one[0])[: 3 if len(above) > 4 else None]
            told = re.split(", | and ", sentence.removeprefix("T: ").partition(" stay")[0])
            assert told[: len(best)] == [title(name) for _, name in best], sentence
        assert set(curves.above_chance(over_seeds(part))["selector"]) == {name for _, name in above}


def points(rates, names=("lrp", "ig"), error=0.01, chance=0.25):
    lines = [
        {"selector": name, "rate": rate, "accuracy": value, "error": error, "item_error": error, "seeds": 1,
         "chance": chance}
        for rate, values in rates.items() for name, value in zip(names, values, strict=True)
    ]  # fmt: skip
    return frame(lines)


def test_accuracy_has_other_answers():
    assert curves.accuracy(points({0.0: (0.6, 0.6), 0.3: (0.5, 0.26)}), "T") == (
        "T: LRP stays above chance with 30% removed; IG could be guessing"
    )
    assert "all 2 selectors stay" in curves.accuracy(points({0.3: (0.5, 0.5)}), "T")
    assert "no selector stays" in curves.accuracy(points({0.3: (0.26, 0.25)}), "T")
    of_four = curves.accuracy(points({0.3: (0.5, 0.26, 0.25, 0.24)}, names=("lrp", "ig", "fisher", "random")), "T")
    assert of_four == "T: LRP stays above chance with 30% removed; the others could be guessing"
    without = points({0.0: (0.6, 0.6), 0.3: (0.5, 0.55)}, error=None, chance=None).with_columns(
        pl.col("chance", "error", "item_error").cast(pl.Float64)
    )
    assert curves.accuracy(without, "T") == "T: IG keeps most with 30% removed, 55.0% of 60.0% unmasked"
    assert "only the unmasked model" in curves.accuracy(points({0.0: (0.5, 0.5)}), "T")


def test_chance_is_called_more_at_most_as_often_as_the_level_says():
    noise, called = np.random.default_rng(4), 0
    for _ in range(400):
        values = tuple(0.25 + 0.02 * noise.standard_normal(5))
        drawn = points({0.3: values}, names=("lrp", "ig", "consensus2", "wanda", "magnitude"), error=0.02)
        called += "no selector stays" not in curves.accuracy(drawn, "T")
    assert called / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_refusal_of_every_shipped_domain():
    sweep, chosen = (results.read_table(SHIPPED, stem).frame for stem in ("refusal_sweep", "operating_points"))
    cells = refusal_values.cells(sweep, chosen)
    for domain in cells["domain"].unique():
        kept = cells.filter(domain=domain)
        drawn = refusal_values.asked(kept)
        ranked = [row for row in drawn.to_dicts() if row["point"] and not row["rescue"]]
        best = max(row["malign"] for row in ranked)
        before = {row["malign"] for row in kept.to_dicts() if row["k"] == 0}
        sentence = refusal.grid(drawn, kept, searched=True)
        assert sentence.startswith("Calibration risk prompts refused")
        assert any(f"{old:.0%} before, {best:.0%} after" in sentence for old in before)
        assert f"({domain}, " in sentence


def rate(malign, before, after, prompts="held-out prompts"):
    return RateChange(prompts, malign, before, after, 100)


def test_refusal_says_where_there_is_no_difference():
    up = rate(True, (0.2, 0.1, 0.3), (0.8, 0.7, 0.9))
    same = rate(False, (0.0, 0.0, 0.04), (0.02, 0.0, 0.06))
    assert refusal.changes([same, up]) == (
        "Refused, held-out prompts: risk ones 20% before, 80% after; harmless ones 0% before, 2% after, no difference "
        "beyond the errors"
    )
    assert "not known" in refusal.changes([rate(True, (None, None, None), (0.1, None, None))])
    cells = frame(
        [
            {"id": f"lrp/hate/0.5/{k}", "selector": "lrp", "domain": "hate", "lambda": 0.5, "k": k, "point": k > 0,
             "rescue": False, "malign": m, "malign_low": m - 0.1, "malign_high": m + 0.1, "benign": 0.0,
             "benign_low": 0.0, "benign_high": 0.1}
            for k, m in ((0.0, 0.4), (0.02, 0.5))
        ]
    )  # fmt: skip
    told = refusal.grid(cells.filter(pl.col("k") > 0), cells, searched=False)
    assert told.startswith("Risk prompts refused, no difference beyond the errors: 40% before, 50% after LRP's edit")
    assert "refuses 50% of risk prompts" in refusal.grid(cells.tail(1), cells.tail(1), searched=False)
    line = {"rank": 3, "draws": 20, "p_holm": 0.3}
    assert refusal.among_draws(line).startswith("No difference is seen")
    assert refusal.among_draws({**line, "p_holm": 0.04}).startswith("The edit refuses more")
    models = frame(
        [
            {"model": m, "domain": "hate", "selector": s, "malign": v}
            for m, pair in (("A", (0.9, 0.1)), ("B", (0.2, 0.3)), ("C", (0.5, 0.5)), ("D", (None, 0.5)))
            for s, v in zip(("lrp", "ig"), pair, strict=True)
        ]
    )
    assert refusal.reversal(models, "hate") == (
        "Hate: LRP installs more refusal than IG in 1 of 3 models, less in 1, as much in 1"
    )


def test_where_the_rows_of_contrasts_lie():
    lines = shipped("signal_density")
    told = [row for row in lines if row["selector"] != "random"]  # noise, which has more than any
    most, least = (end(told, key=lambda row: row["density"]) for end in (max, min))
    assert refusal.densest(frame(lines)) == (
        f"Most rows with a clear contrast: {title(most['selector'])} on {most['domain']}, {most['density']:.1%}; "
        f"fewest: {title(least['selector'])} on {least['domain']}, {least['density']:.1%}"
    )
    for part in ("third", "projection"):
        lines = [row for row in shipped("refusal_shares") if row["part"] == part and row["domain"] == "hate"]
        top = max(lines, key=lambda row: row["share"] - row["base_rate"])
        assert f"{title(top['selector'])} gathers most in {top['name']}, {top['share']:.0%}" in (
            refusal.gathered(frame(lines), "X")
        )
    lines = shipped("refusal_jaccard")
    domains = [row for row in lines if row["comparison"] == "domains" and row["selector_a"] == "lrp"]
    top = max(row["jaccard"] for row in domains)
    starts = [
        f"LRP: {row['domain_a']} and {row['domain_b']} share most, Jaccard {top:.2f}; "
        for row in domains
        if row["jaccard"] == top  # two pairs may share as much
    ]
    assert refusal.clusters(frame(domains), "LRP").startswith(tuple(starts))
    methods = [row for row in lines if row["comparison"] == "selectors"]
    values = [row["jaccard"] for row in methods]
    assert f"share Jaccard {min(values):.2f} to {max(values):.2f}" in refusal.shared_rows(frame(methods), "A and B")


def test_masks_of_several_domains_and_other_ways():
    lines = [row for row in shipped("composed") if row["selector"] == "lrp"]
    both = [row["malign"] for row in lines if "+" in row["mask_domain"]]
    before = [row["malign"] for row in lines if row["mask_domain"] == "none"]
    sentence = refusal.composed(frame(lines), "malign")
    for values, name in ((both, "a mask of several domains"), (before, "the unedited model")):
        low, high = min(values), max(values)
        assert (f"{low:.0%} to {high:.0%} with {name}" if low != high else f"{low:.0%} with {name}") in sentence

    def way(name, value, low, high, setting="s"):
        return {"method": name, "setting": setting, "edited_malign": value, "edited_malign_low": low,
                "edited_malign_high": high}  # fmt: skip

    rows_ = frame([way("a", 0.5, 0.4, 0.6), way("b", 0.9, 0.8, 1.0), way("c", 0.85, 0.7, 0.9)])
    assert refusal.ways(rows_, lambda row: row["method"].upper(), "hate") == (
        "Hate: B refuses most risk prompts, 90%; no difference beyond the errors from 1 other way"
    )
    assert "from" not in refusal.ways(rows_.head(2), lambda row: row["method"].upper(), "hate")
    none = rows_.with_columns(setting=pl.lit(None, pl.String))
    assert refusal.ways(none, str, "hate") == "Hate: no way has a setting within the limits"


def judged_rates(*lines):
    schema = dict.fromkeys(("source", "judge", "measure"), pl.String) | dict.fromkeys(
        ("value", "low", "high"), pl.Float64
    )
    return pl.DataFrame([(*one[:4], one[3] - 0.1, one[3] + 0.1) for one in lines], schema=schema, orient="row")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        ([("all", "a", "refused", 0.4)], "The judge a calls 40.0% of the replies refusals"),
        ([("x", "a", "refused", 0.4), ("all", "a", "refused", 0.4)], "The judge a calls 40.0% of “x” refusals"),
        (
            [("x", "a", "refused", 0.4), ("y{", "a", "refused", 0.8), ("all", "a", "refused", 0.6)],
            "The judge a calls 80.0% of “y{” refusals, the most of all sources, and 40.0% of “x”, the fewest",
        ),
        (
            [("x", "a", "refused", 0.4), ("y", "a", "refused", 0.5), ("all", "a", "refused", 0.45)],
            "The judge a calls about as much of every source refusals: 40.0% to 50.0%, and their intervals overlap",
        ),
        (
            [("all", "a", "refused", 0.3), ("x", "a", "refused", 0.9), ("all", "b", "refused", 0.7)],
            "Most replies are refusals to b, 70.0%; fewest to a, 30.0%",
        ),
        (
            [("all", "a", "refused", 0.65), ("all", "b", "refused", 0.7)],
            "2 judges call about as many replies refusals: 65.0% to 70.0%, and their intervals overlap",
        ),
        (
            [("all", "a", "refused", 0.1), ("all", "a", "f1", 0.9), ("all", "b", "f1", 0.5), ("x", "b", "f1", 1.0)],
            "The judge a is nearest to people, F1 0.90; b, 0.50, furthest",
        ),
        (
            [("all", "a", "f1", 0.9), ("all", "b", "f1", 0.8)],
            "2 judges are about as near to people: F1 0.80 to 0.90, and their intervals overlap",
        ),
        ([("all", "a", "f1", 0.9)], "The judge a is nearest to people, F1 0.90"),
    ],
)
def test_rates_of_judges(lines, told):
    assert judges.finding(judged_rates(*lines)) == told
