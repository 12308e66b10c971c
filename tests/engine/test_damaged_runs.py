"""A command on a store in which every entry is damaged: the table of the first run, and one note."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.cli import main
from engine.models.loading import LoadedModel


def flip_arrays(store: Path) -> None:
    """One bit of the numbers in every file."""
    for path in (store / "arrays").iterdir():
        content = bytearray(path.read_bytes())
        content[-3] ^= 4
        path.write_bytes(content)


def change_digits(store: Path) -> None:
    """The first digit behind a point in every cell."""
    with closing(sqlite3.connect(store / "cells" / "cache.db")) as found, found:
        rows = found.execute("SELECT rowid, value FROM Cache").fetchall()
        for rowid, value in rows:
            place = value.index(b".") + 1
            digit = b"%d" % ((int(value[place : place + 1]) + 1) % 10)
            value = value[:place] + digit + value[place + 1 :]
            found.execute("UPDATE Cache SET value = ? WHERE rowid = ?", (value, rowid))


def garbage_index(store: Path) -> None:
    (store / "cells" / "cache.db").write_bytes(b"not a database " * 100)


def both(store: Path) -> None:
    flip_arrays(store)
    change_digits(store)


@pytest.mark.first_run("both")
@pytest.mark.parametrize("hurt", [flip_arrays, change_digits, garbage_index, both])
def test_a_sweep_on_a_damaged_store_gives_the_same_table(
    hurt: Callable[[Path], None], tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    texts = ["--corpus", tiny_text, "--eval-corpus", tiny_text, "--samples", "3", "--max-length", "16"]
    sizes = ["--eval-samples", "2", "--eval-length", "16", "--rates", "0,0.3", "--selectors", "wanda,magnitude"]
    store = tmp_path / "store"

    def sweep(out: Path) -> tuple[bytes, list[str]]:
        arguments = ["sweep", tiny_llama.id, *texts, *sizes, "--store", store, "--out", out, "--json"]
        assert main([str(one) for one in arguments]) == 0
        told = capsys.readouterr()
        assert json.loads(told.out)
        return (out / "sweep.parquet").read_bytes(), told.err.splitlines()

    first = sweep(tmp_path / "first")
    assert first[1] == []
    hurt(store)
    again = sweep(tmp_path / "again")
    assert again[0] == first[0]
    (note,) = again[1]
    assert note.startswith(f"note: damage in the store {store}")
    shutil.rmtree(store / "damaged")
    assert sweep(tmp_path / "last") == first  # nothing is damaged any more, nothing is told
    assert not (store / "damaged").exists()
