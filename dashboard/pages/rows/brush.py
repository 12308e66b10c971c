"""Cells brushed on the map, or ticked rows: what they are, and what the model's perplexity is without them."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats
from dashboard.charts.matrix import Place
from dashboard.chat import answers, measure
from dashboard.chat.measure import Compared
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout
from engine.edits.masks import Mask

BRUSHED = "brushed"  # URL key of the brushed cells, by their names
TITLE = "Perplexity without them"
_FOLLOWED = "rows-brush-followed"  # session state: the selection on the map that was taken over last
_KEY = "rows-brush"


def name_of(place: Place) -> str:
    """`block 0 q_proj`: a cell as the list of brushed ones and the address have it."""
    return f"block {place[0]} {place[1]}"


def follow(found: Scored, points: Sequence[dict[str, object]]) -> None:
    """Takes the points selected on the map over once; afterwards the list decides. Before the list is made."""
    places = [point.get("customdata") for point in points]
    cells = [(int(place[0]), int(place[1])) for place in places if isinstance(place, list | tuple)]
    before = st.session_state.get(_FOLLOWED)
    st.session_state[_FOLLOWED] = cells or None
    if not cells or cells == before:
        return
    blocks, projections = found.blocks, found.projections
    chosen = sorted(set(cells))
    st.session_state[BRUSHED] = [name_of((blocks[row], projections[column])) for row, column in chosen]


def brushed(found: Scored) -> list[Place]:
    """The brushed cells, from the list as it was left or the address, in their order on the map."""
    by_name = {name_of(place): place for place in found.cells}
    named = st.session_state.get(BRUSHED, st.query_params.get_all(BRUSHED))
    return [place for name, place in by_name.items() if name in named]


def show(found: Scored, ticked: Mask) -> DeltaGenerator:
    """The list of brushed cells; returns the place for what `measure` finds."""
    names = [name_of(place) for place in found.cells]
    if any(name not in names for name in st.session_state.get(BRUSHED, [])):
        st.session_state[BRUSHED] = [name for name in st.session_state[BRUSHED] if name in names]
    layout.section(TITLE)
    st.multiselect(
        "Chosen cells", names, key=BRUSHED, bind="query-params",
        placeholder="drag over the map with Several on, or choose here",
        help="All rows of these cells are zeroed together. Without any, the ticked rows are.",
    )  # fmt: skip
    rows, what = chosen(found, ticked)
    if not rows.size:
        st.caption("Choose cells of the map or tick rows below: what zeroing them costs then stands here.")
    elif rows.size == found.n_rows:
        st.caption("These are all rows of the model; any random choice of as many is the same one.")
    else:
        st.caption(f"{layout.plain(what)}: {rows.size:,} of {found.n_rows:,} rows.")
    return st.container()


def chosen(found: Scored, ticked: Mask) -> tuple[Mask, str]:
    """All rows of the brushed cells, else the ticked rows; and what they are, in words."""
    places = brushed(found)
    if not places:
        return ticked, "The ticked rows"
    wanted = pl.DataFrame(places, schema={"block": found.rows["block"].dtype, "projection": pl.String}, orient="row")
    ids = found.rows.join(wanted, on=["block", "projection"], how="semi")["row_id"].to_numpy()
    named = ", ".join(map(name_of, places[:4])) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
    return np.sort(ids).astype(np.int64), named[0].upper() + named[1:]


def measured(found: Scored, ticked: Mask, place: DeltaGenerator) -> None:
    """What the model's perplexity is without them and without as many random rows: first on a few windows."""
    rows, _ = chosen(found, ticked)
    if not 0 < rows.size < found.n_rows:
        return
    question = answers.Question(found.load_from, found.model.get("weights_hash"), rows.tobytes())
    answers.ask(
        _KEY, question, lambda _, entry, say: measure.compared(entry.loaded, rows, say), _show, place,
        button="" if answers.at_hand(found.load_from) else "Measure it",
    )  # fmt: skip


def _show(_about: object, one: Compared, _whole: bool) -> None:
    error = "" if one.stderr is None else f" ± {one.stderr:.4f}"
    with st.container(horizontal=True):
        st.metric("As it is", formats.perplexity(one.dense))
        st.metric("Without these rows", formats.perplexity(one.edited))
        st.metric(
            "Without random rows", formats.perplexity(sum(one.random) / len(one.random)),
            help=f"{one.rows:,} rows drawn from the whole model, at any depth; the mean NLL of {len(one.random)} "
            "draws.",
        )  # fmt: skip
        st.metric(
            "NLL against random", f"{one.difference:+.4f}{error}".replace("-", "−"),
            help="Nats per token: without these rows minus the mean of the random draws, with its standard error over "
            "blocks of windows. It says nothing of how much draws differ; each stands below.",
        )  # fmt: skip
    st.caption(f"{text_of(one)} {verdict(one)}")


def text_of(one: Compared) -> str:
    """On how much text it was measured, in words."""
    about = f"windows of {measure.WINDOW_TOKENS} tokens of the shipped evaluation text"
    if one.windows == one.of:
        return f"Measured on the whole text: all {one.of:,} {about}."
    return f"So far on the first {one.windows:,} of {one.of:,} {about}."


def verdict(one: Compared) -> str:
    """Where the perplexity without these rows lies among those of the draws, in words."""
    each = ", ".join(formats.perplexity(nll) for nll in one.random)
    sides = {(one.edited > nll) - (one.edited < nll) for nll in one.random}
    words: dict[tuple[int, ...], str] = {(1,): "higher than without any of", (-1,): "lower than without any of"}
    comparison = words.get(tuple(sides), "not on one side of")
    return f"Perplexity without these rows is {comparison} the {len(one.random)} random draws ({each})."
