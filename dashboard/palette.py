"""One name, colour, dash and symbol per selector, everywhere.

The colours have a contrast of at least 3:1 on white and on the dark background, and stay apart for
people who see fewer colours (checked by a test with the model of Machado et al. 2009). Dash and symbol
alone tell the curves apart too. A line that is dotted means "laid over", so no selector owns that dash.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

OVERLAY_DASH = "dot"
REFERENCE = "#808080"  # lines that are no selector: the unmasked model, zero
BEFORE, AFTER = "#808080", "#7A88E7"


@dataclass(frozen=True)
class Style:
    """How one selector looks. `title` is its name for people, `dash` and `symbol` are plotly's words."""

    title: str
    colour: str
    dash: str
    symbol: str


STYLES = {
    "consensus2": Style("Consensus-2", "#08A95B", "solid", "diamond"),
    "lrp": Style("LRP", "#7A88E7", "solid", "circle"),
    "ig": Style("IG", "#DD7A02", "dash", "square"),
    "wanda": Style("Wanda", "#B70D9B", "dashdot", "triangle-up"),
    "mean_activation": Style("Mean activation", "#901FDE", "longdash", "triangle-down"),
    "magnitude": Style("Magnitude", "#C61620", "longdashdot", "x"),
    "random": Style("Random", "#808080", "12px,3px,3px,3px", "cross"),
    "grad_x_input": Style("Gradient x input", "#86544A", "18px,4px", "triangle-right"),
    "ig_conductance": Style("IG conductance", "#D670BA", "5px,3px", "triangle-left"),
}
_MORE_COLOURS = ("#A0742A", "#2A8FA8", "#C2607F", "#6E8B3D", "#8C6BB1")
_MORE_DASHES = ("6px,2px", "14px,4px", "9px,3px,2px,3px")
_MORE_SYMBOLS = ("star", "hexagon", "pentagon", "bowtie", "hourglass")


def style(selector: str) -> Style:
    """The look of a selector. A plug-in's comes from its name, so that it is the same on every page."""
    if selector in STYLES:
        return STYLES[selector]
    digest = crc32(selector.encode())
    return Style(
        selector,
        _MORE_COLOURS[digest % len(_MORE_COLOURS)],
        _MORE_DASHES[digest // 7 % len(_MORE_DASHES)],
        _MORE_SYMBOLS[digest // 31 % len(_MORE_SYMBOLS)],
    )


def title(selector: str) -> str:
    """A selector's name for people."""
    return style(selector).title


def in_order(selectors: list[str]) -> list[str]:
    """Selectors in the order used everywhere: the known ones as listed above, then the others by name."""
    known = list(STYLES)
    return sorted(
        set(selectors), key=lambda name: (known.index(name) if name in STYLES else len(known), name)
    )
