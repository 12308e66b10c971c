"""Does more calibration text change a selector, and does stability say anything about validity?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import Tensor

from engine.analysis.audit import Audit
from engine.analysis.cells import defined
from engine.analysis.similarity import average_ranks, jaccard, rank_correlations
from engine.corpora import Windows, calibration_tokens, windows
from engine.errors import InputError
from engine.evaluation.perplexity import perplexity
from engine.masks import Mask, removed_count
from engine.ranking import removal_order
from engine.records import Json, cache_key
from engine.selectors import formula, get_selector, with_needs
from engine.selectors.nested import nested_scores

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "size": pl.Int64,
    "reference_size": pl.Int64,
    "rate": pl.Float64,
    "spearman": pl.Float64,
    "jaccard": pl.Float64,
    "nll": pl.Float64,
    "perplexity": pl.Float64,
}


def stability(audit: Audit) -> dict[str, pl.DataFrame]:
    """`stability`: every data-dependent selector at every calibration size against the largest one.

    Spearman of the scores, Jaccard of the LeRF masks, and the LeRF NLL at the plan's stability rates; the
    largest size is its own reference (1 and 1). Sizes are nested, the first n calibration windows each, and
    scores of all sizes come from one pass. A seeded selector counts by the mean over its seeds; perplexity
    is exp of the mean NLL. Null: Spearman of constant scores. The paper, section 4.2.
    """
    selectors = [name for name in audit.plan.scoring.selectors if not get_selector(name).data_free]
    if not selectors:
        return {"stability": pl.DataFrame(schema=SCHEMA)}
    tokens = _calibration(audit)
    sizes = nested_sizes(audit.plan.stability_sizes, len(tokens.input_ids))
    scores = scores_at_sizes(audit, selectors, tokens, sizes)
    rates = audit.plan.stability_rates
    reference, total = sizes[-1], len(selectors) * len(sizes) * len(rates)
    rows: list[tuple[object, ...]] = []
    for selector in selectors:
        whole = _sorted_once(scores[reference][selector])
        for size in sizes:
            here = whole if size == reference else _sorted_once(scores[size][selector])
            pairs = list(zip(here, whole, strict=True))
            rho = float(np.mean([rank_correlations(np.stack([a.ranks, b.ranks]))[0, 1] for a, b in pairs]))
            for rate in rates:
                audit.report("stability", len(rows), total)
                overlap = float(np.mean([jaccard(a.mask(rate), b.mask(rate)) for a, b in pairs]))
                nll = float(np.mean([audit.nll(ranking.mask(rate)).nats_per_token for ranking in here]))
                found = (defined(rho), defined(overlap), nll, perplexity(nll))
                rows.append((audit.loaded.id, selector, size, reference, rate, *found))
    audit.report("stability", total, total)
    return {"stability": pl.DataFrame(rows, schema=SCHEMA, orient="row")}


@dataclass(frozen=True)
class _Sorted:
    """One ranking, sorted once for its ranks and all its LeRF masks."""

    order: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.float32]

    def mask(self, rate: float) -> Mask:
        return np.sort(self.order[: removed_count(rate, self.order.size)])


def _sorted_once(scores: Tensor) -> list[_Sorted]:
    """Each ranking of a selector: one, or one per seed."""
    orders = [(values, removal_order(values, "lerf")) for values in np.atleast_2d(scores.numpy())]
    return [_Sorted(order, average_ranks(values, order)) for values, order in orders]


class TooFewSizes(InputError):
    """There is too little calibration text to compare two sizes."""


def nested_sizes(wanted: Sequence[int], available: int) -> tuple[int, ...]:
    """The sizes to measure, ascending; what is more than there is becomes all there is. Errors: fewer than two."""
    if any(size < 1 for size in wanted):
        raise InputError(f"calibration sizes are numbers of windows from 1, got {list(wanted)}")
    sizes = tuple(sorted({min(size, available) for size in wanted}))
    if len(sizes) < 2:
        raise TooFewSizes(
            f"stability compares at least 2 calibration sizes, got {list(wanted)} with {available} windows "
            "available; give smaller sizes or a longer calibration text"
        )
    return sizes


def scores_at_sizes(
    audit: Audit, selectors: Sequence[str], tokens: Windows, sizes: Sequence[int]
) -> dict[int, dict[str, Tensor]]:
    """Scores from the first n windows of `tokens` for each size, from the store where they are known.

    Each selector is kept as soon as it is done, so that an interrupted run goes on where it stopped.
    """
    keys = {
        (size, name): _key(audit, name, tokens, [cut for cut in sizes if cut <= size])
        for size in sizes
        for name in with_needs(selectors)
    }
    known: dict[int, dict[str, Tensor]] = {size: {} for size in sizes}
    for (size, name), key in keys.items():
        arrays = audit.store.load_arrays(key)
        if arrays:
            known[size][name] = torch.from_numpy(arrays["scores"])

    def keep(size: int, name: str, values: Tensor) -> None:
        if (size, name) in keys:  # not one that a plug-in asked for without saying so
            metadata = {"selector": name, "size": str(size)}
            audit.store.save_arrays(keys[size, name], {"scores": values.numpy()}, metadata)

    scoring = audit.plan.scoring
    return nested_scores(
        audit.loaded,
        selectors,
        tokens,
        sizes,
        seeds=scoring.seeds,
        objective=scoring.objective,
        batch_size=scoring.batch_size,
        progress=audit.progress,
        known=known,
        finished=keep,
    )


def _key(audit: Audit, selector: str, tokens: Windows, cuts: Sequence[int]) -> str:
    """Everything that can change the scores at size `cuts[-1]`; where batches are cut can change the last bits."""
    made_of, scoring = formula(selector), audit.plan.scoring
    spec: Json = {
        "model": audit.loaded.numeric_fingerprint,
        "selector": made_of["formulas"],
        "tokens": tokens.first(cuts[-1]).token_hash,
        "cuts": list(cuts),
        "objective": scoring.objective,
        "batch_size": scoring.batch_size,
    }
    if made_of["seeded"]:
        spec["seeds"] = list(scoring.seeds)
    return cache_key("nested_scores", spec)


def _calibration(audit: Audit) -> Windows:
    """The audit's calibration windows, more of them where a size asks for more than its scores use.

    Not more where evaluation reads the same file: what follows in it is evaluation text.
    """
    scoring, largest = audit.plan.scoring, max(audit.plan.stability_sizes, default=0)
    shared_file = calibration_tokens(audit.plan.eval_corpus, scoring.corpus, 1) > 0
    if largest <= scoring.samples or shared_file:
        return audit.calibration
    return windows(
        scoring.corpus, audit.loaded.tokenizer, role="calibration", samples=largest, length=scoring.length
    )
