"""The verdicts on the overview: a table of chips that lead to the evidence, and the reasons folded below."""

from contextlib import suppress

import polars as pl
import streamlit as st

from dashboard.charts import overview, palette, verdict_chips
from dashboard.charts.findings import believed as findings
from dashboard.show import layout, menu
from dashboard.state import sources
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.records.model_names import model_to_type

WHAT = (
    "**Faithful**: removing its lowest rows (LeRF) does little harm, removing its highest (MoRF) much, and both differ "
    "from random rows of the same layers; **sufficient**: only the first two were shown. **Stable**: other calibration "
    "text gives nearly the same masks. **Robust**: the ranking stays the same, but for rounding, when the weights are "
    "rewritten without changing what the model computes; a random ranking passes this too. **No text**: it reads none. "
    "Each chip opens its evidence."
)
_NAME_PX, _CHIP_PX, _BUDGET_PX, _BAR_PX, _GAP_PX = 150, 112, 170, 120, 8
GLOSS = {
    "Faithful?": "right at both ends", "Stable?": "same rows from other text", "Robust?": "same when rewritten"
}  # fmt: skip
_FIRST = {"lerf": "what they call unimportant", "morf": "what they call important"}
_PICKED = ("source", "folder", "run", "model")  # keys of the picker, which a link takes along


def show(picked: sources.Source, *, sentence: bool) -> None:
    """The answer in one sentence, and the verdicts behind it; without verdicts, what is known of them.
    sentence: False where a figure says it. Errors: InputError where a table cannot be read."""
    verdicts = picked.table("verdicts") if picked.has("verdicts") else None
    if sentence:
        said = [overview.budget_finding(picked.table("budget"))] if picked.has("budget") else []
        said += [] if verdicts is None else [verdict_chips.answer(verdicts)]
        if said:
            layout.finding(". ".join(said))
    if verdicts is None:
        _without(picked)
        return
    invariance = None
    if picked.has("invariance_verdicts"):
        with suppress(InputError):  # told where the exact controls are
            invariance = picked.table("invariance_verdicts")
    taken = {key: st.query_params[key] for key in _PICKED if key in st.query_params}
    found = verdict_chips.lines(verdicts, invariance)
    with st.container(horizontal=True, gap="xsmall", key="verdict-head"):
        st.markdown("**Selector**", width=_NAME_PX)
        with st.container(horizontal=True, gap="xsmall", width=_width_of(len(verdict_chips.questions(invariance)))):
            for question in verdict_chips.questions(invariance):
                st.markdown(f"**{question}**  \n:small[{GLOSS[question]}]", width=_CHIP_PX)
        if any(line.budget for line in found):
            st.markdown("**Budget**  \n:small[rows that can go before perplexity doubles]", width=_BUDGET_PX)
    drawn = verdict_chips.bars(verdicts)
    for line in found:
        _line(line, taken, drawn.get(line.selector, ""))
    with st.expander("What the words mean, and why, selector by selector"):
        st.caption(WHAT)
        for row in palette.sorted_by_selector(verdicts).iter_rows(named=True):
            title = layout.plain(palette.title(row["selector"]))
            st.markdown(f"**{title}**: {layout.worded(row['reasons'] or 'no reason is told')}")
        if invariance is None:
            command = model_to_type(read_manifest(picked.folder).get("model") or {})
            measures = f"`selector-audit analyze {command} invariance` measures it"
            st.caption(layout.worded(f"Robust was not measured here; {measures}."))
            picked.offer("invariance_verdicts")


def _without(picked: sources.Source) -> None:
    if picked.has("specific"):
        judged = picked.table("specific").filter(pl.col("answer") != "saturated")
        told = (
            f"Removing {_FIRST[order]}: {layout.worded(findings.own_depths(lines, order))}."
            for (order,), lines in judged.group_by("order", maintain_order=True)
        )
        st.markdown("  \n".join(told))
    st.caption("Whether selectors are faithful and stable was not judged here: that takes further calibration text.")
    picked.offer("verdicts")


def _line(line: verdict_chips.Line, taken: dict[str, str], bar: str) -> None:
    title = palette.title(line.selector)
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key=f"verdict-{line.selector}"):
        st.markdown(f"**{layout.plain(title)}**", width=_NAME_PX)
        with st.container(horizontal=True, gap="xsmall", width=_width_of(len(line.chips))):
            for chip in line.chips:
                about = f"{layout.plain(title)}: {chip.question} Opens the evidence."
                parameters = {**taken, **chip.parameters}
                if not menu.link(chip.markdown, chip.path, parameters, help_text=about, width=_CHIP_PX):
                    st.markdown(chip.markdown, width=_CHIP_PX)
        if line.budget:
            interval = f" :small[({line.interval})]" if line.interval else ""
            st.markdown(line.budget + interval, width=_BUDGET_PX)
            st.html(bar, width=_BAR_PX)
        if line.stable_but_invalid:
            st.markdown(":red-badge[stable but invalid]", width="content")


def _width_of(chips: int) -> int:
    """Of so many beside each other, in pixels: on a phone a line of its own below the name."""
    return chips * _CHIP_PX + (chips - 1) * _GAP_PX
