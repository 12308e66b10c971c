"""A mask made by hand: what it costs, and its file."""

import streamlit as st

from dashboard.chat import trial
from dashboard.pages.rows import row_sets
from dashboard.pages.rows.cell import TICKED
from dashboard.pages.rows.row_sets import Kept
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection
from dashboard.state import shipped
from engine.edits.masks import Mask
from engine.records.errors import InputError

LENGTHS = (20, 40, 80, 160)
TICKED_ROWS = "The ticked rows"


def show(found: Scored, of_map: Kept | None = None) -> None:
    """The part of the page below the rows. of_map: the mask that the map shows, which can be tried as well."""
    layout.section("Without the ticked rows")
    text = selection.text(
        "Row ids to zero", TICKED, placeholder="3, 8-10",
        help_text="The ticked rows, as ids and ranges; they can be typed here as well, and are part of the link.",
    )  # fmt: skip
    try:
        rows = row_sets.parse(text, found.n_rows)
    except InputError as error:
        layout.problem(error)
        return
    st.caption(_summary(found, rows))
    masks = [Kept(TICKED_ROWS, rows)]
    given = st.file_uploader("Open a mask file", type="safetensors", key="mask-file")
    if given is not None:
        with layout.told():
            masks.append(row_sets.load(given.getvalue(), given.name, found))
    if of_map is not None:
        masks.append(Kept(f"Of the map: {of_map.name}", of_map.rows, of_map.spec))
    _try(found, {mask.name: mask for mask in masks})


def _summary(found: Scored, rows: Mask) -> str:
    if not rows.size:
        return "No row is ticked."
    cells = found.rows[rows.tolist()].select("block", "projection").n_unique()
    count = f"{rows.size:,} row{'s' if rows.size != 1 else ''}"
    return f"{count} of {found.n_rows:,} ticked, in {cells} matri{'ces' if cells != 1 else 'x'}."


def _try(found: Scored, masks: dict[str, Kept]) -> None:
    examples = shipped.examples(found.load_from)
    if "rows_prompt" not in st.session_state and "rows_prompt" not in st.query_params and examples:
        st.session_state["rows_prompt"] = examples[0].prompt

    def use() -> None:
        picked = st.session_state.get("rows-example")
        if picked:
            st.session_state["rows_prompt"] = picked

    left, right = st.columns([3, 1])
    with left:
        st.selectbox(
            "Example prompts", [example.prompt for example in examples], index=None, key="rows-example",
            on_change=use, placeholder="choose one, or write your own below",
        )  # fmt: skip
        prompt = selection.prompt("Prompt", "rows_prompt", 2000)
    with right:
        length = selection.pick("Reply, tokens at most", LENGTHS, "rows_length", default=40)
        which = st.selectbox("Which rows", list(masks), key="rows-which") if len(masks) > 1 else TICKED_ROWS
    mask = masks[which]
    request = None
    if mask.rows.size:
        ids = row_sets.write(mask.rows)
        ids = ids if len(ids) <= 80 else f"{ids[:80].rpartition(',')[0]}, …"
        label = f"Rows {ids}" if which == TICKED_ROWS else which
        weights = found.model.get("weights_hash")
        request = trial.Request(found.load_from, label, lambda *_: mask.rows, prompt, length, weights)
        st.download_button(
            "Download as a mask file", row_sets.export(mask, found.model), file_name=row_sets.file_name(mask.name),
            mime="application/octet-stream", key="mask-save", on_click="ignore",
        )  # fmt: skip
    trial.trial("rows-zero", "Zero them and measure", request)
