"""A mask made by hand: what it costs, keep it under a name, export it, compare it with those of selectors."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.charts import curves as curve_chart, rows as rows_chart
from dashboard.chat import trial
from dashboard.pages.rows import row_sets, scored
from dashboard.pages.rows.cell import TICKED
from dashboard.pages.rows.row_sets import Kept
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from dashboard.state import shipped
from engine.edits.masks import Mask
from engine.records.errors import InputError

LENGTHS = (20, 40, 80, 160)
MOST_TICKED = 500  # ticks are part of the link, which should stay one that can be sent
NOW = "The ticked rows"
_UPLOADED = "rows-uploaded"  # session state: files that are kept already


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
    _try(found, rows, of_map)
    _keep(found, rows)
    _compare(found, rows)


def _summary(found: Scored, rows: Mask) -> str:
    if not rows.size:
        return "No row is ticked."
    where = scored.where(found, rows.tolist())
    cells = where.select("block", "projection").n_unique()
    count = f"{rows.size:,} row{'s' if rows.size != 1 else ''}"
    return f"{count} of {found.n_rows:,} ticked, in {cells} matri{'ces' if cells != 1 else 'x'}."


def _try(found: Scored, rows: Mask, of_map: Kept | None) -> None:
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
        kept = kept_masks(found) | ({} if of_map is None else {f"Of the map: {of_map.name}": of_map})
        which = st.selectbox("Which rows", [NOW, *kept], key="rows-which") if kept else NOW
    tried = rows if which == NOW else kept[which].rows
    label = f"Rows {_short(row_sets.write(rows))}" if which == NOW else which
    request = None
    if tried.size:
        request = trial.Request(
            found.load_from, label, lambda *_: tried, prompt, length, found.model.get("weights_hash")
        )
    trial.trial("rows-zero", "Zero them and measure", request)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80].rpartition(',')[0]}, …"


def kept_masks(found: Scored) -> dict[str, Kept]:
    """Masks kept in this session for these weights, by name."""
    everything: dict[str, dict[str, Kept]] = st.session_state.setdefault("kept-masks", {})
    return everything.setdefault(str(found.model.get("weights_hash")), {})


def _keep(found: Scored, rows: Mask) -> None:
    layout.section("Kept masks")
    kept = kept_masks(found)
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    with left:
        name = st.text_input("Name", key="mask-name", placeholder="my mask")
    with right:
        pressed = st.button("Keep the ticked rows", key="mask-keep", disabled=not rows.size)
    if pressed:
        with layout.told():
            name = row_sets.checked_name(name, kept)
            kept[name] = Kept(name, rows)
    _upload(found, kept)
    for mask in list(kept.values()):
        _one(found, mask, kept)


def _upload(found: Scored, kept: dict[str, Kept]) -> None:
    given = st.file_uploader("Open a mask file", type="safetensors", key="mask-file")
    if given is None or st.session_state.get(_UPLOADED) == given.file_id:
        return
    st.session_state[_UPLOADED] = given.file_id
    with layout.told():
        mask = row_sets.load(given.getvalue(), given.name, found)
        name = row_sets.checked_name(mask.name.removesuffix(".safetensors")[: row_sets.NAME_CHARACTERS], kept)
        kept[name] = Kept(name, mask.rows, mask.spec)


def _one(found: Scored, mask: Kept, kept: dict[str, Kept]) -> None:
    def tick() -> None:
        st.session_state[TICKED] = row_sets.write(mask.rows)

    def drop() -> None:
        kept.pop(mask.name, None)

    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.text(f"{mask.name}: {mask.rows.size:,} rows, {mask.made}")
        st.button("Tick its rows", key=f"mask-tick-{mask.name}", on_click=tick, disabled=mask.rows.size > MOST_TICKED)
        st.download_button(
            "Download", row_sets.export(mask, found.model), file_name=row_sets.file_name(mask.name),
            mime="application/octet-stream", key=f"mask-save-{mask.name}", on_click="ignore",
        )  # fmt: skip
        st.button("Remove", key=f"mask-drop-{mask.name}", on_click=drop)


def _compare(found: Scored, rows: Mask) -> None:
    kept = kept_masks(found)
    choices = ([NOW] if rows.size else []) + list(kept)
    if not choices:
        return
    layout.section("Compared with selectors")
    chosen = st.selectbox("Mask", choices, key="mask-compared")
    mine = rows if chosen == NOW else kept[chosen].rows
    others = [mask for name, mask in kept.items() if name != chosen]
    if not mine.size:
        return
    compared = row_sets.compare(found, np.asarray(mine), others)
    tools.show(
        rows_chart.overlaps(compared),
        "mask-overlap",
        f"Jaccard of {chosen} with masks of selectors of the same size, under LeRF and MoRF: "
        + ", ".join(
            f"{name} {order} {value:.3f}"
            for name, order, value in compared.select("compared_with", "order", "jaccard").iter_rows()
        ),
        key="mask-overlap",
    )
    st.caption(
        f"Each selector removes {mine.size:,} rows as well, by LeRF its lowest and by MoRF its highest. The bar is the "
        "Jaccard index, the mark what two random masks of these sizes share on average."
    )
    tools.show(
        curve_chart.removed_rows(scored.removed_per_projection(found, np.asarray(mine))), "mask-projections",
        f"Where the {mine.size} rows of {chosen} are, by projection.", key="mask-projections",
    )  # fmt: skip
    tools.download_csv("Download this comparison (CSV)", compared, "mask-comparison.csv")
