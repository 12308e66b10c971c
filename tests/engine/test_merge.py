"""Stores joined into one: what is damaged or different never gets in, and a kill costs nothing."""

import json
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from engine.cli import main
from engine.records.errors import InputError
from engine.results.merging import merge
from engine.results.store import Store

LARGE = "f" * 64  # beyond what stands in the database itself


def key(number: int) -> str:
    return f"{number:064x}"


def made(folder: Path, numbers: range, *, large: bool = False) -> Path:
    """A store with a cell and an array of each number."""
    with Store(folder) as store:
        for number in numbers:
            store.put(key(number), {"nll": number + 0.1, "text": f"é{number}"})
            store.save_arrays(key(number), {"scores": np.arange(9, dtype=np.float32) + number}, {"selector": "lrp"})
        if large:
            store.put(LARGE, {"replies": [f"reply {number} of many" for number in range(60_000)]})
    return folder


def contents(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Cells and the bytes of the arrays."""
    with Store(folder) as store:
        cells = {one: store.get(one) for one in store.keys()}  # noqa: SIM118 - no mapping
    return cells, {path.name: path.read_bytes() for path in (folder / "arrays").iterdir()}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change(store: Path, assignment: str, *values: object, of: str) -> None:
    with closing(sqlite3.connect(store / "cells" / "cache.db")) as database, database:
        assert database.execute(f"UPDATE Cache SET {assignment} WHERE key = ?", (*values, of)).rowcount == 1


def test_two_stores_become_what_one_run_would_have_left(tmp_path: Path) -> None:
    one, two = made(tmp_path / "1", range(5)), made(tmp_path / "2", range(3, 9), large=True)
    whole = made(tmp_path / "whole", range(9), large=True)
    before = files(one), files(two)
    found, folder = merge([one, two, one], tmp_path / "all")
    assert (found.cells, found.new_cells, found.arrays, found.new_arrays) == (10, 10, 9, 9)
    assert folder == tmp_path / "all"
    assert contents(folder) == contents(whole)
    assert (files(one), files(two)) == before
    again, _ = merge([two, one], folder)
    assert (again.cells, again.new_cells, again.arrays, again.new_arrays) == (10, 0, 9, 0)
    assert contents(folder) == contents(whole)


def test_a_damaged_entry_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = made(tmp_path / "1", range(5), large=True)
    change(source, "value = ?", b'{"nll":7.5}', of=key(0))
    large = next((source / "cells").rglob("*.val"))
    large.write_bytes(large.read_bytes().replace(b"reply 7 ", b"reply 8 ", 1))
    array = source / "arrays" / f"{key(1)}.safetensors"
    array.write_bytes(array.read_bytes()[:-1] + b"\x01")
    (source / "arrays" / f"{key(2)}.safetensors").write_bytes(b"")
    before = files(source)
    assert main(["merge", str(source), "--store", str(tmp_path / "all")]) == 0
    told = capsys.readouterr()
    [note] = [line for line in told.err.splitlines() if line.startswith("note: ")]
    assert f"{source}: left out as damaged: cell {key(0)[:12]}…, " in note
    assert "and 1 more; where" in note
    assert told.out.startswith("4 cells (4 new) and 3 arrays (3 new) merged into ")
    assert len(told.out.splitlines()) == 1
    cells, arrays = contents(tmp_path / "all")
    assert set(cells) == {key(number) for number in (1, 2, 3, 4)}
    assert set(arrays) == {f"{key(number)}.safetensors" for number in (0, 3, 4)}
    assert files(source) == before
    assert main(["merge", str(source), "--store", str(tmp_path / "all"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["cells"], answer["new_cells"], answer["new_arrays"]) == (4, 0, 0)
    assert len(answer["damaged"][str(source)]) == 4


def test_what_is_damaged_in_the_target_comes_from_the_source(tmp_path: Path) -> None:
    source, target = made(tmp_path / "1", range(3)), made(tmp_path / "all", range(3))
    change(target, "value = ?", b'{"nll":7.5}', of=key(0))
    (target / "arrays" / f"{key(1)}.safetensors").write_bytes(b"x")
    found, _ = merge([source], target)
    assert (found.new_cells, found.new_arrays) == (1, 1)
    assert contents(target) == contents(source)


@pytest.mark.parametrize("where", ["two sources", "source and target"])
@pytest.mark.parametrize("what", ["cell", "arrays"])
def test_different_values_under_one_key_are_named_and_nothing_is_written(tmp_path: Path, where: str, what: str) -> None:
    one, two = made(tmp_path / "1", range(4)), made(tmp_path / "2", range(3, 6))
    with Store(two) as store:
        if what == "cell":
            store.put(key(3), {"nll": 3.1 + 1e-15, "text": "é3"})
        else:
            store.save_arrays(key(3), {"scores": np.arange(9, dtype=np.float32)}, {"selector": "lrp"})
    sources, target = ([one, two], tmp_path / "all") if where == "two sources" else ([two], one)
    before = contents(one)
    with pytest.raises(InputError, match=f"different values of {what} {key(3)}") as error:
        merge(sources, target)
    assert str(one) in str(error.value)
    assert str(two) in str(error.value)
    assert contents(target) == (({}, {}) if where == "two sources" else before) or not target.exists()


def test_what_is_no_store_of_this_version_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "all"

    def refused(source: Path, why: str) -> None:
        with pytest.raises(InputError, match=re.escape(why)):
            merge([source], target)

    refused(tmp_path / "nowhere", "is no store")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is no store")
    refused(made(target, range(1)), "is the target of --store itself")
    earlier = made(tmp_path / "earlier", range(3))
    change(earlier, "tag = NULL", of=key(1))
    refused(earlier, "without a checksum")
    unchecked = made(tmp_path / "unchecked", range(3))
    save_file({"scores": np.zeros(3)}, unchecked / "arrays" / f"{key(1)}.safetensors")
    refused(unchecked, "without a checksum")
    pickled = made(tmp_path / "pickled", range(3))
    change(pickled, "mode = 4, value = ?", pickle.dumps({"nll": 1.0}), of=key(1))
    refused(pickled, "did not write")
    other = made(tmp_path / "other", range(3))
    (other / "cells" / "cache.db").write_bytes(b"no database at all " * 100)
    refused(other, "cannot be read")
    with closing(sqlite3.connect(tmp_path / "empty" / "cache.db")) as database:
        database.execute("CREATE TABLE Cells (key TEXT)")
    (tmp_path / "foreign" / "cells").mkdir(parents=True)
    (tmp_path / "empty" / "cache.db").rename(tmp_path / "foreign" / "cells" / "cache.db")
    refused(tmp_path / "foreign", "cannot be read")
    assert set(contents(target)[0]) == {key(0)}


@pytest.mark.long
def test_a_merge_that_is_killed_leaves_whole_entries_only(tmp_path: Path) -> None:
    one, two = made(tmp_path / "1", range(400), large=True), made(tmp_path / "2", range(300, 900))
    whole = contents(made(tmp_path / "whole", range(900), large=True))
    target = tmp_path / "all"
    command = [sys.executable, "-m", "engine.cli", "merge", str(one), str(two), "--store", str(target)]
    kills = 0
    for arrays in (50, 700):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while running.poll() is None and len(list((target / "arrays").glob("[!.]*"))) < arrays:
            time.sleep(0.005)
        if running.poll() is None:
            os.kill(running.pid, signal.SIGKILL)
            kills += 1
        running.wait()
        cells, arrays_there = contents(target)
        assert all(whole[0][one] == cell for one, cell in cells.items())
        assert all(whole[1][name] == content for name, content in arrays_there.items() if not name.startswith("."))
    assert kills
    assert subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0
    assert contents(target)[0] == whole[0]
    assert {name: one for name, one in contents(target)[1].items() if not name.startswith(".")} == whole[1]
