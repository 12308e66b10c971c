"""Saturated: a model that predicts little better than chance. Differences between such models mean nothing."""

from __future__ import annotations

import math

SHARE = 0.5  # of the way from the unedited model's NLL to that of uniform predictions


def saturated_above(dense_nll: float, vocabulary: int) -> float:
    """The NLL above which a model is destroyed: dense + (ln V - dense) / 2, nats per token, V the vocabulary.

    Of a model whose own NLL exceeds ln V nothing can be told: the limit is its own NLL then.
    """
    return dense_nll + max(0.0, SHARE * (math.log(vocabulary) - dense_nll))
