"""The store: JSON cells, arrays, no pickle, and a process killed in the middle of writing."""

import json
import os
import pickle
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.records.errors import InputError
from engine.records.files import write_atomic
from engine.records.hashing import cache_key
from engine.records.manifest import add_to_manifest, read_manifest
from engine.results.store import Store

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODEL = {"id": "tiny", "weights_hash": "a" * 64, "dtype": "float32"}


def test_cells_and_arrays_come_back_exactly(tmp_path):
    cell = {"window_nats": [0.1, 1e-300, 123456.789012345678], "note": "é", "none": None}
    arrays = {"scores": np.arange(7, dtype=np.float32) / 3}
    with Store(tmp_path) as store:
        assert store.get("k") is None
        assert store.load_arrays("k") is None
        store.put("k", cell)
        store.save_arrays("k", arrays, {"manifest": "{}"})
    with Store(tmp_path) as store:
        assert store.get("k") == cell
        loaded = store.load_arrays("k")
        assert loaded is not None
        np.testing.assert_array_equal(loaded["scores"], arrays["scores"])


def test_large_cells_go_to_files_and_come_back(tmp_path):
    cell = {"window_nats": list(range(400_000))}
    with Store(tmp_path) as store:
        store.put("big", cell)
        assert store.get("big") == cell


def test_folders_are_private(tmp_path):
    with Store(tmp_path / "s") as store:
        for part in (store.folder, store.folder / "cells", store.folder / "arrays"):
            assert stat.S_IMODE(part.stat().st_mode) == 0o700


def test_a_planted_pickle_is_refused_and_not_run(tmp_path):
    """An attacker who can write the database must not get code run by a reader."""
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(marker),))

    with Store(tmp_path / "s") as store:
        store.put("k", {"fine": 1})
    with closing(sqlite3.connect(tmp_path / "s" / "cells" / "cache.db")) as database, database:
        database.execute("UPDATE Cache SET mode = 4, value = ?", (pickle.dumps(Bomb()),))
    database.close()
    with Store(tmp_path / "s") as store, pytest.raises(InputError, match="did not write"):
        store.get("k")
    assert not marker.exists()


def test_nothing_in_the_database_is_pickled(tmp_path):
    with Store(tmp_path) as store:
        store.put("k", {"a": [1.5]})
    with closing(sqlite3.connect(tmp_path / "cells" / "cache.db")) as database, database:
        rows = database.execute("SELECT key, raw, mode, value FROM Cache").fetchall()
    database.close()
    assert rows == [("k", 1, 1, b'{"a":[1.5]}')]


def test_every_field_of_a_spec_changes_its_key():
    spec = {"model": {"weights_hash": "w", "dtype": "float32"}, "mask": "m", "tokens": "t", "batch_size": 4}
    base = cache_key("nll", spec)
    assert cache_key("nll", dict(reversed(spec.items()))) == base
    changed = [
        cache_key("other", spec),
        cache_key("nll", {**spec, "model": {"weights_hash": "w", "dtype": "bfloat16"}}),
        cache_key("nll", {**spec, "model": {"weights_hash": "v", "dtype": "float32"}}),
        cache_key("nll", {**spec, "mask": "n"}),
        cache_key("nll", {**spec, "tokens": "u"}),
        cache_key("nll", {**spec, "batch_size": 8}),
    ]
    assert len({base, *changed}) == 7


def test_what_was_measured_before_lxt_was_installed_counts_afterwards(monkeypatch):
    """Its absence stands for the oldest one that is taken, and only for that."""
    from engine.records import hashing

    oldest = (
        next(one for one in PROJECT["optional-dependencies"]["lrp"] if one.startswith("lxt"))
        .split(">=")[1]
        .split(",")[0]
    )
    keys = {}
    for there in (None, oldest, f"{oldest}.1"):
        versions = {"torch": "3", "transformers": "6", "lxt": there}
        monkeypatch.setattr(hashing, "installed_version", versions.get)
        keys[there] = cache_key("nll", {"mask": "m"})
    assert keys[None] == keys[oldest] != keys[f"{oldest}.1"]


def test_library_versions_are_part_of_the_key(monkeypatch):
    before = cache_key("nll", {})
    monkeypatch.setattr("engine.records.hashing.installed_version", lambda name: "0")
    assert cache_key("nll", {}) != before


def test_an_unwritable_store_says_so(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(InputError, match="give a writable folder with --store"):
        Store(blocker / "store")


def test_manifest_records_files_and_refuses_another_model(tmp_path):
    (tmp_path / "sweep.parquet").write_bytes(b"x")
    entry = add_to_manifest(tmp_path, MODEL, "sweep.parquet", {"rates": [0.1]}, 1.5)
    manifest = read_manifest(tmp_path)
    assert manifest["files"]["sweep.parquet"] == entry
    # pragma: allowlist nextline secret: a checksum
    assert entry["sha256"] == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    (tmp_path / "rows.parquet").write_bytes(b"y")
    add_to_manifest(tmp_path, MODEL, "rows.parquet", {}, 0.1)
    assert set(read_manifest(tmp_path)["files"]) == {"sweep.parquet", "rows.parquet"}
    with pytest.raises(InputError, match="give another folder with --out"):
        add_to_manifest(tmp_path, {**MODEL, "weights_hash": "b" * 64}, "rows.parquet", {}, 0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no manifest.json"),
        ("{", "not readable JSON"),
        ('{"schema_version": 99}', "upgrade"),
        ("[]", "upgrade"),
        ('{"schema_version": 1, "model": null}', "model is None, expected an object"),
        ('{"schema_version": 1, "model": []}', r"model is \[\], expected an object"),
        ('{"schema_version": 1, "files": []}', r"files is \[\], expected an object"),
        ('{"schema_version": 1, "files": {"sweep.parquet": 1}}', "sweep.parquet is 1, expected an object"),
        ("[" * 100_000, "not readable JSON"),
    ],
)
def test_broken_manifests(tmp_path, content, message):
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomic(path, b"old")

    def broken(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


WRITER = """
import sys
from engine.results.store import Store
store = Store(sys.argv[1])
n = 0
while True:
    store.put(f"cell-{n}", {"number": n, "payload": [n] * 2000})
    n += 1
    sys.stdout.write(f"{n}\\n"); sys.stdout.flush()
"""


def test_kill_9_while_writing_keeps_every_finished_cell(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    finished = 0
    deadline = time.monotonic() + 60
    while finished < 50 and time.monotonic() < deadline:
        finished = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.wait()
    process.stdout.close()
    finished = max([finished, *(int(line) for line in rest)])
    assert finished >= 50
    with Store(tmp_path) as store:
        for n in range(finished):
            assert store.get(f"cell-{n}") == {"number": n, "payload": [n] * 2000}
        extra = store.get(f"cell-{finished}")  # the one in flight: whole or absent
        assert extra is None or json.dumps(extra) == json.dumps({"number": finished, "payload": [finished] * 2000})
