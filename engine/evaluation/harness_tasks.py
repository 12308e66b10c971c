"""The paper's downstream tasks as lm-evaluation-harness has them, from the hub or from local files."""

from __future__ import annotations

import hashlib
import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.errors import InputError
from engine.evaluation.local_tasks import local_files, task_config
from engine.records import canonical
from engine.skeletons import quiet

# The paper's eight, by lm-eval's names, and where in lm-eval's task folder they stand.
TASKS = {
    "arc_easy": "arc",
    "arc_challenge": "arc",
    "hellaswag": "hellaswag",
    "winogrande": "winogrande",
    "piqa": "piqa",
    "boolq": "super_glue/boolq",
    "lambada_openai": "lambada",
    "openbookqa": "openbookqa",
}


@dataclass(frozen=True)
class DownstreamTask:
    """A task of lm-eval, cut to its first items, and all that a manifest says about it.

    requests_hash: SHA-256 of every context, continuation and answer. chance: accuracy without reading the
    item, see `chance_accuracy`.
    """

    name: str
    source: str  # data set on the hub, or file name
    version: str
    items: int
    requests_hash: str
    chance: float
    harness: Any  # lm-eval's task
    limit: int | None


def downstream_tasks(folder: str | None, limit: int | None) -> list[DownstreamTask]:
    """The paper's tasks, from the hub, or those that a folder of local files has (`local_tasks.py`).

    limit: the first so many items of each, None for all.
    Errors: InputError where lm-eval is not installed, or a data set or file cannot be read.
    """
    if not all(find_spec(name) for name in ("lm_eval", "accelerate")):  # lm-eval's model class needs both
        raise InputError(
            "downstream tasks need lm-eval; install it: pip install 'selector-audit[downstream]'"
        )
    if limit is not None and limit < 1:
        raise InputError(f"items per task must be at least 1, got {limit}")
    if folder is None:
        return [_task(name, limit) for name in TASKS]
    return [_task(name, limit, path) for name, path in local_files(folder, tuple(TASKS)).items()]


def chance_accuracy(choices: list[tuple[str, ...]], golds: list[Any]) -> float:
    """Accuracy of an answer that does not read the item.

    Items with their own choices: the mean of 1 / number of choices. The same choices at every item (BoolQ's no
    and yes): the share of the most frequent answer, since a broken model gives one answer to all. A single
    continuation to be written (LAMBADA): 0.
    """
    if all(len(each) == 1 for each in choices):
        return 0.0
    if len(set(choices)) == 1 and len(choices) > 1:
        return max(Counter(golds).values()) / len(golds)
    return math.fsum(1 / len(each) for each in choices) / len(choices)


@contextmanager
def quiet_harness() -> Iterator[None]:
    """lm-eval without its bars and notes, which would run across ours."""
    import lm_eval.api.task as module

    logger, bar = logging.getLogger("lm_eval"), module.tqdm
    level = logger.level
    logger.setLevel(logging.ERROR)
    module.tqdm = partial(bar, disable=True)
    try:
        with quiet():
            yield
    finally:
        module.tqdm = bar
        logger.setLevel(level)


def _task(name: str, limit: int | None, path: Path | None = None) -> DownstreamTask:
    with quiet_harness():
        harness = _from_hub(name) if path is None else _from_file(name, path)
        harness.set_config("num_fewshot", 0)
        harness.build_all_requests(limit=limit)
    requests: dict[int, list[tuple[str, str]]] = {}
    golds: dict[int, Any] = {}
    for instance in harness.instances:
        requests.setdefault(instance.doc_id, []).append(instance.args)
        # lm-eval's form for several contexts keeps the number of the right one in the "text".
        several = bool(harness.multiple_input)
        golds[instance.doc_id] = (harness.doc_to_text if several else harness.doc_to_target)(instance.doc)
    whole = canonical({"requests": list(requests.values()), "golds": list(golds.values())})
    choices = [tuple(continuation for _, continuation in each) for each in requests.values()]
    if harness.multiple_input:
        choices = [tuple(context for context, _ in each) for each in requests.values()]
    return DownstreamTask(
        name=name,
        source=path.name if path else str(harness.DATASET_PATH),
        version=str(harness.VERSION),
        items=len(requests),
        requests_hash=hashlib.sha256(whole.encode()).hexdigest(),
        chance=chance_accuracy(choices, list(golds.values())),
        harness=harness,
        limit=limit,
    )


def _from_file(name: str, path: Path) -> Any:
    from lm_eval.api.task import ConfigurableTask

    return ConfigurableTask(config=task_config(name, path))


def _from_hub(name: str) -> Any:
    import lm_eval.tasks
    from huggingface_hub.errors import HTTPError

    # Only the folder of this task: the whole index takes ten seconds to read.
    folder = Path(lm_eval.tasks.__file__).parent / TASKS[name]
    manager = lm_eval.tasks.TaskManager(include_defaults=False, include_path=str(folder))
    try:
        return manager.load([name])["tasks"][name]
    except (OSError, ValueError, HTTPError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"downstream task {name}: its data set cannot be read ({reason}); go online once, or give a folder with "
            f"{name}.jsonl and the like: --downstream-tasks FOLDER"
        ) from None
