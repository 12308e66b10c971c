"""Every kind of file of a store, damaged in every way: computed again to equal values with one note, or one line.

`run` stands for a command: it takes what the store has and computes the rest. After each harm it must give the values
of the first run, have said one note, have kept the damaged entry, and find everything in order the next time.
"""

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from engine.records.errors import InputError
from engine.results import damage
from engine.results.store import Store, checksum as array_checksum

CELLS: dict[str, dict[str, Any]] = {
    f"{number:x}" * 64: {"window_nats": [number + 0.1, 7.25, 1e-300], "text": f"é{number}"} for number in range(6)
}
FIRST, SECOND = list(CELLS)[:2]
LARGE = "f" * 64  # beyond what stands in the database itself
LARGE_CELL: dict[str, Any] = {"replies": [f"reply {number} of many" for number in range(60_000)]}
ARRAYS = {
    name * 64: {"scores": np.arange(40, dtype=np.float32) / 7 + number, "other": np.arange(3)}
    for number, name in enumerate("ab")
}
ARRAY, OTHER_ARRAY = ARRAYS


def run(folder):
    """The values, in one text, and how many of them had to be computed."""
    damage.new_run()
    computed, values = 0, []
    with Store(folder) as store:
        for key, cell in {**CELLS, LARGE: LARGE_CELL}.items():
            found = store.get(key)
            if found is None:
                store.put(key, cell)
                computed, found = computed + 1, cell
            values.append(json.dumps(found))
        for key, arrays in ARRAYS.items():
            kept = store.load_arrays(key)
            if kept is None:
                store.save_arrays(key, arrays, {"selector": "lrp"})
                computed, kept = computed + 1, arrays
            values += [f"{name} {kept[name].dtype} {kept[name].tolist()}" for name in sorted(kept)]
    return "\n".join(values), computed


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A store that a run has filled, what it gave, and the bytes of its array files."""
    folder = tmp_path_factory.mktemp("whole") / "store"
    values, computed = run(folder)
    assert computed == len(CELLS) + 1 + len(ARRAYS)
    assert run(folder) == (values, 0)
    return folder, values, {path.name: path.read_bytes() for path in (folder / "arrays").iterdir()}


@pytest.fixture
def store(whole, tmp_path):
    return Path(shutil.copytree(whole[0], tmp_path / "store"))


def database(store):
    return store / "cells" / "cache.db"


def large_file(store):
    return next((store / "cells").rglob("*.val"))


def array_file(store):
    return store / "arrays" / f"{ARRAY}.safetensors"


def change_cell(store, assignment, *values, key=FIRST):
    with closing(sqlite3.connect(database(store))) as found, found:
        assert found.execute(f"UPDATE Cache SET {assignment} WHERE key = ?", (*values, key)).rowcount == 1


def cell_value(store, key=FIRST):
    with closing(sqlite3.connect(database(store))) as found:
        return found.execute("SELECT value, tag FROM Cache WHERE key = ?", (key,)).fetchone()


def set_bytes(change):
    """A harm to a file: its bytes become `change(bytes)`."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def flipped(share, bit=0):
    """One bit of the byte at this share of the length (a number from 1: at this place)."""

    def flip(content):
        place = share if isinstance(share, int) else min(int(len(content) * share), len(content) - 1)
        return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]

    return flip


def folder_instead(path):
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def loop_instead(path):
    path.unlink()
    path.symlink_to(path.name)


def pipe_instead(path):
    path.unlink()
    os.mkfifo(path)


FILE_HARMS = {
    "emptied": set_bytes(lambda content: b""), "one byte left": set_bytes(lambda content: content[:1]),
    "cut at 9": set_bytes(lambda content: content[:9]),
    "cut in half": set_bytes(lambda content: content[: len(content) // 2]),
    "last byte gone": set_bytes(lambda content: content[:-1]), "first bit flipped": set_bytes(flipped(0)),
    "bit flipped in the middle": set_bytes(flipped(0.5, 3)), "last bit flipped": set_bytes(flipped(1.0, 7)),
    "garbage": set_bytes(lambda content: bytes(range(256)) * 40),
    "zeros": set_bytes(lambda content: bytes(len(content))), "JSON": set_bytes(lambda content: b'{"window_nats": 3}'),
    "half JSON": set_bytes(lambda content: b'{"window_nats": [1.'), "a folder": folder_instead,
    "a link to itself": loop_instead, "a pipe": pipe_instead,
}  # fmt: skip


def check(store, whole, capsys, computed):
    """One run: equal values, one note with the store's name, what was damaged is kept. Then all is in order again."""
    capsys.readouterr()
    values, again = run(store)
    assert values == whole[1]
    assert again == computed
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith(f"note: damage in the store {store}")
    assert list((store / "damaged").iterdir())
    assert run(store) == (values, 0)
    assert capsys.readouterr().err == ""
    assert {path.name: path.read_bytes() for path in (store / "arrays").iterdir()} == whole[2]


@pytest.mark.parametrize("harm", FILE_HARMS.values(), ids=FILE_HARMS)
def test_an_array_file_is_set_aside(store, whole, capsys, harm):
    harm(array_file(store))
    hurt = array_file(store)
    content = hurt.read_bytes() if hurt.is_file() else None
    check(store, whole, capsys, 1)
    (kept,) = (store / "damaged").iterdir()
    assert kept.name == hurt.name
    assert content is None or kept.read_bytes() == content


@pytest.mark.parametrize("place", [0, 3, 7, 8, *range(20, 440, 20)])
def test_a_bit_anywhere_in_an_array_file(store, whole, capsys, place):
    """Sizes, names, types and numbers; a bit in what stands beside them for people changes no value."""
    content = array_file(store).read_bytes()
    numbers = 8 + int.from_bytes(content[:8], "little")
    array_file(store).write_bytes(flipped(place, place % 8)(content))
    capsys.readouterr()
    values, computed = run(store)
    notes = capsys.readouterr().err.splitlines()
    assert values == whole[1]
    assert len(notes) == computed <= 1
    if place < 8 or place >= numbers:
        assert computed == 1


def test_arrays_of_another_key_or_another_content(store, whole, capsys):
    shutil.copyfile(store / "arrays" / f"{OTHER_ARRAY}.safetensors", array_file(store))
    check(store, whole, capsys, 1)
    arrays = load_file(array_file(store))
    arrays["scores"][3] += 1
    told = {"selector": "lrp", "sha256": array_checksum(ARRAY, ARRAYS[ARRAY])}
    array_file(store).write_bytes(save(arrays, metadata=told))
    shutil.rmtree(store / "damaged")
    check(store, whole, capsys, 1)


CELL_HARMS: dict[str, tuple[Any, ...]] = {
    "one digit": ("value = replace(value, '7.25', '7.35')",),
    "one letter": ("value = replace(value, 'window', 'Window')",), "emptied": ("value = ?", b""),
    "cut in half": ("value = substr(value, 1, length(value) / 2)",),
    "last byte gone": ("value = substr(value, 1, length(value) - 1)",),
    "half JSON": ("value = ?", b'{"window_nats": [0.1, 7.'), "a list": ("value = ?", b"[1, 2]"),
    "a number": ("value = ?", b"3"), "null": ("value = ?", b"null"),
    "another type": ("value = ?", b'{"window_nats": "abc", "text": 3}'),
    "nested too deep": ("value = ?", b"[" * 100_000), "no Unicode": ("value = ?", b"\xff\xfe{"),
    "SQL number": ("value = ?", 10**12), "SQL null": ("value = NULL",), "SQL text": ("value = ?", "{}"),
    "another checksum": ("tag = ?", "0" * 64), "checksum of another type": ("tag = ?", 7),
    "mode of a file": ("mode = 2",), "unknown mode": ("mode = 9",), "mode of another type": ("mode = 'x'",),
    "file outside the store": ("mode = 2, filename = ?", "/etc/hostname"),
    "file above the store": ("mode = 2, filename = ?", "../../outside"),
}  # fmt: skip


@pytest.mark.parametrize("harm", CELL_HARMS.values(), ids=CELL_HARMS)
def test_a_cell_is_set_aside(store, whole, capsys, harm):
    outside = store.parent / "outside"
    outside.write_text("not the store's")
    change_cell(store, *harm)
    check(store, whole, capsys, 1)
    assert outside.read_text() == "not the store's"  # neither read into the store nor deleted with the entry
    assert b"not the store's" not in b"".join(path.read_bytes() for path in (store / "damaged").iterdir())


def test_a_whole_cell_of_another_key_is_damage(store, whole, capsys):
    value, tag = cell_value(store, SECOND)
    change_cell(store, "value = ?, tag = ?", value, tag)
    check(store, whole, capsys, 1)


# A pipe under the random name of such a file is nobody's accident.
LARGE_FILE_HARMS = {name: harm for name, harm in FILE_HARMS.items() if harm is not pipe_instead}


@pytest.mark.parametrize("harm", LARGE_FILE_HARMS.values(), ids=LARGE_FILE_HARMS)
def test_the_file_of_a_large_cell(store, whole, capsys, harm):
    harm(large_file(store))
    check(store, whole, capsys, 1)


def test_a_missing_file_of_a_large_cell(store, whole, capsys):
    large_file(store).unlink()
    check(store, whole, capsys, 1)


INDEX_HARMS = {name: harm for name, harm in FILE_HARMS.items() if harm not in (pipe_instead, loop_instead)}
QUIET = ("last bit flipped", "bit flipped in the middle", "last byte gone")  # they may hit what holds nothing


@pytest.mark.parametrize("name", INDEX_HARMS)
def test_the_index(store, whole, capsys, name):
    content = database(store).read_bytes()
    INDEX_HARMS[name](database(store))
    capsys.readouterr()
    values, computed = run(store)
    notes = capsys.readouterr().err.splitlines()
    assert values == whole[1]
    if name not in QUIET:
        assert len(notes) == 1
        assert computed <= len(CELLS) + 1  # never an array
        (kept,) = (store / "damaged").iterdir()
        assert kept.name == "cells"
        hurt = kept / "cache.db"
        assert hurt.is_dir() or hurt.read_bytes()[:100] != content[:100] or hurt.stat().st_size < len(content)
    assert len(notes) <= 1
    assert run(store) == (values, 0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("seed", range(12))
def test_a_bit_anywhere_in_the_index(store, whole, capsys, seed):
    """Equal values whatever it hits, and at most one note: bits of empty space change nothing."""
    generator = np.random.default_rng(seed)
    size = database(store).stat().st_size
    place, bit = int(generator.integers(size)), int(generator.integers(8))
    database(store).write_bytes(flipped(place, bit)(database(store).read_bytes()))
    capsys.readouterr()
    values, _ = run(store)
    assert values == whole[1]
    assert len(capsys.readouterr().err.splitlines()) <= 1
    assert run(store) == (values, 0)


def test_cells_that_are_right_are_taken_over_from_a_damaged_index(store, whole, capsys):
    content = database(store).read_bytes()
    database(store).write_bytes(flipped(content.index(b"CREATE UNIQUE INDEX Cache_key_raw"), 3)(content))
    check(store, whole, capsys, 0)


def test_an_index_of_other_tables(store, whole, capsys):
    database(store).unlink()
    with closing(sqlite3.connect(database(store))) as other, other:
        other.execute("CREATE TABLE Cache (key TEXT, raw INTEGER)")
        other.execute("INSERT INTO Cache VALUES (?, 1)", (FIRST,))
    check(store, whole, capsys, len(CELLS) + 1)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("content", [b"", b"x", bytes(range(256)) * 200])
def test_what_sqlite_left_beside_the_index(store, whole, capsys, suffix, content):
    """A kill leaves such files, torn ones too: SQLite reads what is whole of them and says nothing, nor do we."""
    database(store).with_name(f"cache.db{suffix}").write_bytes(content)
    assert run(store) == (whole[1], 0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("part", ["cells", "arrays", "damaged"])
def test_a_file_in_the_place_of_a_folder_is_one_line(store, part):
    if part == "damaged":
        array_file(store).write_bytes(b"x")
    shutil.rmtree(store / part, ignore_errors=True)
    (store / part).write_text("x")
    with pytest.raises(InputError, match=str(store)) as error:
        run(store)
    assert "--store" in str(error.value)
    assert "\n" not in str(error.value)


def test_several_damages_are_told_once_a_run(store, whole, capsys):
    for key in (FIRST, SECOND):
        change_cell(store, "value = ?", b"{}", key=key)
    array_file(store).write_bytes(b"")
    check(store, whole, capsys, 3)
    assert len(list((store / "damaged").iterdir())) == 3


def test_a_pickle_in_the_index_is_refused_by_name(store):
    change_cell(store, "mode = 4, value = ?", b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InputError, match=f"{store}/cells holds an entry that this software did not write"):
        run(store)


def test_entries_without_a_checksum_are_taken_as_they_are(store, whole, capsys):
    """As versions wrote them that had none: nothing is said, nothing is computed, nothing is vouched for."""
    with closing(sqlite3.connect(database(store))) as found, found:
        found.execute("UPDATE Cache SET tag = NULL")
    for key, arrays in ARRAYS.items():
        (store / "arrays" / f"{key}.safetensors").write_bytes(save(arrays, metadata={"selector": "lrp"}))
    before = cell_value(store)
    assert run(store) == (whole[1], 0)
    assert cell_value(store) == before
    assert capsys.readouterr().err == ""
    change_cell(store, "value = substr(value, 1, 9)")  # what cannot be read is damage in any version
    with Store(store) as opened:
        assert opened.get(FIRST) is None
        assert opened.load_arrays(ARRAY, lambda found: "scores" in found) is not None
        assert opened.load_arrays(ARRAY, lambda found: "c_comply" in found) is None
    assert len(list((store / "damaged").iterdir())) == 2
