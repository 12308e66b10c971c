"""A reply as HTML that shows it letter by letter: escaped, its tokens shaded, words underlined."""

import html
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from re import finditer
from typing import NamedTuple

from dashboard.charts import formats

# Surprise is shaded from none at 0 nats to full at this many; a token of 1 in 400 has 6.
FULL_NATS = 6.0
SURPRISE, REFUSING, ANSWERING = "221, 122, 2", "198, 22, 32", "8, 169, 91"  # red, green, blue of the shades
STRONGEST = 0.45  # opacity, so that the text on it keeps its contrast
ALIKE = 0.5  # share of words that two replies have in common, from which on their differences are marked
CHANGED = "text-decoration:underline;text-decoration-thickness:2px;text-underline-offset:3px"


class Span(NamedTuple):
    """Letters [start, end) of a text and a CSS declaration for them."""

    start: int
    end: int
    css: str


def shades(pieces: Sequence[str], colours: Sequence[str]) -> list[Span]:
    """One span per piece that has a colour. pieces: together they are the text."""
    spans, start = [], 0
    for piece, colour in zip(pieces, colours, strict=False):
        if piece and colour:
            spans.append(Span(start, start + len(piece), f"background-color:{colour}"))
        start += len(piece)
    return spans


def of_log_probability(nats: float) -> str:
    """The shade of a token with this log-probability; "" for one that was expected."""
    return _shade(SURPRISE, -nats / FULL_NATS)


def of_margin(margin: float, largest: float) -> str:
    """The shade of a token before which the margin stood so: one colour for refusing, one for answering."""
    return _shade(REFUSING if margin > 0 else ANSWERING, abs(margin) / largest if largest else 0.0)


def _shade(colour: str, share: float) -> str:
    opacity = STRONGEST * min(max(share, 0.0), 1.0)
    return f"rgba({colour}, {opacity:.2f})" if opacity >= 0.02 else ""


def changes(text: str, other: str) -> list[Span]:
    """The words of `text` that are not those of `other` at the same place, by `difflib` on words; the space between two
    of them is marked too."""
    mine, theirs = _words(text), _words(other)
    same = SequenceMatcher(None, [one[0] for one in mine], [one[0] for one in theirs], autojunk=False)
    return [
        Span(mine[first][1], mine[last - 1][2], CHANGED)
        for what, first, last, _, _ in same.get_opcodes()
        if what != "equal" and first < last
    ]


def alike(text: str, other: str) -> bool:
    """Are at least `ALIKE` of the words of both the same in the same order? Of others, every word would be marked."""
    mine, theirs = ([word for word, _, _ in _words(one)] for one in (text, other))
    return SequenceMatcher(None, mine, theirs, autojunk=False).ratio() >= ALIKE


def _words(text: str) -> list[tuple[str, int, int]]:
    return [(found[0], found.start(), found.end()) for found in finditer(r"\S+", text)]


def as_html(text: str, spans: Sequence[Span] = ()) -> str:
    """The text, every letter of it escaped, with the declarations of the spans that cover it; they may overlap.
    Nothing of the text becomes a tag, an attribute or an entity."""
    text = formats.shown(text)
    cuts = {0, len(text)}
    for span in spans:
        cuts |= {min(max(place, 0), len(text)) for place in span[:2]}
    pieces = []
    for start, end in pairwise(sorted(cuts)):
        css = ";".join(dict.fromkeys(span.css for span in spans if span.start <= start and end <= span.end))
        escaped = html.escape(text[start:end])
        pieces.append(f'<span style="{css}">{escaped}</span>' if css else escaped)
    return "".join(pieces)


def moved(spans: Sequence[Span], offset: int) -> list[Span]:
    """The spans of a text for what is left of it from `offset` on."""
    return [Span(span.start - offset, span.end - offset, span.css) for span in spans if span.end > offset]
