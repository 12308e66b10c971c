"""Live edit: one prompt answered by the model as it is, with rows removed, and with random ones removed; or many."""

from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.chat import fetching, live, marked, opening, stamps, tries
from dashboard.chat.live import Outcome, Side
from dashboard.chat.marked import Span
from dashboard.chat.tries import TITLES, Request, Try
from dashboard.pages.live import break_it, cards as live_cards, many, rounds, settings
from dashboard.pages.live.cards import Cards
from dashboard.pages.live.settings import Chosen, Places
from dashboard.show import layout, selection, share
from dashboard.state import shipped_models as shipped
from engine.records.errors import InputError

HOW_TO_READ = (
    "The same prompt is answered by the model as it is, with the chosen rows zeroed, and with random rows of the same "
    "layers zeroed. The margin is what the model leans to as its reply begins: above 0 to refusing, below 0 to "
    "answering."
)
ONE, MANY, BREAK = "One prompt", "Many at once", "Break it"
_WAITS = "Comes after Before, once it is known what the edit does."
_KEY = "live"  # of what waits for a download
_LAST_REQUEST = "live-request"  # session state: the settings of the last script run
SHOWN = "live-shown"  # session state: the try on the page
_TRIES = "live-tries"  # session state: the complete ones, oldest first
Job = tuple[Try, tuple[Side, ...]]  # a try, and the sides to write
_SHADES = {
    settings.PLAIN: "",
    settings.LIKELY: "Shaded: words that the model as it is did not expect.",
    settings.LEANING: "Shaded: the margin before each token, red for refusing and green for answering.",
}
_CONTROL = "Control: of every layer as many rows as After is without, drawn at random; further draws by the next seeds."
_SHADED = f"Shade of a token by probability: that under the model as it is; fully at −{marked.FULL_NATS:g} nats."
_UNDERLINED = f"Underlined: words in which a reply and Before differ, where they share {marked.ALIKE:.0%} or more."


def render() -> None:
    live.wanted.set()
    layout.style(Path(__file__).with_name("live.css"))
    with st.container(horizontal=True, vertical_alignment="center", key="live-head"):
        st.title("Live edit", anchor=False, help=HOW_TO_READ)
        view = selection.switch("View", (ONE, MANY, BREAK), "live_view", default=ONE)
        head = st.container(horizontal=True, vertical_alignment="center", width="stretch")
    ask, chips, bar = st.container(key="live-ask"), st.empty(), st.container(key="bar")
    status, stop, bars = st.empty(), st.empty(), st.empty()
    shown, below = st.container(), st.container()
    if view != MANY:
        chips = chips.container(horizontal=True, key="live-chips", gap="small")
    places = Places(head, ask, chips, bar, status, stop, bars, shown, below)
    try:
        chosen = settings.chosen(places, many=many.BUTTON if view == MANY else "", walk=view == BREAK)
    except InputError as error:
        with shown:
            layout.problem(error)
        return
    {ONE: _one, MANY: many.show, BREAK: break_it.show}[view](chosen, places)
    if view == ONE:
        _history()
        _further_draws(chosen, places)


def _one(chosen: Chosen, places: Places) -> None:
    request, status = chosen.request, places.status
    last: Try | None = st.session_state.get(SHOWN)
    if last is None or last.request.model != request.model:  # replies of another model say nothing of this one
        last = _opened(request)
    wanted = _wanted(request, last, chosen) if chosen.possible and request.prompt else ()
    now = (_begin(request, last, wanted, pressed=chosen.pressed), wanted) if wanted else None
    job = fetching.due(_KEY, now)
    if job is not None:
        st.session_state[SHOWN] = last = job[0]
    sides = job[0].request.sides if job is not None else request.sides
    coming = opening.expected() and _is_opening(request)
    if job is None and last is not None and not (coming or last.about(request)):
        sides = live.SIDES if "control" in last.outcomes else live.SIDES[:2]
    with places.replies:
        margins = request.margins or request.edit.mode == "refusal"
        waits = _WAITS if job is not None or coming else ""
        cards = Cards(sides, "reply", shipped.title_of(request.model), margins=margins, waits=waits)
    if job is not None:
        _run(job, places, cards)
    if fetching.under_way(_KEY, places.bars, of_all=True):
        status.empty()
    elif coming and not (last is not None and last.ended):
        written = last.outcomes if last is not None else {}
        cards.call_broken(last.broken if last is not None else "")
        for outcome in written.values():
            cards.write(outcome.side, outcome.text)
            cards.tell(outcome)
        with status:
            st.fragment(_wait_for_the_opening, run_every=fetching.POLL_S)(len(written))
    elif last is not None:
        _show(last, status, cards, places.below, chosen)
    else:
        status.caption("Press an example, or write a prompt and press Enter.")


def _opened(request: Request) -> Try | None:
    """The example that this server has run, where the page asks for just that."""
    last = opening.shown() if _is_opening(request) else None
    if last is not None and last.ended:
        st.session_state[SHOWN] = last
    else:
        st.session_state.pop(SHOWN, None)
    return last


def _is_opening(request: Request) -> bool:
    asked = opening.request()
    return asked is not None and asked.core == request.core


def _wait_for_the_opening(written: int) -> None:
    now = opening.shown()
    if not opening.expected() or (now is not None and len(now.outcomes) != written):
        st.rerun()
    st.caption(f"{live.loading() or 'An example is being run'}; write a prompt meanwhile, or press another example.")


def _wanted(request: Request, last: Try | None, chosen: Chosen) -> tuple[Side, ...]:
    """The sides to write now: all on Run, or on a change where that is asked for; a control or margins that were
    just switched on are added to the try on the page."""
    before: Request | None = st.session_state.get(_LAST_REQUEST)
    st.session_state[_LAST_REQUEST] = request
    if chosen.pressed:
        return request.sides
    if before in (None, request):  # nothing was changed: a link runs nothing by being opened
        return ()
    if last is not None and last.about(request):
        return last.missing(request)
    same = before is not None and before.model == request.model  # another model is run when somebody asks for it
    return request.sides if chosen.at_once and chosen.soon and same else ()


def _begin(request: Request, last: Try | None, wanted: tuple[Side, ...], *, pressed: bool) -> Try:
    """A new try, or the one on the page where sides are added to it."""
    if last is None or pressed or not last.about(request):
        last = Try(request)
        st.session_state[SHOWN] = last
    last.request, last.ended = request, False
    if "control" in wanted:
        last.draws, last.drawn = [], False
    for side in wanted:
        last.texts[side] = ""
        last.outcomes.pop(side, None)
    return last


def _run(job: Job, places: Places, cards: Cards) -> None:
    now, wanted = job

    def work(entry: live.Entry) -> None:
        for side in cards.sides:
            cards.write(side, now.texts[side])
        for removed in tries.batches(now, entry, wanted, layout.progress_in(places.status)):
            cards.call_broken(now.broken)
            cards.follow(partial(tries.replies, now, entry, removed), places.status, now.texts, now.outcomes)
        now.ended = True
        _keep(now)
        now.reference = rounds.reference(entry, places.status)

    places.stop.button("Stop", key="stop")  # any click ends this script run at its next output
    fetching.worked(_KEY, now.request.model, job, now, places.status, places.stop, work)


def _further_draws(chosen: Chosen, places: Places) -> None:
    """Once the replies are on the page, those without further random rows, until the next click."""
    last, request = st.session_state.get(SHOWN), chosen.request
    if last is None or last.drawn or not (last.about(request) and tries.told(last) and request.model in live.POOL):
        return
    if request.control_seed is None or last.missing(request):
        return

    def tell(*_: object) -> None:
        _tell(last, places.status, chosen.shade, drawing=not last.drawn)

    with (
        suppress(InputError, fetching.Downloading), fetching.model(f"{_KEY}-draws", request.model, None, tell) as entry,
        closing(tries.further_draws(last, entry, tell)) as written,
    ):  # fmt: skip
        for _ in written:
            tell()
    last.drawn = True
    tell()


def _keep(one: Try) -> None:
    """Adds a complete try; the oldest goes when there are too many. A try that grew a side is there already."""
    earlier = _tries()
    if one.complete and not any(other is one for other in earlier):
        earlier.append(one)
        del earlier[: -tries.KEPT]


def _show(last: Try, status: DeltaGenerator, cards: Cards, below: DeltaGenerator, chosen: Chosen) -> None:
    """A try as far as it came. Its prompt is told where another one is asked for by now."""
    does = tries.told(last)
    if last.problem or last.unlike:
        status.warning(layout.worded(last.problem or last.unlike))
    elif does:
        _tell(last, status, chosen.shade)
    _cards(last, cards, chosen.shade)
    with below:
        if not last.problem:
            count = "nothing removed yet" if last.rows_removed is None else f"{last.rows_removed:,} rows removed"
            sentences = [f"{last.request.edit.describe()}: {count}{'' if last.ended else ' — stopped'}.", last.effect]
            sentences += [f"Prompt: {last.request.prompt}"] * (last.request.prompt != chosen.request.prompt)
            sentences.append("" if does else _SHADES[chosen.shade])
            st.caption(layout.plain(" ".join(filter(None, sentences))))
        if last.outcomes:
            known = [last.outcomes[side] for side in cards.sides if side in last.outcomes]
            columns = [share.Column(TITLES[one.side], *stamps.chip(last.stamp(one)), one.text) for one in known]
            edit = f"{last.request.edit.describe()}; {shipped.title_of(last.request.model)}"
            share.offer(last.request.prompt, columns, edit)
            rounds.explain(last.reference, _CONTROL, _UNDERLINED, _SHADED)


def _tell(last: Try, status: DeltaGenerator, shade: str, *, drawing: bool = False) -> None:
    """The sentence; below it which draw the control is, and what is shaded. drawing: are further ones being written?"""
    drawn = f"Control: one random draw, seed {last.control_seed}; others under More. "
    if drawing:
        drawn = f"Further random draws: {len(last.draws)} of {tries.DRAWS - 1} … "
    elif len(last.draws) == tries.DRAWS - 1:
        drawn = f"Control: the first of {tries.DRAWS} random draws. "
    with status:
        layout.finding(tries.told(last), drawn * ("control" in last.outcomes) + _SHADES[shade])


def _cards(last: Try, cards: Cards, shade: str) -> None:
    outcomes = {side: last.outcomes[side] for side in cards.sides if side in last.outcomes}
    scale = max([live_cards.LEAST_SCALE, *(abs(one.margin) for one in outcomes.values() if one.margin is not None)])
    for side in cards.sides:
        if side in outcomes:
            spans = [*_shaded(outcomes[side], shade), *_changed(side, outcomes)]
            stamp, broken = last.stamp(outcomes[side]), last.why_broken(outcomes[side])
            cards.finish(outcomes[side], stamp=stamp, broken=broken, spans=spans, scale=scale)
            continue
        cards.write(side, last.texts[side])
        if not last.ended:
            cards.facts[side].caption("Stopped.")


def _shaded(outcome: Outcome[Side], shade: str) -> list[Span]:
    if shade == settings.LIKELY:
        return marked.shades(outcome.pieces, [marked.of_log_probability(one) for one in outcome.log_probabilities])
    if shade == settings.LEANING:
        margins = [margin for _, margin in outcome.along]
        largest = max(map(abs, margins), default=0.0)
        return marked.shades(outcome.pieces, [marked.of_margin(one, largest) for one in margins])
    return []


def _changed(side: Side, found: dict[Side, Outcome[Side]]) -> list[Span]:
    """What differs from Before; of Before, what differs from After. Nothing where most of it does."""
    other = found.get("after" if side == "before" else "before")
    if other is None or not marked.alike(found[side].text, other.text):
        return []
    return marked.changes(found[side].text, other.text)


def _history() -> None:
    earlier = _tries()
    if not earlier:
        return
    st.markdown("#### Tries of this session")
    # Prompts are cells of a table: shown as text, whatever they hold.
    st.dataframe(tries.comparison(earlier), hide_index=True, height=min(38 + 35 * len(earlier), 250))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = [f"{number}: {one.request.edit.describe()}" for number, one in enumerate(earlier, start=1)]
        st.selectbox(
            "Open a try again", labels[::-1], index=None, key="reopen", on_change=_reopen, args=(labels,),
            placeholder="its replies and its settings",
        )  # fmt: skip
        st.download_button(
            "Save session", lambda: tries.session_json(earlier), file_name="live-session.json",
            mime="application/json", on_click="ignore", help="JSON of all tries.",
        )  # fmt: skip
    count = f"{len(earlier)} tries" if len(earlier) > 1 else "1 try"
    layout.footnote(f"{count} so far; they stay until this page is closed, the last {tries.KEPT} of them.")


def _reopen(labels: list[str]) -> None:
    chosen = st.session_state.get("reopen")
    if chosen in labels:
        reopened = _tries()[labels.index(chosen)]
        st.session_state[SHOWN] = reopened
        settings.restore(reopened.request)


def _tries() -> list[Try]:
    return st.session_state.setdefault(_TRIES, [])
