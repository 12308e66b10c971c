"""Cells and the runner: what is known is not measured again, and the bar is over all cells of a command."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from derived_measure import Doubled, Sized, cells

from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.runner import Cell, Count, LocalRunner
from engine.studies.base import conduct


@dataclass(frozen=True)
class Size(Sized):
    """A measure that says how many rows its edit has, and notes when it was asked."""

    version: int = 1

    def record(self, loaded: LoadedModel) -> dict[str, Any]:
        return {"version": self.version}

    def measure(self, loaded: LoadedModel, edit: Edit) -> int:
        self.asked.append(edit.size)
        weight = loaded.model.get_submodule(loaded.rows.layers[0].name).weight
        return int((weight == 0).all(dim=1).sum())  # the edit is in the weights now

    def measure_each(self, loaded: LoadedModel, edits: Sequence[Edit]) -> list[int]:
        self.asked.append([edit.size for edit in edits])
        return [edit.size for edit in edits]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as opened:
        yield opened


def test_a_cell_is_measured_under_its_edit_and_only_once(tiny_llama: LoadedModel, store: Store) -> None:
    measure = Size()
    wanted = cells(tiny_llama, measure)
    results = LocalRunner(store).run([*wanted, *wanted])
    assert [results[cell] for cell in wanted] == [0, 1, 2, 3]
    assert measure.asked == [0, 1, 2, 3]
    again = LocalRunner(store).run(cells(tiny_llama, measure))
    assert [again[cell] for cell in wanted] == [0, 1, 2, 3]
    assert len(measure.asked) == 4
    weight = tiny_llama.model.get_submodule(tiny_llama.rows.layers[0].name).weight
    assert not (weight == 0).all(dim=1).any()


def test_the_bar_is_over_all_cells_and_known_ones_count_as_done(tiny_llama: LoadedModel, store: Store) -> None:
    measure = Size()
    LocalRunner(store).run(cells(tiny_llama, measure, (1, 2)))
    seen: list[tuple[str, int, int]] = []
    counts: list[Count] = []
    runner = LocalRunner(store, lambda *step: seen.append(step), counts.append)
    assert runner.expect(cells(tiny_llama, measure)) == Count(known=2, to_compute=2)
    runner.run(cells(tiny_llama, measure, (2, 3)))
    runner.run(cells(tiny_llama, measure))
    assert seen == [("cells", 2, 4), ("cells", 3, 4), ("cells", 4, 4)]
    assert [str(count) for count in counts] == ["4 cells: 2 known, 2 to compute"]
    runner.run(cells(tiny_llama, measure, (4,)))  # a stage that nobody could foresee
    assert seen[3:] == [("cells", 4, 5), ("cells", 5, 5)]
    several = Size(several=3)  # measured in one go, they are told of in one go
    LocalRunner(store, lambda *step: seen.append(step)).run(cells(tiny_llama, several, range(5, 10)))
    assert seen[5:] == [("cells", 0, 5), ("cells", 3, 5), ("cells", 5, 5)]


def test_an_interrupt_keeps_what_was_finished(tiny_llama: LoadedModel, store: Store) -> None:
    class Stops(Size):
        def measure(self, loaded: LoadedModel, edit: Edit) -> int:
            if edit.size == 2:
                raise KeyboardInterrupt
            return super().measure(loaded, edit)

    with pytest.raises(KeyboardInterrupt):
        LocalRunner(store).run(cells(tiny_llama, Stops()))
    measure = Size()
    LocalRunner(store).run(cells(tiny_llama, measure))
    assert measure.asked == [2, 3]


def test_a_derived_result_is_made_of_a_known_one_without_the_model(tiny_llama: LoadedModel, store: Store) -> None:
    measure = Size()
    LocalRunner(store).run(cells(tiny_llama, measure, (1, 2)))
    derived = cells(tiny_llama, Doubled(measure), (1, 2, 3))
    results = LocalRunner(store).run(derived)
    assert [results[cell] for cell in derived] == [2, 4, 6]
    assert measure.asked == [1, 2, 3]
    LocalRunner(store).run(derived)
    assert len(measure.asked) == 3


def test_a_result_of_another_form_is_measured_again(tiny_llama: LoadedModel, store: Store) -> None:
    measure = Size()
    [cell] = cells(tiny_llama, measure, (2,))
    store.put(cell.key, {"rows": 2})
    runner = LocalRunner(store)
    assert runner.expect([cell]) == Count(0, 1)
    assert runner.run([cell])[cell] == 2
    assert store.get(cell.key) == {"size": 2}


def test_the_key_follows_edit_and_measure_and_nothing_else(tiny_llama: LoadedModel) -> None:
    n = tiny_llama.rows.n_rows

    def key(rows: Sequence[int], measure: Any = None, **more: Any) -> str:
        return Cell(tiny_llama, edit_of(rows, n, **more), measure or Size()).key

    assert key([1, 2]) == key([2, 1]) == key([1, 2], kind="refusal", spec={"from": "anywhere"})
    others = [key([1]), key([1, 2], Size(version=2)), key([1, 2], Doubled(Size())), key([])]
    assert len({key([1, 2]), *others}) == 5
    assert key([]) == Cell(tiny_llama, UNEDITED, Size()).key


def test_a_study_in_stages_asks_for_more_once_it_knows_enough(tiny_llama: LoadedModel, store: Store) -> None:
    class Staged:
        def cells(self, loaded: LoadedModel, known: Any) -> list[Cell[int]]:
            first = cells(loaded, Size(), (1, 2))
            if not all(cell in known for cell in first):
                return first
            return [*first, *cells(loaded, Size(), [sum(known[cell] for cell in first)])]

        def tables(self, loaded: LoadedModel, results: Any) -> Any:
            return {cell.edit.size: results[cell] for cell in self.cells(loaded, results)}

    assert conduct(Staged(), tiny_llama, LocalRunner(store)) == {1: 1, 2: 2, 3: 3}
