"""Many replies as tiles that turn colour: HTML in which every letter of a prompt and a reply is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dashboard.chat import marked, stamps
from dashboard.chat.many import RISK, Pair
from dashboard.state.shipped import Example

if TYPE_CHECKING:
    from engine.measures.fluency import Reference

PROMISES = {RISK: "Risk prompts, to refuse", "base": "Harmless prompts, to answer"}
STYLE = """<style>
.sa-tiles{display:grid;grid-template-columns:repeat(5,minmax(0,1fr));gap:.45rem;margin-bottom:.7rem}
@media (max-width:900px){.sa-tiles{grid-template-columns:repeat(2,minmax(0,1fr))}}
.sa-tile{border-radius:.4rem;color:#fff;padding:.35rem .55rem;font-size:.82rem;line-height:1.3;overflow-wrap:anywhere;
  outline:3px solid transparent;outline-offset:-3px}
[role=listitem]>.sa-tile{height:100%}
.sa-tile summary{cursor:pointer;list-style:none}
.sa-tile b{font-size:.95rem;letter-spacing:.04em}
.sa-asked{display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;overflow:hidden}
@media (max-height:850px){.sa-asked{-webkit-line-clamp:1}}
[role=listitem]:has(.sa-tile[open]){grid-column:span 2}
.sa-tile[open] .sa-asked{-webkit-line-clamp:none}
.sa-said{margin-top:.35rem;padding-top:.35rem;border-top:1px solid rgba(255,255,255,.5);white-space:pre-wrap;
  unicode-bidi:isolate}
.sa-turned{outline-color:#FFC53D}
.sa-waits{color:inherit;background:rgba(128,128,128,.18)}
.sa-kind{font-size:.95rem;font-weight:600;margin:.1rem 0 .3rem}
.sa-counts{font-size:1.25rem;font-weight:600}
</style>"""


def tiles(asked: Sequence[Example], told: Mapping[str, Pair], reference: Reference | None) -> str:
    """All tiles by kind, each kind with its counts."""
    groups = []
    for kind, promise in PROMISES.items():
        of_kind = [one for one in asked if one.kind == kind]
        counts = said([told.get(one.prompt, (None, None)) for one in of_kind], reference)
        made = "".join(_tile(one, told.get(one.prompt, (None, None)), reference) for one in of_kind)
        if of_kind:
            groups.append(
                f'<div class="sa-kind">{promise}: {counts}</div><div class="sa-tiles" role="list">{made}</div>'
            )
    return "".join(groups)


def _tile(one: Example, pair: Pair, reference: Reference | None) -> str:
    before, after = pair
    prompt = f'<div class="sa-asked">{marked.as_html(one.prompt)}</div>'
    if after is None:
        return f'<div class="sa-tile sa-waits" role="listitem"><b>…</b>{prompt}</div>'
    stamp = after.stamp(reference)
    was = before.stamp(reference) if before else stamp
    look = stamps.LOOKS[stamp]
    turned, told = (" sa-turned", f" was {was}") if was != stamp else ("", "")
    cut = "" if after.finished else f" (not finished: {after.tokens} tokens)"
    return (
        f'<div role="listitem"><details class="sa-tile{turned}" style="background:{look.colour}"><summary>'
        f"<b>{look.icon} {stamp}</b>{told}{prompt}</summary>"
        f'<div class="sa-said">{marked.as_html(after.text)}{cut}</div></details></div>'
    )


def said(pairs: Sequence[Pair], reference: Reference | None) -> str:
    """`17 of 20 refuse, 1 is broken; without the edit 6 refuse`, of those that are there."""
    after = [told.stamp(reference) for _, told in pairs if told is not None]
    before = [told.stamp(reference) for told, _ in pairs if told is not None]
    if not after:
        return "…"
    pieces = [f"{after.count(stamps.REFUSES)} of {len(after)} refuse"]
    broken, unjudged = after.count(stamps.BROKEN), after.count(stamps.NOT_JUDGED)
    pieces += [f"{broken} {'is' if broken == 1 else 'are'} broken"] if broken else []
    pieces += [f"{unjudged} not judged"] if unjudged else []
    return ", ".join(pieces) + f"; without the edit {before.count(stamps.REFUSES)} of {len(before)}"
