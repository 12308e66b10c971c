"""Workers of a Ray cluster: the same tables as in this process, also where one is killed."""

import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_commands import SHORT, audited, tables

from engine.cli import main
from engine.data.corpora import Windows
from engine.edits.edit import rankings
from engine.interventions.kinds import prepare, prepared_with
from engine.measures.fidelity import Fidelity
from engine.measures.nll import Nll
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.ray_runner import Worker, packed, source_of
from engine.run.runner import Cell, LocalRunner

HAS_RAY = importlib.util.find_spec("ray") is not None


def edits(loaded: LoadedModel, intervention: str = "zero") -> list[Any]:
    scores = np.random.default_rng(0).normal(size=loaded.rows.n_rows).astype(np.float32)
    [ranking] = rankings({"lrp": scores}, (42,), intervention)
    return [ranking.edit("lerf", rate) for rate in (0.0, 0.1, 0.5, 1.0)]


def sent(value: Any) -> Any:
    """What arrives in another process, also where pickle is not as generous as Ray's."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - written in this line


def test_a_worker_measures_what_this_process_measures(
    tiny_llama: LoadedModel, tiny_windows: Windows, tmp_path: Path
) -> None:
    """In the form in which Ray would send it; `mean` is prepared there as it was here."""
    worker = Worker(sent(source_of(tiny_llama)))
    prepare(tiny_llama, "mean", tiny_windows)
    ready = {"mean": prepared_with(tiny_llama, "mean")}
    for measure in (Nll(tiny_windows, 2), Fidelity(tiny_windows)):
        for some in (edits(tiny_llama), edits(tiny_llama, "mean")):
            for group in [some] if isinstance(measure, Fidelity) else [[one] for one in some]:
                place, stored, _ = worker.measure(*sent((7, measure, [packed(one) for one in group], ready)))
                cells = [Cell(tiny_llama, one, measure) for one in group]
                with Store(tmp_path) as store:
                    results = LocalRunner(store).run(cells)
                    assert [store.get(cell.key) for cell in cells] == [json.loads(one) for one in stored]
                assert place == 7
                assert [measure.decode(json.loads(one)) for one in stored] == [results[cell] for cell in cells]


def test_a_worker_with_another_model_measures_nothing(tiny_llama: LoadedModel) -> None:
    source = source_of(tiny_llama)
    other = source._replace(fingerprint=source.fingerprint | {"weights_hash": "f" * 64})
    with pytest.raises(InputError, match="another model: weights_hash .* all machines the same files"):
        Worker(other).process()
    with pytest.raises(InputError, match="a Ray worker cannot load the model"):
        Worker(source._replace(model="/nowhere/at/all")).process()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--runner=cluster"], "a runner is local, ray or ray=ADDRESS"),
        (["--runner=ray="], "a runner is local, ray or ray=ADDRESS"),
        (["--runner="], "a runner is local, ray or ray=ADDRESS"),
        (["--workers=0"], "at least one worker"),
        (["--workers=two"], "at least one worker"),
    ],
)
def test_a_bad_runner_is_one_line(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_code:
        main(["sweep", "demo", *given])
    told = capsys.readouterr()
    assert exit_code.value.code == 2
    assert len(told.err.splitlines()) == 1
    assert said in told.err


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "engine.cli", *map(str, words)]


RAY = ("--runner", "ray", "--workers", "2")


@pytest.mark.long
@pytest.mark.skipif(not HAS_RAY, reason="could not import 'ray'")
def test_two_workers_write_the_tables_of_one_process(tmp_path: Path) -> None:
    analyses = ["agreement", "sweep", "differences", "protocols", "singles", "invariance"]
    [model, *options] = audited(tmp_path)
    words = ["analyze", model, *analyses, *options, *SHORT, "--device", "cpu"]
    for name, more in (("local", ()), ("ray", RAY)):
        done = subprocess.run(
            command(*words, *more, "--store", tmp_path / f"store {name}", "--out", tmp_path / name),
            capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    expected, got = tables(tmp_path / "local"), tables(tmp_path / "ray")
    assert expected.keys() == got.keys()
    assert {name for name in expected if expected[name] != got[name]} == set()
    with Store(tmp_path / "store local") as local, Store(tmp_path / "store ray") as ray:
        assert {key: local.get(key) for key in local.keys()} == {key: ray.get(key) for key in ray.keys()}  # noqa: SIM118


KILLED = """
import sys
from pathlib import Path

from engine.run import ray_runner

made = ray_runner.Pool.__init__

def noted(self, *given):
    made(self, *given)
    Path(sys.argv[1]).write_text(" ".join(map(str, self.processes)))

ray_runner.Pool.__init__ = noted
from engine.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.long
@pytest.mark.skipif(not HAS_RAY, reason="could not import 'ray'")
def test_a_worker_that_is_killed_costs_its_cells_only(tmp_path: Path) -> None:
    [model, *options] = audited(tmp_path)
    words = [
        "sweep", model, *options, "--rates", ",".join(f"{rate / 100:g}" for rate in range(0, 96)), "--device", "cpu",
    ]  # fmt: skip
    script, noted, store = tmp_path / "killed.py", tmp_path / "workers", tmp_path / "store"
    script.write_text(KILLED, encoding="utf-8")
    running = subprocess.Popen(
        [sys.executable, str(script), str(noted), *words, *RAY, "--store", str(store), "--out", str(tmp_path / "ray")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    killed: list[int] = []

    def kill() -> None:
        while running.poll() is None:
            if noted.exists() and noted.read_text() and (store / "cells" / "cache.db").exists():
                with Store(store) as kept:
                    if len(kept) > 20:  # in the middle: there are hundreds
                        os.kill(int(noted.read_text().split()[0]), signal.SIGKILL)
                        killed.append(len(kept))
                        return
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    _, told = running.communicate(timeout=900)
    thread.join()
    assert running.returncode == 0, told
    assert killed
    done = subprocess.run(
        command(*words, "--store", tmp_path / "other", "--out", tmp_path / "local"), capture_output=True, timeout=900
    )
    assert done.returncode == 0
    expected, got = tables(tmp_path / "local"), tables(tmp_path / "ray")
    assert {name for name in expected if expected[name] != got[name]} == set()
    with Store(store) as kept:
        assert killed[0] < len(kept)
