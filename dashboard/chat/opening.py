"""The example that Live edit opens with: run once per server on the app's first model, shown to whoever comes.

It is written in the background by `prepare`, after the first page is up; no page waits for it."""

from contextlib import suppress
from dataclasses import replace

from dashboard.chat import edits, live, shipped_effects, stamps, tries
from dashboard.chat.edits import Edit
from dashboard.chat.tries import Request, Try
from dashboard.state import shipped_models as shipped
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
        edit = shipped_effects.spared(model)
    prompts = [one.prompt for one in shipped.examples(model) if edit is not None and one.domain == edit.domain]
    if edit is None or not prompts:
        return None
    return Request(model, edit, prompts[0], REPLY_TOKENS, control_seed=RefusalPlan.control_seeds[0])


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
    return None if now is None else replace(now, texts=dict(now.texts), outcomes=dict(now.outcomes), draws=[])


def expected() -> bool:
    return _OPENING.expected


def _write(asked: Request) -> None:
    with live.POOL.use(asked.model) as entry:
        now = _OPENING.now = Try(asked)
        for removed in tries.batches(now, entry, asked.sides, lambda *_: None):
            for event in tries.replies(now, entry, removed):
                live.keep(event, now.texts, now.outcomes)
        now.reference = stamps.reference_of(entry)
        now.ended = True
