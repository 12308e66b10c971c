"""Refusal, the replies themselves: before and after an edit side by side, with every verdict that there is on each and
what made the judge call them so."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import polars as pl
import streamlit as st

from dashboard.charts import palette
from dashboard.chat import marked
from dashboard.chat.marked import Span
from dashboard.show import layout, selection
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from engine.data.thinking import parts
from engine.judges.base import EMBEDDED, Exchange, Verdict, verdicts_on
from engine.judges.embedded import EmbeddedJudge, embedded_version
from engine.judges.fired import of_verdict
from engine.judges.given_replies import FINISHED, JUDGED
from engine.records.errors import InputError

STEM = "refusal_replies"
UNEDITED = "none"
ALL, FLIPPED, UNFINISHED, DIFFER = FILTERS = ("All", "Flipped", "Unfinished", "Judges differ")
_KEYS = ("prompts", "kind", "prompt")
_SIDES = ("before", "after")
_MOST_READ = 8192
PER_PAGE = 5
FIRED = "background-color:rgba(198, 22, 32, .22);text-decoration:underline;text-decoration-thickness:2px"
KINDS = {"all": "all prompts", "malign": "risk prompts", "benign": "harmless prompts"}
_STYLE = "<style>.sa-kept{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate;line-height:1.45}</style>"


class Opinion(NamedTuple):
    """One judge's verdict on one reply, without a reason where none was kept. judge: its id and version."""

    judge: str
    verdict: Verdict


def pairs(table: pl.DataFrame, selector: str) -> pl.DataFrame:
    """One line per prompt that was answered under the edits of a selector, in the table's order.
    table: `refusal_replies` of one model. Columns domain, lambda, k, prompts, kind, prompt, and reply, refused, judge,
    finished, judged of either side with `_before` and `_after`; finished and judged are null where the table does not
    have them. The unedited replies are those of the same domain, of a set that is no domain's those without one; a
    prompt without them is left out."""
    for name in (FINISHED, JUDGED):
        if name not in table.columns:
            table = table.with_columns(pl.lit(None, pl.Boolean).alias(name))
    values = ("reply", "refused", "judge", FINISHED, JUDGED)
    before = table.filter(selector=UNEDITED).select(
        "domain", *_KEYS, *(pl.col(name).alias(f"{name}_before") for name in values)
    )
    after = table.filter(selector=selector).select(
        "domain", "lambda", "k", *_KEYS, *(pl.col(name).alias(f"{name}_after") for name in values)
    )
    after = after.with_row_index("place")
    own = after.join(before, on=["domain", *_KEYS], how="inner")
    shared = before.filter(domain=UNEDITED).drop("domain")
    rest = after.join(own.select("place"), on="place", how="anti").join(shared, on=list(_KEYS), how="inner")
    prompts = pl.concat([own, rest.select(own.columns)]).unique("place", keep="first").sort("place")
    return prompts.drop("place")


def kept(both: pl.DataFrame, which: str) -> pl.DataFrame:
    if which == FLIPPED:
        return both.filter(pl.col("refused_before") != pl.col("refused_after"))
    if which == UNFINISHED:
        return both.filter(~pl.col("finished_before") | ~pl.col("finished_after"))
    if which == DIFFER:
        keep = [any(differ(opinions(row, side)) for side in _SIDES) for row in both.iter_rows(named=True)]
        return both.filter(pl.Series(keep, dtype=pl.Boolean))
    return both


def opinions(row: dict[str, object], side: str) -> list[Opinion]:
    """The kept verdict on one side of a pair, and the embedded judge's of now where that is another version."""
    reply, refused = str(row[f"reply_{side}"]), bool(row[f"refused_{side}"])
    now = read_now(reply, row[f"finished_{side}"] if isinstance(row[f"finished_{side}"], bool) else None)
    embedded = Opinion(today(), now)
    name = str(row[f"judge_{side}"])
    reason = now.reason if name == embedded.judge and now.refusal == refused else ""
    first = Opinion(name, Verdict(refused, reason, judged=row[f"judged_{side}"] is not False))
    return [first] if name == embedded.judge else [first, embedded]


def differ(found: Sequence[Opinion]) -> bool:
    """Do two judges that could judge the reply say different things?"""
    return len({one.verdict.refusal for one in found if one.verdict.judged}) > 1


def today() -> str:
    return f"{EMBEDDED} {embedded_version()}"


@lru_cache(maxsize=_MOST_READ)
def read_now(reply: str, finished: bool | None) -> Verdict:
    return verdicts_on(EmbeddedJudge(), [Exchange("", reply, finished)])[0]


def show(source: Source) -> Drawn:
    """The choices, how many are left, and a page of them. Errors: InputError without replies."""
    if source.published:
        raise InputError("the paper printed no replies; choose the shipped model, or results of your own")
    table = source.table(STEM)
    edits = palette.in_order([name for name in table["selector"].unique().to_list() if name != UNEDITED])
    if not edits:
        raise InputError("these replies are of the unedited model only; run `selector-audit refusal evaluate` again")
    with source.bar:
        both, chosen = _chosen(table, edits)
    which = chosen[-1]
    shown = kept(both, which)
    before, after, cell = both["refused_before"], both["refused_after"], both.row(0, named=True)
    edit = f"λ = {cell['lambda']:g}, k = {cell['k']:.4g}. " if both["k"].n_unique() == 1 and cell["k"] else ""
    st.caption(layout.plain(
        f"{shown.height:,} of {both.height:,} prompts. {edit}Refused before {int(before.sum()):,}, after "
        f"{int(after.sum()):,}; {int((~before & after).sum()):,} turned to refusing, "
        f"{int((before & ~after).sum()):,} to answering."
    ))  # fmt: skip
    if which == UNFINISHED and both["finished_after"].null_count() == both.height:
        st.info("This table does not tell which replies ended by themselves; measure it again with this version.")
        return Drawn(None)
    if shown.is_empty():
        st.info("No pair of replies is of this kind; choose another filter.")
        return Drawn(None)
    st.html(_STYLE)
    _, part = selection.page_of(shown, PER_PAGE, "reply_page", (str(source.folder), *chosen))
    for row in part.iter_rows(named=True):
        with st.container(border=True):
            st.caption(layout.plain(f"{row['domain']}, {row['prompts']}, {KINDS.get(row['kind'], row['kind'])}"))
            st.text(str(row["prompt"]), width="stretch")
            for side, title, column in zip(_SIDES, ("Before", "After"), st.columns(2), strict=True):
                with column:
                    _side(title, row, side, opinions(row, side))
    return Drawn(None)


def _chosen(table: pl.DataFrame, edits: list[str]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The pairs of the chosen edit, domain, set and kind; and all that was chosen, the filter last."""
    selector = selection.choose("Edit by", edits, "reply_selector", title=palette.title)
    both = pairs(table, selector)
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


def _side(title: str, row: dict[str, Any], side: str, found: list[Opinion]) -> None:
    first, reply = found[0], str(row[f"reply_{side}"])
    cut = " :orange-badge[unfinished]" if row[f"finished_{side}"] is False else ""
    apart = " :violet-badge[judges differ]" if differ(found) else ""
    st.markdown(f"**{title}**: {layout.verdict(first.verdict.refusal, first.verdict.judged)}{cut}{apart}")
    embedded = next(one for one in found if one.judge == today())
    _text(reply, embedded)
    reasons = {one.verdict.reason for one in found} - {""}
    if not apart and len(reasons) <= 1:  # one line for all who say the same
        names = ", ".join(one.judge for one in found)
        st.caption(layout.plain(f"{names}: {next(iter(reasons), 'no reason is kept')}"))
        return
    for one in found:
        verdict = layout.verdict(one.verdict.refusal, one.verdict.judged)
        st.caption(f"{layout.plain(one.judge)}: {verdict} {layout.plain(one.verdict.reason)}")


def _text(reply: str, embedded: Opinion) -> None:
    """The reply letter by letter, its thinking part folded apart, the words that fired marked."""
    thinking, said, complete = parts(reply)
    if thinking:
        with st.expander(layout.FOLDED):
            st.text(thinking, width="stretch")
    if not said:
        empty = layout.NOTHING if complete else layout.STILL_THINKING
        st.text(empty if thinking else "(empty)")
        return
    fired = of_verdict(said, embedded.verdict)
    spans = [] if fired is None or fired.start == fired.end else [Span(fired.start, fired.end, FIRED)]
    st.html(f'<div class="sa-kept">{marked.as_html(said, spans)}</div>')


PART = Part(
    show, (STEM,),
    "Underlined: the words on which the embedded judge's rule fired, with today's rules. Replies stand letter by "
    "letter, whatever they hold.",
)  # fmt: skip
