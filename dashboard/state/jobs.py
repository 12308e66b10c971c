"""Runs started from the app: one child process at a time, its progress, cancelling, resuming. No streamlit here.

A job is the same command that a person would type; it lives in the server process, so that a page that is
reloaded or closed changes nothing. What it has measured is in the store, so that the same job started again
goes on from there."""

import atexit
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dashboard.state import access
from engine.judges.given_replies import read_replies
from engine.models.checkpoints import find_checkpoint
from engine.records.errors import InputError
from engine.records.processes import OwnFolder

State = Literal["running", "cancelling", "done", "failed", "cancelled"]
WRONG_INPUT = 2  # exit code of a command
# The command, which ends when this server does, also by a kill: its standard input ends then.
_CHILD = """import sys
from engine.records.processes import end_with_stdin
end_with_stdin()
from engine.cli import main
sys.exit(main())
"""
GRACE_S = 10.0  # from asking a job to stop to ending it


@dataclass(frozen=True)
class Request:
    """What to run. words: the command, as ("analyze", "demo", "sweep"); the model is the word at `model_at`, or where
    this is None the last word is a file of replies. options: with their values; those without one are left out."""

    words: tuple[str, ...]
    folder: Path
    options: tuple[tuple[str, str], ...] = ()
    store: Path | None = None
    model_at: int | None = 1

    @property
    def model(self) -> str:
        return "" if self.model_at is None else self.words[self.model_at]

    @property
    def keeps(self) -> bool:
        """Does it keep what it has measured while it runs, so that it can go on later?"""
        return self.model_at is not None

    def arguments(self) -> list[str]:
        """The words after `selector-audit`. `InputError` for a model or a file that would be read as an option."""
        if self.model_at is None and (not self.words[-1] or self.words[-1].startswith("-")):
            raise InputError(f"the replies are a CSV, JSONL or parquet file, got {self.words[-1]!r}")
        if self.model_at is not None and (not self.model or self.model.startswith("-")):
            raise InputError(f"the model is a folder, `demo` or a Hugging Face id, got {self.model!r}")
        given = [*self.options, ("--out", str(self.folder))]
        if self.store is not None:
            given.append(("--store", str(self.store)))
        return [*self.words, *(f"{name}={value}" for name, value in given if value)]

    @property
    def command(self) -> str:
        return shlex.join(["selector-audit", *self.arguments()])

    def check(self) -> None:
        """`InputError` where the model is not to be had: no such folder, no such name on the hub, or one that this
        software does not load; or where the file holds no replies. Of a model of the hub its small files are fetched.
        """
        self.arguments()
        if self.model_at is None:
            access.need("reading files by their path")
            read_replies(Path(self.words[-1]))
            return
        find_checkpoint(self.model, dict(self.options).get("--revision"), weights=False).config()


def analysis(
    model: str, analyses: Sequence[str], folder: Path, preset: str, options: Sequence[tuple[str, str]] = (),
    store: Path | None = None,
) -> Request:  # fmt: skip
    """`analyze`. `InputError` where nothing is to be run."""
    if not analyses:
        raise InputError("nothing to run: choose at least one analysis")
    return Request(("analyze", model, *analyses), folder, (("--preset", preset), *options), store)


def refusal(
    model: str, stage: str, folder: Path, options: Sequence[tuple[str, str]] = (), store: Path | None = None
) -> Request:
    return Request(("refusal", stage, model), folder, tuple(options), store, model_at=2)


def judging(file: Path, judges: str, folder: Path) -> Request:
    """`refusal judge`. judges: as `--judge` takes them."""
    return Request(("refusal", "judge", str(file)), folder, (("--judge", judges),), model_at=None)


@dataclass
class Job:
    """A started request. Everything it says is read anew from its process and its files."""

    id: int
    request: Request
    process: subprocess.Popen[bytes]
    files: Path  # progress.json, stdout, stderr
    started_s: float = field(default_factory=time.monotonic)
    ended_s: float | None = None
    cancelled: bool = False

    @property
    def state(self) -> State:
        code = self.process.poll()
        if code is None:
            return "cancelling" if self.cancelled else "running"
        if self.ended_s is None:
            self.ended_s = time.monotonic()
        if code == 0:
            return "done"
        return "cancelled" if self.cancelled else "failed"

    @property
    def active(self) -> bool:
        return self.state in ("running", "cancelling")

    @property
    def elapsed_s(self) -> float:
        return (self.ended_s or time.monotonic()) - self.started_s

    @property
    def resumable(self) -> bool:
        """Could the same request get further? Not one that is done, nor one that keeps nothing, nor one that was
        refused as wrong input before anything was measured: it would be refused again."""
        if not self.request.keeps:
            return False
        refused = self.process.poll() == WRONG_INPUT and self.progress is None
        return self.state == "cancelled" or (self.state == "failed" and not refused)

    @property
    def progress(self) -> dict[str, Any] | None:
        """{stage, done, total, seconds_left} and, of a command in parts, {part, number, parts, seconds_left_of_all};
        None before the first stage."""
        return self._written("progress.json")

    @property
    def message(self) -> str:
        """The last line that the command wrote for people: why it failed."""
        lines = [""]
        with suppress(OSError):
            lines += (self.files / "stderr").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def skipped(self) -> dict[str, str]:
        """Analyses that could not be done, and why."""
        skipped = (self._written("stdout") or {}).get("skipped") or {}
        return {str(name): str(why) for name, why in skipped.items()}

    def _written(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.files / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None


class Jobs:
    """All jobs of this server, the newest last. Safe to call from several sessions."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._count = 0
        self._folder = OwnFolder("selector-audit-server-")
        atexit.register(self.close)

    def all(self) -> list[Job]:
        with self._lock:
            return list(self._jobs)

    def of(self, request: Request) -> Job | None:
        """The newest job of a request; None without one."""
        return next((job for job in reversed(self.all()) if job.request == request), None)

    def start(self, request: Request) -> Job:
        """Start it. `InputError` while another one is under way: they would only slow each other down; and where the
        app is limited."""
        access.need("starting runs")
        arguments = request.arguments()
        with self._lock:
            if any(job.active for job in self._jobs):
                raise InputError("a run is under way; wait for it or cancel it, then start the next one")
            self._count += 1
            files = Path(tempfile.mkdtemp(prefix="job-", dir=self._folder.path))
            words = [*arguments, "--json", f"--progress-file={files / 'progress.json'}"]
            with (files / "stdout").open("wb") as out, (files / "stderr").open("wb") as err:
                process = subprocess.Popen(  # nosec B603 # this software, by a list of words and no shell
                    [sys.executable, "-c", _CHILD, *words], stdin=subprocess.PIPE, stdout=out, stderr=err,
                    start_new_session=True, env={**os.environ, "COLUMNS": "1000", "SELECTOR_AUDIT_APP": "1"},
                )  # fmt: skip
            job = Job(self._count, request, process, files)
            self._jobs.append(job)
            threading.Thread(target=_note_end, args=(job,), daemon=True).start()
            return job

    def resume(self, job: Job) -> Job:
        """The same request again; what it had measured is in the store."""
        started = self.start(job.request)
        self.forget(job)
        return started

    def cancel(self, job: Job) -> None:
        """Ask it to stop; end it if it does not within `GRACE_S`. Returns at once."""
        if job.active and not job.cancelled:
            job.cancelled = True
            threading.Thread(target=_stop, args=(job.process, GRACE_S), daemon=True).start()

    def forget(self, job: Job) -> None:
        """Drop an ended job from the list; its results stay."""
        with self._lock:
            if not job.active and job in self._jobs:
                self._jobs.remove(job)
                shutil.rmtree(job.files, ignore_errors=True)

    def close(self) -> None:
        """End everything: a server that stops leaves no process behind."""
        for job in self.all():
            if job.active:
                job.cancelled = True
                _stop(job.process, 2.0)
        self._folder.close()


@cache
def registry() -> Jobs:
    return Jobs()


def _note_end(job: Job) -> None:
    job.process.wait()
    if job.process.stdin is not None:
        job.process.stdin.close()
    if job.ended_s is None:
        job.ended_s = time.monotonic()


def _stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt, then terminate, then kill, with time in between. An interrupt may be ignored (started with nohup)."""
    for kind in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if process.poll() is not None:
            return
        with suppress(OSError):  # it has just ended
            if hasattr(os, "killpg"):
                os.killpg(process.pid, kind)  # it leads its own group; its children stop with it
            else:
                process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace_s / 2)
