"""What the recipe promises of the selectors, measured with the engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Windows
from engine.edits.masks import removed_rows
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel


def masked_nll(
    loaded: LoadedModel, scores: dict[str, npt.NDArray[np.float32]], order: str, rate: float, windows: Windows
) -> dict[str, float]:
    """Nats per token with `rate` of the rows removed, per selector; random is the mean over its seeds."""
    result = {}
    for name, values in scores.items():
        nats = []
        for ranking in values if values.ndim == 2 else values[None]:
            with zeroed(loaded, removed_rows(ranking, order, rate)):
                nats.append(negative_log_likelihood(loaded, windows).nats_per_token)
        result[name] = float(np.mean(nats))
    return result
