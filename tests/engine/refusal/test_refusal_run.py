"""`refusal run`: the stages by one command, what it says beforehand, and the same bytes after a kill."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from refusal_helpers import count_generations, small_run, tables_of
from stage_options import read_by

from engine.cli import build_parser, main
from engine.measures.nll import Nll
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel
from engine.records import progress
from engine.records.manifest import read_manifest
from engine.results.store import Store
from engine.run.field_types import settings_of
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import LocalRunner, Pace, told
from engine.studies.base import conduct
from engine.studies.conduct import at_pace
from engine.studies.refusal.points import Chosen, Controlled

STAGES = ("calibrate", "sweep", "select", "structure", "control", "evaluate")
PLAN = ["--selectors", "lrp,random", "--domains", "hate,crime", "--pairs-per-domain", "4", "--samples", "4"]
PLAN += ["--max-length", "32", "--reply-tokens", "8", "--heldout-pairs", "2", "--lambdas", "0.5"]
PLAN += ["--ks", "0.01,0.02", "--eval-samples", "2", "--eval-length", "64", "--seeds", "1", "--benign-limit", "0.4"]
PLAN += ["--longer-replies", "1"]


def command(name: str, folder: Path, *more: str) -> list[str]:
    where = ["--store", str(folder / "store"), "--out", str(folder / "out")]
    return ["refusal", name, "demo", *read_by(name, PLAN), *more, *where]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the manifest, which has dates and seconds, and what a kill left of a file under way."""
    files = [path for path in (folder / "out").iterdir() if not path.name.startswith(".")]
    return {path.name: path.read_bytes() for path in files if path.name != "manifest.json"}


def options_of(name: str) -> set[str]:
    parser: Any = build_parser()
    for part in ("refusal", name):
        actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        parser = actions[0].choices[part]
    return set(parser._option_string_actions)


def test_a_run_takes_every_option_of_the_plan():
    wanted = {one.option for one in settings_of(RefusalPlan) if one.option}
    assert wanted | {"--store", "--out", "--json", "--device", "--dtype", "--revision"} <= options_of("run")


def progress_of(patch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All that is written into progress files from now on."""
    said: list[dict[str, Any]] = []
    write = progress.write_atomic

    def noted(path: Path, content: bytes, *kind: Any) -> None:
        said.append(json.loads(content))
        write(path, content, *kind)

    patch.setattr(progress, "write_atomic", noted)
    return said


@pytest.mark.long
def test_one_command_writes_what_the_stages_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    whole, single = tmp_path / "whole", tmp_path / "single"
    with pytest.MonkeyPatch.context() as patch:
        said = progress_of(patch)
        assert main([*command("run", whole), "--json", "--progress-file", str(tmp_path / "progress.json")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer["seconds"]) == ["calibrate", "sweep", "structure", "control", "evaluate"]
    parts = dict.fromkeys((one["number"], one["parts"], one["part"]) for one in said)
    assert list(parts)[-5:] == [(place, 5, name) for place, name in enumerate(answer["seconds"], start=1)]
    totals = [one["total"] for one in said[:-1] if one["stage"] == "cells" and one["number"] > 1]
    assert totals == sorted(totals)  # the bar is over all cells that there may be, until the last one is done
    assert all(one["seconds_left_of_all"] == one["seconds_left"] for one in said if one["stage"] == "cells")
    for stage in STAGES:
        assert main([*command(stage, single), "--json"]) == 0
    found, expected = contents(whole), contents(single)
    assert found.keys() == expected.keys()
    assert {name for name in found if found[name] != expected[name]} == set()
    assert [Path(path).name for path in answer["masks"]] == sorted(name for name in found if name.startswith("mask-"))
    assert len(answer["operating_points"]) == 4

    capsys.readouterr()
    generated = count_generations(monkeypatch)
    assert main(command("run", whole)) == 0  # again: nothing is computed, and people see what was found
    assert not generated
    captured = capsys.readouterr()
    for stage in ("calibrate", "sweep", "structure", "control", "evaluate"):
        assert re.search(rf"^{stage}: .+; \d+ s$", captured.err, flags=re.MULTILINE), stage
    assert re.search(r"^sweep: at most (\d+) cells: \1 known, 0 to compute$", captured.err, flags=re.MULTILINE)
    assert "selector-audit export demo --mask" in captured.out
    assert f"selector-audit dashboard --store {whole / 'out'}" in captured.out
    assert contents(whole) == found


@pytest.mark.long
def test_the_forecast_is_an_upper_bound_that_the_grid_attains(demo: LoadedModel, tmp_path: Path):
    """Cells counted beforehand against those that a sweep without cap computes."""
    with Store(tmp_path) as store:
        run = small_run(demo, store, all_cells=True)
        runner = LocalRunner(store)
        swept, points = at_pace(Controlled(run), run, runner)
        assert swept.seconds is not None
        assert swept.seconds > 0
        assert points.seconds is not None
        conduct(Chosen(run), run, runner)
        assert len(runner.results._found) >= swept.known + swept.to_compute
        # per domain: lrp has 4 cells, random 2, each with NLL and verdicts; the unedited model's NLL is shared
        assert swept.known + swept.to_compute == 1 + 2 * (1 + 2 * (4 + 2))
        assert points.to_compute == 2 * 2 * 2 * (1 + 2 * len(run.plan.control_seeds))
        again, _ = at_pace(Controlled(run), run, runner)
        assert (again.to_compute, again.seconds) == (0, 0.0)
        keys = store.keys()  # the grid is known: the probe measures one of each kind, and changes nothing
        before = {key: store.get(key) for key in keys}
        _, points = at_pace(Controlled(run), run, LocalRunner(store))
        assert points.to_compute
        assert points.seconds
        assert {key: store.get(key) for key in keys} == before
        assert len(store) == len(before)
        tables_of(Controlled(run), run)
        known, points = at_pace(Controlled(run), run, LocalRunner(store))
        assert (known.to_compute, points.to_compute, points.known > 0) == (0, 0, True)


def test_a_pace_is_seconds_by_work():
    pace, few, many = Pace(), Replies(("a", "b"), 5, 4), Replies(("a",) * 6, 5, 4)
    assert pace.seconds([few]) is None
    pace.add(few, 3, 12.0)  # two prompts under three edits
    assert pace.seconds([few, many]) == pytest.approx(4.0 + 12.0)
    pace.add(many, 1, 0.0)
    assert pace.seconds([few]) == pytest.approx(2.0)
    windows: Any = type("Windows", (), {"sample_ids": (0, 1, 2)})
    assert pace.seconds([few, Nll(windows)]) is None
    said = ["about 1 s", "about 70 s", "about 10 min", "about 2.5 h"]
    assert [told(seconds) for seconds in (0.2, 70, 600, 9000)] == said


def test_what_cannot_be_composed_is_said_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    generated = count_generations(monkeypatch)
    for domains, message in (("hate", "at least two domains"), ("hate,crimes", "did you mean 'crime'")):
        assert main([*command("run", tmp_path), "--compose", domains]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not generated


@pytest.mark.long
def test_a_killed_run_ends_with_the_bytes_of_an_uninterrupted_one(tmp_path: Path):
    """A real process, killed outright in the middle of two stages, one after the other, then run to its end."""
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    for waited_for in ("contrast.safetensors", "refusal_controls.parquet"):
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.cli", *command("run", cut), "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ,
        )  # fmt: skip
        ends = time.monotonic() + 120
        while not (cut / "out" / waited_for).exists() and process.poll() is None and time.monotonic() < ends:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, f"it ended before {waited_for} could be waited for"
    assert not (cut / "out" / "transfer.parquet").exists()
    for folder in (cut, whole):
        assert main([*command("run", folder), "--json"]) == 0
    assert contents(cut) == contents(whole)
    assert set(read_manifest(cut / "out")["files"]) == set(contents(cut))
    assert pl.read_parquet(cut / "out" / "operating_points.parquet").height == 4
