"""What a live edit is asked: a line where Enter asks for the replies, and examples that are a press away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from dashboard.chat.many import KINDS
from dashboard.show import layout, selection
from dashboard.state import shipped

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

CHARACTERS = 2000
OF_EACH = 3  # risk prompts and base prompts that are a press away
_EXAMPLES_OF = "live-examples-of"  # session state: the domain whose examples are offered
_PRESSED = "live-pressed"  # session state: an example was pressed, which asks for its replies


def examples_of(domain: str) -> list[shipped.Example]:
    """The examples that are a press away: some risk prompts, then some base prompts, of all domains for ""."""
    offered = [example for example in shipped.examples() if not domain or example.domain == domain]
    kinds = dict.fromkeys(example.kind for example in offered)
    return [one for kind in kinds for one in [two for two in offered if two.kind == kind][:OF_EACH]]


def prompt(ask: DeltaGenerator, chips: DeltaGenerator, domain: str, possible: bool) -> tuple[str, bool]:
    """The prompt, and whether it is to be answered now: Enter and Run ask for that, and an example that is pressed."""
    offered = examples_of(domain)
    _stay_with_the_domain(offered, domain)
    with ask.form("ask", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        text = selection.text(
            "Prompt", "prompt", default=offered[0].prompt if offered else "",
            placeholder="Write a prompt and press Enter", in_form=True,
        )  # fmt: skip
        pressed = st.form_submit_button("Run", type="primary", key="run", disabled=not possible)
    with chips:
        for number, example in enumerate(offered):
            nth = 1 + sum(other.kind == example.kind for other in offered[:number])
            label = f"{KINDS.get(example.kind, example.kind)} {nth}"
            st.button(
                label, key=f"example-{number}", help=layout.plain(example.prompt), on_click=_use,
                args=(example.prompt,), disabled=not possible,
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


def _use(prompt: str) -> None:
    st.session_state["prompt"], st.session_state[_PRESSED] = prompt, True


def _stay_with_the_domain(offered: list[shipped.Example], domain: str) -> None:
    """An example of the domain before becomes the same one of this domain; what somebody wrote stays.

    It has to be said: with another default the field is another one for Streamlit, and begins with that.
    """
    before = st.session_state.get(_EXAMPLES_OF)
    st.session_state[_EXAMPLES_OF] = domain
    if before in (None, domain):
        return
    old = [example.prompt for example in examples_of(before)]
    now = st.session_state.get("prompt", old[0] if old else "")
    place = old.index(now) if now in old else len(offered)
    st.session_state["prompt"] = offered[place].prompt if place < len(offered) else now
