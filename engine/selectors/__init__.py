"""Model + calibration tokens -> one score per row. One file per selector; `base` holds the registry."""

from engine.selectors.base import SelectorInfo, available_selectors, get_selector, register_selector
from engine.selectors.run import ScoringRun, compute_scores

__all__ = [
    "ScoringRun",
    "SelectorInfo",
    "available_selectors",
    "compute_scores",
    "get_selector",
    "register_selector",
]
