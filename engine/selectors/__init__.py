"""Model + calibration tokens -> one score per row. One file per selector; `base` holds the registry."""

from engine.selectors.base import (
    SelectorInfo,
    available_selectors,
    formula,
    get_selector,
    register_selector,
    with_needs,
)
from engine.selectors.run import ScoringRun, compute_scores

__all__ = [
    "ScoringRun",
    "SelectorInfo",
    "available_selectors",
    "compute_scores",
    "formula",
    "get_selector",
    "register_selector",
    "with_needs",
]
