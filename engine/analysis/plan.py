"""What an audit measures: the paper's settings, and presets that cost less."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.errors import unknown
from engine.scores import PAPER_SELECTORS, ScorePlan
from engine.sweep import RATES

SECOND_CORPUS = "demo-chat"  # the shipped model's second domain


@dataclass(frozen=True)
class AuditPlan:
    """Settings of all analyses. The defaults are the paper's (sections 3.4 and 4, appendices B to D)."""

    scoring: ScorePlan = field(default_factory=ScorePlan)
    eval_corpus: str = "wikitext2"
    eval_samples: int = 256
    eval_length: int = 512
    sweep_rates: tuple[float, ...] = RATES
    stability_sizes: tuple[int, ...] = (8, 16, 32, 64, 128)
    stability_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    agreement_rates: tuple[float, ...] = (0.2, 0.3, 0.5)
    control_rates: tuple[float, ...] = (0.3,)
    null_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    rank_distribution_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    dangerous_rate: float = 0.3
    dangerous_factor: float = 2.0
    domain_corpus: str = "c4"
    domain_rates: tuple[float, ...] = (0.2, 0.3)
    gap_rates: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    downstream_rates: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    # The first so many items of each task, None for all. The paper's accuracies are all multiples of 1/500.
    downstream_items: int | None = 500
    downstream_tasks: str | None = None  # folder of local task files, None for the hub


def _paper() -> AuditPlan:
    return AuditPlan()


def _quick() -> AuditPlan:
    """The same questions from less text and fewer rates: minutes instead of hours on a card."""
    return AuditPlan(
        scoring=ScorePlan(samples=32),
        eval_samples=32,
        sweep_rates=(0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7),
        stability_sizes=(8, 16, 32),
        stability_rates=(0.3,),
        agreement_rates=(0.3,),
        null_seeds=(0, 1),
        downstream_rates=(0.0, 0.1, 0.3, 0.5),
        downstream_items=100,
    )


def _demo() -> AuditPlan:
    """For the shipped model: its own text; the second domain is its instruction text."""
    return AuditPlan(
        scoring=ScorePlan(
            selectors=(*PAPER_SELECTORS, "grad_x_input", "ig_conductance"),
            corpus="demo",
            samples=128,
            length=128,
        ),
        eval_corpus="demo",
        eval_samples=64,
        eval_length=256,
        domain_corpus=SECOND_CORPUS,
        downstream_rates=(0.0, 0.1, 0.3, 0.5),
        downstream_items=20,  # near chance with any number of items
    )


PRESETS: dict[str, Callable[[], AuditPlan]] = {"paper": _paper, "quick": _quick, "demo": _demo}


def preset(name: str) -> AuditPlan:
    """The settings of a preset. Errors: InputError with the nearest name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]()


def with_selectors(plan: AuditPlan, selectors: tuple[str, ...]) -> AuditPlan:
    """The same plan for other selectors."""
    return replace(plan, scoring=replace(plan.scoring, selectors=selectors))
