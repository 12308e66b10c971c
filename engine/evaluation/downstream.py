"""Accuracy on downstream tasks through lm-evaluation-harness, with the model that is already in memory.

Zero-shot, `acc`: the likeliest choice by summed log-likelihood, for LAMBADA the greedy continuation. The paper
(section 3.4) does not name the metric; its OpenBookQA and HellaSwag are those of `acc`, not of the
length-normalised `acc_norm`. lm-eval's own caches are keyed without the weights and stay off; every
(mask, task) is a cell of our store.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from engine.errors import InputError
from engine.evaluation.harness_tasks import DownstreamTask, quiet_harness
from engine.evaluation.perplexity import LOGIT_BUDGET
from engine.intervention import zeroed
from engine.masks import checked_mask
from engine.models import LoadedModel
from engine.records import Json, cache_key, installed_version
from engine.store import Store

METRIC = "acc"
LARGEST_BATCH = 256  # requests; beyond it a batch gains nothing


@dataclass(frozen=True)
class Accuracy:
    """Right or wrong for every item."""

    correct: tuple[int, ...]

    @property
    def mean(self) -> float:
        return sum(self.correct) / len(self.correct)

    @property
    def stderr(self) -> float | None:
        """sqrt(p(1-p)/(n-1)), lm-eval's for a mean: standard deviation of the items over sqrt(n). None for one item."""
        n, p = len(self.correct), self.mean
        return math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else None


class Harness:
    """lm-eval's view of a loaded model. Made outside any mask; what it measures is the weights as they are then."""

    def __init__(self, loaded: LoadedModel) -> None:
        with quiet_harness(), loaded.lock:
            # lm-eval gives a tokenizer without a pad token one, so it gets a copy.
            tokenizer = copy.deepcopy(loaded.tokenizer)
            # float32: the sums of log-probabilities of a bfloat16 model would tie.
            self._lm = _quiet_model()(
                pretrained=loaded.model, tokenizer=tokenizer, backend="causal", softmax_dtype="float32"
            )
        self._loaded = loaded

    def longest(self, task: DownstreamTask) -> tuple[int, int]:
        """Tokens of the longest request, cut to the model's context, and how many requests were cut (on the left)."""
        texts = ["".join(instance.args) for instance in task.harness.instances]
        lengths = [len(ids) for ids in self._lm.tokenizer(texts, verbose=False)["input_ids"]]
        room = self._lm.max_length + 1  # the last token is predicted, never read
        return min(max(lengths), room), sum(length > room for length in lengths)

    def batch_size(self, longest: int) -> int:
        """Requests per pass, from the size of the longest one's logits: found once per task, for every mask the same.

        Nothing is tried out, so that equal runs use equal batches.
        """
        vocabulary = int(self._loaded.model.get_input_embeddings().weight.shape[0])
        budget = LOGIT_BUDGET["cuda" if self._loaded.device.startswith("cuda") else "cpu"]
        return max(1, min(LARGEST_BATCH, budget // (longest * vocabulary)))

    def correct(self, task: DownstreamTask, batch_size: int) -> Accuracy:
        """lm-eval's `acc` of every item, for the weights as they are now. The model's lock is held meanwhile."""
        from lm_eval.evaluator import evaluate

        self._lm.batch_size_per_gpu = batch_size
        with quiet_harness(), self._loaded.lock:
            # What `simple_evaluate` does, without its reseeding of all generators and its survey of the machine.
            results = evaluate(
                self._lm, {"tasks": {task.name: task.harness}}, limit=task.limit, bootstrap_iters=0
            )
        samples = sorted(results["samples"][task.name], key=lambda sample: sample["doc_id"])
        return Accuracy(tuple(int(sample[METRIC]) for sample in samples))


def masked_accuracy(
    loaded: LoadedModel,
    harness: Harness,
    task: DownstreamTask,
    mask: npt.ArrayLike,
    batch_size: int,
    *,
    store: Store,
) -> Accuracy:
    """Accuracy with the rows of `mask` removed, from the store where it is known.

    The key covers the weights, dtype and device kind, the mask, every request and answer, the task's version,
    lm-eval's version and the batch size.
    """
    row_ids = checked_mask(mask, loaded.rows.n_rows)
    key = cache_key("downstream", _cell_spec(loaded, row_ids, task, batch_size))
    cell = store.get(key)
    if cell is not None:
        return Accuracy(tuple(cell["correct"]))
    try:
        with zeroed(loaded, row_ids):
            result = harness.correct(task, batch_size)
    except torch.OutOfMemoryError:
        raise InputError(
            f"out of memory on {task.name} with {batch_size} requests per pass; give a smaller --batch-size"
        ) from None
    store.put(key, {"correct": result.correct})
    return result


def _cell_spec(
    loaded: LoadedModel, row_ids: npt.NDArray[np.int64], task: DownstreamTask, batch_size: int
) -> Json:
    return {
        "model": loaded.numeric_fingerprint,
        "mask": hashlib.sha256(row_ids.astype("<i8").tobytes()).hexdigest(),
        "task": task.name,
        "version": task.version,
        "requests": task.requests_hash,
        "limit": task.limit,
        "lm_eval": installed_version("lm_eval"),
        "metric": METRIC,
        "batch_size": batch_size,
    }


def _quiet_model() -> Callable[..., Any]:
    from lm_eval.models.huggingface import HFLM

    class QuietModel(HFLM):
        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
            return super().loglikelihood(requests, disable_tqdm=True)

    return QuietModel
