"""The progress file: always whole, not written too often, with the time left of its stage."""

import io
import json

import pytest
from rich.console import Console

from engine.cli import main
from engine.records import progress as progress_file
from engine.records.progress import ProgressFile, progress_bars


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(progress_file.time, "monotonic", lambda: now[0])
    return now


def test_time_left_follows_the_pace_of_the_stage(tmp_path, clock):
    report = ProgressFile(tmp_path / "p.json")
    report("scores", 5, 10)  # resumed: five were known before
    assert read(report) == {"stage": "scores", "done": 5, "total": 10, "seconds_left": None}
    clock[0] += 6.0
    report("scores", 7, 10)  # two in six seconds, three to go
    assert read(report)["seconds_left"] == 9.0
    report("sweep", 0, 40)
    assert read(report) == {"stage": "sweep", "done": 0, "total": 40, "seconds_left": None}


def test_writes_are_rare_but_the_last_is_never_lost(tmp_path, clock):
    report = ProgressFile(tmp_path / "p.json")
    for done in range(3):
        report("sweep", done, 3)
        clock[0] += progress_file.INTERVAL_S / 4
    assert read(report)["done"] == 0
    report("sweep", 3, 3)
    assert read(report) == {"stage": "sweep", "done": 3, "total": 3, "seconds_left": 0.0}
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_parts_of_a_command_and_the_time_left_of_all(tmp_path, clock):
    report = ProgressFile(tmp_path / "p.json")
    progress_file.begin(report, "scores", 1, 3)
    report("lrp", 0, 10)
    clock[0] += 5.0
    report("lrp", 5, 10)
    part = {"part": "scores", "number": 1, "parts": 3}
    assert read(report) == {
        "stage": "lrp", "done": 5, "total": 10, "seconds_left": 5.0, **part, "seconds_left_of_all": None,
    }  # fmt: skip
    report(progress_file.CELLS, 0, 40)
    clock[0] += 1.0
    report(progress_file.CELLS, 4, 40)
    progress_file.begin(report, "gap", 2, 3)  # at once, though nothing moves: its cells may be known
    found = read(report)
    assert (found["part"], found["number"], found["parts"]) == ("gap", 2, 3)
    assert (found["done"], found["total"]) == (4, 40)
    assert found["seconds_left_of_all"] == found["seconds_left"] == 9.0


@pytest.mark.parametrize("terminal", [False, True])
def test_plain_lines_now_and_then_where_no_bar_is_drawn(terminal):
    now, log = [100.0], io.StringIO()
    console = Console(file=log, get_time=lambda: now[0], force_terminal=terminal, width=80)
    with progress_bars(console) as report:
        for done in range(8):
            report("[b]sweep", done, 1000)
            now[0] += 4.0
    lines = [line for line in log.getvalue().splitlines() if " of " in line]  # every 12 s: a step takes 4
    wanted = ["[b]sweep: 3 of 1,000, 1:06:28 left", "[b]sweep: 6 of 1,000, 1:06:16 left"]
    assert lines == ([] if terminal else wanted)


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_command_keeps_the_file(tiny_text, tmp_path, more, capsys):
    from tiny_models import save_tiny

    folder, target = save_tiny("llama", tmp_path), tmp_path / "p.json"
    words = "--selectors magnitude --rates 0.5 --samples 2 --max-length 16 --eval-samples 2 --eval-length 16"
    places = {
        "--corpus": tiny_text, "--store": tmp_path / "store", "--out": tmp_path / "out", "--progress-file": target,
    }  # fmt: skip
    pairs = [part for option, path in places.items() for part in (option, str(path))]
    code = main(["sweep", str(folder), *words.split(), *pairs, *more])
    assert code == 0, capsys.readouterr().err
    found = json.loads(target.read_text())
    assert found["done"] == found["total"] > 0
    assert found["seconds_left"] is not None
    assert (found["part"], found["number"], found["parts"]) == ("sweep", 2, 2)
    assert found["seconds_left_of_all"] == found["seconds_left"]


def read(report):
    return json.loads(report.path.read_text())
