"""Live edit: one prompt, answered by the model as it is and with rows removed, side by side."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field

import polars as pl
import streamlit as st

from dashboard import charts, edits, formats, layout, live, palette, selection, shipped, tools
from engine.errors import InputError

SHIPPED, OTHER = "Shipped model", "Another model"
INSTALL, REMOVE = "Install refusal", "Remove by rate"
HOW_TO_READ = (
    "The same prompt is answered twice, by the model as it is and with the chosen rows zeroed. "
    "The margin is what the model leans to as its reply begins: above 0 to refusing, below 0 to answering."
)
LENGTHS = (20, 40, 80, 160)
_SHOWN = "live-shown"  # session state: the last try
_POINT_OF = "live-point-of"  # session state: what the sliders were set for


@dataclass
class Try:
    """One run, kept in the session while it is written, so that a stopped one still shows what was there."""

    model: str
    prompt: str
    settings: str
    texts: dict[str, str] = field(default_factory=lambda: {"before": "", "after": ""})
    outcomes: dict[str, live.Outcome] = field(default_factory=dict)
    removed: pl.DataFrame | None = None
    ended: bool = False
    problem: str = ""


def render() -> None:
    """The page."""
    layout.heading("Live edit", HOW_TO_READ)
    try:
        model_id, edit, prompt, length = _controls()
    except InputError as error:
        layout.problem(error)
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        run = st.button("Run", type="primary", key="run", disabled=not (model_id and prompt.strip()))
        stop = st.empty()
    status = st.empty()
    panels = _Panels()
    if run:
        shown = Try(model_id, prompt, edit.describe())
        st.session_state[_SHOWN] = shown
        stop.button("Stop", key="stop")  # any click ends this script run at its next output
        try:
            _run(shown, edit, length, status, panels)
        except InputError as error:
            shown.problem = str(error)
        shown.ended = True
        stop.empty()
    last = st.session_state.get(_SHOWN)
    if last is None:
        status.caption("Choose an example or write a prompt, then press Run.")
    else:
        _show(last, status, panels)


def _controls() -> tuple[str, edits.Edit, str, int]:
    with st.container(border=True):
        first, second, third = st.columns(3)
        with first:
            which = selection.choose("Model", (SHIPPED, OTHER), "edit_model")
            model_id = live.DEMO
            if which == OTHER:
                model_id = selection.text(
                    "Folder or Hugging Face id", "edit_model_id", placeholder="/path/to/model or organisation/name",
                    help_text="Loaded when you press Run; an id that is not on this machine is downloaded then.",
                )  # fmt: skip
            elif not shipped.demo_model_is_there():
                raise InputError(
                    "the shipped model is missing; choose another model, or rebuild it with "
                    "`python -m precomputed.recipe`"
                )
        with second:
            mode = selection.switch("What to do", (INSTALL, REMOVE), "mode", default=INSTALL)
        with third:
            length = selection.pick("Reply, tokens at most", LENGTHS, "length", default=40)
        edit = _refusal_settings(model_id) if mode == INSTALL else _rate_settings()
        return model_id, edit, _prompt(edit.domain), length


def _refusal_settings(model_id: str) -> edits.Edit:
    columns = st.columns(4)
    with columns[0]:
        domain = selection.choose("Domain", edits.DOMAINS, "domain", title=str.capitalize)
    with columns[1]:
        selector = selection.choose("Selector", edits.REFUSAL_SELECTORS, "edit_selector", title=palette.title)
    point = shipped.operating_point(selector, domain) if model_id == live.DEMO else None
    _follow(point, (model_id, selector, domain))
    with columns[2]:
        lam = selection.pick(
            "λ, protection of language", edits.LAMBDAS, "lambda", default=point.lam if point else 0.5,
            title="{:g}".format,
            help_text="How strongly rows that the language model needs are spared.",
        )  # fmt: skip
    with columns[3]:
        k = selection.pick(
            "k, share of rows removed", edits.KS, "k", default=point.k if point else 0.05, title=formats.rate,
            help_text="The rows with the highest contrast score, out of all rows of the model.",
        )  # fmt: skip
    if point:
        chosen = (
            "" if (lam, k) == (point.lam, point.k) else f", measured at λ = {point.lam:g}, k = {point.k:.4g}"
        )
        st.caption(
            f"On {point.pairs} held-out risk prompts this model refuses {point.before:.0%} as it is and "
            f"{point.after:.0%} with the operating point of this selector and domain{chosen}."
        )
    return edits.Edit("refusal", selector, domain=domain, lam=lam, k=k)


def _follow(point: shipped.OperatingPoint | None, of: tuple[str, str, str]) -> None:
    """Another selector or domain starts from its own measured point; a link or the user's choice stays."""
    before = st.session_state.get(_POINT_OF)
    st.session_state[_POINT_OF] = of
    if point and before not in (None, of):
        st.session_state["lambda"], st.session_state["k"] = point.lam, point.k


def _rate_settings() -> edits.Edit:
    columns = st.columns(3)
    with columns[0]:
        selector = selection.choose(
            "Selector", edits.ranking_selectors(), "rank_selector", title=palette.title
        )
    with columns[1]:
        order = selection.switch(
            "Order", ("LeRF", "MoRF"), "rank_order", default="LeRF",
            help_text="LeRF removes the rows with the lowest scores, MoRF those with the highest.",
        )  # fmt: skip
    with columns[2]:
        rate = selection.pick("Rows removed", edits.RATES, "rate", default=0.3, title=formats.rate)
    return edits.Edit("language model", selector, order=order.lower(), rate=rate)


def _prompt(domain: str) -> str:
    offered = [example for example in shipped.examples() if not domain or example.domain == domain]
    labels = {f"{example.kind}: {example.prompt}": example.prompt for example in offered}
    if "prompt" not in st.session_state and "prompt" not in st.query_params and offered:
        st.session_state["prompt"] = offered[0].prompt

    def use_example() -> None:
        chosen = st.session_state.get("example")
        if chosen in labels:
            st.session_state["prompt"] = labels[chosen]

    if labels:
        st.selectbox(
            "Examples", list(labels), index=None, key="example", on_change=use_example,
            placeholder="risk prompts, and base prompts that ask for something harmless",
        )  # fmt: skip
    return st.text_area("Prompt", key="prompt", height=80, max_chars=2000, bind="query-params") or ""


class _Panels:
    """The two replies beside each other; each has a line of facts and the text, never rendered as markdown."""

    def __init__(self) -> None:
        self.facts: dict[str, st.delta_generator.DeltaGenerator] = {}
        self.texts: dict[str, st.delta_generator.DeltaGenerator] = {}
        for side, column in zip(("before", "after"), st.columns(2), strict=True):
            with column, st.container(border=True, key=f"reply-{side}", height="stretch"):
                st.markdown("#### Before" if side == "before" else "#### After")
                self.texts[side] = st.empty()
                self.facts[side] = st.empty()
        self.below = st.container()

    def write(self, side: str, text: str) -> None:
        self.texts[side].text(text or " ", width="stretch")


def _run(
    shown: Try, edit: edits.Edit, length: int, status: st.delta_generator.DeltaGenerator, panels: _Panels
) -> None:
    def waiting(seconds: float) -> None:
        status.info(f"Queued: another session is using this model ({seconds:.0f} s).")

    def progress(what: str, done: int, total: int) -> None:
        status.progress(
            min(done / max(total, 1), 1.0), text=f"Computing scores for this model: {what}, {done} of {total}"
        )

    def loading(seconds: float) -> None:
        status.info(f"Loading the model … ({seconds:.0f} s)")

    status.caption("Loading the model …")
    entry = live.POOL.get(shown.model, loading)
    mask = edits.mask_of(entry, edit, progress)
    shown.removed = edits.removed_per_projection(entry, mask)
    for side in ("before", "after"):
        panels.write(side, "")
    status.caption("Writing …")
    with closing(live.replies(entry.loaded, mask, shown.prompt, length)) as events:
        queued = False
        for event in events:
            if isinstance(event, live.Waiting):
                waiting(event.seconds)
                queued = True
                continue
            if queued:
                status.caption("Writing …")
                queued = False
            if isinstance(event, live.Piece):
                shown.texts[event.side] += event.text
                panels.write(event.side, shown.texts[event.side])
            else:
                shown.outcomes[event.side] = event
                panels.facts[event.side].caption(_facts(event))


def _show(last: Try, status: st.delta_generator.DeltaGenerator, panels: _Panels) -> None:
    if last.problem:
        status.warning(layout.plain(last.problem))
    else:
        rows = int(last.removed["removed"].sum()) if last.removed is not None else None
        count = f"{rows:,} rows removed" if rows is not None else "nothing removed yet"
        state = "" if last.ended else " — stopped; the model's weights are back as they were"
        status.caption(layout.plain(f"{last.settings}: {count}{state}. Prompt: {last.prompt}"))
    for side in ("before", "after"):
        panels.write(side, last.texts[side])
        if side in last.outcomes:
            panels.facts[side].caption(_facts(last.outcomes[side]))
        elif not last.ended:
            panels.facts[side].caption("Stopped.")
    if last.removed is not None:
        with panels.below:
            st.markdown("#### Where the removed rows are")
            tools.show(
                charts.removed_rows(last.removed), "removed-rows",
                "Share of the rows of each projection that this edit removes: "
                + ", ".join(f"{name} {removed} of {rows}" for name, removed, rows in last.removed.iter_rows()),
                key="removed-rows",
            )  # fmt: skip


def _facts(outcome: live.Outcome) -> str:
    verdict = ":material/block: **refuses**" if outcome.refusal else ":material/chat: **answers**"
    margin = f"margin {outcome.margin:+.2f}".replace("-", "−") if outcome.margin is not None else "no margin"
    why = f" ({layout.plain(outcome.margin_note)})" if outcome.margin_note else ""
    pieces = [verdict, margin + why, formats.seconds(outcome.elapsed_s), f"{outcome.tokens} tokens"]
    return " · ".join(pieces) + (f" · judge: {layout.plain(outcome.reason)}" if outcome.reason else "")
