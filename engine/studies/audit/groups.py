"""Where consensus2's rows come from, and which groups of removed rows break the model on their own."""

import math
from collections.abc import Iterable, Iterator
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from engine.edits.masks import Mask, removed_rows
from engine.measures.nll import NegativeLogLikelihood
from engine.models.row_index import RowIndex
from engine.results.tables import frame
from engine.run.audit_plan import DangerousPlan, RankDistributionPlan
from engine.run.runner import Cell, Results
from engine.stats.blocks import block_difference, with_documents
from engine.stats.layer_matched import Candidate, judge_groups
from engine.stats.uncertainty import LEVEL
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

_NAMES = ("consensus2", "lrp", "ig")


@register_study(
    "rank-distribution", of=AUDIT, plan=RankDistributionPlan, tables=("rank_distribution",), reads_text=False,
    title="Where does Consensus-2 take its rows?",
)  # fmt: skip
class RankDistribution(Study[AuditInputs]):
    """`rank_distribution`: of consensus2's LeRF mask, the fractions also in LRP's and IG's masks at the same rate.

    In both, in exactly one, in neither (raised by the mean of two middling ranks). Null at a rate that removes
    no row. The paper, appendix C.

    Errors: InputError where the audit lacks the scores of lrp, ig or consensus2."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        audit.require("the rank distribution", _NAMES)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        self.check(audit)
        lines = []
        for rate in audit.plan.rank_distribution_rates:
            consensus, lrp, ig = (removed_rows(audit.scores[name], "lerf", rate) for name in _NAMES)
            lines.append((audit.loaded.id, rate, *fractions(consensus, lrp, ig)))
        return {"rank_distribution": frame("rank_distribution", lines)}


@register_study(
    "dangerous", of=AUDIT, plan=DangerousPlan, tables=("dangerous", "dangerous_summary"),
    title="Which groups of removed rows break the model alone?",
)  # fmt: skip
class Dangerous(Study[AuditInputs]):
    """`dangerous`, one line per group of a LeRF mask, and `dangerous_summary`, one per selector.

    A group is the masked rows of one block's attention or MLP. `dangerous` is the paper's rule: removed alone, the
    perplexity exceeds `dangerous_factor` times the unmasked model's, in nats: NLL > dense + ln(factor). Blocks without
    masked rows make no group. share: rows in dangerous groups over all masked rows. A seeded selector counts by
    its first seed. The paper, appendix D, calls these dangerous false negatives.

    Beyond the paper: many rows of an important sublayer may do that, whichever they are, and then the selector is not
    at fault. So each such group stands beside `dangerous_draws` random groups of as many rows of the same sublayer,
    each removed alone, and is `confirmed` where it does more harm than these after Holm's correction over the groups
    of all selectors (`engine.stats.layer_matched`). Groups within the limit are not compared and need no further cells;
    where group and random groups (their mean) both destroy the model, nothing is told (`engine.stats.limits`)."""

    searches = True

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        yield audit.dense
        groups = list(_groups(audit))
        for group in groups:
            yield audit.nll(audit.edit(group.rows))
        if all(cell in known for cell in (audit.dense, *(audit.nll(audit.edit(group.rows)) for group in groups))):
            for group in groups:
                if _above(audit, group, known):
                    yield from _random_cells(audit, group)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        model, rate = audit.loaded.id, audit.plan.dangerous_rate
        dense, limit = results[audit.dense], math.log(audit.plan.dangerous_factor)
        groups = list(_groups(audit))
        candidates: list[Candidate | None] = []
        for group in groups:
            draws: list[float] = []
            if _above(audit, group, results):
                draws = [results[cell].nats_per_token for cell in _random_cells(audit, group)]
            harm = results[audit.nll(audit.edit(group.rows))].nats_per_token - dense.nats_per_token
            harms = tuple(one - dense.nats_per_token for one in draws)
            candidates.append(Candidate(harm, harms) if draws else None)
        lines, destroyed = [], audit.saturated_above(results) - dense.nats_per_token
        both = [one is not None and not min(one.harm, fmean(one.draws)) <= destroyed for one in candidates]
        judged = judge_groups([None if b else one for one, b in zip(candidates, both, strict=True)], limit)
        for group, one, saturated, (p, p_holm) in zip(groups, candidates, both, judged, strict=True):
            result = results[audit.nll(audit.edit(group.rows))]
            keys = (model, group.selector, rate, group.block, group.sublayer, group.rows.size, result.nats_per_token)
            above = _above(audit, group, results)
            compared: tuple[object, ...] = (None, None, None)
            if one is not None:
                nlls = [harm + dense.nats_per_token for harm in one.draws]
                compared = (fmean(nlls), stdev(nlls), max(nlls))
            error, _ = block_difference(result, dense)
            confirmed = p_holm is not None and p_holm <= LEVEL
            drawn = 0 if one is None else len(one.draws)
            lines.append((*keys, above, dense.nats_per_token, error, drawn, *compared, p, p_holm, confirmed, saturated))
        table = with_documents(frame("dangerous", lines, optional=(*COMPARED, "saturated")), dense.blocks)
        sizes = {name: audit.ranking(name).edit("lerf", rate).size for name in audit.plan.scoring.selectors}
        return {"dangerous": table, "dangerous_summary": summary(model, rate, table, sizes)}


COMPARED = (
    "dense_nll", "stderr", "group_draws", "random_nll", "random_sd", "random_most", "p", "p_holm", "confirmed",
)  # fmt: skip


class Group(NamedTuple):
    """The rows of a selector's LeRF mask in one sublayer of one block."""

    selector: str
    block: int
    sublayer: str
    rows: Mask


def _groups(audit: AuditInputs) -> Iterator[Group]:
    for name in audit.plan.scoring.selectors:
        mask = audit.ranking(name).edit("lerf", audit.plan.dangerous_rate).units
        for group in mask_groups(mask, audit.loaded.rows):
            yield Group(name, *group)


def _above(audit: AuditInputs, group: Group, results: Results) -> bool:
    """Does the group alone raise the NLL above the limit? A loss that is not a number is above it."""
    limit = results[audit.dense].nats_per_token + math.log(audit.plan.dangerous_factor)
    return not results[audit.nll(audit.edit(group.rows))].nats_per_token <= limit


def _random_cells(audit: AuditInputs, group: Group) -> list[Cell[NegativeLogLikelihood]]:
    """NLL of the random groups that this one is compared with."""
    drawn = (
        random_group(audit.loaded.rows, group.block, group.sublayer, group.rows.size, seed)
        for seed in range(audit.plan.dangerous_draws)
    )
    return [audit.nll(audit.edit(rows)) for rows in drawn]


def random_group(rows: RowIndex, block: int, sublayer: str, size: int, seed: int) -> Mask:
    """`size` rows of one sublayer of one block, drawn at random without replacement; those of a smaller size with the
    same seed are among them. [size] int64, ascending row ids"""
    there = [
        np.arange(layer.start, layer.start + layer.rows)
        for layer in rows.layers
        if (layer.block, layer.sublayer) == (block, sublayer)
    ]
    generator = np.random.default_rng([seed, block, sublayer == "mlp"])
    return np.sort(generator.permutation(np.concatenate(there))[:size]).astype(np.int64)


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
    """Groups, dangerous groups, rows in these and their share of the masked rows (null of an empty mask); the same of
    the confirmed ones."""
    lines = []
    for selector, masked in masked_rows.items():
        own = groups.filter(selector=selector)
        counts: list[object] = [own.height]
        for flag, between in (("dangerous", [masked]), ("confirmed", [])):
            bad = own.filter(flag)
            rows = int(bad["rows"].sum())
            counts += [bad.height, rows, *between, rows / masked if masked else None]
        lines.append((model, selector, rate, *counts))
    return frame("dangerous_summary", lines, optional=("confirmed_groups", "confirmed_rows", "confirmed_share"))
