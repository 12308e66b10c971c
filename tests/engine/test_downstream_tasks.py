"""Downstream tasks: prompts of local files against lm-eval's own, accuracies against a scorer written by hand."""

import json
import math
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from lm_eval import simple_evaluate
from lm_eval.api.metrics import mean_stderr
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from same_bits import assert_same_bits, bits
from tiny_models import load_tiny

from engine.edits.edit import edit_of
from engine.interventions.in_weights import zeroed
from engine.measures import harness as module
from engine.measures.harness import (
    TASKS,
    DownstreamTask,
    Harness,
    ItemScores,
    TaskScores,
    chance_accuracy,
    downstream_tasks,
)
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.edited_passes import measured

# fmt: off
WORDS = [
    "the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "ran", "to", "me", "as", "we", "saw", "him", "by",
    "an", "old", "red", "door", "in", "no", "way",
]
# fmt: on


def words(count: int, seed: int) -> str:
    picks = torch.randint(len(WORDS), (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return " ".join(WORDS[i] for i in picks)


def lines_of(task: str, count: int = 12) -> list[dict[str, Any]]:
    """Items of our own in the layout that each task's file has."""
    lines = []
    for number in range(count):
        stem, gold = words(5, 100 * number), (number * 7) % 4
        choices = [words(1 + k, 100 * number + k + 1) for k in range(4)]
        if task == "winogrande":
            options = [f"{stem} {name}" for name in ("Ann", "Bob")]
            lines.append({"context_options": options, "continuation": words(3, number), "gold": gold % 2})
        elif task == "lambada_openai":
            lines.append({"context": stem, "continuation": WORDS[number % len(WORDS)]})
        elif task == "boolq":
            query = f"Passage: {words(9, number)}.\nQuestion: {stem}?"
            lines.append({"query": query, "choices": ["no", "yes"], "gold": int(number % 3 > 0)})
        elif task == "piqa":
            lines.append({"query": f"Question: {stem}\n", "choices": choices[1:3], "gold": gold % 2})
        elif task == "hellaswag":
            *start, end = stem.split()
            query = f"Washing: {' '.join(start)} {end.capitalize()}"
            lines.append({"query": query, "choices": choices, "gold": gold})
        elif task in ("arc_easy", "arc_challenge"):
            lines.append({"query": f"Question: {stem}", "choices": choices, "gold": gold})
        else:
            lines.append({"query": stem, "choices": choices, "gold": gold})
    return lines


def on_the_hub(task: str) -> list[dict[str, Any]]:
    """The same items as the data sets of the hub have them."""
    rows = []
    for line in lines_of(task):
        query = line.get("query", "").removeprefix("Question: ").strip()
        if task == "winogrande":
            sentence = line["context_options"][0].removesuffix("Ann") + "_ " + line["continuation"]
            answer = str(line["gold"] + 1)
            rows.append({"sentence": sentence, "option1": "Ann", "option2": "Bob", "answer": answer})
        elif task == "lambada_openai":
            rows.append({"text": f"{line['context']} {line['continuation']}"})
        elif task == "boolq":
            passage, _, question = query.removeprefix("Passage: ").partition("\nQuestion: ")
            rows.append({"passage": passage, "question": question.rstrip("?"), "label": line["gold"]})
        elif task == "piqa":
            one, two = line["choices"]
            rows.append({"goal": query, "sol1": one, "sol2": two, "label": line["gold"]})
        elif task == "hellaswag":
            *start, end = query.removeprefix("Washing: ").split()
            context = {"activity_label": "Washing", "ctx_a": " ".join(start), "ctx_b": end.lower()}
            rows.append({**context, "endings": line["choices"], "label": str(line["gold"])})
        else:
            choices = {"text": line["choices"], "label": list("ABCD")}
            question = "question_stem" if task == "openbookqa" else "question"
            rows.append({question: query, "choices": choices, "answerKey": "ABCD"[line["gold"]]})
    return rows


def write(folder: Path, **files: list[dict[str, Any]]) -> str:
    folder.mkdir(exist_ok=True)
    for name, lines in files.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return str(folder)


def harness_of(task: DownstreamTask) -> Any:
    """lm-eval's own object."""
    return task.task.load()["tasks"][task.name]


def requests(task: DownstreamTask) -> list[tuple[str, str]]:
    return [instance.args for instance in harness_of(task).instances]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All eight tasks."""
    files = {name: lines_of(name) for name in TASKS}
    files["openbook_qa"] = files.pop("openbookqa")
    return write(tmp_path_factory.mktemp("tasks"), **files)


@pytest.fixture(scope="module")
def tasks(local: str) -> dict[str, DownstreamTask]:
    return {task.name: task for task in downstream_tasks(local, 10)}


@pytest.fixture(scope="module")
def harness(tiny_llama: LoadedModel) -> Harness:
    return Harness(tiny_llama)


# --- tasks


def test_local_files_become_the_eight_tasks(tasks: dict[str, DownstreamTask]) -> None:
    assert list(tasks) == list(TASKS)
    assert all(task.items == 10 for task in tasks.values())
    assert tasks["openbookqa"].source == "openbook_qa.jsonl"
    expected = lines_of("arc_easy")[0]
    prompt = f"{expected['query']}\nAnswer:"
    assert requests(tasks["arc_easy"])[:4] == [(prompt, f" {choice}") for choice in expected["choices"]]
    expected = lines_of("winogrande")[3]
    continuation = f" {expected['continuation']}"
    assert requests(tasks["winogrande"])[6:8] == [(text, continuation) for text in expected["context_options"]]
    expected = lines_of("lambada_openai")[4]
    assert requests(tasks["lambada_openai"])[4] == (expected["context"], f" {expected['continuation']}")
    assert requests(tasks["boolq"])[0][0].endswith("?\nAnswer:")
    assert not requests(tasks["boolq"])[0][0].startswith("Passage")


@pytest.mark.parametrize("name", TASKS)
def test_a_local_file_asks_what_lm_eval_asks_of_the_hubs_data(
    name: str, tasks: dict[str, DownstreamTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """lm-eval's own configuration over the same items in the hub's form: the same requests and answers."""
    rows = datasets.Dataset.from_list(on_the_hub(name))
    asked: list[tuple[Any, ...]] = []

    def load_dataset(path: str, name: str | None = None, **_: Any) -> Any:
        asked.append((path, name))
        return {"train": rows, "validation": rows, "test": rows}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = module._downstream(name, 10)
    assert requests(task) == requests(tasks[name])
    assert task.requests_hash == tasks[name].requests_hash
    assert task.chance == tasks[name].chance
    assert task.source == asked[0][0] != tasks[name].source


def test_out_of_reach_is_an_error_that_names_the_local_way() -> None:
    """HF_HUB_OFFLINE is set for all tests."""
    with pytest.raises(InputError, match=r"arc_easy: its data set cannot be read .*--downstream-tasks FOLDER"):
        downstream_tasks(None, 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"query": "a", "choices": ["b", "c"]}, "line 2 has the fields choices, query; expected query, choices"),
        ({}, "line 2 has the fields of nothing"),
        ({"query": "a", "choices": ["b", "c"], "gold": 2}, "line 2: gold must be the number .* of 2, .* got 2"),
        ({"query": "a", "choices": ["b", "c"], "gold": True}, "got True"),
        ({"query": "a", "choices": ["b"], "gold": 0}, "line 2: choices must be a list of two or more texts"),
        ({"query": " ", "choices": ["b", "c"], "gold": 0}, "line 2: query must be a text, got ' '"),
        ({"context": "a", "continuation": "b"}, "line 2 has another layout"),
    ],
)
def test_wrong_lines_are_errors(line: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "tasks", piqa=[lines_of("piqa")[0], line])
    with pytest.raises(InputError, match=message) as error:
        downstream_tasks(folder, None)
    assert str(error.value).startswith("piqa.jsonl line 2")


def test_chance() -> None:
    four, three = ("a", "b", "c", "d"), ("e", "f", "g")
    assert chance_accuracy([four, three], [0, 2]) == (1 / 4 + 1 / 3) / 2
    assert chance_accuracy([("no", "yes")] * 5, [1, 0, 1, 1, 0]) == 3 / 5
    assert chance_accuracy([("one",), ("two",)], ["one", "two"]) == 0


# --- accuracies


def by_hand(loaded: LoadedModel, lines: list[dict[str, Any]]) -> list[int]:
    """Right or wrong, request by request: one sequence per pass, no padding, log-softmax in float64.

    What is asked is written once more here; only lm-eval's cut between context and continuation is kept: the
    tokens of both together, without as many as the context alone has.
    """
    context_length = loaded.model.config.max_position_embeddings
    correct = []
    for line in lines:
        if "choices" in line:
            prompt = line["query"].removeprefix("Passage: ").strip()
            prompt += "\nAnswer:" if "Question: " in prompt else ""
            pairs = [(prompt, f" {choice}") for choice in line["choices"]]
        elif "context_options" in line:
            pairs = [(context, f" {line['continuation']}") for context in line["context_options"]]
        else:
            pairs = [(line["context"], f" {line['continuation']}")]
        sums, greedy = [], []
        for context, continuation in pairs:
            before = len(loaded.tokenizer(context)["input_ids"])
            ids = loaded.tokenizer(context + continuation, verbose=False)["input_ids"]
            count = len(ids) - before
            ids = torch.tensor(ids[-(context_length + 1) :])
            with torch.no_grad():
                logits = loaded.model(input_ids=ids[None, :-1]).logits[0].double()
            wanted = ids[-count:]
            last = logits[-count:].log_softmax(-1)
            sums.append(sum(float(last[t, wanted[t]]) for t in range(count)))
            greedy.append(all(int(last[t].argmax()) == int(wanted[t]) for t in range(count)))
        correct.append(int(greedy[0]) if len(pairs) == 1 else int(sums.index(max(sums)) == line["gold"]))
    return correct


@pytest.mark.first_run("arc_easy|boolq|lambada")
@pytest.mark.parametrize("name", ["arc_easy", "boolq", "winogrande", "lambada_openai", "hellaswag"])
def test_accuracy_is_the_one_scored_by_hand(
    name: str, tiny_llama: LoadedModel, tasks: dict[str, DownstreamTask], harness: Harness
) -> None:
    """Also where a mask's dead neurons are skipped."""
    half = np.arange(0, tiny_llama.rows.n_rows, 2)
    gates = np.flatnonzero(tiny_llama.rows.frame()["projection"].to_numpy() == "gate_proj")
    for mask in (gates, half, []):
        with zeroed(tiny_llama, mask):
            expected = by_hand(tiny_llama, lines_of(name)[:10])
            found = harness.scores(tasks[name].task, 3)
        measure = TaskScores(harness, tasks[name].task, 3)
        assert measured(tiny_llama, measure, [edit_of(mask, tiny_llama.rows.n_rows)]) == [found]
        assert list(found.values) == expected
        assert found.mean == sum(expected) / 10
        if name != "lambada_openai":
            assert 0 < found.mean < 1


@pytest.mark.parametrize("name", ["piqa", "winogrande", "lambada_openai"])
def test_accuracy_is_simple_evaluates(
    name: str, tiny_llama: LoadedModel, tasks: dict[str, DownstreamTask], harness: Harness
) -> None:
    lm = HFLM(pretrained=tiny_llama.model, tokenizer=tiny_llama.tokenizer, batch_size=4)
    results = simple_evaluate(
        model=lm, tasks=[harness_of(tasks[name])], limit=10, bootstrap_iters=10,
        task_manager=TaskManager(include_defaults=False),
    )["results"][name]  # fmt: skip
    found = harness.scores(tasks[name].task, 4)
    assert found.mean == results["acc,none"]
    assert found.stderr == pytest.approx(results["acc_stderr,none"], abs=1e-12)


def test_standard_error_is_lm_evals() -> None:
    correct = (1, 0, 0, 1, 1, 0, 1)
    assert ItemScores(correct).stderr == pytest.approx(mean_stderr(correct), rel=1e-12)
    assert ItemScores(correct).stderr == pytest.approx(np.std(correct, ddof=1) / math.sqrt(7), rel=1e-12)
    assert ItemScores((1,)).stderr is None


def test_batches_and_length(tiny_llama: LoadedModel, tasks: dict[str, DownstreamTask], harness: Harness) -> None:
    task = tasks["arc_challenge"]
    assert len({harness.scores(task.task, size).values for size in (1, 5, 40)}) == 1
    lengths = [len(tiny_llama.tokenizer(a + b)["input_ids"]) for a, b in requests(task)]
    longest, cut = harness.longest(task.task)
    assert longest == max(lengths)
    assert cut == 0
    assert harness.batch_size(longest) == min(256, 16_000_000 // (longest * 300))
    assert harness.batch_size(10**9) == 1


@pytest.mark.parametrize("tied", [False, True])
def test_weights_and_tokenizer_stay_as_they_were(tied: bool, tasks: dict[str, DownstreamTask], tmp_path: Path) -> None:
    loaded = load_tiny("qwen2", tmp_path / "model", tie_word_embeddings=tied)
    loaded.tokenizer.pad_token = None
    embeddings, head = loaded.model.get_input_embeddings(), loaded.model.get_output_embeddings()
    assert (embeddings.weight is head.weight) == tied
    before, mask = bits(loaded.model), np.arange(0, loaded.rows.n_rows, 3)
    measure = TaskScores(Harness(loaded), tasks["arc_easy"].task, 4)
    [masked] = measured(loaded, measure, [edit_of(mask, loaded.rows.n_rows)])
    assert_same_bits(loaded.model, before)
    assert (embeddings.weight is head.weight) == tied
    assert loaded.tokenizer.pad_token is None
    with zeroed(loaded, mask):
        assert list(masked.values) == by_hand(loaded, lines_of("arc_easy")[:10])
