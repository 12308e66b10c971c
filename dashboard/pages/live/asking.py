"""What a live edit is asked: a line where Enter asks for the replies, and examples that are a press away."""

import textwrap

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.show import layout, selection
from dashboard.state import shipped

CHARACTERS = 2000
OF_EACH = 3  # risk prompts and base prompts that are a press away
LETTERS = 46  # of a prompt on its chip, at most
_EXAMPLES_OF = "live-examples-of"  # session state: the model and the domain whose examples are offered
_PRESSED = "live-pressed"  # session state: an example was pressed, which asks for its replies


def examples_of(model: str, domain: str) -> list[shipped.Example]:
    """The examples that are a press away: some of each kind, of all domains for ""."""
    offered = [example for example in shipped.examples(model) if not domain or example.domain == domain]
    kinds = dict.fromkeys(example.kind for example in offered)
    return [one for kind in kinds for one in [two for two in offered if two.kind == kind][:OF_EACH]]


def prompt(
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
