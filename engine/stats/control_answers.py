"""In words: does a control beat consensus2 at equal size? Reads tables only, imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import polars as pl

from engine.stats.paired import mean_over_seeds

Answer = Literal["better", "worse", "no difference seen"]
THRESHOLD = 2.0  # standard errors
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
    """What the differences of one control say. Differences in nats per token, control minus consensus2.

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
    answer: Answer
    at_rate: Answer | None
    survives: bool | None
    sentence: str


def control_answers(differences: pl.DataFrame, threshold: float = THRESHOLD) -> list[ControlAnswer]:
    """One answer per model, order, rate and control of `control_differences`, in the table's order.

    Better means a lower NLL under LeRF and a higher one under MoRF, by at least `threshold` standard errors. Several
    seeds count by their mean difference, whose standard error is sqrt(mean of the squared paired standard errors +
    variance over seeds / seeds): the windows are shared, so seeds do not average their part away.
    """
    answers = []
    keys = ["model", "order", "rate", "control"]
    for key, part in differences.group_by(keys, maintain_order=True):
        model, order, rate, control = cast("tuple[str, str, float, str]", key)
        equal = part.filter(pl.col("rows_removed") == pl.col("reference_rows"))
        unequal = part.filter(pl.col("rows_removed") != pl.col("reference_rows"))
        difference, stderr = _combined(equal)
        answer = judged(difference, stderr, order, threshold)
        at_rate = judged(*_combined(unequal), order, threshold) if unequal.height else None
        survives = answer == "better" if at_rate == "better" else None
        rows = int(equal["rows_removed"][0])
        sentence = _sentence(control, order, rate, rows, difference, stderr, answer)
        if unequal.height:
            sentence += " " + _size_sentence(int(unequal["reference_rows"][0]), at_rate, survives)
        answers.append(
            ControlAnswer(
                model=model,
                control=control,
                order=order,
                rate=rate,
                seeds=equal.height,
                rows_removed=rows,
                difference=difference,
                stderr=stderr,
                answer=answer,
                at_rate=at_rate,
                survives=survives,
                sentence=sentence,
            )
        )
    return answers


def judged(difference: float, stderr: float | None, order: str, threshold: float = THRESHOLD) -> Answer:
    """`better`, `worse` or `no difference seen` for NLL(control) - NLL(consensus2); without an error, none is seen."""
    if stderr is None or not abs(difference) >= threshold * stderr or difference == 0:  # NaN: none is seen
        return "no difference seen"
    return "better" if (difference < 0) == (order == "lerf") else "worse"


def _combined(part: pl.DataFrame) -> tuple[float, float | None]:
    return mean_over_seeds(part["difference"].to_list(), part["stderr"].to_list())


def _sentence(
    control: str, order: str, rate: float, rows: int, difference: float, stderr: float | None, answer: Answer
) -> str:
    name = NAMES.get(control, control)
    where = f"at {rate:.0%} ({'LeRF' if order == 'lerf' else 'MoRF'}, {rows:,} rows)"
    error = "no standard error from one window" if stderr is None else f"standard error {stderr:.3g}"
    numbers = f"its NLL is {difference:+.3g} nats per token from consensus2's at equal size, {error}"
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
