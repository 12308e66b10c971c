"""Downstream tasks from a folder of JSONL files, without network: one file per task, in MosaicML's layouts.

    arc_easy.jsonl      {"query": "Question: …", "choices": ["…", "…"], "gold": 0}
    winogrande.jsonl    {"context_options": ["…", "…"], "continuation": "…", "gold": 1}
    lambada_openai.jsonl  {"context": "…", "continuation": "…"}
    my_task.jsonl       any of the three: a task of one's own, by the name of its file

The layout is read off the fields, not off the task. `query`, `choices`: the answer is the likeliest choice after
the query. `context_options`: the answer is the context after which the continuation is likeliest. `context` and
`continuation` alone: right if the continuation is what the model writes greedily. Every continuation follows
after one space. A query with a line "Question: …" gets a line "Answer:", and "Passage: " at its start
is left out: these are lm-evaluation-harness's own prompts for ARC, PIQA and BoolQ."""

from pathlib import Path
from typing import Any

from engine.data.texts import json_lines
from engine.records.errors import InputError
from engine.records.shipped import demo_tasks_dir
from engine.results.tables import is_id

Item = dict[str, Any]
VERSION = 1  # of what is made of a line: other prompts, other number

SHIPPED = "demo"  # in the place of a folder: the tasks of the shipped model
_TASK_OF = {"openbook_qa": "openbookqa"}  # MosaicML's name of the file -> lm-eval's of the task
_LEFT_OUT = {"gsm8k"}  # MosaicML has it beside the others; its answers are written, not chosen


def local_files(folder: str, tasks: tuple[str, ...] = ()) -> dict[str, Path]:
    """Task -> its file: those of `tasks` that the folder has, in that order, then all others (but gsm8k and hidden
    files) by their names. folder: a path, or `SHIPPED`.

    Errors: InputError where there is no such folder, no task in it, or a name that tables cannot hold."""
    place = _place(folder)
    files: dict[str, Path] = {}
    for path in sorted(place.glob("*.jsonl")):
        if path.name.startswith(".") or path.stem in _LEFT_OUT or not path.is_file():
            continue
        task = _TASK_OF.get(path.stem, path.stem)
        if not is_id(task):
            raise InputError(
                f"{path.name} names no task: a name is 1 to 64 letters, digits and . _ -, the first a letter or digit; "
                "rename the file"
            )
        if task in files:
            raise InputError(f"{files[task].name} and {path.name} are both the task {task}; leave one in the folder")
        files[task] = path
    if not files:
        raise InputError(f"{folder} holds no downstream task; expected a file NAME.jsonl for each, as arc_easy.jsonl")
    order = [*(task for task in tasks if task in files), *sorted(files.keys() - set(tasks))]
    return {task: files[task] for task in order}


def _place(folder: str) -> Path:
    if folder == SHIPPED:
        if demo_tasks_dir().is_dir():
            return demo_tasks_dir()
        raise InputError("no downstream tasks are shipped here; give hub or a folder: --downstream-tasks FOLDER")
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise InputError(f"there is no folder {folder} with downstream tasks; give one with --downstream-tasks")
    return path


def task_config(task: str, path: Path) -> dict[str, Any]:
    """lm-eval's configuration of a zero-shot task over the lines of a file, held in memory. Errors: InputError naming
    the file and the line."""
    items, layout = read_items(path)

    def dataset(**_: Any) -> dict[str, Any]:
        from datasets import Dataset

        return {"test": Dataset.from_list(items)}

    return {
        "task": task, "custom_dataset": dataset, "test_split": "test", "num_fewshot": 0,
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": VERSION},
        **_FIELDS[layout],
    }  # fmt: skip


def read_items(path: Path) -> tuple[list[Item], str]:
    """The items of a file, and its layout: `choices`, `contexts` or `greedy`."""
    items: list[Item] = []
    layouts: set[str] = set()
    for number, entry in json_lines(path):
        layout = next((name for name, fields in _LAYOUTS.items() if fields <= set(entry)), None)
        if layout is None:
            raise InputError(
                f"{path.name} line {number} has the fields {', '.join(sorted(entry)) or 'of nothing'}; expected "
                "query, choices, gold, or context_options, continuation, gold, or context, continuation; "
                "every .jsonl file of the folder is read as a task"
            )
        layouts.add(layout)
        if len(layouts) > 1:
            raise InputError(f"{path.name} line {number} has another layout than the lines before it")
        try:
            items.append(_item(layout, entry))
        except ValueError as error:
            raise InputError(f"{path.name} line {number}: {error}") from None
    if not items:
        raise InputError(f"{path.name} is empty; expected one JSON object per line")
    return items, layouts.pop()


def _item(layout: str, entry: Item) -> Item:
    if layout == "choices":
        choices = _texts(entry, "choices")
        return {"prompt": _prompt(_text(entry, "query")), "choices": choices, "gold": _gold(entry, len(choices))}
    if layout == "contexts":
        contexts = _texts(entry, "context_options")
        continuation = _text(entry, "continuation").strip()
        return {"contexts": contexts, "continuation": continuation, "gold": _gold(entry, len(contexts))}
    return {"prompt": _text(entry, "context").rstrip(), "continuation": f" {_text(entry, 'continuation').strip()}"}


def _prompt(query: str) -> str:
    text = query.removeprefix("Passage: ").strip()
    asks = text.startswith("Question: ") or "\nQuestion: " in text
    return f"{text}\nAnswer:" if asks else text


def _text(entry: Item, field: str) -> str:
    value = entry[field]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field} must be a text, got {value!r}")
    return value


def _texts(entry: Item, field: str) -> list[str]:
    value = entry[field]
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(t, str) and t.strip() for t in value):
        raise ValueError(f"{field} must be a list of two or more texts, got {value!r}")
    return [text.strip() for text in value]


def _gold(entry: Item, count: int) -> int:
    value = entry["gold"]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < count:
        raise ValueError(f"gold must be the number of the right one of {count}, counted from 0, got {value!r}")
    return value


_LAYOUTS = {
    "choices": {"query", "choices", "gold"},
    "contexts": {"context_options", "continuation", "gold"},
    "greedy": {"context", "continuation"},
}
# Names of fields, not templates: what is in a file is text and nothing else.
_FIELDS: dict[str, dict[str, str]] = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "prompt",
        "doc_to_choice": "choices",
        "doc_to_target": "gold",
    },
    # lm-eval's form for several contexts: the "text" is the number of the right one.
    "contexts": {
        "output_type": "multiple_choice",
        "doc_to_text": "gold",
        "doc_to_choice": "contexts",
        "doc_to_target": "continuation",
    },
    "greedy": {"output_type": "loglikelihood", "doc_to_text": "prompt", "doc_to_target": "continuation"},
}
