"""What verdicts rest on: the limits, and how a question is answered for several selectors at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.stats.uncertainty import Estimate, adjusted

BASELINE = "random"


@dataclass(frozen=True)
class Thresholds:
    """What the verdicts rest on. All can be changed; the tables are measured once.

    Damage is the NLL that LeRF adds to the unmasked model's, as a fraction of what random removal adds at the
    same rate: 0 is no harm, 1 as bad as chance. It compares across models and has no unit. Both count up to the NLL at
    which a model is destroyed (`engine.stats.saturation`)."""

    rate: float = 0.3  # where LeRF is compared with random: the paper's reference rate
    faithful_damage: float = 0.5  # at most half of chance's damage; parts all attributions in the paper's tables
    invalid_damage: float = 0.8  # more than this is close to chance
    log_gap: float = 1.0  # nats per token: MoRF's perplexity at least e times LeRF's
    level: float = 0.05  # of two-sided p, adjusted by Holm over the selectors that a question is asked of
    spearman: float = 0.95  # of the scores from two disjoint draws of calibration text, mean over pairs
    jaccard: float = 0.8  # of the LeRF masks at `rate`, likewise; chance gives about 0.18 at 30%
    draws: int = 5  # least number of disjoint draws
    specific_orders: tuple[str, ...] = ("lerf", "morf")  # in which a selector has to beat its own depths


def clear(estimates: Mapping[str, Sequence[Estimate]], sign: int, level: float) -> dict[str, bool]:
    """Which selectors' numbers all lie on the side of `sign` (1: above 0), by two-sided p adjusted over the selectors.
    A selector's p is the largest of its numbers', so that all of them have to be clear. Holm (1979) over selectors.
    A number without an error is never clear, and its selector takes p = 1."""
    largest = {}
    for selector, several in estimates.items():
        ps = [one.p_differs if one.value * sign > 0 else 1.0 for one in several]
        largest[selector] = max((1.0 if p is None else p for p in ps), default=1.0)
    return {name: p <= level for name, p in adjusted(largest).items()}
