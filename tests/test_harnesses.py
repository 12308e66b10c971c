"""Short forms of the harnesses (`python -m tests.harness`), and that each would see what it looks for."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import threading
import tomllib
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import cycles, kills, load, versions
from harness.server import Sample
from packaging.requirements import Requirement
from packaging.version import Version
from same_bits import assert_same_bits, bits

import engine.interventions.in_weights as in_weights
from engine.interventions.saved_rows import SavedRows
from engine.models.loading import LoadedModel
from engine.results.store import Store


def test_cycles_leave_every_bit(tiny_llama: LoadedModel, tiny_text: Path) -> None:
    before = bits(tiny_llama.model)
    figures = cycles.run_cycles(tiny_llama, "tiny", tiny_text, 24)
    assert figures.wrong == []
    assert (figures.cycles, figures.beside) == (24, 6)
    assert figures.interrupted
    assert len(figures.kinds) > 4
    assert_same_bits(tiny_llama.model, before)


def test_cycles_take_a_sigint_that_python_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes in the callback of a weak reference cannot end a cycle; what else fails there is still told."""
    told: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(what.exc_value))

    def drop(callback: Callable[[], object]) -> None:
        kept = cycles.Figures("dropped")
        reference = weakref.ref(kept, lambda _: callback())
        del kept
        assert reference() is None

    with cycles.sigint_as_here():
        cycles._armed[0] = True
        drop(lambda: signal.raise_signal(signal.SIGINT))
        assert not cycles._armed[0]
        drop(lambda: 1 / 0)
    assert [type(one) for one in told] == [ZeroDivisionError]


@pytest.mark.long
def test_cycles_on_all_models(tmp_path: Path, tiny_text: Path) -> None:
    for name, make in cycles.models(tmp_path).items():
        figures = cycles.run_cycles(make(), name, tiny_text, 60)
        assert figures.wrong == []
        assert figures.interrupted > 5


def test_cycles_see_a_weight_that_does_not_come_back(
    tiny_llama: LoadedModel, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of one row, once."""
    before, real, done = bits(tiny_llama.model), SavedRows.put_back, []

    def forgetful(saved: Any) -> None:
        real(saved)
        if not done:
            done.append(1)
            weight = tiny_llama.model.model.layers[0].mlp.up_proj.weight
            weight.data[3].view(torch.int32)[2] ^= 1

    monkeypatch.setattr(SavedRows, "put_back", forgetful)
    try:
        figures = cycles.run_cycles(tiny_llama, "tiny", tiny_text, 12)
    finally:
        for name, value in tiny_llama.model.state_dict().items():
            value.copy_(before[name])
    first, *_ = figures.wrong
    assert first.endswith("other weights")


def test_cycles_see_hooks_and_marks_that_are_left(tiny_llama: LoadedModel, tiny_text: Path) -> None:
    figures = cycles.Figures("tiny")
    work = cycles._Work(tiny_llama, random.Random(0), figures)
    handle = tiny_llama.model.model.layers[0].register_forward_hook(lambda *_: None)
    in_weights._masked.add(tiny_llama.model)
    try:
        work._check("now", [])
    finally:
        handle.remove()
        in_weights._masked.discard(tiny_llama.model)
    held = threading.Event()
    over = threading.Event()

    def hold() -> None:
        with tiny_llama.lock:
            held.set()
            over.wait(60)

    other = threading.Thread(target=hold)
    assert figures.wrong == ["now: hooks are left", "now: it is still marked as edited"]
    figures.wrong.clear()
    other.start()
    held.wait()
    try:
        work._check("now", [], lock_s=0.05)
    finally:
        over.set()
        other.join()
    assert figures.wrong == ["now: its lock is not free"]


@pytest.mark.long
def test_kills_at_random_moments_and_writes() -> None:
    """Real processes: a sweep, stages of a refusal run, an export."""
    figures = kills.run_kills(8, only=["sweep", "refusal select", "refusal evaluate", "export"])
    assert [one.differences for one in figures] == [[]] * 4
    assert [one.kills for one in figures] == [2] * 4
    assert all(one.well for one in figures)
    assert sum(one.at_writes for one in figures)


@pytest.mark.long
def test_a_process_dies_before_the_write_or_at_the_moment_that_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "place"
    where = ["--store", str(place / "store"), "--out", str(place / "out"), "--json"]
    command = ["score", "demo", "--selectors", "magnitude", *where]
    with closing(kills.Source(tmp_path)) as source:
        assert source.started(["rows", "demo", "--json"], place).writes == 0  # it writes nothing there
        peace = source.started(command, place)
        assert peace.code == 0, peace.said
        assert peace.writes > 5
        whole = kills.contents(place)
        assert {"out/scores.safetensors", "out/rows.parquet", "out/manifest.json"} <= whole.keys()
        for more in ({"before_write": peace.writes - 1}, {"after_s": 0.0}):
            shutil.rmtree(place)
            assert source.started(command, place, **more).code == -signal.SIGKILL
            assert kills.contents(place) != whole
            assert source.started(command, place).code == 0
            assert kills.contents(place) == whole
        assert source.started(["score", "nowhere", *where], place).code == 2


def filled(place: Path) -> Path:
    (place / "out").mkdir(parents=True)
    (place / "out" / "sweep.parquet").write_bytes(b"table")
    (place / "out" / "manifest.json").write_text('{"files": {"sweep.parquet": {"sha256": "1", "date": "d"}}}')
    with Store(place / "store") as store:
        store.put("cell", {"nll": 1.5})
        store.save_arrays("array", {"scores": np.arange(3)}, {})
    return place


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a table": (
        lambda place: (place / "out" / "sweep.parquet").write_bytes(b"tables"),
        "other bytes: out/sweep.parquet",
    ),
    "a manifest": (
        lambda place: (place / "out" / "manifest.json").write_text('{"files": {"sweep.parquet": {"sha256": "2"}}}'),
        "other bytes: out/manifest.json",
    ),
    "no table": (lambda place: (place / "out" / "sweep.parquet").unlink(), "missing: out/sweep.parquet"),
    "one more": (lambda place: (place / "store" / "damaged").write_text("x"), "more: store/damaged"),
    "an array": (
        lambda place: (place / "store" / "arrays" / "array.safetensors").write_bytes(b"x"),
        "other bytes: store/arrays/array.safetensors",
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
def test_kills_see_what_is_not_equal(tmp_path: Path, change: Callable[[Path], object], said: str) -> None:
    place, expected = filled(tmp_path / "one"), kills.contents(filled(tmp_path / "other"))
    assert kills.compared(kills.contents(place), expected) == []
    change(place)
    assert kills.compared(kills.contents(place), expected) == [said]


def test_kills_see_another_cell_and_what_is_unfinished(tmp_path: Path) -> None:
    place, expected = filled(tmp_path / "one"), kills.contents(filled(tmp_path / "other"))
    with Store(place / "store") as store:
        store.put("cell", {"nll": 1.25})
    left = place / ".exported.here.7.part"
    left.mkdir()
    (left / "model.part").write_text("x")
    (place / "out" / "manifest.json").write_text('{"files": {"sweep.parquet": {"sha256": "1", "date": "e"}}}')
    assert kills.compared(kills.contents(place), expected) == ["other bytes: cell cell"]
    assert kills.unfinished(place) == [left]


@pytest.mark.long
def test_a_short_load_mixes_nothing_and_logs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times and memory are printed by the command and judged by people."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "dashboard")
    pages = ("", "curves", "refusal", "live")
    figures = load.run_load(1.0, sessions=8, editing=2, think_s=0.001, vanishing=2, pages=pages, reloads=0.9)
    assert (figures.failed, figures.mixed, figures.log) == ([], [], [])
    assert figures.well
    assert len(figures.freed_s) == 2
    assert len(figures.edits_s) >= 2  # one of each who edits: under this load each takes about a minute
    assert len(figures.changes_s) > 20
    assert len(load.told(figures)) == 8


def test_the_percentile_is_the_least_value_that_95_of_100_do_not_exceed() -> None:
    values = list(range(1, 101))
    random.Random(0).shuffle(values)
    assert load.p95(values) == 95
    assert load.p95([3.0]) == 3.0
    assert load.p95([1.0] * 19 + [9.0]) == 1.0
    assert load.p95(values) == float(np.percentile(sorted(values), 95, method="inverted_cdf"))


def test_memory_and_threads_are_compared_after_the_warm_up_and_late_ones_are_named() -> None:
    """100 s of load: a steep warm-up, then flat, or growing by 10%."""

    def figures(late_mb: float, late_threads: int) -> load.Figures:
        samples = [
            Sample(float(at), int(1e6 * (300 + 10 * at if at < 30 else 600 if at < 70 else late_mb)), threads)
            for at in range(101)
            for threads in [40 if at < 70 else late_threads]
        ]
        return load.Figures(
            6, changes_s=[0.5], edits_s=[9.0], beyond_queue_s=[1.0], alone_s=[1.0], freed_s=[0.1], samples=samples,
            loaded_at=(0.0, 100.0),
        )  # fmt: skip

    flat = figures(600, 40)
    assert flat.growth() == (0.0, 0.0)
    assert flat.beyond() == []
    assert figures(500, 30).beyond() == []
    grown = figures(660, 44)
    assert grown.growth() == pytest.approx((0.1, 0.1))
    assert grown.beyond() == ["memory", "threads"]
    assert any("(+10.0%, wanted at most +5%)" in line for line in load.told(grown))
    slow = figures(600, 40)
    slow.changes_s, slow.freed_s = [0.5, 3.0], [2.5]
    assert slow.beyond() == ["a change", "until a vanished client's model is free"]


OF_THE_LOWEST = (
    "tests/engine/test_cli.py",
    "tests/engine/test_store.py",
    "tests/engine/test_experts.py",
    "tests/engine/test_hub.py",
    "tests/engine/test_own_tasks.py",
    "tests/dashboard/test_dashboard_growing.py",
)


@pytest.mark.long
def test_the_oldest_releases_that_are_allowed_run(tmp_path: Path) -> None:
    """All but torch, which stays at the version here; the newest are what a fresh clone installs."""
    try:
        python, installed = versions.environment(tmp_path, "lowest-direct", sys.executable)
    except versions.NotInstalledError as error:
        pytest.skip(f"no index is reached that has the releases: {error}")
    project = tomllib.loads((versions.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for one in map(Requirement, project["dependencies"]):
        (lowest,) = (Version(bound.version) for bound in one.specifier if bound.operator == ">=")
        found = Version(installed[one.name])
        assert found == lowest or one.name == "torch", f"{one.name} {found} was installed, {lowest} is allowed"
    ended = versions.tests(python, ["-n", "0", "-m", "not long and not browser", *OF_THE_LOWEST])
    assert ended.returncode == 0, ended.stdout[-5_000:]
