"""The example that Live edit opens with: run once per server on the shipped model, shown to whoever comes.

It is written in the background by `prepare`, after the first page is up; no page waits for it.
"""

from __future__ import annotations

from dataclasses import replace

from dashboard.chat import edits, live, stamps, writing
from dashboard.chat.edits import Edit
from dashboard.chat.tries import Request, Try
from dashboard.state import shipped
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan

REPLY_TOKENS = 40


class _Opening:
    """The one of this server. expected: is it being written, or going to be?"""

    def __init__(self) -> None:
        self.expected = False
        self.done: Try | None = None


_OPENING = _Opening()


def expect() -> None:
    """`prepare` is going to be called."""
    _OPENING.expected = True


def request() -> Request | None:
    """What Live edit asks where nothing was chosen; None where there is no example or no measured edit for it."""
    domain, selector = edits.DOMAINS[0], edits.refusal_selectors()[0]
    point = shipped.operating_point(selector, domain)
    prompts = [example.prompt for example in shipped.examples() if example.domain == domain]
    if point is None or not prompts:
        return None
    edit = Edit("refusal", selector, domain=domain, lam=point.lam, k=point.k)
    return Request(live.DEMO, edit, prompts[0], REPLY_TOKENS, control_seed=RefusalPlan.control_seeds[0])


def prepare() -> None:
    """Writes it. What goes wrong is left to who presses Run."""
    try:
        asked = request() if shipped.demo_model_is_there() else None
        if asked is not None:
            _OPENING.done = _written(asked)
    except InputError:
        return
    finally:
        _OPENING.expected = False


def shown() -> Try | None:
    """A copy of it for one session; None until it is there."""
    done = _OPENING.done
    if done is None:
        return None
    return replace(done, texts=dict(done.texts), outcomes=dict(done.outcomes))


def expected() -> bool:
    """Is it worth waiting for?"""
    return _OPENING.expected


def _written(asked: Request) -> Try:
    now = Try(asked)
    with live.POOL.use(live.DEMO) as entry:
        masks = writing.rows_of(now, entry, lambda *_: None)
        for event in writing.replies(now, entry, masks, asked.sides):
            writing.keep(now, event)
        now.reference = stamps.reference_of(entry)
    now.ended = True
    return now
