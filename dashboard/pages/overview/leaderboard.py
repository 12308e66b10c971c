"""The leaderboard on the overview: selector x model over all sources, or over what is compared."""

from __future__ import annotations

from contextlib import suppress

import polars as pl
import streamlit as st

from dashboard.charts import leaderboard
from dashboard.charts.leaderboard import Entry
from dashboard.show import grid, layout
from dashboard.state import compared, results
from dashboard.state.offers import Offer
from engine.records.errors import InputError
from engine.studies.verdict.judged_selectors import as_judged_now

TITLE = "Leaderboard"
ALT = "Every selector on every model: log gap, LeRF harm, verdict and stability."
WHAT = (
    "**Rows that can go**, lowest scores first, before perplexity doubles: large is good. At {rate:.0%} of the rows "
    "removed: **Log gap**: how much more it costs to remove what a selector calls important, "
    "large is good. **LeRF harm**: what the rows cost that it calls unimportant, small is good; **÷ random's**: as a "
    "share of what random rows cost. A click on a column's head sorts by it. Nats of different models are not of one "
    "scale: compare selectors within a model, and their order between models."
)


def show(offered: dict[str, Offer]) -> None:
    """The table; nothing where no model was measured so far. offered: `offers.offers` of the page."""
    chosen = compared.chosen(offered)
    lines = leaderboard.leaderboard([_entry(offer) for offer in (chosen or offered).values()])
    if lines.is_empty():
        return
    layout.section(TITLE)
    table = leaderboard.table(lines.sort("log_gap", descending=True, nulls_last=True, maintain_order=True))
    grid.show(
        table, alt=ALT, key="leaderboard", height=min(38 + 35 * lines.height, 460), placeholder="–",
        column_config=dict.fromkeys((leaderboard.VERDICT, leaderboard.STABLE), st.column_config.Column(width=110)),
    )  # fmt: skip
    said = [WHAT.format(rate=leaderboard.RATE)]
    said += ["\\*: a published cell at a numerical ceiling; only its order counts."] * lines["gap_at_ceiling"].any()
    said += ["Only what is chosen under Compare."] * bool(chosen)
    st.caption(" ".join(said))


def _entry(offer: Offer) -> Entry:
    verdicts = _table(offer, "verdicts")
    return Entry(
        offer.name,
        offer.model,
        offer.curves.frame,
        None if verdicts is None else as_judged_now(verdicts),
        _table(offer, "stability"),
    )


def _table(offer: Offer, stem: str) -> pl.DataFrame | None:
    """A table of the offer's model; None where it is missing or damaged, which its own page tells."""
    with suppress(InputError):
        found = results.read_published(stem) if offer.folder is None else results.read_table(offer.folder, stem)
        return found.frame.filter(model=offer.model)
    return None
