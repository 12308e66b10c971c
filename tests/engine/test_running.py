"""Runs under way on a store: alone by their names, known to others, stoppable, and ended with whoever started them."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.commands.common import _names
from engine.records import processes
from engine.records.errors import InputError
from engine.records.processes import OwnFolder, remove_left
from engine.results.running import FOLDER, claimed, running, stop

HOLDS = """
import sys, time
from pathlib import Path
from engine.results.running import claimed
with claimed(Path(sys.argv[1]), sys.argv[2:], ["analyze", "a model", "sweep"]):
    print("held", flush=True)
    time.sleep(60)
"""
LEASHED = """
import sys, time, subprocess
from engine.records import processes
processes.GRACE_S = 0.2
processes.end_with_stdin()
print("ready", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    if sys.argv[1] == "stubborn":
        time.sleep(60)
"""
SERVER = """
import subprocess, sys, time
words = [sys.executable, "-c", sys.argv[1], sys.argv[2]]
child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def holder(store, *names):
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(store), *names], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process, kind=signal.SIGKILL):
    process.send_signal(kind)
    process.wait(20)
    process.stdout.close()


def test_the_same_run_is_refused_by_name_of_its_process_and_known_until_it_ends(tmp_path):
    process = holder(tmp_path, "plan", "folder")
    try:
        told = rf"process {process.pid}, since .*analyze 'a model' sweep"
        with pytest.raises(InputError, match=told) as caught, claimed(tmp_path, ["other", "folder"], []):
            pass
        assert "\n" not in str(caught.value)
        with claimed(tmp_path, ["other"], ["score", "demo"]):
            assert {one.pid for one in running(tmp_path)} == {process.pid, os.getpid()}
        (known,) = running(tmp_path)
        assert known.here
        assert known.command == "selector-audit analyze 'a model' sweep"
    finally:
        end(process)
    assert running(tmp_path) == []
    assert list((tmp_path / FOLDER).glob("*.json")) == []
    with claimed(tmp_path, ["plan", "folder"], []):
        pass


def test_a_run_is_stopped_and_no_other_process_of_its_number(tmp_path):
    process = holder(tmp_path, "plan")
    try:
        (known,) = running(tmp_path)
        for wrong in (
            replace(known, started="1"),
            replace(known, machine="elsewhere"),
            replace(known, pid=os.getpid()),
        ):
            with pytest.raises(InputError, match="cannot be stopped from here"):
                stop(tmp_path, wrong)
        stop(tmp_path, known, grace_s=1)  # an interrupt is passed over where this runs in the background
        process.wait(20)
        assert running(tmp_path) == []
        with pytest.raises(InputError, match="is over"):
            stop(tmp_path, known)
    finally:
        end(process)


def test_a_run_is_the_same_however_it_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    first = {
        "command": "analyze", "model": "./models", "analyses": ["a", "b"], "samples": 4, "out": Path("x"), "run": end,
    }  # fmt: skip
    whole, tables = _names(argparse.Namespace(**first), Path("x"))
    other = first | {"model": str(tmp_path / "models"), "analyses": ["b", "a"], "out": Path("y"), "json": True}
    assert _names(argparse.Namespace(**other), Path("y"))[0] == whole
    assert _names(argparse.Namespace(**first | {"samples": 8}), tmp_path / "x")[1] == tables
    assert _names(argparse.Namespace(**first | {"samples": 8}), Path("x"))[0] != whole
    assert _names(argparse.Namespace(**first | {"analyses": ["a"]}), Path("x"))[1] != tables
    assert _names(argparse.Namespace(**first), Path("y"))[1] != tables


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("how", ["polite", "stubborn"])
def test_a_process_ends_with_a_server_that_is_killed(how):
    server = subprocess.Popen([sys.executable, "-c", SERVER, LEASHED, how], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    end(server)
    until = time.monotonic() + 10
    while _alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _alive(pid)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_folders_of_killed_processes_are_removed_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = OwnFolder("ours-")
    (mine.path / "job").mkdir()
    code = "import sys, os, tempfile; tempfile.tempdir = sys.argv[1]\nfrom engine.records.processes import OwnFolder\n"
    code += "print(OwnFolder('ours-').path, flush=True); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    left = Path(killed.stdout.strip())
    (left / "log").write_text("x")
    (tmp_path / "ours-without-a-lock").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / processes._LOCK).touch()
    (tmp_path / "ours-link").symlink_to(tmp_path / "theirs")
    assert remove_left("ours-") == [left]
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {
        mine.path.name, "ours-without-a-lock", "theirs", "ours-link",
    }  # fmt: skip
    assert (mine.path / "job").is_dir()
    mine.close()
    assert not list(tmp_path.glob("ours-*[0-9a-z_]/job"))
