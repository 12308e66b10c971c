"""Model + calibration tokens -> one score per row. One file per selector; `base` holds the registry."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.selectors.base import (
    PAPER_CONTRASTS,
    SelectorInfo,
    available_selectors,
    check_contrasts,
    contrast_selectors,
    formula,
    get_selector,
    protected_by,
    register_selector,
    with_needs,
)

if TYPE_CHECKING:
    from engine.selectors.prompt_run import PromptRun
    from engine.selectors.run import ScoringRun, compute_scores

__all__ = [
    "PAPER_CONTRASTS", "PromptRun", "ScoringRun", "SelectorInfo", "available_selectors", "check_contrasts",
    "compute_scores", "contrast_selectors", "formula", "get_selector", "protected_by", "register_selector",
    "with_needs",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs torch, on first use: menus ask for ids only."""
    if name not in __all__:
        raise AttributeError(f"module 'engine.selectors' has no attribute {name!r}")
    module = "prompt_run" if name == "PromptRun" else "run"
    return getattr(import_module(f"engine.selectors.{module}"), name)
