"""Tasks of lm-evaluation-harness under an edit, with the model that is already in memory: the paper's downstream tasks,
tasks from local files, and utility tasks.

Zero-shot, the harness's own prompts without a chat template. lm-eval's own caches are keyed without the weights and
stay off; every (edit, task) is a cell of our store."""

import copy
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from engine.data.local_tasks import local_files, read_items, task_config
from engine.data.texts import pinned_loads
from engine.edits.edit import AnyEdit
from engine.measures.base import Measure
from engine.measures.generation import end_tokens, further_ends
from engine.measures.predictions import kind_of, logits_that_fit, vocabulary_of
from engine.models.downloads import end_silence
from engine.models.hub_failures import explain, hub_errors
from engine.models.loading import LoadedModel
from engine.models.memory import saying_what_fits
from engine.models.skeletons import quiet
from engine.records.errors import InputError, unknown
from engine.records.hashing import Json, canonical, installed_version

LARGEST_BATCH = 256  # requests; beyond it a batch gains nothing
# The paper's eight, by lm-eval's names, and where in lm-eval's task folder they stand.
TASKS = {
    "arc_easy": "arc", "arc_challenge": "arc", "hellaswag": "hellaswag", "winogrande": "winogrande", "piqa": "piqa",
    "boolq": "super_glue/boolq", "lambada_openai": "lambada", "openbookqa": "openbookqa",
}  # fmt: skip
# `acc`: the likeliest choice by summed log-likelihood, for LAMBADA the greedy continuation. The paper (section 3.4)
# does not name the metric; its OpenBookQA and HellaSwag are those of `acc`, not of the length-normalised `acc_norm`.
ACCURACY = "acc"
UTILITY_BATCH = 8  # requests per pass: fixed, since bfloat16 answers can depend on it


@dataclass(frozen=True)
class HarnessTask:
    """A task or group of lm-eval, cut to its first items, and the number per item that is reported. load: lm-eval's
    tasks, zero-shot; called when first wanted. filter: of the answers, `none` where there is no choice. about: more for
    the key (the hash of all requests, where they are built beforehand)."""

    name: str
    load: Callable[[], dict[str, Any]]
    metric: str
    filter: str = "none"
    limit: int | None = None
    about: Json = field(default_factory=dict)

    def record(self) -> Json:
        return {"task": self.name, "metric": [self.metric, self.filter], "limit": self.limit, **self.about}

    def requests(self) -> list[tuple[str, ...]]:
        """All requests, once they are built."""
        return [one.args for task in self.load()["tasks"].values() for one in task.instances]


@dataclass(frozen=True)
class DownstreamTask:
    """A task from the hub or a local file, and all that a manifest says about it. requests_hash: SHA-256 of every
    context, continuation and answer. chance: accuracy without reading the item, see `chance_accuracy`."""

    task: HarnessTask
    source: str  # data set on the hub and its commit, org/name@commit, or file name
    version: str
    items: int
    requests_hash: str
    chance: float

    @property
    def name(self) -> str:
        return self.task.name


def check_tasks(folder: str | None) -> None:
    """`InputError` where lm-eval is not installed or a file of a folder cannot be read; the hub is not asked."""
    _require_harness("downstream tasks need")
    if folder is not None:
        for path in local_files(folder, tuple(TASKS)).values():
            read_items(path)


def downstream_tasks(folder: str | None, limit: int | None) -> list[DownstreamTask]:
    """The paper's tasks, from the hub, or all that a folder of local files has (`engine.data.local_tasks`; `demo`: the
    shipped ones; None for the hub). limit: the first so many items of each, None for all. Errors: InputError where
    lm-eval is not installed, or a data set or file cannot be read."""
    _require_harness("downstream tasks need")
    if limit is not None and limit < 1:
        raise InputError(f"items per task must be at least 1, got {limit}")
    if folder is None:
        return [_downstream(name, limit) for name in TASKS]
    return [_downstream(name, limit, path) for name, path in local_files(folder, tuple(TASKS)).items()]


def utility_tasks(names: Sequence[str], limit: int | None = None) -> list[HarnessTask]:
    """MMLU, GSM8K and IFEval by name; limit: the first so many items (of each of MMLU's 57), None for all. Errors:
    InputError for an unknown one, and where lm-eval or what a task needs is not installed."""
    _require_harness("utility needs")
    for name in names:
        if name not in UTILITY:
            raise unknown("utility task", name, UTILITY)
    if "ifeval" in names and not all(find_spec(name) for name in ("langdetect", "immutabledict")):
        raise InputError(
            "ifeval needs packages of its own; install them: pip install 'lm-eval[ifeval]', or leave it out"
        )
    return [harness_task(name, *UTILITY[name], limit=limit) for name in names]


UTILITY = {  # where in lm-eval's task folder, metric, filter of the answers
    "mmlu": ("mmlu/default", ACCURACY, "none"),
    # Zero-shot replies do not end with the marker that the strict filter wants.
    "gsm8k": ("gsm8k", "exact_match", "flexible-extract"),
    "ifeval": ("ifeval", "prompt_level_strict_acc", "none"),
}


def harness_task(
    name: str, source: str | dict[str, Any], metric: str, filter: str = "none", *, limit: int | None = None
) -> HarnessTask:
    """A task or group by its name and lm-eval's folder of it, or a configuration; loaded zero-shot when wanted."""
    loaded: dict[str, Any] = {}

    def load() -> dict[str, Any]:
        if not loaded:
            with quiet_harness():
                folder, wanted = (source, name) if isinstance(source, str) else (None, source)
                with pinned_loads():
                    loaded.update(_task_manager(folder).load([wanted]))
            for task in loaded["tasks"].values():
                task.set_config("num_fewshot", 0)
        return loaded

    return HarnessTask(name, load, metric, filter, limit)


def chance_accuracy(choices: list[tuple[str, ...]], golds: list[Any]) -> float:
    """Accuracy of an answer that does not read the item. Items with their own choices: the mean of 1 / number of
    choices. The same choices at every item (BoolQ): the share of the most frequent answer. A single continuation
    (LAMBADA): 0."""
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


def _require_harness(who: str) -> None:
    if not all(find_spec(name) for name in ("lm_eval", "accelerate")):  # lm-eval's model class needs both
        raise InputError(f"{who} lm-eval; install it: pip install 'selector-audit[downstream]'")


def _downstream(name: str, limit: int | None, path: Path | None = None) -> DownstreamTask:
    from lm_eval.api.task import ConfigurableTask

    with quiet_harness():
        with pinned_loads() as commits:
            harness = _from_hub(name) if path is None else ConfigurableTask(config=task_config(name, path))
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
    digest, version = hashlib.sha256(whole.encode()).hexdigest(), str(harness.VERSION)
    origin = str(harness.DATASET_PATH)
    choices = [tuple(continuation for _, continuation in each) for each in requests.values()]
    if harness.multiple_input:
        choices = [tuple(context for context, _ in each) for each in requests.values()]
    about = {"version": version, "requests": digest}
    return DownstreamTask(
        task=HarnessTask(name, lambda: {"tasks": {name: harness}}, ACCURACY, limit=limit, about=about),
        source=path.name if path else "@".join(filter(None, (origin, commits.get(origin)))),
        version=version, items=len(requests), requests_hash=digest,
        chance=chance_accuracy(choices, list(golds.values())),
    )  # fmt: skip


def _task_manager(folder: str | None) -> Any:
    """lm-eval's tasks of one of its folders: the whole index takes ten seconds to read."""
    import lm_eval.tasks

    path = folder and str(Path(lm_eval.tasks.__file__).parent / folder)
    return lm_eval.tasks.TaskManager(include_defaults=False, include_path=path)


def _from_hub(name: str) -> Any:
    end_silence()
    try:
        return _task_manager(TASKS[name]).load([name])["tasks"][name]
    except hub_errors() as error:
        reason = explain(error, name, repo_type="dataset").found
        raise InputError(
            f"downstream task {name}: its data set cannot be read ({reason}); go online once, or give a folder with "
            f"{name}.jsonl and the like: --downstream-tasks FOLDER"
        ) from None


@dataclass(frozen=True)
class ItemScores:
    """A metric between 0 and 1 for every item, in an order that is the same for every edit."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def stderr(self) -> float | None:
        """sqrt(p(1-p)/(n-1)) of right and wrong, lm-eval's for a mean of 0 and 1: None for one item."""
        n, p = len(self.values), self.mean
        return math.sqrt(p * (1 - p) / (n - 1)) if n > 1 else None


class Harness:
    """lm-eval's view of a loaded model. Made outside any edit; what it measures is the model as it is then."""

    def __init__(self, loaded: LoadedModel) -> None:
        with quiet_harness(), loaded.lock:
            # lm-eval gives a tokenizer without a pad token one, so it gets a copy.
            tokenizer = copy.deepcopy(loaded.tokenizer)
            # float32: the sums of log-probabilities of a bfloat16 model would tie.
            self._lm = _quiet_model()(
                pretrained=loaded.model, tokenizer=tokenizer, backend="causal", softmax_dtype="float32"
            )
            self._lm.ends = sorted(end_tokens(loaded.model, loaded.tokenizer))
        self._loaded = loaded

    def longest(self, task: HarnessTask) -> tuple[int, int]:
        """Tokens of the longest request, cut to the model's context, and how many requests were cut (on the left)."""
        texts = ["".join(request) for request in task.requests()]
        lengths = [len(ids) for ids in self._lm.tokenizer(texts, verbose=False)["input_ids"]]
        room = self._lm.max_length + 1  # the last token is predicted, never read
        return min(max(lengths), room), sum(length > room for length in lengths)

    def batch_size(self, longest: int) -> int:
        """Requests per pass, from the size of the longest one's logits: found once per task, for every edit the
        same."""
        fit = logits_that_fit(kind_of(self._loaded.device), longest, vocabulary_of(self._loaded.model))
        return min(LARGEST_BATCH, fit)

    def scores(self, task: HarnessTask, batch_size: int) -> ItemScores:
        """The task's metric of every item, for the model as it is now. Its lock is held meanwhile."""
        from huggingface_hub.errors import HTTPError
        from lm_eval.evaluator import evaluate

        self._lm.batch_size_per_gpu = batch_size
        try:
            with quiet_harness(), self._loaded.lock:
                # What `simple_evaluate` does, without its reseeding of all generators and its survey of the machine.
                results = evaluate(self._lm, task.load(), limit=task.limit, bootstrap_iters=0)
        except (OSError, ValueError, HTTPError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"task {task.name} cannot be run ({reason}); go online once for its data, or leave it out"
            ) from None
        values = [
            (part, sample["doc_id"], float(sample[task.metric]))
            for part, samples in results["samples"].items()
            for sample in samples
            if sample.get("filter", "none") == task.filter
        ]
        if not values:
            raise InputError(f"task {task.name} gave no {task.metric} with the filter {task.filter!r}")
        return ItemScores(tuple(value for _, _, value in sorted(values)))


@dataclass(frozen=True, eq=False)
class TaskScores(Measure[ItemScores]):
    """The measure: a task's metric per item. The key covers requests and answers, versions and batch size."""

    harness: Harness
    task: HarnessTask
    batch_size: int
    kind: ClassVar[str] = "harness"
    skips_dead: ClassVar[bool] = True

    def record(self, loaded: LoadedModel) -> Json:
        return {
            **self.task.record(), "lm_eval": installed_version("lm_eval"), "batch_size": self.batch_size,
            **({"further_ends": ends} if (ends := further_ends(loaded.model, loaded.tokenizer)) else {}),
        }  # fmt: skip

    def encode(self, result: ItemScores) -> Json:
        return {"values": result.values}

    def decode(self, stored: Json) -> ItemScores:
        return ItemScores(tuple(stored["values"]))

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> ItemScores:
        with saying_what_fits(f"on {self.task.name}", self.batch_size, "requests"):
            return self.harness.scores(self.task, self.batch_size)


def _quiet_model() -> Callable[..., Any]:
    from lm_eval.models.huggingface import HFLM

    class QuietModel(HFLM):
        ends: list[int]  # what ends a reply

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
            return super().loglikelihood(requests, disable_tqdm=True)

        def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
            return super().generate_until(requests, disable_tqdm=True)

        def _model_generate(self, *words: Any, **options: Any) -> Any:
            # lm-eval leaves them to the generation config.
            return super()._model_generate(*words, **options, **({"eos_token_id": self.ends} if self.ends else {}))

    return QuietModel
