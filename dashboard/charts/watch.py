"""Watch it break: a model's rows as pixels, and what a removal order does to them, as data for the browser.

Everything that moves is computed here once, so that the browser asks for nothing while it plays.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.charts import palette
from engine.stats.removal_order import removal_order

STEPS = 65535  # a row's place in the removal order is drawn to one of so many parts
ORDER_WORDS = {"lerf": "least relevant first", "morf": "most relevant first"}


@dataclass(frozen=True)
class Lane:
    """One selector under one order. places: of `encoded`; curve: (rate, nats per token); said: prompt -> (rate, reply);
    both ascending."""

    selector: str
    order: str
    places: str
    curve: Sequence[tuple[float, float]]
    said: Mapping[str, Sequence[tuple[float, str]]]


def places(scores: npt.ArrayLike, order: str) -> npt.NDArray[np.uint16]:
    """For every row the share of rows that go before it, in parts of `STEPS`: [N] uint16."""
    ranked = removal_order(scores, order)
    found = np.empty(ranked.size, dtype=np.uint16)
    found[ranked] = np.arange(ranked.size, dtype=np.float64) * STEPS // max(1, ranked.size)
    return found


def encoded(scores: npt.ArrayLike, order: str) -> str:
    """`places` as base64 of little-endian numbers. Sorting many rows takes long: made once per ranking."""
    return base64.b64encode(places(scores, order).astype("<u2").tobytes()).decode()


def curve(sweep: pl.DataFrame, selector: str, order: str) -> list[tuple[float, float]]:
    """Rate and NLL of a selector's line, mean over seeds."""
    line = sweep.filter(pl.col("selector") == selector, pl.col("order") == order)
    means = line.group_by("rate").agg(pl.col("nll").mean()).sort("rate")
    return [(rate, nll) for rate, nll in means.rows() if nll is not None]


def said(replies: pl.DataFrame | None, selector: str, order: str) -> dict[str, list[tuple[float, str]]]:
    """What `sweep_replies` holds of a selector's line, by prompt; nothing without the table."""
    if replies is None:
        return {}
    line = replies.filter(pl.col("selector") == selector, pl.col("order") == order).sort("rate")
    return {
        str(prompt): list(part.select("rate", "reply").iter_rows())
        for (prompt,), part in line.group_by("prompt", maintain_order=True)
    }


def parts(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Contiguous rows of one projection of one block, in the order of the row index."""
    groups = rows.group_by("block", "projection", maintain_order=True).agg(start=pl.col("row_id").min(), count=pl.len())
    return groups.to_dicts()


def payload(rows: pl.DataFrame, lanes: Sequence[Lane]) -> dict[str, Any]:
    """What the component draws; `id` tells one picture from another."""
    made: dict[str, Any] = {
        "rows": rows.height,
        "parts": parts(rows),
        "steps": STEPS,
        "lanes": [
            {
                "title": f"{palette.title(lane.selector)}, {ORDER_WORDS[lane.order]}",
                "colour": palette.style(lane.selector).colour,
                "places": lane.places,
                "curve": [list(point) for point in lane.curve],
                "said": {prompt: [list(one) for one in line] for prompt, line in lane.said.items()},
            }
            for lane in lanes
        ],
    }
    made["prompts"] = list(dict.fromkeys(prompt for lane in lanes for prompt in lane.said))
    made["last"] = min((lane.curve[-1][0] for lane in lanes if lane.curve), default=0.0)
    made["id"] = sha256(repr(made).encode()).hexdigest()[:16]
    return made
