"""Watch it break: a model's rows as pixels, and what a removal order does to them, as data for the browser.

Everything that moves is computed here once, so that the browser asks for nothing while it plays."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.row_picture import Picture
from engine.data.thinking import parts as reply_parts
from engine.stats.removal_order import removal_order

# A row's place in the removal order is sent as one of so many steps: two bytes per row where a pixel is a row, one
# where it is a group. Every multiple of half a percent is a whole step, so at the measured rates nothing is rounded.
FINE, COARSE = 60_000, 200
ORDER_WORDS = {"lerf": "least relevant first", "morf": "most relevant first"}
STILL_THINKING = "(the thinking part has not ended)"


@dataclass(frozen=True)
class Lane:
    """One selector under one order. places: of `encoded`; curve: (rate, nats per token); said: prompt -> (rate, reply,
    whether it ended by itself); both ascending. draws: rankings that the curve is the mean of; the rest is the first's.
    """

    selector: str
    order: str
    places: str
    curve: Sequence[tuple[float, float]]
    said: Mapping[str, Sequence[tuple[float, str, bool]]]
    draws: int = 1
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or f"{palette.title(self.selector)}, {ORDER_WORDS[self.order]}"


def steps(group: int) -> int:
    """In how many steps the places of a picture with so many rows per pixel are given."""
    return FINE if group == 1 else COARSE


def places(scores: npt.ArrayLike, order: str, steps: int) -> npt.NDArray[np.uint16]:
    """For every row the step at which it goes: [N] uint16 in 0..steps-1.
    floor((k + 1/2) steps / N) for the row that goes as number k, from 0. After s whole steps, at the rate s / steps,
    exactly the rows with smaller places are gone: N times the rate of them, to the nearest row, as masks have."""
    ranked = removal_order(scores, order)
    steps_gone = np.empty(ranked.size, dtype=np.uint16)
    steps_gone[ranked] = (2 * np.arange(ranked.size, dtype=np.int64) + 1) * steps // (2 * max(1, ranked.size))
    return steps_gone


def encoded(scores: npt.ArrayLike, order: str, steps: int) -> str:
    """`places` as base64 of bytes, or of little-endian pairs of them. Sorting many rows takes long: made once per
    ranking."""
    return base64.b64encode(places(scores, order, steps).astype("u1" if steps <= 256 else "<u2").tobytes()).decode()


def curve(sweep: pl.DataFrame, selector: str, order: str) -> list[tuple[float, float]]:
    """Rate and NLL of a selector's line, mean over seeds; NaN and infinity where a measurement gave them."""
    line = sweep.filter(pl.col("selector") == selector, pl.col("order") == order)
    means = line.group_by("rate").agg(pl.col("nll").mean()).sort("rate")
    return [(rate, nll) for rate, nll in means.rows() if nll is not None]


def draws(sweep: pl.DataFrame, selector: str) -> int:
    """How many rankings of a selector the sweep has: one for each seed."""
    return max(1, sweep.filter(pl.col("selector") == selector)["seed"].drop_nulls().n_unique())


def said(replies: pl.DataFrame | None, selector: str, order: str) -> dict[str, list[tuple[float, str, bool]]]:
    """What `sweep_replies` holds of a selector's line, by prompt, without thinking parts; nothing without the table."""
    if replies is None:
        return {}
    line = replies.filter(pl.col("selector") == selector, pl.col("order") == order).sort("rate")
    return {
        str(prompt): [
            (rate, said if complete else STILL_THINKING, finished)
            for rate, reply, finished in part.select("rate", "reply", "finished").iter_rows()
            for _, said, complete in (reply_parts(reply),)
        ]
        for (prompt,), part in line.group_by("prompt", maintain_order=True)
    }


def legend(picture: Picture, lanes: Sequence[Lane]) -> str:
    """What a pixel is, where it stands, and what the numbers beside the picture are, in whole sentences."""
    first = [part.projection for part in picture.parts if part.block == picture.parts[0].block]
    pixel = "Every pixel is a row of the model: bright ones go last, and a row that goes glows red for a moment."
    if picture.group > 1:
        pixel = (
            f"Every pixel is a group of up to {picture.group} neighbouring rows of one projection: bright ones go "
            "last in the mean, and a pixel fades with the share of its rows that is removed."
        )
    inside = f", in each from top to bottom {', '.join(first)}" if len(set(first)) == len(first) <= 8 else ""
    words = [pixel, f"Blocks stand side by side{inside}."]
    if len(lanes) > 1:
        words.append("Both sides lose equally many rows.")
    rates, at = sorted({rate for lane in lanes for rate, _ in lane.curve}), "no rate"
    if rates:
        ends = f"{len(rates)} rates from {formats.rate(rates[0])} to {formats.rate(rates[-1])}"
        at = ends if len(rates) > 1 else "one rate"
    words.append(f"Perplexity is measured at {at}; between them, marked ≈, its logarithm lies on a straight line.")
    for lane in lanes:
        note = f"Of {palette.title(lane.selector)} the picture is that of the first of {lane.draws} draws, and the "
        note += "perplexity that of their mean NLL."
        if lane.draws > 1 and note not in words:
            words.append(note)
    if any(lane.said for lane in lanes):
        words.append("A reply is the model's at the last rate at which it was asked.")
    return " ".join(words)


def _turned(lanes: Sequence[Lane], steps: int) -> bool:
    """Does the second of two lanes lose its rows in just the first one's order from its end? The browser then needs
    one of both."""
    a, b, *more = (np.frombuffer(base64.b64decode(one.places), "u1" if steps <= 256 else "<u2") for one in lanes)
    return not more and bool(np.array_equal(a, steps - 1 - b))


def payload(picture: Picture, lanes: Sequence[Lane]) -> dict[str, Any]:
    """What the component draws; `id` tells one picture from another."""
    made: dict[str, Any] = {
        "picture": {**asdict(picture), "parts": [list(asdict(part).values()) for part in picture.parts]},
        "steps": steps(picture.group),
        "lanes": [
            {
                "title": lane.name, "colour": palette.style(lane.selector).colour,
                "places": "" if lane in lanes[1:2] and _turned(lanes, steps(picture.group)) else lane.places,
                "curve": [[rate, _number(nll)] for rate, nll in lane.curve],
                "said": {prompt: [list(one) for one in line] for prompt, line in lane.said.items()},
            }
            for lane in lanes
        ],
    }  # fmt: skip
    made["prompts"] = list(dict.fromkeys(prompt for lane in lanes for prompt in lane.said))
    made["last"] = min((lane.curve[-1][0] for lane in lanes if lane.curve), default=0.0)
    made["id"] = sha256(repr(made).encode("utf-8", "replace")).hexdigest()[:16]
    return made


def _number(nll: float) -> float | str | None:
    """JSON has no infinity and no NaN."""
    if math.isnan(nll):
        return None
    return nll if math.isfinite(nll) else "Infinity"
