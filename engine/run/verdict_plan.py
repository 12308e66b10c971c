"""The limits that verdicts rest on: their part of an audit's plan. No torch."""

from dataclasses import dataclass

from engine.run.field_types import Names, check_plan, option
from engine.stats.limits import Thresholds
from engine.stats.removal_order import ORDERS

_BASE = Thresholds()


@dataclass(frozen=True)
class VerdictPlan:
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

    def __post_init__(self) -> None:
        check_plan(self)

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(
            faithful_damage=self.faithful_damage,
            invalid_damage=self.invalid_damage,
            log_gap=self.log_gap,
            level=self.level,
            spearman=self.draw_spearman,
            jaccard=self.draw_jaccard,
            specific_orders=self.specific_orders,
        )
