"""Findings of whether results can be believed: stability against validity, how alike calibrations come out, what beats
what at equal size, what depths explain, which groups break the model."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from dashboard.charts import believed as chart, formats, palette
from dashboard.charts.findings import finding_words as words
from engine.studies.estimate_words import ControlAnswer

Row = dict[str, Any]


def at_equal_size(answers: Mapping[str, ControlAnswer], when: str) -> str:
    """Controls that beat Consensus-2 with as many rows, and those that do so only because they remove fewer. answers:
    by control; where all stand between destroyed models, nothing is told."""
    reference = palette.title("consensus2")
    better = [name for name, answer in answers.items() if answer.answer == "better"]
    lost = [name for name, answer in answers.items() if answer.survives is False]
    if all(answer.answer == "saturated" for answer in answers.values()):
        return f"{reference} and every control destroy the model, {when}: nothing is told"
    if better:
        return f"{_names(better)} {words.verb(better, 'beats', 'beat')} {reference} at equal size, {when}"
    only = f"; {_names(lost)} only by removing fewer rows" if lost else ""
    return f"No control beats {reference} at equal size beyond the errors, {when}{only}"


def as_measured(controls: pl.DataFrame, when: str) -> str:
    """Lowest and highest perplexity of the controls, where no differences with errors were measured."""
    own = controls.filter(pl.col("size_matched_to").is_null()).group_by("control", maintain_order=True)
    means = own.agg(pl.col("nll").mean()).filter(pl.col("nll").is_finite()).sort("nll", maintain_order=True)
    if means.is_empty():
        return f"No control has a finite perplexity {when}"
    (low, least), (high, most) = means.row(0), means.row(-1)
    sentence = f"{chart.control_title(low)} has perplexity {formats.perplexity(least)}"
    if low != high:
        sentence += f", {chart.control_title(high)} {formats.perplexity(most)}"
    return f"{sentence} {when}; no errors are known"


def _names(controls: Sequence[str]) -> str:
    ordered = chart.in_control_order(list(controls))
    return words.listed([chart.control_title(name) for name in ordered])


def own_depths(specific: pl.DataFrame, order: str) -> str:
    """Who does better than random rows of its own layers, by the table's answers (Holm), at each selector's rate."""
    harm = "less harm" if order == "lerf" else "more harm"
    better = specific.filter(answer="better")["selector"].to_list()
    worse = specific.filter(answer="worse")["selector"].to_list()
    least, most = (formats.rate(rate) for rate in (min(specific["rate"]), max(specific["rate"])))
    count, when = specific.height, f"{least if least == most else f'{least} to {most}'} removed"
    if better:
        who = f"All {count} selectors" if len(better) == count > 1 else words.titles(better)
        does, own = words.verb(better, "does", "do"), words.verb(better, "its own", "their own")
        first = f"{who} {does} {harm} than random rows of {own} layers, {when}"
    else:
        first = f"No selector does {harm} than random rows of its layers beyond the errors, {when}"
    return first + (f"; {words.titles(worse)} {words.verb(worse, 'does', 'do')} worse" if worse else "")


def depth_share(specific: pl.DataFrame) -> str:
    """Least and most of the advantage that depths explain, and whether the intervals of these two lie apart."""
    rows = specific.filter(pl.col("depth_share").is_finite()).sort("depth_share", maintain_order=True)
    if rows.is_empty():
        return "No selector has a clear advantage that depths could explain"
    least, most = rows.row(0, named=True), rows.row(-1, named=True)
    first = f"Depths explain {least['depth_share']:.0%} of the advantage over random masks"
    if rows.height == 1:
        return f"{first} of {palette.title(least['selector'])}"
    ends = (f"{row['depth_share']:.0%} ({palette.title(row['selector'])})" for row in (least, most))
    sentence = f"Depths explain {' to '.join(ends)} of the advantage over random masks"
    high, low = least["depth_share_high"], most["depth_share_low"]
    if high is not None and low is not None and high >= low:
        return f"{sentence}: no difference beyond the errors"
    return sentence


def rank_distribution(table: pl.DataFrame, wanted: float) -> str:
    """Where the rows of Consensus-2's mask stand at the rate nearest to the wanted one."""
    rate = words.nearest(table["rate"].to_list(), wanted)
    if rate is None:
        return "No mask was looked at"
    row = table.filter(pl.col("rate") == rate).row(0, named=True)
    if row["both"] is None or not math.isfinite(row["both"]):
        return f"Nothing is known of the mask at {formats.rate(rate)}"
    neither = "" if row["neither"] is None else f", {row['neither']:.0%} in neither"
    return (
        f"{row['both']:.0%} of Consensus-2's mask at {formats.rate(rate)} is in the masks of both LRP and IG{neither}"
    )


def dangerous(summary: pl.DataFrame, column: str, what: str) -> str:
    """The mask with the largest share of rows in such groups. what: `dangerous groups`, `groups above the limit`."""
    known = summary.filter(pl.col(column).is_not_null()).sort(column, maintain_order=True)
    if known.is_empty() or known[column].max() == 0:
        return f"No mask holds {what}"
    most = known.row(-1, named=True)
    free = known.filter(pl.col(column) == 0).height
    none = f"; {free} of {known.height} masks hold none" if free else ""
    return f"{palette.title(most['selector'])} has {most[column]:.0%} of its rows in {what}{none}"


def two_texts(table: pl.DataFrame, rate: float) -> str:
    """The selectors whose masks from two texts are most and least alike."""
    known = table.filter(pl.col("jaccard").is_not_null()).sort("jaccard", maintain_order=True)
    if known.is_empty():
        return f"No overlap of two texts' masks is known at {formats.rate(rate)}"
    least, most = known.row(0, named=True), known.row(-1, named=True)
    first = f"At {formats.rate(rate)}, the masks of two texts overlap by Jaccard {least['jaccard']:.2f}"
    if least["jaccard"] == most["jaccard"]:
        return f"{first} for {words.titles(known['selector'].to_list())}"
    return f"{first} ({palette.title(least['selector'])}) to {most['jaccard']:.2f} ({palette.title(most['selector'])})"


def two_costs(table: pl.DataFrame) -> str:
    """The selector whose LeRF perplexity differs most between the two calibration texts, as measured; masks
    that both destroy the model say nothing."""
    both = table.filter(pl.col("nll_a").is_finite(), pl.col("nll_b").is_finite())
    if "saturated" in both.columns:
        both = both.filter(~pl.col("saturated"))
    if both.is_empty():
        return "What the other text costs is not known"
    row = both.sort((pl.col("nll_a") - pl.col("nll_b")).abs(), maintain_order=True).row(-1, named=True)
    return (
        f"The text matters most for {palette.title(row['selector'])}: perplexity {formats.perplexity(row['nll_a'])} "
        f"against {formats.perplexity(row['nll_b'])}"
    )


def rewrites(verdicts: pl.DataFrame) -> str:
    """Rankings that move though the function is the same, by the table of verdicts."""
    known = verdicts.filter(pl.col("invariance") != "unknown")
    moved = known.filter(invariance="moved")["selector"].to_list()
    if known.is_empty():
        return "No rewrite was proven to leave the function"
    if not moved:
        return f"None of {known.height} rankings moves when the weights are rewritten"
    return f"{words.titles(moved)} {words.verb(moved, 'moves', 'move')} though the model computes the same"


def decoys(means: pl.DataFrame, rate: str) -> str:
    """Who puts rows without effect among the most important ones. means: selector, protected (share)."""
    fooled = means.filter(pl.col("protected") > 0.5)["selector"].to_list()
    if not fooled:
        return f"No ranking puts most rows without effect among its top {rate}"
    return (
        f"{words.titles(fooled)} {words.verb(fooled, 'puts', 'put')} most rows without effect among "
        f"{words.verb(fooled, 'its', 'their')} top {rate}"
    )


def judged(verdicts: pl.DataFrame) -> str:
    """Of the table of verdicts: judged stable but invalid, or that nobody is. Published ones have numbers only."""
    known = verdicts.filter(pl.col("stable_but_invalid").is_not_null())
    if known.is_empty():
        return "Printed numbers without verdicts: stable is to the right, sufficient is up"
    stable = known.filter(pl.col("stability") == "stable")["selector"].to_list()
    bad = known.filter("stable_but_invalid")["selector"].to_list()
    if bad:
        valid = known.filter(pl.col("validity").is_in(["faithful", "sufficient"]))
        both, unstable = (valid.filter(stability=word)["selector"].to_list() for word in ("stable", "not"))
        sentences = [f"{words.titles(bad)} {words.verb(bad, 'is', 'are')} stable but not sufficient"]
        if unstable:
            sentences.append(f"{words.titles(unstable)} {words.verb(unstable, 'is', 'are')} sufficient but not stable")
        is_both = f"{words.titles(both)} {words.verb(both, 'is', 'are')} stable and sufficient"
        return "; ".join([*sentences, is_both if both else "no score is shown to be both"])
    if not stable:
        return "No selector is judged stable, so none is stable but not sufficient"
    return f"None of the {len(stable)} stable selector{'s' if len(stable) > 1 else ''} is judged insufficient"


def between_draws(draws: pl.DataFrame, limit: float) -> str:
    """Of one rate of `draws`: whose masks overlap enough, in the mean of all pairs and in the least alike pair."""
    known = draws.filter(pl.col("jaccard").is_not_null())
    if known.is_empty():
        return "No overlap of two draws is defined"
    always = known.filter(pl.col("jaccard_min") >= limit)["selector"].to_list()
    mean = known.filter(pl.col("jaccard") >= limit, pl.col("jaccard_min") < limit)["selector"].to_list()
    short = known.filter(pl.col("jaccard") < limit)["selector"].to_list()
    parts = []
    if always:
        least = known.filter(pl.col("selector").is_in(always))["jaccard_min"].min()
        assert isinstance(least, float)
        down = int(least * 100 + 1e-9) / 100  # so that "or more" holds
        named = f"All {len(always)} selectors" if len(always) == known.height > 1 else words.titles(always)
        parts.append(f"{named}: another text changes the mask little, Jaccard {down:.2f} or more in every pair")
    if mean:
        parts.append(f"{words.titles(mean)} {words.verb(mean, 'reaches', 'reach')} {limit:g} only in the mean of pairs")
    if short:
        parts.append(f"{words.titles(short)} {words.verb(short, 'falls', 'fall')} short of {limit:g}")
    return "; ".join(parts)


def less_text(table: pl.DataFrame, column: str, what: str) -> str:
    """Nested sizes: the smallest against all windows. column: spearman or jaccard (1 is the same), or nll."""
    smallest = table.filter(pl.col(column).is_not_null(), pl.col("size") < pl.col("reference_size"))
    if smallest.is_empty():
        return f"{what}: one size only, nothing to compare"
    size = min(smallest["size"].to_list())
    rows = smallest.filter(pl.col("size") == size)
    if column == "nll":  # of whom LeRF perplexity differs most from that of all windows, as measured
        full = table.filter(pl.col("size") == pl.col("reference_size")).select("selector", whole="nll")
        both = rows.join(full, on="selector").filter(pl.col("nll").is_finite(), pl.col("whole").is_finite())
        if both.is_empty():
            return f"LeRF perplexity from {size} windows; that from all was not measured"
        row = both.sort((pl.col("nll") - pl.col("whole")).abs(), maintain_order=True).row(-1, named=True)
        return (
            f"From {size} instead of {row['reference_size']} windows, {palette.title(row['selector'])} changes most: "
            f"perplexity {formats.perplexity(row['whole'])} becomes {formats.perplexity(row['nll'])}"
        )
    least, most = (rows.sort(column, maintain_order=True).row(place, named=True) for place in (0, -1))
    first = f"From {size} of {least['reference_size']} windows, {what} is {least[column]:.2f}"
    if rows.height == 1 or least[column] == most[column]:
        return f"{first} for {words.titles(rows['selector'].to_list())}"
    return f"{first} ({palette.title(least['selector'])}) to {most[column]:.2f} ({palette.title(most['selector'])})"
