"""The example that Live edit opens with: run once per server on the app's first model, shown to whoever comes.

It is written in the background by `prepare`, after the first page is up; no page waits for it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import polars as pl

from dashboard.chat import edits, live, stamps, writing
from dashboard.chat.edits import Edit
from dashboard.chat.tries import Request, Try
from dashboard.state import results, shipped
from engine.edits.effect import BROKEN
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan

REPLY_TOKENS = 40


class _Opening:
    """The one of this server, as far as it is written. expected: is it being written, or going to be?"""

    def __init__(self) -> None:
        self.expected = False
        self.now: Try | None = None


_OPENING = _Opening()


def expect() -> None:
    """`prepare` is going to be called."""
    _OPENING.expected = True


def request(model: str = "") -> Request | None:
    """What Live edit asks of a model, "" for the app's first one, where nothing was chosen; None without an example or
    a measured edit for it."""
    model = model or shipped.models()[0]
    edit = _installing() if model == live.DEMO else _breaking(model)
    prompts = [one.prompt for one in shipped.examples(model) if edit is not None and one.domain == edit.domain]
    if edit is None or not prompts:
        return None
    return Request(model, edit, prompts[0], REPLY_TOKENS, control_seed=RefusalPlan.control_seeds[0])


def _installing() -> Edit | None:
    """The demo's first operating point."""
    domain, selector = edits.DOMAINS[0], edits.refusal_selectors()[0]
    point = shipped.operating_point(selector, domain)
    return None if point is None else Edit("refusal", selector, domain=domain, lam=point.lam, k=point.k)


def _breaking(model: str) -> Edit | None:
    """The smallest measured share of rows without which a shipped model is broken, most relevant first by any of its
    selectors, while it is not without as many random rows."""
    folder = shipped.scored_folder(model)
    if folder is None:
        return None
    try:
        sweep = results.read_run(folder).frame.group_by("selector", "order", "rate").agg(pl.col("nll").mean())
    except InputError:
        return None
    dense = sweep.filter(pl.col("rate") == 0)["nll"].min()
    most = float(dense) + math.log(BROKEN) if isinstance(dense, float) else math.inf
    worst = sweep.filter(order="morf").sort("rate", "nll", descending=[False, True])
    spared = {
        rate for name, rate, nll in worst.select("selector", "rate", "nll").rows() if name == "random" and nll < most
    }
    names = set(edits.ranking_selectors(model=model)) - {"random"}
    for selector, rate, nll in worst.select("selector", "rate", "nll").rows():
        if selector in names and nll > most and rate in spared and rate in edits.RATES:
            return Edit("language model", selector, order="morf", rate=rate)
    return None


def prepare() -> None:
    """Writes it. What goes wrong is left to who presses Run."""
    with suppress(InputError):
        asked = request()
        if asked is not None and shipped.model_is_there(asked.model):
            _write(asked)
    _OPENING.expected = False
    if _OPENING.now is not None and not _OPENING.now.ended:
        _OPENING.now = None


def shown() -> Try | None:
    """A copy of it for one session, as far as it is written; None until something is."""
    now = _OPENING.now
    return None if now is None else replace(now, texts=dict(now.texts), outcomes=dict(now.outcomes))


def expected() -> bool:
    """Is it worth waiting for?"""
    return _OPENING.expected


def _write(asked: Request) -> None:
    with live.POOL.use(asked.model) as entry:
        now = _OPENING.now = Try(asked)
        for masks, sides in writing.batches(now, entry, asked.sides, lambda *_: None):
            for event in writing.replies(now, entry, masks, sides):
                writing.keep(now, event)
        now.ended = True
        now.reference = stamps.reference_of(entry)
