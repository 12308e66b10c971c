"""Refusal, the replies themselves: before and after an edit side by side, with what made the judge call them so."""

from typing import Any

import polars as pl
import streamlit as st

from dashboard.charts import palette
from dashboard.chat import marked
from dashboard.chat.marked import Span
from dashboard.pages.refusal import reply_pairs
from dashboard.pages.refusal.reply_pairs import FILTERS, UNEDITED, UNFINISHED, Opinion
from dashboard.show import layout, reply_text, selection
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.data.thinking import parts
from engine.judges.fired import of_verdict
from engine.records.errors import InputError

PER_PAGE = 5
FIRED = "background-color:rgba(198, 22, 32, .22);text-decoration:underline;text-decoration-thickness:2px"
KINDS = {"all": "all prompts", "malign": "risk prompts", "benign": "harmless prompts"}
_STYLE = "<style>.sa-kept{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;line-height:1.45}</style>"


def show(source: Source) -> Drawn:
    """The choices, how many are left, and a page of them. Errors: InputError without replies."""
    if source.published:
        raise InputError("the paper printed no replies; choose the shipped model, or results of your own")
    table = source.table(reply_pairs.STEM)
    edits = palette.in_order([name for name in table["selector"].unique().to_list() if name != UNEDITED])
    if not edits:
        raise InputError("these replies are of the unedited model only; run `selector-audit refusal evaluate` again")
    with source.bar:
        both, chosen = _chosen(table, edits)
    which = chosen[-1]
    shown = reply_pairs.kept(both, which)
    st.caption(layout.plain(_counts(both, shown)))
    if which == UNFINISHED and both["finished_after"].null_count() == both.height:
        st.info("This table does not tell which replies ended by themselves; measure it again with this version.")
        return Drawn(None)
    if shown.is_empty():
        st.info("No pair of replies is of this kind; choose another filter.")
        return Drawn(None)
    st.html(_STYLE)
    _, part = selection.page_of(shown, PER_PAGE, "reply_page", (str(source.folder), *chosen))
    for row in part.iter_rows(named=True):
        _card(row)
    return Drawn(None)


def _chosen(table: pl.DataFrame, edits: list[str]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The pairs of the chosen edit, domain, set and kind; and all that was chosen, the filter last."""
    selector = selection.choose("Edit by", edits, "reply_selector", title=palette.title)
    both = reply_pairs.pairs(table, selector)
    if both.is_empty():
        raise InputError("no reply of the unedited model belongs to these; run `selector-audit refusal evaluate`")
    domain = selection.choose_domain(both, "reply_domain", "Domain of the edit")
    both = both.filter(domain=domain)
    sets = both["prompts"].unique(maintain_order=True).to_list()
    of_set = selection.choose("Prompts", sets, "reply_set") if len(sets) > 1 else sets[0]
    both = both.filter(prompts=of_set)
    kinds = ["all", *both["kind"].unique(maintain_order=True)]
    kind = selection.choose("Kind", kinds, "reply_kind", title=lambda name: KINDS.get(name, name))
    if kind != "all":
        both = both.filter(kind=kind)
    which = selection.switch("Show", FILTERS, "reply_filter", default=FILTERS[0])
    return both, (selector, domain, of_set, kind, which)


def _counts(both: pl.DataFrame, shown: pl.DataFrame) -> str:
    before, after = both["refused_before"], both["refused_after"]
    to_refusing, to_answering = int((~before & after).sum()), int((before & ~after).sum())
    cell = both.row(0, named=True)
    edit = f"λ = {cell['lambda']:g}, k = {cell['k']:.4g}. " if both["k"].n_unique() == 1 and cell["k"] else ""
    return (
        f"{shown.height:,} of {both.height:,} prompts. {edit}Refused before {int(before.sum()):,}, after "
        f"{int(after.sum()):,}; {to_refusing:,} turned to refusing, {to_answering:,} to answering."
    )


def _card(row: dict[str, Any]) -> None:
    with st.container(border=True):
        st.caption(layout.plain(f"{row['domain']}, {row['prompts']}, {KINDS.get(row['kind'], row['kind'])}"))
        st.text(str(row["prompt"]), width="stretch")
        for side, title, column in zip(("before", "after"), ("Before", "After"), st.columns(2), strict=True):
            with column:
                _side(title, row, side, reply_pairs.opinions(row, side))


def _side(title: str, row: dict[str, Any], side: str, found: list[Opinion]) -> None:
    first, reply = found[0], str(row[f"reply_{side}"])
    cut = " :orange-badge[unfinished]" if row[f"finished_{side}"] is False else ""
    apart = " :violet-badge[judges differ]" if reply_pairs.differ(found) else ""
    st.markdown(f"**{title}**: {layout.verdict(first.verdict.refusal, first.verdict.judged)}{cut}{apart}")
    embedded = next(one for one in found if one.judge == reply_pairs.today())
    _text(reply, embedded)
    reasons = {one.verdict.reason for one in found} - {""}
    if not apart and len(reasons) <= 1:  # one line for all who say the same
        names = ", ".join(one.judge for one in found)
        st.caption(layout.plain(f"{names}: {next(iter(reasons), 'no reason is kept')}"))
        return
    for one in found:
        said = layout.verdict(one.verdict.refusal, one.verdict.judged)
        st.caption(f"{layout.plain(one.judge)}: {said} {layout.plain(one.verdict.reason)}")


def _text(reply: str, embedded: Opinion) -> None:
    """The reply letter by letter, its thinking part folded apart, the words that fired marked."""
    thinking, said, complete = parts(reply)
    if thinking:
        with st.expander(reply_text.FOLDED):
            st.text(thinking, width="stretch")
    if not said:
        empty = reply_text.NOTHING if complete else reply_text.STILL_THINKING
        st.text(empty if thinking else "(empty)")
        return
    fired = of_verdict(said, embedded.verdict)
    spans = [] if fired is None or fired.start == fired.end else [Span(fired.start, fired.end, FIRED)]
    st.html(f'<div class="sa-kept">{marked.as_html(said, spans)}</div>')


PART = Part(
    show, (reply_pairs.STEM,),
    "Underlined: the words on which the embedded judge's rule fired, with today's rules. Replies stand letter by "
    "letter, whatever they hold.",
)  # fmt: skip
