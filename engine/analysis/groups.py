"""Where consensus2's rows come from, and which groups of removed rows break the model on their own."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.needs import require_selectors
from engine.masks import Mask, removed_rows
from engine.rows import RowIndex

RANK_SCHEMA = {
    "model": pl.String,
    "rate": pl.Float64,
    "both": pl.Float64,
    "only_one": pl.Float64,
    "neither": pl.Float64,
}
GROUP_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "rate": pl.Float64,
    "block": pl.Int64,
    "sublayer": pl.String,
    "rows": pl.Int64,
    "nll": pl.Float64,
    "dangerous": pl.Boolean,
}
SUMMARY_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "rate": pl.Float64,
    "groups": pl.Int64,
    "dangerous_groups": pl.Int64,
    "rows": pl.Int64,
    "masked_rows": pl.Int64,
    "share": pl.Float64,
}


def rank_distribution(audit: Audit) -> dict[str, pl.DataFrame]:
    """`rank_distribution`: of consensus2's LeRF mask, the fractions also in LRP's and IG's masks at the same rate.

    In both, in exactly one, in neither (raised by the mean of two middling ranks). Null at a rate that removes
    no row. The paper, appendix C.

    Errors: InputError where the audit lacks the scores of lrp, ig or consensus2.
    """
    names = ("consensus2", "lrp", "ig")
    require_selectors(audit, "the rank distribution", names)
    rows = []
    for rate in audit.plan.rank_distribution_rates:
        consensus, lrp, ig = (removed_rows(audit.scores[name], "lerf", rate) for name in names)
        rows.append((audit.loaded.id, rate, *fractions(consensus, lrp, ig)))
    return {"rank_distribution": pl.DataFrame(rows, schema=RANK_SCHEMA, orient="row")}


def fractions(mask: Mask, first: Mask, second: Mask) -> tuple[float | None, float | None, float | None]:
    """Fractions of `mask` in both, in exactly one, in neither of two other masks; None of an empty mask."""
    if not mask.size:
        return None, None, None
    hits = np.isin(mask, first).astype(int) + np.isin(mask, second).astype(int)
    both, only_one, neither = (float((hits == count).mean()) for count in (2, 1, 0))
    return both, only_one, neither


def dangerous(audit: Audit) -> dict[str, pl.DataFrame]:
    """`dangerous`, one line per group of a LeRF mask, and `dangerous_summary`, one per selector.

    A group is the masked rows of one block's attention or MLP. Removed alone, it is dangerous if the perplexity
    exceeds `dangerous_factor` times the unmasked model's, in nats: NLL > dense + ln(factor). Blocks without masked
    rows make no group. share: rows in dangerous groups over all masked rows. A seeded selector counts by
    its first seed. The paper, appendix D, calls these dangerous false negatives.
    """
    rate, factor = audit.plan.dangerous_rate, audit.plan.dangerous_factor
    selectors = audit.plan.scoring.selectors
    masks = {name: removed_rows(audit.scored.ranking(name).numpy(), "lerf", rate) for name in selectors}
    groups = [
        (name, *group) for name, mask in masks.items() for group in mask_groups(mask, audit.loaded.rows)
    ]
    limit = audit.dense.nats_per_token + math.log(factor)
    lines: list[tuple[object, ...]] = []
    for name, block, sublayer, rows in groups:
        audit.report("dangerous", len(lines), len(groups))
        nll = audit.nll(rows).nats_per_token
        lines.append((audit.loaded.id, name, rate, block, sublayer, rows.size, nll, not nll <= limit))
    audit.report("dangerous", len(groups), len(groups))
    table = pl.DataFrame(lines, schema=GROUP_SCHEMA, orient="row")
    sizes = {name: int(mask.size) for name, mask in masks.items()}
    return {"dangerous": table, "dangerous_summary": summary(audit.loaded.id, rate, table, sizes)}


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
        lines.append(
            (model, selector, rate, own.height, bad.height, rows, masked, rows / masked if masked else None)
        )
    return pl.DataFrame(lines, schema=SUMMARY_SCHEMA, orient="row")
