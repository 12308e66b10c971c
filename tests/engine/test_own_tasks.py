"""Tasks of one's own and shipped ones: files under any name, beside the paper's, and the shipped model's default."""

import json
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.loggers import EvaluationTracker
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from engine.cli import main
from engine.data import local_tasks
from engine.data.local_tasks import SHIPPED, local_files
from engine.measures.harness import DownstreamTask, Harness, downstream_tasks
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.folders import read_table

NAMES = ("cat", "dog", "mat", "door", "then")


def lines(layout: str, count: int = 9) -> list[dict[str, Any]]:
    """Items in one of the three layouts."""
    made: list[dict[str, Any]] = []
    for n in range(count):
        first, second, third = (NAMES[(n + k) % 5] for k in range(3))
        if layout == "choices":
            query = f"Question: Where is the {first}?"
            made.append({"query": query, "choices": [second, f"on {third}", "in", "no"], "gold": n * 7 % 4})
        elif layout == "contexts":
            options = [f"{n} {first}", f"{n} {third}"]
            made.append({"context_options": options, "continuation": second, "gold": n * 3 % 2})
        else:
            made.append({"context": f"the {first} sat on", "continuation": second})
    return made


def write(folder: Path, **files: list[dict[str, Any]]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, items in files.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in items), encoding="utf-8")
    return str(folder)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two tasks of one's own, whose names stand around the paper's one in the alphabet."""
    return write(tmp_path / "tasks", zoo=lines("contexts"), piqa=lines("choices", 8), a_town=lines("choices"))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of shipped tasks, empty so far."""
    monkeypatch.setattr(local_tasks, "demo_tasks_dir", lambda: tmp_path / "shipped")
    return tmp_path / "shipped"


def by_name(folder: str, limit: int | None = None) -> dict[str, DownstreamTask]:
    return {task.name: task for task in downstream_tasks(folder, limit)}


def test_every_file_is_a_task_the_papers_first(folder: str, tmp_path: Path) -> None:
    tasks = by_name(folder)
    assert list(tasks) == ["piqa", "a_town", "zoo"]
    assert {name: (one.source, one.items, one.chance) for name, one in tasks.items()} == {
        "piqa": ("piqa.jsonl", 8, 0.25), "a_town": ("a_town.jsonl", 9, 0.25), "zoo": ("zoo.jsonl", 9, 0.5),
    }  # fmt: skip
    assert tasks["a_town"].task.requests()[1] == ("Question: Where is the cat?\nAnswer:", " on mat")
    # What stands beside the paper's task leaves its key alone, and a name is part of the key.
    assert by_name(write(tmp_path / "alone", piqa=lines("choices", 8)))["piqa"].task.record() == (
        tasks["piqa"].task.record()
    )
    other = by_name(write(tmp_path / "other", b_town=lines("choices")))["b_town"]
    assert other.requests_hash == tasks["a_town"].requests_hash
    assert other.task.record() == {**tasks["a_town"].task.record(), "task": "b_town"}


def test_accuracy_of_own_tasks_is_simple_evaluates(tiny_llama: LoadedModel, folder: str) -> None:
    harness = Harness(tiny_llama)
    lm = HFLM(pretrained=tiny_llama.model, tokenizer=tiny_llama.tokenizer, batch_size=4)
    for name, task in by_name(folder).items():
        theirs = simple_evaluate(
            model=lm, tasks=[task.task.load()["tasks"][name]], bootstrap_iters=10,
            task_manager=TaskManager(include_defaults=False),
        )["results"][name]  # fmt: skip
        found = harness.scores(task.task, 4)
        assert (found.mean, len(found.values)) == (theirs["acc,none"], task.items)
        assert 0 < found.mean < 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("my task",), r"^my task\.jsonl names no task: a name is 1 to 64 letters, .*; rename the file$"),
        (("größe",), r"^größe\.jsonl names no task"),
        (("-x",), r"^-x\.jsonl names no task"),
        (("a" * 65,), "names no task"),
        (("openbook_qa", "openbookqa"), r"^openbook_qa\.jsonl and openbookqa\.jsonl are both the task openbookqa; "),
        (("gsm8k",), r"holds no downstream task; expected a file NAME\.jsonl for each"),
    ],
)
def test_names_that_cannot_be_are_one_line(files: tuple[str, ...], message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "tasks", **{name: lines("choices") for name in files})
    with pytest.raises(InputError, match=message) as error:
        downstream_tasks(folder, None)
    assert "\n" not in str(error.value)


# --- the shipped tasks


def test_demo_is_the_shipped_folder_wherever_one_is(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^no downstream tasks are shipped here; give hub or a folder"):
        local_files(SHIPPED)
    write(shipped, town_b=lines("choices"), town_a=lines("contexts"))
    monkeypatch.chdir(write(shipped.parent / "here"))
    write(Path(SHIPPED), other=lines("choices"))  # a folder of the same name needs ./
    assert list(local_files(SHIPPED)) == ["town_a", "town_b"]
    assert list(local_files(f"./{SHIPPED}")) == ["other"]


def test_the_shipped_model_is_asked_the_shipped_tasks(
    shipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`analyze demo downstream` with no option of tasks, and no network: the tests have none."""
    write(shipped, town_claims=lines("choices", 2), town_stories=lines("contexts", 3))
    out = tmp_path / "out"
    few = ["--selectors", "magnitude", "--samples", "2", "--max-length", "16"]
    assert main(["analyze", "demo", "downstream", *few, "--out", str(out), "--store", str(tmp_path / "store")]) == 0
    capsys.readouterr()
    table, asked = read_table(out, "downstream"), read_table(out, "downstream_tasks")
    assert table.select("rate", "task", "items", "chance").rows() == [
        (rate, task, items, chance)
        for rate in (0.0, 0.1, 0.3, 0.5)
        for task, items, chance in (("town_claims", 2, 0.25), ("town_stories", 3, 0.5))
    ]
    assert asked.select("task", "source", "metric").rows() == [
        ("town_claims", "town_claims.jsonl", "acc"), ("town_stories", "town_stories.jsonl", "acc"),
    ]  # fmt: skip
    manifest = read_manifest(out)
    assert manifest["files"]["downstream.parquet"]["spec"]["settings"]["downstream_tasks"] == "demo"


def test_a_file_of_lm_evals_own_program_stands_beside_a_run(
    shipped: Path, tmp_path: Path, tiny_llama: LoadedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ask the same model the same items, once all and once the first; the file is written by lm-eval."""
    write(shipped, town_a=lines("choices"), town_b=lines("contexts"), town_c=lines("choices", 4))
    tasks = by_name(SHIPPED)
    lm = HFLM(pretrained=tiny_llama.model, tokenizer=tiny_llama.tokenizer, batch_size=4)
    theirs = simple_evaluate(
        model=lm, tasks=[task.task.load()["tasks"][name] for name, task in tasks.items()], bootstrap_iters=10,
        task_manager=TaskManager(include_defaults=False),
    )  # fmt: skip
    EvaluationTracker(output_path=str(tmp_path / "theirs.json")).save_results_aggregated(theirs)
    (file,) = tmp_path.glob("theirs_*.json")
    (shipped / "town_c.jsonl").unlink()
    out = ["--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]
    words = ["--selectors", "magnitude", "--downstream-tasks", SHIPPED, "--preset", "quick"]
    assert main(["analyze", tiny_llama.id, "downstream", *words, *out]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "out"), "--lm-eval", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == ["town_c"]
    for line in told["tasks"]:
        assert (line["items"], line["their_items"], line["difference"], line["asked_otherwise"]) == (9, 9, 0, "")
        stderr = theirs["results"][line["task"]]["acc_stderr,none"]
        assert line["high"] == pytest.approx(1.959964 * 2**0.5 * stderr)
    changed = json.loads(file.read_text())
    changed["n-shot"]["town_a"], changed["versions"]["town_b"] = 5, 2
    changed["results"]["town_a"]["acc,none"] += 0.25
    file.write_text(json.dumps(changed))
    assert main(["compare", str(tmp_path / "out"), "--lm-eval", str(file), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["tasks"]
    assert (first["difference"], first["asked_otherwise"]) == (pytest.approx(-0.25), "5 shots")
    assert second["asked_otherwise"] == "version 2, here 1"
    file.write_text('{"results": {"other": {"acc,none": 1}}}')
    assert main(["compare", str(tmp_path / "out"), "--lm-eval", str(file)]) == 2
    assert "of other, the run of town_a, town_b" in " ".join(capsys.readouterr().err.split())
