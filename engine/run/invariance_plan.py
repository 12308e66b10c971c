"""What the analysis `invariance` rewrites, and on how much text: its part of an audit's plan. No torch."""

from dataclasses import dataclass

from engine.interventions.rewrite_names import REWRITES
from engine.run.field_types import MOST_DRAWS, Names, check_plan, option


@dataclass(frozen=True)
class InvariancePlan:
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

    def __post_init__(self) -> None:
        check_plan(self)
