"""A full disk and a read-only one, under the store and under `--out`: one line, exit 2, and nothing lost by it.

The disks are real ones, of a user namespace of their own, where the system allows that; the last bytes of a database
and of a file are taken away in this process as well, which needs nothing.
"""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.cli import main
from engine.commands import common
from engine.edits.contrasts import mask_bytes
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.damage import unusable
from engine.results.store import Store

# Run as root of its own namespace: mounts `disk` anew for every case, runs the command there, then gives it room.
SCRIPT = """
import contextlib, io, json, subprocess, sys
from pathlib import Path
from engine.cli import main
disk, arguments, cases = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
told = []
def run():
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = main([one.replace("DISK", str(disk)) for one in arguments])
    return code, err.getvalue().strip().splitlines()
def remount(options):
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)
for options in cases:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)], check=True)
    if options == "ro":
        run()
        for path in (disk / "out").glob("sweep.*"):
            path.unlink()
    remount(options)
    code, lines = run()
    kept = sorted(str(path.relative_to(disk)) for path in disk.rglob("*"))
    remount("rw,size=64m")
    again, said = run()
    table = (disk / "out" / "sweep.parquet").read_bytes().hex() if (disk / "out").is_dir() else ""
    told.append([options, code, lines, kept, again, said, table])
    subprocess.run(["umount", str(disk)], check=True)
sys.stdout.write(json.dumps(told))
"""


def can_mount() -> bool:
    if not shutil.which("unshare") or not shutil.which("mount"):
        return False
    tried = ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True).returncode == 0


@pytest.mark.long
@pytest.mark.skipif(not can_mount(), reason="no disks of one's own here")
@pytest.mark.parametrize("where", ["the store", "--out"])
def test_disks_that_take_no_more(where: str, tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    disk.mkdir()
    places = ["--store", "DISK/store", "--out", str(elsewhere)]
    if where == "--out":
        places = ["--store", str(elsewhere / "store"), "--out", "DISK/out"]
    texts = ["--corpus", str(tiny_text), "--eval-corpus", str(tiny_text), "--samples", "3", "--max-length", "16"]
    sizes = ["--eval-samples", "2", "--eval-length", "16", "--rates", "0,0.3", "--selectors", "magnitude,random"]
    arguments = ["sweep", tiny_llama.id, *texts, *sizes, *places, "--json", "--device", "cpu"]
    cases = ["size=4k", "size=16k", "size=80k", "size=144k", "size=208k", "ro"]
    command = ["unshare", "-rm", sys.executable, "-c", SCRIPT, str(disk), json.dumps(arguments), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [one[0] for one in told] == cases
    failed = 0
    tables = set()
    for options, code, lines, kept, again, said, table in told:
        failed += code == 2
        assert code == (2 if lines else 0), (options, code, lines)
        if code:
            (line,) = lines
            assert str(disk) in line
            assert any(why in line for why in ("No space left", "Read-only", "full", "disk I/O"))
            assert not any(".part" in name for name in kept)
        assert (again, said) == (0, []), options
        tables.add(table)
    assert failed >= 3
    assert len(tables) == 1  # nothing that a full disk left was taken for a result


def test_a_full_database_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    """SQLite's own limit on pages fails as a full disk does."""
    with Store(tmp_path / "store") as store:
        store.put("kept", {"nll": 1.5})
        cache = store._cache
        assert cache is not None
        (pages,) = cache._sql("PRAGMA page_count").fetchone()
        cache._sql(f"PRAGMA max_page_count = {pages + 2}").fetchone()
        with pytest.raises(InputError, match=f"cannot use the store {tmp_path}/store .*full.*--store") as error:
            store.put("more", {"window_nats": list(range(10_000))})
        assert "\n" not in str(error.value)
    with Store(tmp_path / "store") as store:
        assert store.get("kept") == {"nll": 1.5}
        assert store.get("more") is None
        store.put("more", {"nll": 2.5})
        assert store.get("more") == {"nll": 2.5}
    assert not (tmp_path / "store" / "damaged").exists()


def test_arrays_and_large_cells_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = {"scores": np.arange(5, dtype=np.float32)}
    with Store(tmp_path) as store:
        store.save_arrays("kept", arrays, {})
        monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
        with pytest.raises(InputError, match="No space left"):
            store.save_arrays("more", arrays, {})
        monkeypatch.undo()
        assert store.load_arrays("kept") is not None
        assert store.load_arrays("more") is None
    assert [path.name for path in (tmp_path / "arrays").iterdir()] == ["kept.safetensors"]


def test_a_store_that_another_process_holds_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.results.cells._BUSY_S", 0.05)
    with Store(tmp_path) as store:
        store.put("kept", {"nll": 1.5})
        holder = sqlite3.connect(tmp_path / "cells" / "cache.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            assert store.get("kept") == {"nll": 1.5}
            with pytest.raises(InputError, match="another process has held it"):
                store.put("more", {"nll": 2.5})
        finally:
            holder.close()
        store.put("more", {"nll": 2.5})
        assert len(store) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EIO])
def test_a_failed_write_of_a_command_is_one_line(
    number: int, tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    out = tmp_path / "mask.safetensors"
    before = mask_bytes(np.arange(3), {"id": "a", "weights_hash": "b"}, {})
    out.write_bytes(before)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "a temporary name")

    asked = ["mask", tiny_llama.id, "--selector", "magnitude", "--rate", "0.1", "--store", str(tmp_path / "store")]
    monkeypatch.setattr("engine.records.files.os.replace", fail)
    monkeypatch.setattr("engine.results.store.write_atomic", lambda *_: None)
    assert main([*asked, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith(f"selector-audit mask: cannot read or write {out} ({os.strerror(number)})")
    assert not any("Traceback" in line for line in lines)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.glob(".*")] == []


NO_SPACE = "/dev/full"  # every write to it fails as on a full disk
SWEEP = ["sweep", "demo", "--selectors", "magnitude", "--rates", "0", "--orders", "lerf", "--device", "cpu"]
SWEEP += ["--eval-samples", "2", "--eval-length", "16"]


@pytest.mark.long
@pytest.mark.skipif(not Path(NO_SPACE).exists(), reason="no device that is always full")
def test_a_log_on_a_full_disk_loses_no_table(tmp_path: Path) -> None:
    """The log of a process, and its answer."""
    store = ["--store", str(tmp_path / "store")]
    for number, (streams, answer) in enumerate([({"stderr"}, 0), ({"stdout"}, 2)]):
        out = tmp_path / f"out-{number}"
        command = [sys.executable, "-m", "engine", *SWEEP, *store, "--out", str(out)]
        with open(NO_SPACE, "w") as full:
            kept: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            done = subprocess.run(
                command, text=True, cwd=Path(__file__).parents[2], **{**kept, **dict.fromkeys(streams, full)}
            )
        assert done.returncode == answer, done
        assert (out / "sweep.parquet").is_file()
        if streams == {"stdout"}:
            (line,) = [one for one in done.stderr.splitlines() if one.startswith("selector-audit")]
            assert "cannot write to standard output" in line
            assert "No space left" in line


class Full:
    """A stream on a full disk."""

    def __init__(self, number: int) -> None:
        self.error, self.tried = OSError(number, os.strerror(number)), 0

    def write(self, _: str) -> int:
        self.tried += 1
        raise self.error

    def flush(self) -> None:
        raise self.error

    def fileno(self) -> int:
        return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EPIPE, errno.EDQUOT])
def test_no_log_that_fails_ends_a_command(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, log = tmp_path / "mask", Full(number)
    with Store(tmp_path / "store") as store:
        store.put("kept", {"nll": 1.5})
    (tmp_path / "store" / "cells" / "cache.db").write_text("damaged, of which a note is written")
    monkeypatch.setattr(sys, "stderr", log)
    asked = ["--selector", "wanda", "--samples", "2", "--max-length", "16", "--rate", "0.1", "--device", "cpu"]
    assert main(["mask", "demo", *asked, "--store", str(tmp_path / "store"), "--out", str(out)]) == 0
    assert log.tried > 1  # the note and a bar
    assert out.is_file()
    assert sys.stderr is log


@pytest.mark.first_run("more0-28|more1-32|more0-5")
@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 2), (errno.EIO, 2), (errno.EPIPE, 1)])
@pytest.mark.parametrize("more", [["--json"], []])
def test_an_answer_that_cannot_be_written_is_one_line_and_its_file_is_there(
    number: int, code: int, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "mask"
    asked = ["--selector", "magnitude", "--rate", "0.1", "--store", str(tmp_path / "store"), "--device", "cpu"]
    with monkeypatch.context() as broken:  # undone before capsys is: later tests would write into what it captured
        broken.setattr(sys, "stdout", Full(number))
        assert main(["mask", "demo", *asked, "--out", str(out), *more]) == code
    assert out.is_file()
    common.out._buffer.clear()  # a process ends then, and its unwritten answer with it
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("selector-audit")]
    assert len(said) == (number != errno.EPIPE)
    assert all("cannot write to standard output" in line for line in said)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (sqlite3.SQLITE_FULL, "free some space"),
        (sqlite3.SQLITE_IOERR_WRITE, "free some space"),
        (sqlite3.SQLITE_READONLY, "readable and writable"),
        (sqlite3.SQLITE_READONLY_DIRECTORY, "readable and writable"),
        (sqlite3.SQLITE_CANTOPEN, "readable and writable"),
        (sqlite3.SQLITE_PERM, "readable and writable"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "end what holds it"),
        (sqlite3.SQLITE_IOERR_LOCK, "file system has no locks"),
        (sqlite3.SQLITE_IOERR_SHMMAP, "file system has no locks"),
        (sqlite3.SQLITE_PROTOCOL, "file system has no locks"),
        (sqlite3.SQLITE_NOMEM, "free some memory"),
    ],
)
def test_what_sqlite_reports_decides_what_helps(code: int, says: str, tmp_path: Path) -> None:
    error = sqlite3.OperationalError("as SQLite puts it")
    error.sqlite_errorcode = code
    line = str(unusable(tmp_path, error))
    assert "as SQLite puts it" in line
    assert says in line
    assert ("free some space" in line) == (says == "free some space")


@pytest.mark.parametrize("name", ["?mode=ro", "a#b", "%41", "file:x", ":memory:", "a;b", "'", "two\nlines", "\udcff"])
def test_names_that_mean_something_to_sqlite_are_names(name: str, tmp_path: Path) -> None:
    with Store(tmp_path / name) as store:
        store.put("kept", {"nll": 1.5})
    with Store(tmp_path / name) as store:
        assert store.get("kept") == {"nll": 1.5}
    assert (tmp_path / name / "cells" / "cache.db").is_file()


@pytest.mark.parametrize("part", ["cells", "arrays", "results", ""])
def test_a_file_in_the_place_of_a_folder_of_the_store(part: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / part).parent.mkdir(parents=True, exist_ok=True)
    (store / part).write_text("mine")
    with pytest.raises(InputError, match="is a file") as error:
        Store(store)
    assert "space" not in str(error.value)
    assert (store / part).read_text() == "mine"
