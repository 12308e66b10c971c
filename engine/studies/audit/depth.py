"""Where in the model a selector sees importance, and where its masks take their rows from."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.edits.masks import removed_count
from engine.edits.ranked_edits import Ranking
from engine.models.row_index import Layer, RowIndex
from engine.results.tables import frame
from engine.run.runner import Results
from engine.stats.removal_order import removal_order
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study


class Place(NamedTuple):
    """A part of the model: a projection, a whole sublayer (projection None), or a whole block (both None)."""

    block: int
    sublayer: str | None
    projection: str | None


@register_study(
    "depth", of=AUDIT, tables=("depth", "mask_depth"), reads_text=False, title="Where does a selector see importance?"
)
class Depth(Study[AuditInputs]):
    """`depth`: mean score of every part; `mask_depth`: rows that LeRF masks at the agreement rates take there.

    `depth` holds three levels: per projection; per sublayer (projection null); per block (sublayer null too).
    relative_score = mean score / the largest mean of the same level and selector (the paper's profile is
    that of the blocks), null where that is not positive.
    `mask_depth` is per projection; removed is a mean over seeds for a seeded selector, as are its scores."""

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        by_selector: dict[str, list[Ranking]] = {}
        for ranking in audit.rankings:
            by_selector.setdefault(ranking.selector, []).append(ranking)
        model, rows, rates = audit.loaded.id, audit.loaded.rows, audit.plan.agreement_rates
        profile: list[tuple[object, ...]] = []
        taken: list[tuple[object, ...]] = []
        for selector, ranked in by_selector.items():
            sums = np.mean([layer_sums(ranking.scores, rows) for ranking in ranked], axis=0)
            profile += [(model, selector, *place, *values) for place, *values in depth_profile(sums, rows)]
            counts = np.mean([removed_per_layer(ranking.scores, rows, rates) for ranking in ranked], axis=0)
            for rate, removed in zip(rates, counts, strict=True):
                for layer, count in zip(rows.layers, removed, strict=True):
                    place = Place(layer.block, layer.sublayer, layer.projection)
                    taken.append((model, selector, rate, *place, count, layer.rows))
        return {"depth": frame("depth", profile), "mask_depth": frame("mask_depth", taken)}


def depth_profile(sums: npt.NDArray[np.float64], rows: RowIndex) -> Iterator[tuple[Place, float, float | None]]:
    """Mean score of every part at each level, and that divided by the level's largest. Every row counts once.
    sums: `layer_sums`, [layers]"""
    for level in _levels(rows):
        means = {
            place: float(sums[[layer.index for layer in layers]].sum() / sum(layer.rows for layer in layers))
            for place, layers in level.items()
        }
        largest = max(means.values())
        for place, mean in means.items():
            yield place, mean, mean / largest if largest > 0 else None


def layer_sums(scores: npt.ArrayLike, rows: RowIndex) -> npt.NDArray[np.float64]:
    """Sum of the scores of every layer, in float64. [N] -> [layers]"""
    starts = [layer.start for layer in rows.layers]
    return np.add.reduceat(np.asarray(scores, dtype=np.float64), starts)


def removed_per_layer(scores: npt.ArrayLike, rows: RowIndex, rates: Sequence[float]) -> npt.NDArray[np.int64]:
    """Rows of every layer in the LeRF mask of each rate. [N] -> [rates, layers]"""
    order = removal_order(scores, "lerf")
    layer_of = rows.layer_of(order)
    counts = [np.bincount(layer_of[: removed_count(rate, order.size)], minlength=len(rows.layers)) for rate in rates]
    return np.array(counts, dtype=np.int64)


def _levels(rows: RowIndex) -> list[dict[Place, list[Layer]]]:
    """The layers of every part: by projection, by sublayer, by block."""
    levels: list[dict[Place, list[Layer]]] = [{}, {}, {}]
    for layer in rows.layers:
        projection = Place(layer.block, layer.sublayer, layer.projection)
        sublayer = projection._replace(projection=None)
        for level, place in zip(levels, (projection, sublayer, sublayer._replace(sublayer=None)), strict=True):
            level.setdefault(place, []).append(layer)
    return levels
