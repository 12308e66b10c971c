"""The example that Live edit opens with: run once per server on the app's first model, shown to whoever comes.

It is written in the background by `prepare`, after the first page is up; no page waits for it."""

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl

from dashboard.chat import edits, live, shipped_effects, stamps, tries
from dashboard.chat.edits import Edit
from dashboard.chat.tries import Request, Try
from dashboard.state import results, shipped
from engine.edits.effect import BROKEN
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan

REPLY_TOKENS = 40


class _Opening:
    """The one of this server, as far as it is written. expected: is it being written, or going to be?"""

    expected = False
    now: Try | None = None


_OPENING = _Opening()


def expect() -> None:
    _OPENING.expected = True


def request(model: str = "") -> Request | None:
    """What Live edit asks of a model, "" for the app's first one, where nothing was chosen; None without an example or
    a measured edit for it."""
    model = model or shipped.models()[0]
    if model == live.DEMO:
        domain, selector = edits.DOMAINS[0], edits.refusal_selectors()[0]
        point = shipped.operating_point(selector, domain)
        edit = None if point is None else Edit("refusal", selector, domain=domain, lam=point.lam, k=point.k)
    else:
        edit = shipped_effects.spared(model) or _breaking(model)
    prompts = [one.prompt for one in shipped.examples(model) if edit is not None and one.domain == edit.domain]
    if edit is None or not prompts:
        return None
    return Request(model, edit, prompts[0], REPLY_TOKENS, control_seed=RefusalPlan.control_seeds[0])


def _breaking(model: str) -> Edit | None:
    """The smallest measured share of rows without which a shipped model is broken, most relevant first by any of its
    selectors, while it is not without random rows: of the same layers where that was measured, else of all."""
    folder = shipped.scored_folder(model)
    if folder is None:
        return None
    with suppress(InputError):
        sweep = _most_relevant_first(folder, results.SWEEP)
        limit = min((nll for (_, rate), nll in sweep.items() if rate == 0), default=math.inf) + math.log(BROKEN)
        scored, matched = set(edits.ranking_selectors(model=model)) - {"random"}, dict[tuple[str, float], float]()
        with suppress(InputError):
            matched = _most_relevant_first(folder, "layer_matched")
        breaking = [
            (name, rate)
            for (name, rate), nll in sweep.items()
            if name in scored and rate in edits.RATES and nll > limit >= sweep.get(("random", rate), math.inf)
        ]
        if breaking:
            selector, rate = min(
                breaking, key=lambda line: (matched.get(line, math.inf) > limit, line[1], -sweep[line])
            )
            return Edit("language model", selector, order="morf", rate=rate)
    return None


def _most_relevant_first(folder: Path, stem: str) -> dict[tuple[str, float], float]:
    """Selector and rate -> mean NLL of the table's lines under MoRF."""
    lines = results.read_table(folder, stem).frame.filter(order="morf").group_by("selector", "rate")
    return {(name, rate): nll for name, rate, nll in lines.agg(pl.col("nll").mean()).rows()}


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
    return _OPENING.expected


def _write(asked: Request) -> None:
    with live.POOL.use(asked.model) as entry:
        now = _OPENING.now = Try(asked)
        for masks, sides in tries.batches(now, entry, asked.sides, lambda *_: None):
            for event in tries.replies(now, entry, masks, sides):
                live.keep(event, now.texts, now.outcomes)
        now.ended = True
        now.reference = stamps.reference_of(entry)
