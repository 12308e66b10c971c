"""Does a control beat consensus2 at equal size? Answers in words, from tables. No torch."""

from typing import NamedTuple, cast

import polars as pl

from engine.stats.table_estimates import all_saturated, between_draws, mean_of_lines
from engine.stats.uncertainty import LEVEL, Estimate, Part, adjusted
from engine.studies.estimate_words import ORDER_TITLES, Answer, better_or_worse, interval_words, no_difference

Key = tuple[str, str, float, str]  # model, order, rate, control
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


class ControlAnswer(NamedTuple):
    """One control under one order and rate. difference: NLL of the control minus NLL of consensus2, nats per token.

    at_rate: the same question against consensus2 with as many rows as the rate says (the paper's comparison),
    None where that is the same thing. survives: whether `better` at the rate is still `better` at equal
    size, None where it is not `better` to begin with."""

    control: str
    order: str
    rate: float
    seeds: int
    rows_removed: int
    difference: Estimate
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
    seeds and, at the rate's full size and with the table `draw_sweep`, the calibration text. Where both models are
    destroyed (`saturated` in every line) nothing is tested."""
    same_size: dict[Key, pl.DataFrame] = {}
    full_size: dict[Key, pl.DataFrame] = {}
    is_same = pl.col("rows_removed") == pl.col("reference_rows")
    names = ["model", "order", "rate", "control"]
    for group, lines in differences.group_by(names, maintain_order=True):
        key = cast("Key", group)
        same_size[key], larger = lines.filter(is_same), lines.filter(~is_same)
        if larger.height:
            full_size[key] = larger
    at_equal = {
        key: mean_of_lines(lines, "difference", ["seed"], [] if key in full_size else _draws(draw_sweep, key))
        for key, lines in same_size.items()
    }
    at_full = {key: mean_of_lines(lines, "difference", ["seed"]) for key, lines in full_size.items()}
    destroyed, destroyed_at_full = ({key for key in by if all_saturated(by[key])} for by in (same_size, full_size))
    equal_answers = _answers(at_equal, destroyed, level)
    full_answers = _answers(at_full, destroyed_at_full, level)
    answers = []
    for key, lines in same_size.items():
        _, order, rate, control = key
        answer, at_rate = equal_answers[key], full_answers.get(key)
        survives = answer == "better" if at_rate == "better" else None
        rows = int(lines["rows_removed"][0])
        sentence = _sentence(control, order, rate, rows, at_equal[key], answer)
        if key in full_size:
            sentence += " " + _size_sentence(int(full_size[key]["reference_rows"][0]), at_rate, survives)
        answers.append(
            ControlAnswer(control, order, rate, lines.height, rows, at_equal[key], answer, at_rate, survives, sentence)
        )
    return answers


def _answers(estimates: dict[Key, Estimate], destroyed: set[Key], level: float) -> dict[Key, Answer]:
    """By p adjusted over the controls of a model, order and rate that are not destroyed as consensus2 is."""
    answers: dict[Key, Answer] = {}
    for family in dict.fromkeys(key[:3] for key in estimates):
        members = {key: estimate for key, estimate in estimates.items() if key[:3] == family}
        tested = {key: one.p_differs for key, one in members.items() if key not in destroyed}
        p_holm = adjusted({key: p for key, p in tested.items() if p is not None})
        for key, estimate in members.items():
            word = better_or_worse(estimate.value, p_holm.get(key), key[1], level)
            answers[key] = "saturated" if key in destroyed else word
    return answers


def _draws(draw_sweep: pl.DataFrame | None, key: Key) -> list[Part]:
    """The calibration text's part of a control that removes the rate's full number of rows."""
    _, order, rate, control = key
    return between_draws(draw_sweep, rate, (control, order), (REFERENCE, order))


def _sentence(control: str, order: str, rate: float, rows: int, difference: Estimate, answer: Answer) -> str:
    name, at = NAMES.get(control, control), f"at {rate:.0%} ({ORDER_TITLES[order]}, {rows:,} rows)"
    if answer == "saturated":
        return f"{name[0].upper()}{name[1:]} and consensus2 both destroy the model {at}: nothing is told by it."
    first = {
        "better": f"{name} beats consensus2 {at}",
        "worse": f"{name} does worse than consensus2 {at}",
        "no difference seen": f"{no_difference(difference.low, difference.high)} between {name} and consensus2 {at}",
    }[answer]
    number = f"its NLL is {interval_words(difference)} nats per token from consensus2's at equal size"
    return f"{first[0].upper()}{first[1:]}: {number}."


def _size_sentence(reference_rows: int, at_rate: Answer | None, survives: bool | None) -> str:
    against = f"Against consensus2 with the rate's full {reference_rows:,} rows"
    if survives is None:
        answers = {"worse": "it does worse", "saturated": "both are destroyed"}
        return f"{against}, {answers.get(str(at_rate), 'no difference is seen')}."
    return f"{against}, it looks better, {'and that holds at equal size' if survives else 'but not at equal size'}."
