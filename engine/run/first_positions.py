"""How much of a score lies on the first position of each window, where some models put most of it."""

from collections.abc import Mapping
from typing import cast

from engine.models.experts import has_experts
from engine.models.loading import LoadedModel
from engine.records.progress import Progress
from engine.run.plan_text import calibration_text
from engine.run.score_plan import ScorePlan
from engine.selectors import get_selector
from engine.selectors.base import Objective
from engine.selectors.relevance_sums import checked_asks
from engine.selectors.run import ScoringRun

WINDOWS = 4  # the first calibration windows, which are read twice more
TOO_MUCH = 0.2  # a share that is told; an even one is 1 / (tokens - 1)


def first_position_shares(loaded: LoadedModel, plan: ScorePlan, progress: Progress | None = None) -> dict[str, float]:
    """Per selector that is a mean of relevances over tokens: the share of the sum over all rows and tokens that lies on
    the first position of a window, behind what stands before it.

    share = 1 - (T - 2) sum_i E'_i / ((T - 1) sum_i E_i), E over the T - 1 predicting positions of the first `WINDOWS`
    calibration windows, E' without the first of them. Empty where the plan skips positions, for windows of two tokens,
    and for models with routed experts."""
    asked = {name: checked_asks(get_selector(name).asks) for name in plan.selectors}
    of_tokens = {name: asks[0] for name, asks in asked.items() if asks and asks[0][1] in ("abs", "square")}
    if not of_tokens or plan.skip_first or has_experts(loaded.model):
        return {}
    windows = calibration_text(loaded, plan)
    windows = windows.first(min(WINDOWS, len(windows.input_ids)))
    tokens = windows.input_ids.shape[1]
    if tokens < 3:
        return {}
    sums = []
    for skipped in (0, 1):
        run = ScoringRun(
            loaded, windows, objective=cast(Objective, plan.objective), progress=progress,
            asked=tuple(of_tokens.values()), skip_first=skipped,
        )  # fmt: skip
        means = {name: float(run.mean_relevance(*one).sum()) for name, one in of_tokens.items()}
        sums.append({name: mean * (tokens - 1 - skipped) for name, mean in means.items()})
    return {name: 1 - sums[1][name] / whole if whole else 0.0 for name, whole in sums[0].items()}


def told(shares: Mapping[str, float]) -> list[str]:
    """What is said of shares above `TOO_MUCH`."""
    large = {name: share for name, share in shares.items() if share > TOO_MUCH}
    if not large:
        return []
    each = ", ".join(f"{share:.0%} of {name}" for name, share in large.items())
    return [
        f"on the first {WINDOWS} windows {each} lies on each window's first position; --skip-first 1 leaves it out of "
        "the means"
    ]
