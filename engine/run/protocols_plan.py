"""Under which protocols the analysis `protocols` measures, on how much text: its part of an audit's plan. No torch."""

from dataclasses import dataclass

from engine.interventions.kinds import INTERVENTIONS
from engine.run import field_types
from engine.run.field_types import MOST_DRAWS, Names, check_plan, option
from engine.stats.protocol_harm import METRICS, UNIT_KINDS, USUAL_UNITS
from engine.stats.removal_order import ORDERS


@dataclass(frozen=True)
class ProtocolsPlan:
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
        1,
        "seeds of resampling, from --resample-seed on, that `protocols` takes the mean over",
        metavar="N",
        least=1,
        most=MOST_DRAWS,
    )

    def __post_init__(self) -> None:
        check_plan(self)

    @property
    def resample_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.resample_seed, self.resample_seed + self.resample_draws))
