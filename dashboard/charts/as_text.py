"""Names in figures are text: of what plotly reads as markup, only what our own titles are made of is left."""

import re
from typing import Any

import numpy as np
import plotly.graph_objects as go

# Plotly draws some HTML wherever a text stands, links among it. Ours has these, and the size that `figure_size` gives.
_FOREIGN = re.compile(
    r'<(?=[a-z/])(?!/?(?:b|br|sub|sup|extra)>|span style="font-size:[0-9.]+px;font-weight:normal">|/span>)',
    re.IGNORECASE,
)


def as_text(figure: go.Figure) -> go.Figure:
    """The figure, or a copy in which every other tag is written out; values and numbers stay as they are."""
    found: dict[str, Any] = figure.to_dict()
    plain = _plain(found)
    return figure if plain is found else go.Figure(plain)


def _plain(value: Any) -> Any:
    """A value with its texts made plain; the same object where there is nothing to do."""
    if isinstance(value, str):
        return _FOREIGN.sub("&lt;", value) if _FOREIGN.search(value) else value
    if isinstance(value, dict):
        made = {name: _plain(one) for name, one in value.items()}
        return made if any(made[name] is not one for name, one in value.items()) else value
    if isinstance(value, (list, tuple)):
        items = [_plain(one) for one in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        items = value.tolist()
        plain = _plain(items)
        return value if plain is items else plain
    return value
