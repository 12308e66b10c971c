"""In words: does a control beat consensus2 at equal size? Reads tables only, imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import polars as pl

from engine.stats.holm import adjusted
from engine.stats.table_estimates import between_draws, mean_of_lines
from engine.stats.uncertainty import Estimate, Part
from engine.studies.estimate_words import interval_words

Answer = Literal["better", "worse", "no difference seen"]
Key = tuple[str, str, float, str]  # model, order, rate, control
LEVEL = 0.05  # of two-sided p, adjusted by Holm over the controls of an order and rate
REFERENCE = "consensus2"
NAMES = {
    "lrp": "LRP alone",
    "ig": "IG alone",
    "lrp_layer_matched": "LRP layer-matched",
    "ig_layer_matched": "IG layer-matched",
    "rank_randomised": "the rank-randomised null",
    "random": "random",
    "intersection": "the intersection of LRP and IG",
    "veto_lrp": "VETO-LRP",
    "veto_ig": "VETO-IG",
}


@dataclass(frozen=True)
class ControlAnswer:
    """What the differences of one control say. Differences in nats per token, control minus consensus2, with their
    standard error and 95% interval.

    at_rate: the same question against consensus2 with as many rows as the rate says (the paper's comparison),
    None where that is the same thing. survives: whether `better` at the rate is still `better` at equal
    size, None where it is not `better` to begin with.
    """

    model: str
    control: str
    order: str
    rate: float
    seeds: int
    rows_removed: int
    difference: float
    stderr: float | None
    low: float | None
    high: float | None
    answer: Answer
    at_rate: Answer | None
    survives: bool | None
    sentence: str


def control_answers(
    differences: pl.DataFrame, draw_sweep: pl.DataFrame | None = None, level: float = LEVEL
) -> list[ControlAnswer]:
    """One answer per model, order, rate and control of `control_differences`, in the table's order.

    Better means a lower NLL under LeRF and a higher one under MoRF, by two-sided p at most `level` after Holm over the
    controls of the same order and rate. Several seeds count by their mean difference. Errors are those of
    `engine.stats.uncertainty`: blocks of windows (in tables of earlier versions windows as if they were independent),
    seeds and, at the rate's full size and with the table `draw_sweep`, the calibration text.
    """
    keys = ["model", "order", "rate", "control"]
    parts = {cast("Key", key): part for key, part in differences.group_by(keys, maintain_order=True)}
    equal: dict[Key, Estimate] = {}
    unequal: dict[Key, Estimate] = {}
    for key, part in parts.items():
        same = pl.col("rows_removed") == pl.col("reference_rows")
        draws = _draws(draw_sweep, key, part)
        equal[key] = mean_of_lines(part.filter(same), "difference", ["seed"], draws)
        if not part.filter(~same).is_empty():
            unequal[key] = mean_of_lines(part.filter(~same), "difference", ["seed"])
    answers = []
    at_equal, at_full = _answers(equal, level), _answers(unequal, level)
    for key, part in parts.items():
        model, order, rate, control = key
        found, answer, at_rate = equal[key], at_equal[key], at_full.get(key)
        survives = answer == "better" if at_rate == "better" else None
        same_size = part.filter(pl.col("rows_removed") == pl.col("reference_rows"))
        rows = int(same_size["rows_removed"][0])
        sentence = _sentence(control, order, rate, rows, found, answer)
        if key in unequal:
            larger = part.filter(pl.col("rows_removed") != pl.col("reference_rows"))
            sentence += " " + _size_sentence(int(larger["reference_rows"][0]), at_rate, survives)
        answers.append(
            ControlAnswer(
                model=model,
                control=control,
                order=order,
                rate=rate,
                seeds=same_size.height,
                rows_removed=rows,
                difference=found.value,
                stderr=found.stderr,
                low=found.low,
                high=found.high,
                answer=answer,
                at_rate=at_rate,
                survives=survives,
                sentence=sentence,
            )
        )
    return answers


def _answers(found: dict[Key, Estimate], level: float) -> dict[Key, Answer]:
    """By p adjusted over the controls of a model, order and rate."""
    answers: dict[Key, Answer] = {}
    for family in dict.fromkeys(key[:3] for key in found):
        members = {key: one for key, one in found.items() if key[:3] == family}
        p_values = {key: p for key, one in members.items() if (p := one.p_differs) is not None}
        p_holm = adjusted(p_values)
        answers |= {key: judged(one.value, p_holm.get(key), key[1], level) for key, one in members.items()}
    return answers


def judged(difference: float, p_holm: float | None, order: str, level: float = LEVEL) -> Answer:
    """`better`, `worse` or `no difference seen` for NLL(control) - NLL(consensus2); without an error, none is seen."""
    if p_holm is None or not p_holm <= level or difference == 0:
        return "no difference seen"
    return "better" if (difference < 0) == (order == "lerf") else "worse"


def _draws(draw_sweep: pl.DataFrame | None, key: Key, part: pl.DataFrame) -> list[Part]:
    """The calibration text's part of a control that removes the rate's full number of rows."""
    _, order, rate, control = key
    if draw_sweep is None or (part["rows_removed"] != part["reference_rows"].max()).any():
        return []
    return between_draws(draw_sweep, rate, (control, order), (REFERENCE, order))


def _sentence(control: str, order: str, rate: float, rows: int, found: Estimate, answer: Answer) -> str:
    name = NAMES.get(control, control)
    where = f"at {rate:.0%} ({'LeRF' if order == 'lerf' else 'MoRF'}, {rows:,} rows)"
    numbers = f"its NLL is {interval_words(found)} nats per token from consensus2's at equal size"
    verdict = {
        "better": f"{name} beats consensus2 {where}",
        "worse": f"{name} does worse than consensus2 {where}",
        "no difference seen": f"no difference is seen between {name} and consensus2 {where}",
    }[answer]
    return f"{verdict[0].upper()}{verdict[1:]}: {numbers}."


def _size_sentence(reference_rows: int, at_rate: Answer | None, survives: bool | None) -> str:
    against = f"Against consensus2 with the rate's full {reference_rows:,} rows"
    if survives is None:
        seen = "it does worse" if at_rate == "worse" else "no difference is seen"
        return f"{against}, {seen}."
    kept = "and that holds at equal size" if survives else "but not at equal size"
    return f"{against}, it looks better, {kept}."
