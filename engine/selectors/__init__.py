"""Model + calibration tokens -> one score per row. One file per selector; `base` holds the registry."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.selectors.base import SelectorInfo, available_selectors, get_selector, register_selector

if TYPE_CHECKING:
    from engine.selectors.prompt_run import PromptRun
    from engine.selectors.scoring_run import ScoringRun, compute_scores

__all__ = [
    "PromptRun", "ScoringRun", "SelectorInfo", "available_selectors", "compute_scores", "get_selector",
    "register_selector",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs torch, on first use: menus ask for ids only."""
    if name not in __all__:
        raise AttributeError(f"module 'engine.selectors' has no attribute {name!r}")
    module = "prompt_run" if name == "PromptRun" else "scoring_run"
    return getattr(import_module(f"engine.selectors.{module}"), name)
