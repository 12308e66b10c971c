"""Rows behind each token of a text: point at a token and see which rows pushed the model towards it, and away."""

from __future__ import annotations

import html
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING

import polars as pl
import streamlit as st

from dashboard.chat import answers, marked, measure
from dashboard.pages.rows import row_sets
from dashboard.pages.rows.cell import OPEN, TICKED
from dashboard.pages.rows.scored import Scored
from dashboard.show import layout, selection, tools
from dashboard.state import shipped
from engine.records.errors import InputError

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from dashboard.chat.answers import Say
    from dashboard.chat.live import Entry
    from engine.measures.token_rows import TokenRows

METHODS = {"LRP": "lrp", "Gradient x output": "grad_x_input"}
TOP = 5  # rows to each side of a token
MOST_CHARACTERS = 600
TITLE = "Rows behind a token"
TEXT = "token_text"  # URL key
SIDES = {"towards": "pushed towards it", "away": "pushed away from it"}
_KEY = "rows-behind"
_POINTED = "rows-behind-token"
# What is told of a token stands at one place below the text, so that it never covers what is pointed at.
STYLE = """<style>
.sa-behind{position:relative;padding-bottom:12rem;line-height:1.9;overflow-wrap:anywhere;white-space:pre-wrap}
.sa-behind .sa-token{cursor:help;border-radius:.2rem;border-bottom:1px dotted currentColor}
.sa-behind .sa-token:focus{outline:2px solid currentColor}
.sa-behind .sa-why{visibility:hidden;position:absolute;left:0;right:0;bottom:0;height:11.5rem;overflow:hidden;
 font-size:.85rem;line-height:1.4;white-space:normal;color:light-dark(#31333f,#fafafa);
 background:light-dark(#fff,#0e1117)}
.sa-behind .sa-why.sa-first{visibility:visible}
.sa-behind .sa-token:focus .sa-why{visibility:visible;z-index:2}
.sa-behind .sa-token:hover .sa-why{visibility:visible;z-index:3}
.sa-behind .sa-sides{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,16rem),1fr));gap:0 1rem}
.sa-behind .sa-sides b{display:block}
@media (max-width:640px){.sa-behind{padding-bottom:19rem}.sa-behind .sa-why{height:18.5rem}}
</style>"""


def show(found: Scored) -> tuple[str, str, DeltaGenerator]:
    """The text, the method, and the place for what `attributed` finds."""
    layout.section(TITLE)
    examples = shipped.examples(found.load_from)
    if TEXT not in st.session_state and TEXT not in st.query_params and examples:
        st.session_state[TEXT] = examples[0].prompt
    text = selection.prompt("Text", TEXT, MOST_CHARACTERS, height=68)
    method = selection.switch(
        "Attributed by", tuple(METHODS), "token_method", default="LRP",
        help_text="LRP: AttnLRP's rules. Gradient x output: how fast the token gets less likely as the row's outputs "
        "are scaled down, for any architecture.",
    )  # fmt: skip
    return text, method, st.container()


def attributed(found: Scored, text: str, method: str, place: DeltaGenerator) -> None:
    """The rows behind every token of the text, when the button is pressed."""

    def work(_about: object, entry: Entry, say: Say) -> Generator[TokenRows, None, None]:
        yield measure.behind_tokens(entry.loaded, text, METHODS[method], TOP, say)

    def shown(_about: object, one: TokenRows, whole: bool) -> None:
        if whole:
            _show(found, one)

    question = None
    if text.strip():
        question = answers.Question(found.load_from, found.model.get("weights_hash"), (text, method))
    answers.ask(_KEY, question, work, shown, place, button="Attribute each token")


def _show(found: Scored, one: TokenRows) -> None:
    named = one.rows.join(found.rows.select("row_id", "block", "projection", "row"), on="row_id", how="left")
    st.html(STYLE + _text(one.tokens, named))
    st.caption(
        "Point at a token, or step through them with the Tab key. Shaded: how little the model expected a token. "
        "Relevance is to the token's log-probability, in nats, summed over all positions before it: above 0 the row "
        "made it likelier. The first token is predicted by nothing."
    )
    _one_token(found, one.tokens, named)
    tools.download_csv("Download the rows behind all tokens (CSV)", named, "rows-behind-tokens.csv")


def _text(tokens: pl.DataFrame, named: pl.DataFrame) -> str:
    """The text as HTML, letter by letter escaped, each predicted token with what is told of it."""
    told = {position: part for (position,), part in named.group_by("position", maintain_order=True)}
    parts = []
    hint = '<span class="sa-why sa-first">Point at a token: the rows that pushed it stand here.</span>'
    for line in tokens.iter_rows(named=True):
        text, likely = line["token"], line["log_probability"]
        shown = marked.as_html(text)
        if likely is None or not text:
            parts.append(shown)
            continue
        colour = marked.of_log_probability(likely)
        style = f' style="background-color:{colour}"' if colour else ""
        why = _why(text, likely, told.get(line["position"], named.clear()))
        parts.append(f'<span class="sa-token" tabindex="0"{style}>{shown}{why}</span>')
    return f'<div class="sa-behind">{"".join(parts)}{hint}</div>'


def _why(text: str, likely: float, rows: pl.DataFrame) -> str:
    sides = []
    for side, words in SIDES.items():
        lines = "".join(f"{_row(row)}<br>" for row in rows.filter(side=side).iter_rows(named=True))
        sides.append(f"<span><b>{words}</b>{lines or 'no row'}</span>")
    nats = f"{likely:.2f}".replace("-", "−")
    head = f"“{html.escape(text.strip() or text)}”, log-probability {nats} nats"
    return f'<span class="sa-why"><b>{head}</b><span class="sa-sides">{"".join(sides)}</span></span>'


def _row(row: dict[str, object]) -> str:
    value = f"{row['relevance']:+.3f}".replace("-", "−")
    return html.escape(f"{value} block {row['block']} {row['projection']}, row {row['row']}")


def _one_token(found: Scored, tokens: pl.DataFrame, named: pl.DataFrame) -> None:
    """A token of the list: its rows as a table, whose rows can be looked into or ticked."""
    pushed = tokens.filter(pl.col("log_probability").is_not_null())
    texts = dict(pushed.select("position", "token").iter_rows())
    if st.session_state.get(_POINTED) not in texts:
        st.session_state.pop(_POINTED, None)  # of another text
    position = st.selectbox(
        "One token as a table", list(texts), key=_POINTED, format_func=lambda place: f"{place}: {texts[place]!r}"
    )
    if position is None:
        return
    part = named.filter(position=position).sort("relevance", descending=True)
    ids = part["row_id"].to_list()

    key = f"rows-behind-table-{position}"

    def look() -> None:
        checked = st.session_state[key]["selection"]["rows"]
        if checked:
            st.session_state[OPEN] = ids[checked[0]]

    st.dataframe(
        part.select(
            pl.col("relevance").alias("Relevance"), pl.col("block").alias("Block"),
            pl.col("projection").alias("Projection"), pl.col("row").alias("Row"), pl.col("row_id").alias("Row id"),
        ),
        hide_index=True, key=key, on_select=look, selection_mode="single-row",
        column_config={"Relevance": st.column_config.NumberColumn(format="%+.4f")}, height=38 + 35 * part.height,
        alt="Rows behind the chosen token, by relevance",
    )  # fmt: skip

    def tick() -> None:
        with suppress(InputError):  # the box of row ids says what is wrong with it
            before = row_sets.parse(str(st.session_state.get(TICKED) or ""), found.n_rows)
            st.session_state[TICKED] = row_sets.write([*before.tolist(), *ids])

    st.button("Tick these rows", key="rows-behind-tick", on_click=tick, disabled=not ids)
    st.caption("Its checkbox opens a row above, under “A row in its text”.")
