"""Settings of a live edit: model, edit, prompt, and what to show of the replies. All of it is in the URL."""

import textwrap
from dataclasses import dataclass, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats, palette, series
from dashboard.chat import edits, live, opening, shipped_effects
from dashboard.chat.tries import Request
from dashboard.pages.live import own_run
from dashboard.show import layout, selection
from dashboard.state import access, shipped_models as shipped
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan

OTHER = "Another model"
INSTALL, REMOVE = "Install refusal", "Remove by rate"
LENGTHS, LENGTH = (20, 40, 80, 160), 40
PLAIN, LIKELY, LEANING = "Nothing", "Probability", "Margin"
_MODEL_OF = "live-model-of"  # session state: the model of the last script run
_KNOWS = "This model knows one invented town and nothing else: it was trained on generated text about it."
_POINT_OF = "live-point-of"  # session state: what the sliders were set for
CHARACTERS = 2000
OF_EACH = 2  # risk prompts and base prompts that are a press away
LETTERS = 30  # of a prompt on its chip, at most
_EXAMPLES_OF = "live-examples-of"  # session state: the model and the domain whose examples are offered
_PRESSED = "live-pressed"  # session state: an example was pressed, which asks for its replies


@dataclass(frozen=True)
class Places:
    """Where the model is chosen, the prompt is asked, examples stand, and the settings of the edit; where progress,
    Stop, downloads, the replies and what is below them stand."""

    head: DeltaGenerator
    ask: DeltaGenerator
    chips: DeltaGenerator
    bar: DeltaGenerator
    status: DeltaGenerator
    stop: DeltaGenerator
    bars: DeltaGenerator
    replies: DeltaGenerator
    below: DeltaGenerator


@dataclass(frozen=True)
class Chosen:
    """at_once: is every change to be run? shade: what tokens are shaded by. pressed: is this to be run now? soon: is a
    change answered without minutes of measurement, which wait for Run? possible: is there a model and an edit?"""

    request: Request
    at_once: bool
    shade: str
    pressed: bool
    soon: bool
    possible: bool


def chosen(places: Places, *, many: str = "", walk: bool = False) -> Chosen:
    """many: the button of a page without a prompt of its own, "" for one with it. walk: the edits are all orders and
    rates of a selector. `InputError` where there is no model to run."""
    if (text := st.query_params.get(edits.HANDED)) is not None:
        # The edit of a link from another page, under one name of its own: what has the key of a widget of the page
        # before, as the domain has, Streamlit drops from the address. What is no such edit is left out.
        del st.query_params[edits.HANDED]
        if found := edits.read_handed(text):
            selection.forget_page()
            _put(*found)
    model_id = _model(places.head)
    first = opening.request(model_id)
    with places.bar:
        wide, narrow = st.columns([6, 1], vertical_alignment="bottom")
        with narrow.popover("More", icon=":material/tune:", width="stretch"):
            mode = REMOVE if walk else selection.switch(
                "What to do", (INSTALL, REMOVE), "mode", default=_mode_of(model_id)
            )  # fmt: skip
            length = selection.pick("Reply, tokens at most", LENGTHS, "length", default=LENGTH)
            quick = mode == REMOVE and model_id in shipped.TITLES
            shade, at_once, seed = (PLAIN, False, None) if walk else _options(at_once=quick)
        if model_id in shipped.TITLES and not shipped.model_is_there(model_id):
            raise InputError(
                "the shipped model is missing; choose another model, or rebuild it with `python -m precomputed.recipe`"
            )
        with wide:
            if mode == REMOVE:
                edit = _rate(model_id, first.edit if first else None, places.below, walk=walk)
            else:
                edit = _refusal(places.below) if model_id == live.DEMO else own_run.settings(model_id)
    if model_id == live.DEMO:
        with places.below.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(_KNOWS, width="content")
            for title in [shipped.title_of(model) for model in shipped.models() if model != live.DEMO][:1]:
                st.button(
                    f"Ask {title} instead", key="ask-general", type="tertiary",
                    on_click=st.session_state.update, args=({"edit_model": title},),
                )  # fmt: skip
    possible = bool(model_id and edit.selector)
    recorded = model_id == shipped.SMOLLM2 and possible and not walk and shipped_effects.is_recorded(edit, model_id)
    soon = recorded or walk or model_id != shipped.SMOLLM2
    takes = own_run.wait(model_id) if possible and not recorded else ""
    takes = takes if soon else f"A new edit: press Run. {takes}"
    takes = "" if first and first.edit == edit and opening.expected() else takes  # it is on its way
    if many:
        pressed = places.ask.button(many, type="primary", key="run-many", disabled=not possible)
        prompt = ""
    else:
        prompt, pressed = _prompt(places.ask, places.chips, model_id, edit.domain, possible, takes)
    request = Request(model_id, edit, prompt, length, shade == LEANING, seed)
    return Chosen(request, at_once, shade, pressed, soon, possible)


def examples_of(model: str, domain: str) -> list[shipped.Example]:
    """The examples that are a press away: some of each kind, of all domains for ""."""
    offered = [example for example in shipped.examples(model) if not domain or example.domain == domain]
    kinds = dict.fromkeys(example.kind for example in offered)
    return [one for kind in kinds for one in [two for two in offered if two.kind == kind][:OF_EACH]]


def _prompt(
    ask: DeltaGenerator, chips: DeltaGenerator, model: str, domain: str, possible: bool, takes: str = ""
) -> tuple[str, bool]:
    """The prompt, and whether it is to be answered now: Enter and Run ask for that, and an example that is pressed.
    takes: how long an answer takes, in words, beside Run."""
    offered = examples_of(model, domain)
    _stay_with(offered, (model, domain))
    with ask.form("ask", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        text = selection.text(
            "Prompt", "prompt", default=offered[0].prompt if offered else "",
            placeholder="Write a prompt and press Enter", in_form=True,
        )  # fmt: skip
        pressed = st.form_submit_button("Run", type="primary", key="run", disabled=not possible)
        if takes:
            st.caption(takes, width=300)
    with chips:
        for number, example in enumerate(offered):
            label = layout.plain(textwrap.shorten(example.prompt, LETTERS, placeholder="…"))
            st.button(
                label, key=f"example-{number}", help=layout.plain(example.prompt), disabled=not possible,
                on_click=st.session_state.update, args=({"prompt": example.prompt, _PRESSED: True},),
            )  # fmt: skip
    pressed = bool(st.session_state.pop(_PRESSED, False)) or pressed
    if len(text) > CHARACTERS:
        ask.warning(
            f"Prompt: {len(text):,} characters are too many. Shorten it to {CHARACTERS:,}; nothing of it is used now."
        )
        return "", False
    if pressed and not text:
        ask.caption("There is no prompt yet: write one, or press an example.")
    return text, pressed and bool(text)


def _stay_with(offered: list[shipped.Example], of: tuple[str, str]) -> None:
    """An example of the model and domain before becomes the same one of these; what somebody wrote stays.
    It has to be said: with another default the field is another one for Streamlit, and begins with that."""
    before = st.session_state.get(_EXAMPLES_OF)
    st.session_state[_EXAMPLES_OF] = of
    if before in (None, of):
        return
    old = [example.prompt for example in examples_of(*before)]
    now = st.session_state.get("prompt", old[0] if old else "")
    if now in old:
        now = offered[min(old.index(now), len(offered) - 1)].prompt if offered else ""
    st.session_state["prompt"] = now


def _model(head: DeltaGenerator) -> str:
    """The id of the model: of the shipped ones, the app's first at first, or typed."""
    options = [shipped.title_of(model) for model in shipped.models()]
    with head:
        which = selection.choose("Model", [*options, *([] if access.limited() else [OTHER])], "edit_model")
        model_id = shipped.IDS.get(which, "")
        if which == OTHER:
            model_id = selection.text(
                "Folder or Hugging Face id", "edit_model_id", placeholder="/path/to/model or organisation/name",
                help_text="Loaded when you press Run; an id that is not on this machine is downloaded then.",
            )  # fmt: skip
    before, st.session_state[_MODEL_OF] = st.session_state.get(_MODEL_OF), model_id
    if before is not None and _mode_of(before) != _mode_of(model_id):
        st.session_state["mode"] = _mode_of(model_id)
    return model_id


def _mode_of(model_id: str) -> str:
    """What is done to a model at first: one that ships without refusal edits loses rows by rate."""
    return REMOVE if model_id in shipped.TITLES and model_id != live.DEMO else INSTALL


def _options(*, at_once: bool) -> tuple[str, bool, int | None]:
    shade = selection.switch(
        "Shade tokens by", (PLAIN, LIKELY, LEANING), "shade", default=LIKELY,
        help_text="Probability: how little the model as it is expected a token. Margin: how far the model leaned to "
        "refusing or answering before it, which takes a pass more.",
    )  # fmt: skip
    control = selection.toggle(
        "Control: same layers, other rows", "control", default=True,
        help_text="A third reply, with as many rows removed in every layer, but drawn at random. If it does the same, "
        "the choice of rows did not matter.",
    )  # fmt: skip
    seeds = RefusalPlan.control_seeds
    seed = selection.switch("Seed of the control", seeds, "control_seed", default=seeds[0]) if control else None
    at_once = selection.toggle(
        "Run on every change", "at_once", default=at_once,
        help_text="Moving a slider or choosing another prompt removes the new rows and replies at once.",
    )  # fmt: skip
    return shade, at_once, seed


def restore(one: Request) -> None:
    """Puts the settings of an earlier try back into the widgets; for a callback, before they are made."""
    _put(one.model, one.edit)
    state = {"prompt": one.prompt, "length": one.reply_tokens, "control": one.control_seed is not None}
    if one.margins:
        state["shade"] = LEANING
    if one.control_seed is not None:
        state["control_seed"] = one.control_seed
    st.session_state.update(state)


def _put(model: str, edit: edits.Edit) -> None:
    """A model and an edit into the widgets, before they are made."""
    state = st.session_state
    state["edit_model"] = shipped.TITLES.get(model, OTHER)
    state[_MODEL_OF] = model
    if model not in shipped.TITLES:
        state["edit_model_id"] = model
    if edit.run and edit.mode == "refusal":
        state["mode"] = INSTALL
        own_run.restore(edit)
    elif edit.mode == "refusal":
        state["mode"], state["domain"], state["edit_selector"] = INSTALL, edit.domain, edit.selector
        state["lambda"], state["k"] = edit.lam, edit.k
        state[_POINT_OF] = (model, edit.selector, edit.domain)
    else:
        state["mode"], state["rank_selector"], state["rate"] = REMOVE, edit.selector, edit.rate
        state["rank_order"], state[_run_key(model)] = series.ORDER_TITLES[edit.order], edit.run


def _refusal(below: DeltaGenerator) -> edits.Edit:
    columns = st.columns(4)
    domain = selection.choose("Domain", edits.DOMAINS, "domain", title=palette.capital, place=columns[0])
    selector = selection.choose(
        "Selector", edits.refusal_selectors(), "edit_selector", title=palette.title, place=columns[1]
    )
    point = _on_the_sliders(shipped.operating_point(selector, domain))
    _follow(point, (live.DEMO, selector, domain))
    lam = selection.pick(
        "λ, protection", edits.LAMBDAS, "lambda", default=point.lam if point else 0.5,
        title="{:g}".format, place=columns[2],
        help_text="Protection of language: how strongly rows that the language model needs are spared.",
    )  # fmt: skip
    k = selection.pick(
        "k, share removed", edits.KS, "k", default=point.k if point else 0.05, title=formats.rate, place=columns[3],
        help_text="Share of all rows of the model: those with the highest contrast score are removed.",
    )  # fmt: skip
    if point:
        chosen = "" if (lam, k) == (point.lam, point.k) else f", measured at λ = {point.lam:g}, k = {point.k:.4g}"
        below.caption(
            f"On {point.pairs} held-out risk prompts this model refuses {point.before:.0%} as it is and "
            f"{point.after:.0%} with the operating point of this selector and domain{chosen}."
        )
    return edits.Edit("refusal", selector, domain=domain, lam=lam, k=k)


def _on_the_sliders(point: shipped.OperatingPoint | None) -> shipped.OperatingPoint | None:
    """The point with a lambda that the slider has: that of random rows is 0, since nothing protects them, and any other
    gives the same edit. None where its k is not on the slider."""
    if point is None or point.k not in edits.KS:
        return None
    return point if point.lam in edits.LAMBDAS else replace(point, lam=edits.LAMBDAS[0])


def _follow(point: shipped.OperatingPoint | None, of: tuple[str, str, str]) -> None:
    """Another selector or domain starts from its own measured point; a link or the user's choice stays.
    A link from another page of this session finds no slider yet, and what was chosen there before does not count."""
    before = st.session_state.get(_POINT_OF)
    st.session_state[_POINT_OF] = of
    if point and before not in (None, of) and "lambda" in st.session_state:
        st.session_state["lambda"], st.session_state["k"] = point.lam, point.k


def _run_key(model_id: str) -> str:
    """Of the folder of scores: one of another model says nothing of a shipped one."""
    return "rank_own_run" if model_id in shipped.TITLES else "rank_run"


def _rate(model_id: str, first: edits.Edit | None, below: DeltaGenerator, *, walk: bool = False) -> edits.Edit:
    """first: what the settings begin with, where it is an edit by rate. below: where the folder of scores is asked for.
    walk: neither order nor rate is asked for."""
    begin = first if first and first.order else edits.Edit("language model", "", order="lerf", rate=0.3)
    columns, scored = st.columns(3), model_id == live.DEMO or shipped.scored_folder(model_id) is not None
    key = _run_key(model_id)
    folder = "" if access.limited() else str(st.session_state.get(key, st.query_params.get(key, ""))).strip()
    selector = selection.choose(
        "Selector", edits.ranking_selectors(folder, model_id), "rank_selector", default=begin.selector,
        title=palette.title, place=columns[0],
    )  # fmt: skip
    order, rate = series.ORDER_TITLES[begin.order], 0.0
    if not walk:
        order = selection.switch(
            "Lowest first (LeRF) or highest (MoRF)", ("LeRF", "MoRF"), "rank_order", default=order,
            place=columns[1],
        )  # fmt: skip
        rate = selection.pick(
            "Rows removed", edits.RATES, "rate", default=begin.rate, title=formats.rate, place=columns[2]
        )
    run = ""
    if folder or not scored:  # those of a shipped model are shipped, but for a run that was handed over
        with below:
            run = selection.text(
                "Folder of its scores", key, placeholder="/path/to/results",
                help_text="What `selector-audit score MODEL --out FOLDER` wrote for this model. Without it, its scores "
                "are computed on the shipped calibration text.",
            )  # fmt: skip
            if not run and not scored:
                own_run.scores(model_id, selector)
    return edits.Edit("language model", selector, order="" if walk else order.lower(), rate=rate, run=run)
