"""Tasks of lm-evaluation-harness under an edit, with the model that is already in memory.

Zero-shot, the harness's own prompts without a chat template. lm-eval's own caches are keyed without the weights and
stay off; every (edit, task) is a cell of our store."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.edits.edit import AnyEdit
from engine.measures.base import Measure
from engine.measures.generation import end_tokens, further_ends
from engine.measures.harness_tasks import HarnessTask, quiet_harness
from engine.measures.less_at_once import saying_what_fits
from engine.measures.predictions import kind_of, logit_budget
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import Json, installed_version

LARGEST_BATCH = 256  # requests; beyond it a batch gains nothing


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
        vocabulary = int(self._loaded.model.get_input_embeddings().weight.shape[0])
        budget = logit_budget(kind_of(self._loaded.device))
        return max(1, min(LARGEST_BATCH, budget // (longest * vocabulary)))

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
