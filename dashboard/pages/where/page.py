"""Where and who: in which blocks selectors see importance, and which selectors take the same rows."""

from __future__ import annotations

from dashboard.pages.where import block_profiles, selector_pairs
from dashboard.state import parts

PARTS = {"Agreement": selector_pairs.PART, "Depth": block_profiles.PART}


def render() -> None:
    """The page."""
    parts.page("Where and who", "Do the scores choose the same rows, and in which layers do these lie?", PARTS)
