"""Jobs: the command they stand for, progress, failing, cancelling (also one that will not stop), resuming."""

import os
import time

import pytest

from dashboard.state import jobs
from engine.cli import build_parser
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

LIMIT_S = 240  # a run imports torch, which takes long on a busy machine


def request(tmp_path, model="demo", **more):
    return jobs.analysis(model, ("sweep",), tmp_path / "out", "quick", **more)


def wait(job, *states):
    end = time.monotonic() + LIMIT_S
    while job.state not in states:
        assert time.monotonic() < end, (job.state, job.progress, job.message)
        time.sleep(0.05)


def test_the_command_is_one_that_parses_and_no_value_becomes_an_option(tmp_path):
    made = request(
        tmp_path, "my model", options=(("--corpus", "--json"), ("--samples", "4"), ("--selectors", "")),
        store=tmp_path / "store",
    )  # fmt: skip
    args = build_parser().parse_args(made.arguments())
    assert (args.model, args.analyses, args.preset) == ("my model", ["sweep"], "quick")
    assert (args.corpus, args.samples, args.selectors, args.json) == ("--json", 4, None, False)
    assert (args.out, args.store) == (tmp_path / "out", tmp_path / "store")
    assert made.command.startswith("selector-audit analyze 'my model' sweep --preset=quick")
    for wrong in ("", "--json"):
        with pytest.raises(InputError, match="the model is"):
            request(tmp_path, wrong).arguments()
    with pytest.raises(InputError, match="at least one"):
        jobs.analysis("demo", (), tmp_path, "quick").arguments()


@pytest.mark.long
def test_a_run_is_cancelled_and_goes_on_from_there(registry, tiny_text, tmp_path):
    from tiny_models import save_tiny

    sizes = {"--samples": "4", "--max-length": "16", "--eval-samples": "8", "--eval-length": "16"}
    options = {"--corpus": str(tiny_text), **sizes, "--selectors": "random,magnitude,wanda"}
    made = request(
        tmp_path, str(save_tiny("llama", tmp_path)), options=tuple(options.items()), store=tmp_path / "store"
    )
    job = registry.start(made)
    assert job.progress is None
    with pytest.raises(InputError, match="under way"):
        registry.start(made)
    end = time.monotonic() + LIMIT_S
    while job.progress is None:
        assert job.active, job.message
        assert time.monotonic() < end
        time.sleep(0.01)
    assert set(job.progress) >= {"stage", "done", "total", "seconds_left"}
    registry.cancel(job)
    assert job.state in ("cancelling", "cancelled", "done")  # `done`: it was faster than we
    wait(job, "cancelled", "done")
    again = registry.resume(job)
    assert registry.all() == [again]
    assert not job.files.exists()
    wait(again, "done", "failed")
    assert again.state == "done", again.message
    assert again.skipped == {}
    assert "sweep.parquet" in read_manifest(tmp_path / "out")["files"]
    registry.forget(again)
    assert registry.all() == []
    assert not again.files.exists()


def test_a_failed_run_says_why(registry, child, tmp_path):
    child("import sys; sys.exit('first line\\nselector-audit analyze: there is no model x; give one\\n')")
    job = registry.start(request(tmp_path))
    wait(job, "failed")
    assert job.message == "selector-audit analyze: there is no model x; give one"
    assert registry.start(request(tmp_path)).id != job.id


def test_the_duration_of_a_run_that_nobody_watched_ends_with_it(registry, child, tmp_path):
    child("pass")
    job = registry.start(request(tmp_path))
    end = time.monotonic() + LIMIT_S
    while job.ended_s is None:  # set though nobody asks for the state
        assert time.monotonic() < end
        time.sleep(0.01)
    elapsed_s = job.elapsed_s
    time.sleep(0.05)
    assert job.elapsed_s == elapsed_s


def test_a_child_that_ignores_interrupts_is_ended(registry, child, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "GRACE_S", 0.4)
    child(
        "import signal, time\n"
        "for kind in (signal.SIGINT, signal.SIGTERM): signal.signal(kind, signal.SIG_IGN)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    job = registry.start(request(tmp_path))
    while not (job.files / "stdout").read_bytes():
        time.sleep(0.01)
    registry.cancel(job)
    assert job.state == "cancelling"
    registry.forget(job)
    assert registry.all() == [job]  # only what has ended is dropped
    wait(job, "cancelled")
    assert job.process.poll() == -9


def test_a_server_that_stops_leaves_no_child(child, tmp_path):
    child("import time; time.sleep(600)")
    registry = jobs.Jobs()
    job = registry.start(request(tmp_path))
    registry.close()
    with pytest.raises(ProcessLookupError):
        os.kill(job.process.pid, 0)
    assert not job.files.exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", "null"])
def test_half_a_progress_file_is_none(registry, child, tmp_path, content):
    child("import time; time.sleep(600)")
    job = registry.start(request(tmp_path))
    (job.files / "progress.json").write_text(content)
    assert job.progress is None
    assert job.skipped == {}
