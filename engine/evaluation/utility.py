"""What an edit costs elsewhere: MMLU, GSM8K and IFEval through lm-evaluation-harness, before and after.

Zero-shot, the harness's own prompts without a chat template. Every (mask, task) is a cell of the store; the
harness's own caches are keyed without the weights and stay off.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import InputError, unknown
from engine.evaluation.harness_tasks import quiet_harness
from engine.intervention import zeroed
from engine.masks import checked_mask
from engine.models import LoadedModel
from engine.records import cache_key, installed_version
from engine.store import Store

BATCH_SIZE = 8  # requests per pass: fixed, since bfloat16 answers can depend on it


@dataclass(frozen=True)
class UtilityTask:
    """A task of lm-eval and the number per item that the paper reports.

    harness: the name of a task or group, or a configuration. filter: of the answers, `none` where there is no choice.
    """

    name: str
    harness: str | dict[str, Any]
    metric: str
    filter: str = "none"


UTILITY_TASKS = {
    "mmlu": UtilityTask("mmlu", "mmlu", "acc"),
    # Zero-shot replies do not end with the marker that the strict filter wants.
    "gsm8k": UtilityTask("gsm8k", "gsm8k", "exact_match", "flexible-extract"),
    "ifeval": UtilityTask("ifeval", "ifeval", "prompt_level_strict_acc"),
}


def utility_tasks(names: Sequence[str]) -> list[UtilityTask]:
    """The tasks by name. `InputError` for an unknown one, and where lm-eval is not installed."""
    if not all(find_spec(name) for name in ("lm_eval", "accelerate")):
        raise InputError("utility needs lm-eval; install it: pip install 'selector-audit[downstream]'")
    for name in names:
        if name not in UTILITY_TASKS:
            raise unknown("utility task", name, UTILITY_TASKS)
    if "ifeval" in names and not all(find_spec(name) for name in ("langdetect", "immutabledict")):
        raise InputError(
            "ifeval needs packages of its own; install them: pip install 'lm-eval[ifeval]', or leave it out"
        )
    return [UTILITY_TASKS[name] for name in names]


def masked_utility(
    loaded: LoadedModel, task: UtilityTask, mask: npt.ArrayLike, limit: int | None, *, store: Store
) -> tuple[float, ...]:
    """The task's metric per item (0 to 1) with the rows of `mask` removed, from the store where it is known.

    limit: the first so many items of the task (of each of MMLU's 57), None for all. Items stand in a fixed order,
    so that two masks can be compared item by item.
    """
    row_ids = checked_mask(mask, loaded.rows.n_rows)
    key = cache_key(
        "utility",
        {
            "model": loaded.numeric_fingerprint,
            "mask": hashlib.sha256(row_ids.astype("<i8").tobytes()).hexdigest(),
            "task": task.name,
            "metric": [task.metric, task.filter],
            "limit": limit,
            "lm_eval": installed_version("lm_eval"),
            "batch_size": BATCH_SIZE,
        },
    )
    cell = store.get(key)
    if cell is None:
        lm = _harness_model(loaded)
        with zeroed(loaded, row_ids):
            cell = {"values": list(_evaluate(lm, task, limit))}
        store.put(key, cell)
    return tuple(cell["values"])


def difference(after: Sequence[float], before: Sequence[float]) -> tuple[float, float | None]:
    """Mean of after minus before over the items, and its standard error from the paired differences (None for one)."""
    paired = np.subtract(after, before)
    n = len(paired)
    return float(paired.mean()), float(paired.std(ddof=1) / math.sqrt(n)) if n > 1 else None


def _evaluate(lm: Any, task: UtilityTask, limit: int | None) -> tuple[float, ...]:
    from huggingface_hub.errors import HTTPError
    from lm_eval import simple_evaluate

    try:
        with quiet_harness():
            results = simple_evaluate(
                lm,
                tasks=[task.harness],
                num_fewshot=0,
                limit=limit,
                bootstrap_iters=0,
                log_samples=True,
                random_seed=None,
                numpy_random_seed=None,
                torch_random_seed=None,
            )
    except (OSError, ValueError, HTTPError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"utility task {task.name}: it cannot be run ({reason}); go online once for its data, or leave it out"
        ) from None
    values = [
        (part, sample["doc_id"], float(sample[task.metric]))
        for part, samples in results["samples"].items()
        for sample in samples
        if sample.get("filter", "none") == task.filter
    ]
    if not values:
        raise InputError(f"utility task {task.name} gave no {task.metric} with the filter {task.filter!r}")
    return tuple(value for _, _, value in sorted(values))


def _harness_model(loaded: LoadedModel) -> Any:
    with quiet_harness(), loaded.lock:
        # lm-eval gives a tokenizer without a pad token one, so it gets a copy.
        tokenizer = copy.deepcopy(loaded.tokenizer)
        return _quiet_model()(
            pretrained=loaded.model,
            tokenizer=tokenizer,
            backend="causal",
            softmax_dtype="float32",
            batch_size=BATCH_SIZE,
        )


def _quiet_model() -> Callable[..., Any]:
    from lm_eval.models.huggingface import HFLM

    class QuietModel(HFLM):
        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
            return super().loglikelihood(requests, disable_tqdm=True)

        def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
            return super().generate_until(requests, disable_tqdm=True)

    return QuietModel
