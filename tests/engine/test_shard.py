"""The share of a shard: every cell in exactly one, balanced by measure, and no tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from derived_measure import Doubled, Sized, cells

from engine.cli import main
from engine.edits.edit import Edit
from engine.models.loading import LoadedModel
from engine.results.merging import merge
from engine.results.store import Store
from engine.run.runner import Cell, LocalRunner, ShardRunner
from engine.run.share import Measured, Shard
from engine.studies.base import conduct


@dataclass(frozen=True)
class Size(Sized):
    """A measure that says how many rows its edit has, `several` edits in one pass."""

    name: str = "one"

    def record(self, loaded: LoadedModel) -> dict[str, Any]:
        return {"name": self.name}

    def measure(self, loaded: LoadedModel, edit: Edit) -> int:
        self.asked.append(edit.size)
        return edit.size

    def measure_each(self, loaded: LoadedModel, edits: Sequence[Edit]) -> list[int]:
        self.asked.extend(edit.size for edit in edits)
        return [edit.size for edit in edits]


def share(loaded: LoadedModel, folder: Path, number: int, count: int, lists: Sequence[Sequence[Cell[Any]]]) -> set[str]:
    """Keys of what shard `number` measures when these lists come up one after another."""
    with Store(folder / f"{number}-of-{count}") as store:
        runner = ShardRunner(LocalRunner(store), Shard(number, count))
        before = set(store.keys())
        for some in lists:
            try:
                runner.run(some)
            except Measured:
                assert count > 1
        return set(store.keys()) - before


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_cell_is_of_one_shard_and_no_shard_has_more_of_a_measure(
    tiny_llama: LoadedModel, tmp_path: Path, count: int
) -> None:
    cheap, dear = cells(tiny_llama, Size(name="cheap"), range(20)), cells(tiny_llama, Size(name="dear"), range(5))
    later = cells(tiny_llama, Size(name="dear"), range(5, 9))
    found = [share(tiny_llama, tmp_path, number, count, [[*cheap, *dear], later]) for number in range(1, count + 1)]
    everything = {cell.key for cell in (*cheap, *dear, *later)}
    assert set().union(*found) == everything
    assert sum(map(len, found)) == len(everything)
    for some in (cheap, [*dear, *later], [*cheap, *dear, *later]):
        sizes = [len(one & {cell.key for cell in some}) for one in found]
        assert max(sizes) - min(sizes) <= 1


def test_the_share_does_not_depend_on_what_a_store_knows(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    wanted = cells(tiny_llama, Size(), range(12))
    fresh = share(tiny_llama, tmp_path / "a", 2, 3, [wanted])
    with Store(tmp_path / "b" / "2-of-3") as store:
        LocalRunner(store).run([cell for cell in wanted if cell.key not in fresh][:5])
        known = sorted(fresh)[0]
        store.put(known, {"size": 0})  # as after an interrupt
    assert share(tiny_llama, tmp_path / "b", 2, 3, [wanted]) == fresh - {known}


def test_what_is_taken_in_one_pass_stays_together(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    wanted = cells(tiny_llama, Size(several=3), range(14))
    passes = [{cell.key for cell in wanted[start : start + 3]} for start in range(0, 14, 3)]
    for number in (1, 2):
        found = share(tiny_llama, tmp_path, number, 2, [wanted])
        assert all(one <= found or not one & found for one in passes)


def test_what_is_derived_goes_with_what_it_is_made_of(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    measures = [Size(), Size()]
    for number, measure in enumerate(measures, 1):
        lists = [cells(tiny_llama, Doubled(measure), range(7)), cells(tiny_llama, measure, range(7))]
        lists = lists if number == 1 else lists[::-1]
        assert len(share(tiny_llama, tmp_path, number, 2, lists)) == 2 * len(measure.asked)
    assert sorted(measures[0].asked + measures[1].asked) == list(range(7))


class Sums:
    """A study of two stages: the second is told by the first one's results."""

    def __init__(self, loaded: LoadedModel, measure: Any) -> None:
        self.loaded, self.first = loaded, cells(loaded, measure, range(6))
        self.measure = measure

    def cells(self, inputs: None, known: Any) -> Iterator[Cell[int]]:
        yield from self.first
        if all(cell in known for cell in self.first):
            yield from cells(self.loaded, self.measure, [10 + known[cell] for cell in self.first])

    def tables(self, inputs: None, results: Any) -> dict[str, Any]:
        return {"sum": sum(results.of(int))}


def test_a_shard_ends_before_the_tables_and_rounds_reach_them(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    measure = Size()
    everything, left = tmp_path / "all", []
    for _ in range(2):
        for number in (1, 2):
            if everything.exists():
                merge([everything], tmp_path / str(number))
            with Store(tmp_path / str(number)) as store:
                runner = ShardRunner(LocalRunner(store), Shard(number, 2))
                with pytest.raises(Measured):
                    conduct(Sums(tiny_llama, measure), None, runner)
                record = runner.record()
                assert record["share"] == record["known_before"] + record["measured"]
                left.append((record["cells"], record["measured"], record["left_to_other_shards"]))
        merge([tmp_path / "1", tmp_path / "2"], everything)
    assert left == [(6, 3, 3), (6, 3, 3), (12, 3, 3), (12, 3, 3)]
    assert sorted(measure.asked) == [*range(6), *range(10, 16)]
    with Store(everything) as store:
        runner = ShardRunner(LocalRunner(store), Shard(1, 2))
        with pytest.raises(Measured):  # all is known, and still a shard writes none
            conduct(Sums(tiny_llama, measure), None, runner)
        assert runner.record()["left_to_other_shards"] == 0
        assert conduct(Sums(tiny_llama, measure), None, LocalRunner(store)) == {"sum": 15 + 75}
    assert len(measure.asked) == 12


@pytest.mark.parametrize("value", ["0/3", "4/3", "x", "1/0", "", "1/2/3", "1.5/2", "2", "٣/4"])
@pytest.mark.parametrize("command", [["sweep"], ["analyze"], ["refusal", "run"]])
def test_a_bad_shard_is_one_line(command: list[str], value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main([*command, "demo", f"--shard={value}"])
    told = capsys.readouterr()
    assert exit_code.value.code == 2
    assert not told.out
    assert len(told.err.splitlines()) == 1
    assert "--shard" in told.err
    assert "write " in told.err
