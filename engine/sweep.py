"""LeRF/MoRF sweeps: mask -> intervene -> evaluate -> store, cell by cell."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from engine.compaction import VERSION as COMPACTION, compacted, compacts
from engine.corpora import Windows
from engine.errors import InputError
from engine.evaluation.perplexity import (
    NegativeLogLikelihood,
    evaluation_batch_size,
    negative_log_likelihood,
    perplexity,
)
from engine.intervention import zeroed
from engine.masks import Mask, checked_mask, removed_count
from engine.models import LoadedModel
from engine.ranking import ORDERS, removal_order
from engine.records import Json, add_to_manifest, cache_key, check_folder, write_parquet
from engine.store import Store

RATES = tuple(round(0.05 * step, 2) for step in range(19))  # 0, 0.05, ..., 0.90: the paper, section 3.4
SEEDS = (42, 43, 44)
SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "seed": pl.Int64,
    "order": pl.String,
    "rate": pl.Float64,
    "rows_removed": pl.Int64,
    "nll": pl.Float64,
    "nll_stderr": pl.Float64,
    "tokens": pl.Int64,
    "perplexity": pl.Float64,
}
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Ranking:
    """One global ranking of all rows. A random selector gives one per seed, every other selector one."""

    selector: str
    seed: int | None
    scores: npt.NDArray[np.float32]  # [N]


def rankings(scores: Mapping[str, npt.ArrayLike], seeds: Sequence[int] = SEEDS) -> Iterator[Ranking]:
    """The rankings behind `scores`: [N] gives one, [seeds, N] one per seed."""
    for selector, values in scores.items():
        array = np.asarray(values, dtype=np.float32)
        if array.ndim == 1:
            yield Ranking(selector, None, array)
        else:
            for seed, row in zip(seeds, array, strict=True):
                yield Ranking(selector, seed, row)


def sweep_model(
    loaded: LoadedModel,
    scores: Mapping[str, npt.ArrayLike],
    windows: Windows,
    *,
    store: Store,
    orders: Sequence[str] = ORDERS,
    rates: Sequence[float] = RATES,
    seeds: Sequence[int] = SEEDS,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """NLL of the model with the first `round(rate * N)` rows of every ranking removed.

    Each cell is kept in the store as soon as it is known, so an interrupted sweep goes on where it
    stopped, and cells shared with earlier runs (the unmasked model above all) are evaluated once.

    scores: selector id -> [N], random -> [seeds, N]; higher = more important.
    returns `SCHEMA`, sorted as given: selector, seed, order, rate. The paper, section 3.4.
    """
    ranked = list(rankings(scores, seeds))
    total, done = len(ranked) * len(orders) * len(rates), 0
    rows: list[tuple[object, ...]] = []
    for ranking in ranked:
        for order in orders:
            order_of_rows = removal_order(ranking.scores, order)
            for rate in sorted(rates):
                if progress:
                    progress("sweep", done, total)
                mask = np.sort(order_of_rows[: removed_count(rate, order_of_rows.size)])
                result = masked_nll(loaded, mask, windows, store=store, batch_size=batch_size)
                nll = result.nats_per_token
                derived = (len(mask), nll, result.stderr, result.tokens, perplexity(nll))
                rows.append((loaded.id, ranking.selector, ranking.seed, order, rate, *derived))
                done += 1
    if progress:
        progress("sweep", done, total)
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def masked_nll(
    loaded: LoadedModel,
    mask: npt.ArrayLike,
    windows: Windows,
    *,
    store: Store,
    batch_size: int | None = None,
) -> NegativeLogLikelihood:
    """NLL with the rows of `mask` removed, from the store where it is known.

    MLP neurons that the mask kills are skipped where that is faster (`engine.compaction`). The key covers
    the weights, dtype and device kind, the mask, the tokens, the batch size and the skipping (which can change
    the last bits); who chose the mask is not part of it.
    """
    row_ids = checked_mask(mask, loaded.rows.n_rows)
    batch = batch_size or evaluation_batch_size(loaded, windows)
    key = cache_key("nll", _cell_spec(loaded, row_ids, windows, batch))
    cell = store.get(key)
    if cell is None:
        try:
            with zeroed(loaded, row_ids), compacted(loaded):
                result = negative_log_likelihood(loaded, windows, batch)
        except torch.OutOfMemoryError:
            raise InputError(
                f"out of memory with {batch} windows of {windows.input_ids.shape[1]} tokens per pass; "
                "give a smaller --batch-size"
            ) from None
        _check_numbers(loaded, row_ids, result)
        store.put(key, {"window_nats": result.window_nats, "window_tokens": result.window_tokens})
        return result
    return NegativeLogLikelihood(tuple(cell["window_nats"]), tuple(cell["window_tokens"]))


def _check_numbers(loaded: LoadedModel, row_ids: Mask, result: NegativeLogLikelihood) -> None:
    """A model that breaks under a mask may say NaN; one that does so unmasked, or in float16, was not measured."""
    if math.isfinite(result.nats_per_token) or (len(row_ids) and loaded.dtype != "float16"):
        return
    raise InputError(
        f"{loaded.id} gives no finite perplexity with {len(row_ids):,} rows removed ({loaded.dtype}); "
        + (
            "check the model's weights"
            if loaded.dtype == "float32"
            else "run again with --dtype bfloat16 or float32"
        )
    )


def write_sweep(folder: Path, loaded: LoadedModel, table: pl.DataFrame, spec: Json, elapsed_s: float) -> Json:
    """`sweep.parquet` and its manifest entry in a results folder."""
    check_folder(folder, loaded.fingerprint)
    write_parquet(folder / "sweep.parquet", table)
    return add_to_manifest(folder, loaded.fingerprint, "sweep.parquet", spec, elapsed_s)


def _cell_spec(loaded: LoadedModel, row_ids: Mask, windows: Windows, batch_size: int) -> Json:
    return {
        "model": loaded.numeric_fingerprint,
        "mask": hashlib.sha256(row_ids.astype("<i8").tobytes()).hexdigest(),
        "tokens": windows.token_hash,
        "batch_size": batch_size,
        "compaction": COMPACTION if compacts(loaded) else None,
    }
