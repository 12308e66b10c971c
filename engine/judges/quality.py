"""How well a judge agrees with people, and two judges with each other."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from engine.judges.given_replies import FINISHED, JUDGED, unjudged
from engine.records.errors import InputError
from engine.stats.uncertainty import Interval, wilson

# Development looked at mistakes in the first half only.
HALVES = ("development", "held out")


@dataclass(frozen=True)
class Quality:
    """A judge's verdicts against labels; a rate without trials is None, never 0."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @property
    def precision(self) -> float | None:
        return _ratio(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float | None:
        return _ratio(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float | None:
        """2 TP / (2 TP + FP + FN)."""
        return _ratio(2 * self.true_positives, 2 * self.true_positives + self._mistakes)

    def interval(self, rate: str) -> Interval | None:
        """Wilson's of `precision` or `recall`; of `f1` that of J = TP / (TP + FP + FN), mapped by F1 = 2J / (1 + J)."""
        others = {"precision": self.false_positives, "recall": self.false_negatives, "f1": self._mistakes}
        tried = self.true_positives + others[rate]
        interval = wilson(self.true_positives, tried) if tried else None
        return interval and Interval(*(2 * end / (1 + end) for end in interval)) if rate == "f1" else interval

    @property
    def _mistakes(self) -> int:
        return self.false_positives + self.false_negatives


def quality(labels: Sequence[bool], verdicts: Sequence[bool]) -> Quality:
    """labels: what people said; verdicts: what the judge said, in the same order."""
    pairs = list(zip(labels, verdicts, strict=True))
    return Quality(*(pairs.count(cell) for cell in ((True, True), (False, True), (True, False), (False, False))))


def quality_table(verdicts: pl.DataFrame, *, halves: bool = False) -> pl.DataFrame:
    """Per judge and source, and for all sources (`all`): counts and rates of a table of verdicts (`verdict_table`).

    halves: once more for two halves of the prompts (`prompt_half`). Replies that were not judged count as called
    answers (column `unjudged`); lines with a label and without a reply count nowhere (column `missing`)."""
    unanswered = verdicts.filter(pl.col("reply").is_null() & pl.col("human").is_not_null())
    verdicts = verdicts.drop_nulls("reply")
    labelled = verdicts.filter(pl.col("human").is_not_null())
    lines = []
    for judge in verdicts["judge"].unique(maintain_order=True):
        of_judge = labelled.filter(pl.col("judge") == judge)
        version = verdicts.filter(pl.col("judge") == judge)["judge_version"][0]
        for half in ("both", *(HALVES if halves else ())):
            counted = of_judge if half == "both" else of_half(of_judge, half)
            for source in (*counted["source"].unique(maintain_order=True), "all"):
                rows = counted if source == "all" else counted.filter(pl.col("source") == source)
                if len(rows):
                    lines.append(
                        {"judge": judge, "judge_version": version, "prompts": half, "source": source}
                        | _line(quality(rows["human"].to_list(), rows["refusal"].to_list()))
                        | ({"unjudged": unjudged(rows)} if JUDGED in verdicts.columns else {})
                        | ({"missing": _missing(unanswered, judge, half, source)} if len(unanswered) else {})
                    )
    return pl.DataFrame(lines)


def _missing(unanswered: pl.DataFrame, judge: str, half: str, source: str) -> int:
    """How many of these lines are of the judge, the half and the source."""
    of_judge = unanswered.filter(judge=judge).select("source", "prompt").rows()
    return sum(source in (name, "all") and half in (prompt_half(prompt), "both") for name, prompt in of_judge)


def prompt_half(prompt: str) -> str:
    """Which half of the prompts: by the first byte of the prompt's SHA-256, the same for every source."""
    return HALVES[hashlib.sha256(prompt.encode()).digest()[0] % 2]


def of_half(replies: pl.DataFrame, half: str) -> pl.DataFrame:
    """The replies whose prompt is in this half."""
    return replies.filter(pl.Series([prompt_half(prompt) == half for prompt in replies["prompt"]], dtype=pl.Boolean))


def cohens_kappa(first: Sequence[bool], second: Sequence[bool]) -> float | None:
    """(p_o - p_e) / (1 - p_e), p_o the observed and p_e the chance agreement (Cohen 1960); None where p_e is 1: both
    judges always give one and the same verdict."""
    n = len(first)
    if not n or n != len(second):
        raise InputError(f"agreement needs two equally long lists of verdicts, got {n} and {len(second)}")
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / n
    chance = _chance(sum(first) / n, sum(second) / n)
    return None if chance == 1 else (observed - chance) / (1 - chance)


def kappa_interval(first: Sequence[bool], second: Sequence[bool]) -> Interval | None:
    """95% interval of Cohen's kappa: Wilson's of the observed agreement p_o, mapped by (p_o - p_e) / (1 - p_e) with the
    chance agreement p_e as observed; None where kappa is None.

    Unlike kappa plus or minus 1.96 standard errors (Fleiss, Cohen and Everitt 1969) it does not shrink to a point at
    kappa = 1. In simulations it held the true kappa in 89 to 100% of draws where that one fell to 6% (n from 12 to 200,
    kappa 0 to .95, rates .08 to .5; tests/engine/test_kappa.py repeats some). Replies count as independent."""
    if cohens_kappa(first, second) is None:
        return None
    n = len(first)
    same = sum(a == b for a, b in zip(first, second, strict=True))
    chance = _chance(sum(first) / n, sum(second) / n)
    return Interval(*(max(-1.0, (end - chance) / (1 - chance)) for end in wilson(same, n)))


def agreement_table(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Every pair of judges: replies, share of equal verdicts with Wilson's interval, Cohen's kappa."""
    verdicts = verdicts.drop_nulls("reply")
    lines = []
    for first, second in combinations(verdicts["judge"].unique(maintain_order=True), 2):
        a, b = (verdicts.filter(pl.col("judge") == judge)["refusal"].to_list() for judge in (first, second))
        same = sum(x == y for x, y in zip(a, b, strict=True))
        low, high = wilson(same, len(a))
        lines.append(
            {
                "judge_a": first, "judge_b": second, "replies": len(a),
                "agreement": same / len(a), "agreement_low": low, "agreement_high": high,
                "kappa": cohens_kappa(a, b), "disagreements": len(a) - same,
            }
        )  # fmt: skip
    return pl.DataFrame(lines)


def disagreements(verdicts: pl.DataFrame) -> pl.DataFrame:
    """Every reply on which two judges differ: source, line, prompt, reply, human, finished where the verdicts have it,
    both verdicts and reasons, and where the verdicts have it whether each judge could judge it."""
    verdicts = verdicts.drop_nulls("reply")
    key = ["source", "line", "prompt", "reply", "human", *({FINISHED} & {*verdicts.columns})]
    of_judge = ["judge", "refusal", "reason", *({JUDGED} & {*verdicts.columns})]
    parts = []
    for first, second in combinations(verdicts["judge"].unique(maintain_order=True), 2):
        a, b = (
            verdicts.filter(pl.col("judge") == judge).select(*key, pl.col(*of_judge).name.suffix(f"_{side}"))
            for judge, side in ((first, "a"), (second, "b"))
        )
        joined = pl.concat([a, b.drop(key)], how="horizontal")
        parts.append(joined.filter(pl.col("refusal_a") != pl.col("refusal_b")))
    return pl.concat(parts) if parts else pl.DataFrame()


def _line(found: Quality) -> dict[str, float | int | None]:
    line: dict[str, float | int | None] = {
        "replies": sum(vars(found).values()),
        "refusals": found.true_positives + found.false_negatives,
        **vars(found),
    }
    for name in ("precision", "recall", "f1"):
        interval = found.interval(name)
        line[name] = getattr(found, name)
        line[f"{name}_low"], line[f"{name}_high"] = interval or (None, None)
    return line


def _chance(yes_first: float, yes_second: float) -> float:
    """How often two judges of these rates agree by chance."""
    return yes_first * yes_second + (1 - yes_first) * (1 - yes_second)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
