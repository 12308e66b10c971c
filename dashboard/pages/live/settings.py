"""Settings of a live edit: model, edit, prompt, and what to show of the replies. All of it is in the URL."""

from __future__ import annotations

import streamlit as st

from dashboard.charts import formats, palette
from dashboard.chat import edits, live
from dashboard.chat.tries import Request
from dashboard.pages.live import own_run
from dashboard.show import selection
from dashboard.state import shipped
from engine.records.errors import InputError
from engine.run.plans import RefusalPlan

SHIPPED, OTHER = "Shipped model", "Another model"
INSTALL, REMOVE = "Install refusal", "Remove by rate"
LENGTHS = (20, 40, 80, 160)
_POINT_OF = "live-point-of"  # session state: what the sliders were set for


def request() -> tuple[Request, bool]:
    """What is chosen, and whether every change is to run at once. `InputError` where there is no model to run."""
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
        mode = selection.switch("What to do", (INSTALL, REMOVE), "mode", default=INSTALL, place=second)
        length = selection.pick("Reply, tokens at most", LENGTHS, "length", default=40, place=third)
        settings = _rate_settings if mode == REMOVE else _refusal_settings if which == SHIPPED else own_run.settings
        edit = settings()
        prompt = _prompt(edit.domain)
        at_once, margins, seed = _options()
    return Request(model_id, edit, prompt, length, margins, seed), at_once


def _options() -> tuple[bool, bool, int | None]:
    with st.container(horizontal=True, gap="medium", vertical_alignment="center"):
        control = st.toggle(
            "Control: same layers, other rows", key="control", bind="query-params",
            help="A third reply, with as many rows removed in every layer, but drawn at random. If it does the same, "
            "the choice of rows did not matter.",
        )  # fmt: skip
        margins = st.toggle(
            "Margin at every token", key="margins", bind="query-params",
            help="How far the model leans to refusing after every token of each reply.",
        )  # fmt: skip
        at_once = st.toggle(
            "Run on every change", key="at_once", bind="query-params",
            help="Moving a slider or choosing another prompt removes the new rows and replies at once.",
        )  # fmt: skip
        seeds = RefusalPlan.control_seeds
        seed = selection.switch("Seed of the control", seeds, "control_seed", default=seeds[0]) if control else None
    return at_once, margins, seed


def restore(one: Request) -> None:
    """Puts the settings of an earlier try back into the widgets; for a callback, before they are made."""
    edit, state = one.edit, st.session_state
    state["edit_model"] = SHIPPED if one.model == live.DEMO else OTHER
    if one.model != live.DEMO:
        state["edit_model_id"] = one.model
    state["prompt"], state["length"], state["margins"] = one.prompt, one.reply_tokens, one.margins
    state["control"] = one.control_seed is not None
    if one.control_seed is not None:
        state["control_seed"] = one.control_seed
    if edit.run:
        state["mode"] = INSTALL
        own_run.restore(edit)
    elif edit.mode == "refusal":
        state["mode"], state["domain"], state["edit_selector"] = INSTALL, edit.domain, edit.selector
        state["lambda"], state["k"] = edit.lam, edit.k
        state[_POINT_OF] = (one.model, edit.selector, edit.domain)
    else:
        state["mode"], state["rank_selector"], state["rate"] = REMOVE, edit.selector, edit.rate
        state["rank_order"] = {"lerf": "LeRF", "morf": "MoRF"}[edit.order]


def _refusal_settings() -> edits.Edit:
    columns = st.columns(4)
    domain = selection.choose("Domain", edits.DOMAINS, "domain", title=str.capitalize, place=columns[0])
    with columns[1]:
        selector = selection.choose("Selector", edits.refusal_selectors(), "edit_selector", title=palette.title)
    point = shipped.operating_point(selector, domain)
    _follow(point, (live.DEMO, selector, domain))
    with columns[2]:
        lam = selection.pick(
            "λ, protection of language", edits.LAMBDAS, "lambda", default=point.lam if point else 0.5,
            title="{:g}".format, help_text="How strongly rows that the language model needs are spared.",
        )  # fmt: skip
    with columns[3]:
        k = selection.pick(
            "k, share of rows removed", edits.KS, "k", default=point.k if point else 0.05, title=formats.rate,
            help_text="The rows with the highest contrast score, out of all rows of the model.",
        )  # fmt: skip
    if point:
        chosen = "" if (lam, k) == (point.lam, point.k) else f", measured at λ = {point.lam:g}, k = {point.k:.4g}"
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
        selector = selection.choose("Selector", edits.ranking_selectors(), "rank_selector", title=palette.title)
    with columns[1]:
        order = selection.switch(
            "Order", ("LeRF", "MoRF"), "rank_order", default="LeRF",
            help_text="LeRF removes the rows with the lowest scores, MoRF those with the highest.",
        )  # fmt: skip
    rate = selection.pick("Rows removed", edits.RATES, "rate", default=0.3, title=formats.rate, place=columns[2])
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
