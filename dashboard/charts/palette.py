"""One name, colour, dash and symbol per selector, everywhere.

The colours have a contrast of at least 3:1 on white and on the dark background, and stay apart for
people who see fewer colours (checked by a test with the model of Machado et al. 2009): the nine that the shipped
results show well apart, the shelf's plainly. Dash and symbol alone tell the curves apart too. Lines that are no
selector are dotted, so no selector owns that dash."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

import polars as pl

REFERENCE = "#808080"  # lines that are no selector: the unmasked model, zero
TEXT_ON_LIGHT, TEXT_ON_DARK = "#555867", "#C3C6D0"  # small type in figures: at least 4.5:1 on its background
DOTTED = {"color": REFERENCE, "width": 1, "dash": "dot"}
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
    # The shelf: named by `--selectors` only.
    "fisher": Style("Fisher", "#6B993D", "10px,2px", "star-square"),
    "taylor": Style("Taylor", "#207317", "16px,3px,4px,3px", "star-triangle-up"),
    "atp_signed": Style("AtP, signed", "#A126BF", "16px,3px,4px,3px", "star-triangle-down"),
    "relp": Style("RelP", "#9B61F2", "10px,2px", "circle-x"),
    "gradient_norm": Style("Gradient norm", "#A68D7C", "18px,4px", "star-diamond"),
    "activation_std": Style("Activation std", "#426AA6", "longdash", "octagon"),
    "flap": Style("FLAP", "#E52EC1", "dashdot", "hexagram"),
    "ria": Style("RIA", "#F24430", "dash", "square-x"),
    "weight_norm": Style("Weight norm", "#4C6666", "longdashdot", "diamond-tall"),
    "effect_size": Style("Effect size", "#85698C", "solid", "diamond-wide"),
}
_TITLES: dict[str, str] = {}  # of plug-ins, by id: in one process an id has one title
_PLAIN = re.compile(r"\w[\w .,:;+/()×-]{0,59}")
_MORE_COLOURS = ("#A0742A", "#2A8FA8", "#C2607F", "#6E8B3D", "#8C6BB1")
_MORE_DASHES = ("6px,2px", "14px,4px", "9px,3px,2px,3px")
_MORE_SYMBOLS = ("star", "hexagon", "pentagon", "bowtie", "hourglass")


def learn_titles(titles: object) -> None:
    """Names of plug-ins, as the manifest of a run tells them. What is no plain short text is left out: names stand in
    labels, where markup would be drawn."""
    for selector, name in titles.items() if isinstance(titles, dict) else ():
        if isinstance(name, str) and _PLAIN.fullmatch(name):
            _TITLES[selector] = name


def style(selector: str) -> Style:
    """The look of a selector. A plug-in's comes from its name, so that it is the same on every page; its title has the
    id where another selector is called the same, and is the id where no run told one."""
    if selector in STYLES:
        return STYLES[selector]
    digest, name = sha256(selector.encode()).digest(), _TITLES.get(selector, selector)
    others = {look.title for look in STYLES.values()} | {one for other, one in _TITLES.items() if other != selector}
    return Style(
        f"{name} ({selector})" if name in others else name,
        _MORE_COLOURS[digest[0] % len(_MORE_COLOURS)],
        _MORE_DASHES[digest[1] % len(_MORE_DASHES)],
        _MORE_SYMBOLS[digest[2] % len(_MORE_SYMBOLS)],
    )


def capital(name: str) -> str:
    """A domain's name at the beginning of a line; all else of it stays as it was written."""
    return name[:1].upper() + name[1:]


def title(selector: str) -> str:
    return style(selector).title


def in_order(selectors: Iterable[str]) -> list[str]:
    """Selectors in the order used everywhere: the known ones as listed above, then the others by name."""
    known = list(STYLES)
    return sorted(set(selectors), key=lambda name: (known.index(name) if name in STYLES else len(known), name))


def sorted_by_selector(table: pl.DataFrame) -> pl.DataFrame:
    """The lines of a table in that order of their `selector`; those of one selector stay as they are."""
    order = {name: place for place, name in enumerate(in_order(table["selector"].to_list()))}
    return table.sort(pl.col("selector").replace_strict(order, return_dtype=pl.Int64), maintain_order=True)
