"""Several processes on one store whose index is damaged, and one that is killed while it begins a new index."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import diskcache
import pytest

from engine.records.errors import InputError
from engine.results.store import Store

ROOT = Path(__file__).parents[2]
CELLS = 40
WORKER = """
import sys
from engine.results.store import Store
with Store(sys.argv[1]) as store:
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        cell = {"number": number, "values": [number / 7] * 50}
        found = store.get(f"cell-{number}")
        if found is None:
            store.put(f"cell-{number}", cell)
        elif found != cell:
            sys.exit(f"cell {number} is {found}")
"""


def cell(number: int) -> dict[str, object]:
    return {"number": number, "values": [number / 7] * 50}


def filled(folder: Path) -> Path:
    with Store(folder) as store:
        for number in range(CELLS):
            store.put(f"cell-{number}", cell(number))
    return folder


def garbage(index: Path) -> None:
    index.write_bytes(b"no database " * 2000)


def half(index: Path) -> None:
    index.write_bytes(index.read_bytes()[: index.stat().st_size // 2])


@pytest.mark.long
@pytest.mark.parametrize("before", [True, False], ids=["damaged before they start", "damaged while they are open"])
@pytest.mark.parametrize("hurt", [garbage, half])
def test_three_processes_on_a_damaged_index(hurt: Callable[[Path], None], before: bool, tmp_path: Path) -> None:
    """None fails, none reads a wrong value, and what the last ones kept is right."""
    store = filled(tmp_path / "store")
    index = store / "cells" / "cache.db"
    if before:
        hurt(index)
    command = [sys.executable, "-c", WORKER, str(store), str(CELLS)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    if not before:
        other = index.with_name("other")
        shutil.copyfile(index, other)
        hurt(other)
        os.replace(other, index)  # as a restored backup would: what is open stays what it was
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        _, said = worker.communicate(timeout=120)
        assert worker.returncode == 0, said
        assert len(said.splitlines()) <= 1
        assert not said or said.startswith("note: damage in the store")
    with Store(store) as opened:
        found = [opened.get(f"cell-{number}") for number in range(CELLS)]
    assert [one for one in found if one is not None] == [cell(number) for number, one in enumerate(found) if one]
    assert {path.name for path in store.iterdir()} == {"cells", "arrays", "results", "damaged", ".cells.lock"}


KILLED = """
import os, signal, sys
import engine.results.cells as cells
cells.move_aside = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # the new index is made, the old one in its place
from engine.results.store import Store
with Store(sys.argv[1]) as store:
    store.get("cell-3")
"""


def test_a_kill_while_a_new_index_is_begun(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    half(store / "cells" / "cache.db")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(store)], cwd=ROOT, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    assert any(path.name.startswith(".cells.") for path in store.iterdir())
    with Store(store) as opened:
        known = [number for number in range(CELLS) if opened.get(f"cell-{number}") == cell(number)]
        assert known  # those in the half that is left
        assert all(opened.get(f"cell-{number}") is None for number in range(CELLS) if number not in known)
    assert {path.name for path in store.iterdir()} == {"cells", "arrays", "results", "damaged", ".cells.lock"}


def test_an_io_error_of_an_index_that_was_set_aside_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's files of a database that was moved lie beside another one; on the one that is open it is the disk's."""

    def fails(*_: object, **__: object) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHORT_READ
        raise error

    with Store(filled(tmp_path / "store")) as one, Store(tmp_path / "store") as other:
        real = diskcache.Cache.set
        other.close()
        other._begin_anew()  # as where it had found damage
        opened = one._cache
        monkeypatch.setattr(
            diskcache.Cache, "set", lambda self, *a, **k: fails() if self is opened else real(self, *a, **k)
        )
        one.put("new", cell(99))
        assert other.get("new") == one.get("new") == cell(99)
        assert all(other.get(f"cell-{number}") == cell(number) for number in range(CELLS))
        monkeypatch.setattr(diskcache.Cache, "set", fails)
        with pytest.raises(InputError, match="disk I/O error"):
            one.put("another", cell(100))
        assert len(list((tmp_path / "store" / "damaged").iterdir())) == 1  # none but the first
