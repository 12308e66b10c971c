"""Where consensus2's rows come from, and which groups of removed rows break the model on their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import polars as pl

from engine.edits.masks import Mask, removed_rows
from engine.models.rows import RowIndex
from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import Tables, register_analysis

_NAMES = ("consensus2", "lrp", "ig")


@register_analysis(
    "rank-distribution", tables=("rank_distribution",), reads_text=False, title="Where does Consensus-2 take its rows?"
)
class RankDistribution:
    """`rank_distribution`: of consensus2's LeRF mask, the fractions also in LRP's and IG's masks at the same rate.

    In both, in exactly one, in neither (raised by the mean of two middling ranks). Null at a rate that removes
    no row. The paper, appendix C.

    Errors: InputError where the audit lacks the scores of lrp, ig or consensus2.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        audit.require("the rank distribution", _NAMES)
        return ()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        for rate in audit.plan.rank_distribution_rates:
            consensus, lrp, ig = (removed_rows(audit.scores[name], "lerf", rate) for name in _NAMES)
            lines.append((audit.loaded.id, rate, *fractions(consensus, lrp, ig)))
        return {"rank_distribution": frame("rank_distribution", lines)}


@register_analysis(
    "dangerous", tables=("dangerous", "dangerous_summary"), title="Which groups of removed rows break the model alone?"
)
class Dangerous:
    """`dangerous`, one line per group of a LeRF mask, and `dangerous_summary`, one per selector.

    A group is the masked rows of one block's attention or MLP. Removed alone, it is dangerous if the perplexity
    exceeds `dangerous_factor` times the unmasked model's, in nats: NLL > dense + ln(factor). Blocks without masked
    rows make no group. share: rows in dangerous groups over all masked rows. A seeded selector counts by
    its first seed. The paper, appendix D, calls these dangerous false negatives.
    """

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        for *_, rows in _groups(audit):
            yield audit.nll(audit.edit(rows))

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        model, rate = audit.loaded.id, audit.plan.dangerous_rate
        limit = results[audit.dense].nats_per_token + math.log(audit.plan.dangerous_factor)
        lines = []
        for name, block, sublayer, rows in _groups(audit):
            nll = results[audit.nll(audit.edit(rows))].nats_per_token
            lines.append((model, name, rate, block, sublayer, rows.size, nll, not nll <= limit))
        table = frame("dangerous", lines)
        sizes = {name: audit.ranking(name).edit("lerf", rate).size for name in audit.plan.scoring.selectors}
        return {"dangerous": table, "dangerous_summary": summary(model, rate, table, sizes)}


def _groups(audit: AuditInputs) -> Iterator[tuple[str, int, str, Mask]]:
    for name in audit.plan.scoring.selectors:
        mask = audit.ranking(name).edit("lerf", audit.plan.dangerous_rate).units
        for group in mask_groups(mask, audit.loaded.rows):
            yield name, *group


def fractions(mask: Mask, first: Mask, second: Mask) -> tuple[float | None, float | None, float | None]:
    """Fractions of `mask` in both, in exactly one, in neither of two other masks; None of an empty mask."""
    if not mask.size:
        return None, None, None
    hits = np.isin(mask, first).astype(int) + np.isin(mask, second).astype(int)
    both, only_one, neither = (float((hits == count).mean()) for count in (2, 1, 0))
    return both, only_one, neither


def mask_groups(mask: Mask, rows: RowIndex) -> list[tuple[int, str, Mask]]:
    """The masked rows of every (block, sublayer) that has some: block by block, attention before MLP."""
    layers = rows.layer_of(mask)
    blocks = np.array([layer.block for layer in rows.layers])[layers]
    sublayers = np.array([layer.sublayer for layer in rows.layers])[layers]
    return [
        (block, sublayer, inside)
        for block in range(rows.n_blocks)
        for sublayer in ("attention", "mlp")
        if (inside := mask[(blocks == block) & (sublayers == sublayer)]).size
    ]


def summary(model: str, rate: float, groups: pl.DataFrame, masked_rows: dict[str, int]) -> pl.DataFrame:
    """Groups, dangerous groups, rows in these and their share of the masked rows (null of an empty mask)."""
    lines = []
    for selector, masked in masked_rows.items():
        own = groups.filter(selector=selector)
        bad = own.filter("dangerous")
        rows = int(bad["rows"].sum())
        lines.append((model, selector, rate, own.height, bad.height, rows, masked, rows / masked if masked else None))
    return frame("dangerous_summary", lines)
