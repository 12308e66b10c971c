"""What killed processes leave under temporary names: removed at the next write of that name, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from harmless import harmless

from engine.edits.edit import edit_of
from engine.edits.exporting import export_masked
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel
from engine.records.files import IDLE_S, sweep, temporary, write_atomic

KILLED = """
import os, signal, sys
import numpy as np
from pathlib import Path
import engine.edits.exporting as export
from engine.edits.edit import edit_of
from engine.edits.edit_effect import Change, Effect
from engine.models.checkpoints import find_checkpoint
checkpoint = find_checkpoint(sys.argv[1])
edit = edit_of(np.arange(3), int(sys.argv[3]), spec={"selector": "random", "order": "lerf", "rate": 0.1})
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
export.model_card = die  # the copy is whole by now
asked = {"shipped": {"hate": Change(120, 10, 10)}, "nats": (3.0, 3.0)}
effect = Effect(checkpoint.weights_hash(), edit.mask_hash, **asked)
export.export_masked(checkpoint, edit, Path(sys.argv[2]), effect=effect)
"""


@pytest.fixture
def dead_pid() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.long
def test_a_killed_export_is_swept_by_the_next(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    out, rows = tmp_path / "edited", tiny_llama.rows.n_rows
    command = [sys.executable, "-c", KILLED, tiny_llama.id, str(out), str(rows)]
    killed = subprocess.run(command, capture_output=True, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".edited.")
    assert left.name.endswith(".part")
    assert list(left.glob("*.safetensors"))
    edit = edit_of(np.arange(3), rows, spec={"selector": "random", "order": "lerf", "rate": 0.1})
    effect = harmless(tiny_llama.weights_hash, edit.mask_hash)
    export_masked(find_checkpoint(tiny_llama.id), edit, out, effect=effect)
    assert [path.name for path in tmp_path.iterdir()] == ["edited"]


def test_a_dead_process_left_a_manifest(tmp_path: Path, dead_pid: int) -> None:
    path = tmp_path / "manifest.json"
    for name in (f".manifest.json.{dead_pid}.part", temporary(path).name.replace(f".{os.getpid()}.", f".{dead_pid}.")):
        (tmp_path / name).write_text("half of it")
    write_atomic(path, b"{}")
    assert [found.name for found in tmp_path.iterdir()] == ["manifest.json"]


def test_what_lives_or_is_another_name_stays(tmp_path: Path, dead_pid: int) -> None:
    path = tmp_path / "manifest.json"
    stays = [
        f".manifest.json.{os.getppid()}.part",  # a process that lives
        f".manifest.json.{os.getpid()}.part",
        f".sweep.parquet.{dead_pid}.part",
        f"manifest.json.{dead_pid}.part",
        f".manifest.json.{dead_pid}.part.txt",
        ".manifest.json.part",
        ".manifest.json.x.y.1.part",
        f".manifest.json.another-machine.{dead_pid}.part",
    ]
    for name in stays:
        (tmp_path / name).write_text("x")
    assert sweep(path) == []
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted(stays)


def test_another_machines_go_when_nobody_touched_them_for_long(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    other = tmp_path / f".manifest.json.another-machine.{os.getpid()}.part"
    other.write_text("x")
    os.utime(other, times=(time.time() - IDLE_S + 60,) * 2)
    assert sweep(path) == []
    os.utime(other, times=(time.time() - IDLE_S - 60,) * 2)
    assert sweep(path) == [other]


def test_links_are_removed_and_not_followed(tmp_path: Path, dead_pid: int) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    link = tmp_path / f".out.{dead_pid}.part"
    link.symlink_to(precious)
    assert sweep(tmp_path / "out") == [link]
    assert (precious / "file").read_text() == "x"
