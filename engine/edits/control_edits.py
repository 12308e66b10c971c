"""Consensus controls as masks: what could explain consensus2's results other than the agreement of LRP and IG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.edits.masks import Mask, checked_mask, removed_count
from engine.models.row_index import RowIndex
from engine.selectors.consensus2 import borda
from engine.stats.removal_order import rank, removal_order

REFERENCE = "consensus2"
SMALLER = ("intersection", "veto_lrp", "veto_ig")  # remove fewer rows than the rate says
NEEDED = ("lrp", "ig", "consensus2", "random")


@dataclass(frozen=True, eq=False)
class ControlMask:
    """One mask of a control. seed: of its random part, None where it has none. size_matched_to: the control whose
    number of rows this reference copies, None for a control of its own."""

    control: str
    order: str
    rate: float
    seed: int | None
    rows: Mask
    size_matched_to: str | None = None


def intersection(first: Mask, second: Mask) -> Mask:
    """The rows in both masks: what the two methods agree on (the paper, appendix C, strict LRP and IG)."""
    return np.intersect1d(first, second, assume_unique=True)


def veto(own: Mask, other: Mask) -> Mask:
    """The rows of `own` that are not in `other`: one method's picks against the other's (VETO-own)."""
    return np.setdiff1d(own, other, assume_unique=True)


def rank_randomised(fixed: npt.ArrayLike, shuffled: npt.ArrayLike, seed: int) -> npt.NDArray[np.float64]:
    """Borda count of one ranking with a random permutation of the other's ranks: [N], [N] -> [N]. The paper, appendix
    C, keeps LRP's ranks and permutes IG's: the null is LRP averaged with noise, and nothing of IG is left in it."""
    permuted = np.random.default_rng(seed).permutation(rank(shuffled))
    return borda(fixed, permuted)


def control_masks(
    scores: Mapping[str, npt.NDArray[np.float32]],
    rows: RowIndex,
    order: str,
    rate: float,
    *,
    seeds: Sequence[int],
    null_seeds: Sequence[int],
) -> Iterator[ControlMask]:
    """Every control at one rate, then the references of the controls that remove fewer rows (the paper, section 4.4,
    C).

    LRP's and IG's first round(rate * N) rows in `order` are the material. Layer-matched: the same count in every layer,
    random rows. VETO-LRP: LRP's mask without IG's rows; VETO-IG: the reverse. Beside intersection and vetoes stand
    consensus2, lrp, ig and random at exactly their number of rows, so that a smaller edit is not taken for a better
    one. scores: lrp, ig, consensus2 [N], random [seeds, N]; the layer-matched masks take the same seeds"""
    orders: list[tuple[str, int | None, npt.NDArray[np.int64]]] = [
        (name, None, removal_order(scores[name], order)) for name in ("consensus2", "lrp", "ig")
    ]
    for random_seed, values in zip(seeds, scores["random"], strict=True):
        orders.append(("random", random_seed, removal_order(values, order)))
    count = removed_count(rate, rows.n_rows)
    full = [ControlMask(name, order, rate, seed, np.sort(ranking[:count])) for name, seed, ranking in orders]
    yield from full
    lrp, ig = full[1].rows, full[2].rows
    for name, real in (("lrp_layer_matched", lrp), ("ig_layer_matched", ig)):
        for seed in seeds:
            yield ControlMask(name, order, rate, seed, layer_matched(real, rows, seed))
    for seed in null_seeds:
        null = removal_order(rank_randomised(scores["lrp"], scores["ig"], seed), order)
        yield ControlMask("rank_randomised", order, rate, seed, np.sort(null[:count]))

    smaller = {"intersection": intersection(lrp, ig), "veto_lrp": veto(lrp, ig), "veto_ig": veto(ig, lrp)}
    for control, mask in smaller.items():
        yield ControlMask(control, order, rate, None, mask)
        for name, reference_seed, ranking in orders:
            yield ControlMask(name, order, rate, reference_seed, np.sort(ranking[: mask.size]), control)


def layer_matched(mask: npt.ArrayLike, rows: RowIndex, seed: int) -> Mask:
    """A control: in every layer the same number of removed rows as in `mask`, their identity random, drawn without
    replacement from all rows of the layer (the paper, section 5.3). returns [len(mask)] int64, ascending row ids"""
    real = checked_mask(mask, rows.n_rows)
    generator = np.random.default_rng(seed)
    drawn: list[Mask] = []
    for layer in rows.layers:
        inside = np.searchsorted(real, [layer.start, layer.start + layer.rows])
        count = int(inside[1] - inside[0])
        drawn.append(layer.start + generator.choice(layer.rows, size=count, replace=False))
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def shuffled(mask: npt.ArrayLike, rows: RowIndex, seed: int) -> Mask:
    """The image of `mask` under one random permutation of the rows within every layer, which the seed names: a whole
    grid of masks keeps its counts and its overlaps, as if its selector had scored other rows of the same layers.

    returns [len(mask)] int64, ascending row ids"""
    real = checked_mask(mask, rows.n_rows)
    generator = np.random.default_rng(seed)
    image = np.concatenate([layer.start + generator.permutation(layer.rows) for layer in rows.layers])
    return np.sort(image[real]).astype(np.int64)


def global_random(mask: npt.ArrayLike, n_rows: int, seed: int) -> Mask:
    """As many rows as `mask`, uniformly random over the whole model; ascending int64."""
    size = checked_mask(mask, n_rows).size
    return np.sort(np.random.default_rng(seed).choice(n_rows, size=size, replace=False)).astype(np.int64)
