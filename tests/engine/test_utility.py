"""Utility through lm-eval with the model in memory: values per item, under a mask, kept in the store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import sem

from engine.edits.edit import edit_of
from engine.interventions.in_weights import zeroed
from engine.measures.harness import UTILITY_BATCH, Harness, HarnessTask, ItemScores, TaskScores, harness_task
from engine.models.loading import LoadedModel, load_model
from engine.results.store import Store
from engine.run.runner import Cell, LocalRunner
from engine.stats.blocks import mean_difference as difference

QUESTIONS = ["The farm of the", "In the harbour there", "A boat and", "The mill is"]


@pytest.fixture(scope="module")
def demo() -> LoadedModel:
    return load_model("demo", dtype="float32", device="cpu")


def task(items: list[dict[str, str]], limit: int | None = None) -> HarnessTask:
    """A generating task like GSM8K, over items held in memory."""

    def dataset(**_: Any) -> dict[str, Any]:
        from datasets import Dataset

        return {"test": Dataset.from_list(items)}

    config = {
        "task": "own", "custom_dataset": dataset, "test_split": "test", "output_type": "generate_until",
        "doc_to_text": "question", "doc_to_target": "answer",
        "generation_kwargs": {"until": ["<never>"], "max_gen_toks": 6, "do_sample": False},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "filter_list": [
            {"name": name, "filter": [{"function": "regex", "regex_pattern": pattern}, {"function": "take_first"}]}
            for name, pattern in (("first-word", r"(\w+)"), ("nothing", r"(\d{9})"))
        ],
    }  # fmt: skip
    return harness_task("own", config, "exact_match", "first-word", limit=limit)


def first_words(demo: LoadedModel) -> list[str]:
    """What the model answers to the bare questions, by `generate` of transformers without a template."""
    answers = []
    for question in QUESTIONS:
        ids = demo.tokenizer(question, return_tensors="pt")["input_ids"]
        new = demo.model.generate(ids, max_new_tokens=6, do_sample=False)[0, ids.shape[1] :]
        words = demo.tokenizer.decode(new, skip_special_tokens=True)
        answers.append("".join(c if c.isalnum() or c == "_" else " " for c in words).split())
    return [found[0] if found else "" for found in answers]


def measured(demo: LoadedModel, store: Store, task: HarnessTask, mask: Any) -> tuple[float, ...]:
    edit = edit_of(mask, demo.rows.n_rows)
    cell = Cell[ItemScores](demo, edit, TaskScores(Harness(demo), task, UTILITY_BATCH))
    return LocalRunner(store).run([cell])[cell].values


@pytest.mark.long
def test_values_are_per_item_and_change_with_the_mask(demo: LoadedModel, tmp_path: Path):
    answers = first_words(demo)
    items = [
        {"question": question, "answer": answer if number != 2 else "never"}
        for number, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True))
    ]
    with Store(tmp_path) as store:
        assert measured(demo, store, task(items), []) == (1.0, 1.0, 0.0, 1.0)
        assert sum(measured(demo, store, task(items), np.arange(demo.rows.n_rows))) < 3
        assert measured(demo, store, task(items, 2), []) == (1.0, 1.0)


@pytest.mark.long
def test_answers_under_a_mask_are_those_of_dense_zeros(demo: LoadedModel, tmp_path: Path):
    """What transformers says with the rows zero is right, item by item, when dead neurons are skipped."""
    projections = demo.rows.frame()["projection"].to_numpy()
    some = np.random.default_rng(0).choice(demo.rows.n_rows, demo.rows.n_rows // 8, replace=False)
    said: set[str] = set()
    with Store(tmp_path) as store:
        for mask in (some, *(np.flatnonzero(projections == name) for name in ("gate_proj", "q_proj", "o_proj"))):
            with zeroed(demo, np.sort(mask)):
                answers = first_words(demo)
            items = [{"question": one, "answer": other} for one, other in zip(QUESTIONS, answers, strict=True)]
            assert measured(demo, store, task(items), np.sort(mask)) == tuple(float(bool(one)) for one in answers)
            said |= set(answers)
    assert len(said) > 4


@pytest.mark.long
def test_it_is_kept(demo: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []

    def scores(self: Harness, task: HarnessTask, batch_size: int) -> ItemScores:
        calls.append(1)
        return ItemScores((0.5,))

    monkeypatch.setattr(Harness, "scores", scores)
    with Store(tmp_path) as store:
        for mask, limit in (([], None), ([], None), ([1], None), ([1], 5), ([1], 5)):
            one = HarnessTask("own", dict, "acc", limit=limit)
            assert measured(demo, store, one, mask) == (0.5,)
    assert len(calls) == 3


def test_differences_are_paired():
    generator = np.random.default_rng(0)
    before, after = generator.integers(0, 2, 30).astype(float), generator.integers(0, 2, 30).astype(float)
    mean, stderr = difference(after, before)
    assert mean == pytest.approx(after.mean() - before.mean())
    assert stderr == pytest.approx(sem(after - before))
    assert difference([1.0], [0.0]) == (1.0, None)
