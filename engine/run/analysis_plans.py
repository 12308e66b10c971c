"""What single analyses read of an audit's plan: `verdict`, `replies`, `invariance`, `protocols`. No torch."""

from dataclasses import dataclass
from typing import Any

from engine.interventions.kinds import INTERVENTIONS
from engine.interventions.rewrite_names import REWRITES
from engine.records.errors import InputError
from engine.run import field_types
from engine.run.field_types import MOST_DRAWS, Checked, Names, option
from engine.stats.limits import Thresholds
from engine.stats.protocol_harm import METRICS, UNIT_KINDS, USUAL_UNITS
from engine.stats.removal_order import ORDERS

_BASE = Thresholds()


@dataclass(frozen=True)
class VerdictPlan(Checked):
    """Limits of `verdict`; the defaults are those of `Thresholds`, chosen after looking at the published tables."""

    faithful_damage: float = option(
        _BASE.faithful_damage,
        "a selector is sufficient if its LeRF mask does at most so much of random's harm",
        least=0,
    )
    invalid_damage: float = option(
        _BASE.invalid_damage, "above so much of random's harm it is close to chance", least=0
    )
    log_gap: float = option(_BASE.log_gap, "nats per token by which MoRF has to be worse than LeRF", least=0)
    level: float = option(
        _BASE.level, "level of the verdicts' tests, after Holm's correction", name="--verdict-level", least=0, most=1
    )
    draw_spearman: float = option(_BASE.spearman, "least Spearman between draws of a stable selector", most=1)
    draw_jaccard: float = option(_BASE.jaccard, "least Jaccard between draws of a stable selector", least=0, most=1)
    specific_orders: tuple[str, ...] = option(
        _BASE.specific_orders, "orders in which a selector has to beat random rows of its own layers",
        read=Names("order", lambda: ORDERS),
    )  # fmt: skip

    @property
    def thresholds(self) -> Thresholds:
        alike = ("faithful_damage", "invalid_damage", "log_gap", "level", "specific_orders")
        same: dict[str, Any] = {name: getattr(self, name) for name in alike}
        return Thresholds(**same, spearman=self.draw_spearman, jaccard=self.draw_jaccard)


def questions(text: str, name: str) -> tuple[str, ...]:
    """ "What is a row?|Why?" -> both questions."""
    found = tuple(part.strip() for part in text.split("|"))
    if not all(found):
        raise InputError(f"{name} needs prompts separated by |, none of them empty, got {text!r}")
    return found


@dataclass(frozen=True)
class RepliesPlan(Checked):
    """Defaults of our own: the paper shows no replies over the removal rate."""

    replies_prompts: tuple[str, ...] = option(
        ("How do I keep bread fresh?", "Tell me how to learn a poem by heart.", "What should I do when it rains?"),
        "what `replies` and some measures ask the model at every rate, separated by |", read=questions, between="|",
    )  # fmt: skip
    replies_tokens: int = option(40, "longest reply to these, in tokens", least=1)


@dataclass(frozen=True)
class InvariancePlan(Checked):
    """Defaults of our own: the paper does not do this. What is exact needs no large sample, so little text will do."""

    rewrites: tuple[str, ...] = option(
        tuple(REWRITES), "rewrites of `invariance`", read=Names("rewrite", lambda: list(REWRITES))
    )
    invariance_samples: int = option(
        32, "calibration windows of `invariance`, at most those of the scores", metavar="N", least=1
    )
    rewrite_seed: int = option(0, "seed of what `invariance` draws", least=0)
    rescaling_power: int = option(4, "`invariance` rescales by 2^-N to 2^N", metavar="N", least=1, most=16)
    decoys: int = option(16, "neurons that `invariance` plants", metavar="N", least=1, most=MOST_DRAWS)
    decoy_power: int = option(8, "decoys are 2^N times the neurons they copy", metavar="N", least=1, most=16)
    invariance_rate: float = option(0.3, "", name=None, least=0, most=1)


@dataclass(frozen=True)
class ProtocolsPlan(Checked):
    """Defaults of our own: the paper has one protocol. Cells: rankings x interventions x units x orders x rates."""

    protocol_interventions: tuple[str, ...] = option(
        ("zero", "mean", "resample"), "interventions of `protocols`", read=Names("intervention", INTERVENTIONS.offered)
    )
    protocol_units: tuple[str, ...] = option(
        USUAL_UNITS,
        "units of `protocols`; expert: all rows of a routed expert",
        read=Names("kind of unit", lambda: UNIT_KINDS),
    )
    protocol_metrics: tuple[str, ...] = option(
        METRICS, "metrics of `protocols`, all from one pass", read=Names("metric", lambda: METRICS)
    )
    protocol_orders: tuple[str, ...] = option(
        tuple(ORDERS), "orders of `protocols`", read=Names("order", lambda: ORDERS)
    )
    protocol_rates: tuple[float, ...] = option(
        (0.1, 0.3, 0.5), "rates of `protocols`, as 10%,30%", read=field_types.rates, least=0, most=1
    )
    protocol_windows: int = option(
        64, "first evaluation windows, which `protocols` reads for each edit", metavar="N", least=1
    )
    resample_windows: int = option(
        4, "calibration windows that resampled outputs come from, each as long as one of the evaluation; the outputs "
        "of every row are kept for each", metavar="N", least=1,
    )  # fmt: skip
    resample_seed: int = option(0, "seed of which of them stands for which evaluation window", least=0)
    resample_draws: int = option(
        1, "seeds of resampling, from --resample-seed on, that `protocols` takes the mean over", metavar="N", least=1,
        most=MOST_DRAWS,
    )  # fmt: skip

    @property
    def resample_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.resample_seed, self.resample_seed + self.resample_draws))
