"""Data sets of the hub: one commit each, named or looked up once, and recorded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pytest
from fake_hub import FakeHub, Repository, go_online, running

from engine.data.prompt_sets import read_prompt_sets
from engine.data.texts import commit_of, pinned_loads
from engine.records.errors import InputError

HARD = [{"prompt": "one"}, {"prompt": "two"}]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with running() as server:
        server.repositories = {
            "datasets/bench-llm/or-bench": Repository({"README.md": b"hard"}, tags=("v1",)),
            "datasets/org/a": Repository({"README.md": b"a"}),
        }
        go_online(server, tmp_path, monkeypatch)
        yield server


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What `datasets.load_dataset` is asked for: (name, revision)."""
    asked: list[tuple[str, str | None]] = []

    def load(path: str, *_: Any, revision: str | None = None, **__: Any) -> datasets.Dataset:
        asked.append((path, revision))
        return datasets.Dataset.from_list(HARD)

    monkeypatch.setattr(datasets, "load_dataset", load)
    return asked


def test_a_prompt_set_is_loaded_at_the_commit_that_is_recorded(hub: FakeHub, loads: list[Any]) -> None:
    repository = hub.repositories["datasets/bench-llm/or-bench"]
    first = repository.commit
    assert [one.source for one in read_prompt_sets(["orbench"])] == [f"bench-llm/or-bench@{first}"]
    repository.files["README.md"] = b"harder"
    assert [one.source for one in read_prompt_sets(["orbench"])] == [f"bench-llm/or-bench@{repository.commit}"]
    assert loads == [("bench-llm/or-bench", first), ("bench-llm/or-bench", repository.commit)]
    assert first != repository.commit


def test_a_revision_that_is_named_is_taken(hub: FakeHub, loads: list[Any]) -> None:
    commit = hub.repositories["datasets/bench-llm/or-bench"].commit
    for revision in ("v1", commit):
        (found,) = read_prompt_sets([f"orbench@{revision}"])
        assert (found.name, found.source) == ("orbench", f"bench-llm/or-bench@{commit}")
    old = "0" * 40  # a full commit is what it says, and the hub is asked for nothing but its files
    assert read_prompt_sets([f"orbench@{old}"])[0].source == f"bench-llm/or-bench@{old}"
    assert [revision for _, revision in loads] == [commit, commit, old]
    with pytest.raises(InputError, match="given twice"):
        read_prompt_sets(["orbench", "orbench@v1"])
    with pytest.raises(InputError, match="unknown prompt set 'orbenhc'; did you mean 'orbench'"):
        read_prompt_sets(["orbenhc@v1"])


def test_without_a_hub_the_cache_tells_what_it_has(
    hub: FakeHub, loads: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert commit_of("bench-llm/or-bench") is None
    assert read_prompt_sets(["orbench"])[0].source == "bench-llm/or-bench"
    reference = tmp_path / "hub" / "datasets--bench-llm--or-bench" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("1" * 40)
    assert read_prompt_sets(["orbench"])[0].source == f"bench-llm/or-bench@{'1' * 40}"
    reference.write_text("not a commit")
    assert commit_of("bench-llm/or-bench") is None


def test_all_parts_of_a_data_set_are_of_one_commit(hub: FakeHub, loads: list[Any]) -> None:
    """As of MMLU's 57 subjects, which the library loads one after another."""
    repository = hub.repositories["datasets/org/a"]
    first, load = repository.commit, datasets.load_dataset
    with pinned_loads() as commits:
        datasets.load_dataset("org/a", "one")
        repository.files["README.md"] = b"b"
        datasets.load_dataset("org/a", "two")
        datasets.load_dataset("json", data_files="x.jsonl")
        datasets.load_dataset("org/a", "three", revision="v7")
    assert loads == [("org/a", first), ("org/a", first), ("json", None), ("org/a", "v7")]
    assert commits == {"org/a": first}
    assert sum("/api/datasets/org/a" in path for _, path, _ in hub.asked) == 1
    assert datasets.load_dataset is load
