"""Colours are readable on both backgrounds and apart for people who see fewer of them."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import dashboard
from dashboard.charts import matrix, palette
from dashboard.chat import marked, stamps
from dashboard.pages.reference import documents
from dashboard.show import menu
from engine.run.audit_plan import preset
from engine.selectors.base import BUILT_IN, get_selector

SHIPPED = set(preset("demo").scoring.selectors)
WHITE, DARK = "#FFFFFF", "#0E1117"
# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "full": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first, second):
    light, dark = sorted((float(TO_XYZ[1] @ linear(colour)) for colour in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("selector", [*palette.STYLES, "some_plug_in", "another"])
def test_lines_stand_out_on_light_and_dark(selector):
    colour = palette.style(selector).colour
    assert contrast(colour, WHITE) >= 3
    assert contrast(colour, DARK) >= 3


def test_small_type_in_figures_has_the_contrast_of_wcag_aa():
    """Streamlit writes axes in #808495, which has 3.7:1 on white; notes in the grey of reference lines have 3.9:1."""
    assert contrast("#808495", WHITE) < 4.5
    assert contrast(palette.REFERENCE, WHITE) < 4.5
    for background in (WHITE, "#F0F2F6"):  # the page, and Streamlit's second background
        assert contrast(palette.TEXT_ON_LIGHT, background) >= 4.5
    for background in (DARK, "#262730"):
        assert contrast(palette.TEXT_ON_DARK, background) >= 4.5
    assert f"fill:light-dark({palette.TEXT_ON_LIGHT},{palette.TEXT_ON_DARK})!important" in menu.STYLE
    channels = ", ".join(str(channel) for channel in bytes.fromhex(palette.REFERENCE[1:]))
    assert f'text[style*="fill: rgb({channels})"]' in menu.STYLE


def test_every_colour_of_a_line_or_a_bar_stands_out():
    """Also those that figures have of their own."""
    found = set()
    for path in (Path(palette.__file__).parent).rglob("*.py"):
        found |= set(re.findall(r'"(#[0-9A-Fa-f]{6})"', path.read_text(encoding="utf-8")))
    found -= {"#000000", "#FFFFFF", palette.TEXT_ON_LIGHT, palette.TEXT_ON_DARK}  # type, not lines
    found -= {*matrix.GREY_TO_TEAL, *matrix.SPARED_TO_GONE}  # cells, which hold their numbers or have a bar
    assert len(found) > len(palette.STYLES)
    for colour in found:
        assert min(contrast(colour, WHITE), contrast(colour, DARK)) >= 3, colour


def over(colour, opacity, background):
    """What a colour looks like through which so much of the background is seen, as browsers mix them."""
    mixed = [
        round(opacity * int(colour[i : i + 2], 16) + (1 - opacity) * int(background[i : i + 2], 16)) for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


THEMES = {WHITE: "#31333F", DARK: "#FAFAFA"}  # Streamlit's text by its page


@pytest.mark.parametrize("background", THEMES)
def test_type_that_is_small_or_on_colour_has_the_contrast_of_wcag_aa(background):
    text = THEMES[background]
    for look in stamps.LOOKS.values():  # white on the stamp, and the tile that has its colour
        assert contrast("#FFFFFF", look.colour) >= 4.5, look
    for shade in (marked.SURPRISE, marked.REFUSING, marked.ANSWERING):  # a token at its strongest shade
        colour = "#" + "".join(f"{int(channel):02x}" for channel in shade.split(","))
        assert contrast(text, over(colour, marked.STRONGEST, background)) >= 4.5, shade
    faint = [
        float(found[1]) for rule in _rules() if (found := re.search(r"opacity:\s*([01]?\.\d+)", rule))
        if "font-size" in rule or "color:" in rule
    ]  # fmt: skip
    assert len(faint) >= 4  # captions, footnotes, what stands below a finding, small facts of a reply
    assert contrast(over(text, min(faint), background), background) >= 4.5


def _rules():
    """What stands in every rule of our style sheets, and in every style of an element."""
    for path in Path(dashboard.__file__).parent.rglob("*"):
        if path.suffix in (".css", ".py"):
            text = path.read_text(encoding="utf-8")
            yield from re.findall(r"(?<!\{)\{[^{}]*\}", text) if path.suffix == ".css" else []
            yield from re.findall(r'style="[^"]*"|\{[a-z-]+:[^{}]*\}', text) if path.suffix == ".py" else []


@pytest.mark.parametrize("vision", VISIONS)
def test_colours_stay_apart(vision):
    seen = {name: lab(np.array(VISIONS[vision]) @ linear(look.colour)) for name, look in palette.STYLES.items()}
    apart = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}
    shipped = [(distance, *pair) for pair, distance in apart.items() if set(pair) <= SHIPPED]
    assert min(shipped)[0] >= 18, min(shipped)  # a difference of 2 to 3 is just noticeable, 10 is plain
    closest = min((distance, *pair) for pair, distance in apart.items())
    assert closest[0] >= 10, closest


def test_dash_and_symbol_tell_selectors_apart_without_colour():
    looks = palette.STYLES.values()
    assert len({look.dash for look in looks}) >= 6
    assert len({look.symbol for look in looks}) == len(palette.STYLES)
    assert palette.DOTTED["dash"] not in {look.dash for look in looks}
    for look in looks:  # names that plotly knows
        go.Scatter(marker={"symbol": look.symbol}, line={"dash": look.dash})


def test_methods_say_what_every_selector_is():
    methods = documents.sections("Methods")["Selectors"].replace("MeanActivation", "Mean activation")
    for selector in BUILT_IN:
        assert f"**{get_selector(selector).title}**" in methods
        assert f"\n| `{selector}` |" in methods
