"""Sentences in a figure's title: names in a row, bounds that hold, lines that fit on a phone."""

import html
import math
import re
import textwrap
from collections.abc import Sequence

import plotly.graph_objects as go

from dashboard.charts import figure_size, formats, palette

TITLE_LETTERS, BELOW_LETTERS = 38, 56  # of a line; on a phone of 400 px about 280 px are left of the camera
STAGE_LETTERS = (32, 40)  # on stage, of two figures beside each other at 1280 px
_TITLE_LINE_PX, _BELOW_LINE_PX = 1.3 * figure_size.TITLE_PX, 1.3 * figure_size.BASE_PX
_NAMED = 4


def headed(
    figure: go.Figure, finding: str, below: str | None = None, title_letters: int = TITLE_LETTERS,
    below_letters: int = BELOW_LETTERS,
) -> go.Figure:  # fmt: skip
    """Puts a finding in the place of the title and how to read the figure below it; both are broken into lines that
    fit on a phone, and the figure grows by what they need, so that its plot stays as large. In place.

    below: None keeps the line that is there. title_letters, below_letters: of a line at most."""
    layout = figure.layout
    before = layout.title.text or ""
    if below is None:
        there = re.search("<sub>(.*)</sub>", before)
        below = html.unescape(there[1]) if there else ""
    title, small = lines(finding, title_letters), lines(below, below_letters)
    more = _TITLE_LINE_PX * (len(title) - 1) + _BELOW_LINE_PX * (len(small) - ("<sub>" in before))
    text = "<br>".join(title) + (f"<br><sub>{'<br>'.join(small)}</sub>" if small else "")
    if more > 0 and layout.height:
        above_px = (1 - (1 if layout.title.y is None else layout.title.y)) * layout.height
        layout.height += more
        layout.margin.t = (layout.margin.t or 0) + more
        layout.title.y = 1 - above_px / layout.height
    layout.title.text = text
    return figure


def lines(text: str, letters: int) -> list[str]:
    """Text in lines of at most so many letters, ready for plotly, which reads tags."""
    return [html.escape(line, quote=False) for line in textwrap.wrap(text, letters, break_on_hyphens=False)]


def listed(names: Sequence[str], most: int = _NAMED) -> str:
    """`LRP, IG and Wanda`; beyond `most` names their number: `LRP, IG, Wanda and 3 more`."""
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "none"


def titles(selectors: Sequence[str], most: int = _NAMED) -> str:
    """Selectors by their names for people, in the order used everywhere."""
    return listed([palette.title(name) for name in palette.in_order(list(selectors))], most)


def verb(names: Sequence[object], one: str, several: str) -> str:
    """The form of a verb for so many."""
    return one if len(names) == 1 else several


def bound(nll: float, *, up: bool) -> str:
    """The text of a perplexity that `exp(nll)` is below (up) or above: three digits, rounded up or down."""
    log10 = nll / formats.LN10
    exponent = math.floor(log10)
    hundredths = round(100 * 10 ** (log10 - exponent))  # of the leading digit, also where exp(nll) would overflow
    step = 1 if up else -1

    def place(digits: int) -> float:
        return formats.LN10 * (exponent + math.log10(digits / 100))

    hundredths -= 2 * step
    while (place(hundredths) - nll) * step < 1e-9:
        hundredths += step
    return formats.perplexity(place(hundredths))


def nearest(rates: Sequence[float], wanted: float) -> float | None:
    """The rate above 0 that is nearest to the wanted one; None where there is none."""
    return min((rate for rate in sorted(set(rates)) if rate > 0), key=lambda rate: abs(rate - wanted), default=None)
