"""Runs started from the app: one child process at a time, its progress, cancelling, resuming. No streamlit here.

A job is the same command that a person would type; it lives in the server process, so that a page that is
reloaded or closed changes nothing. What it has measured is in the store, so that the same job started again
goes on from there.
"""

from __future__ import annotations

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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.records.errors import InputError

State = Literal["running", "cancelling", "done", "failed", "cancelled"]
GRACE_S = 10.0  # from asking a job to stop to ending it


@dataclass(frozen=True)
class Request:
    """What to run. options: further options of `analyze` with their values, as {"--samples": "32"}."""

    model: str
    analyses: tuple[str, ...]
    folder: Path
    preset: str
    options: tuple[tuple[str, str], ...] = ()
    store: Path | None = None

    def arguments(self) -> list[str]:
        """The words after `selector-audit`. `InputError` for a model that would be read as an option."""
        if not self.model or self.model.startswith("-"):
            raise InputError(f"the model is a folder, `demo` or a Hugging Face id, got {self.model!r}")
        if not self.analyses:
            raise InputError("nothing to run: choose at least one analysis")
        given = [("--preset", self.preset), *self.options, ("--out", str(self.folder))]
        if self.store is not None:
            given.append(("--store", str(self.store)))
        return ["analyze", self.model, *self.analyses, *(f"{name}={value}" for name, value in given if value)]

    @property
    def command(self) -> str:
        """What one would type."""
        return shlex.join(["selector-audit", *self.arguments()])


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
    def progress(self) -> dict[str, Any] | None:
        """{stage, done, total, seconds_left}; None before the first stage."""
        return self._written("progress.json")

    @property
    def message(self) -> str:
        """The last line that the command wrote for people: why it failed."""
        try:
            lines = (self.files / "stderr").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    @property
    def skipped(self) -> dict[str, str]:
        """Analyses that could not be done, and why."""
        skipped = (self._written("stdout") or {}).get("skipped") or {}
        return {str(name): str(why) for name, why in skipped.items()}

    def _written(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.files / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


class Jobs:
    """All jobs of this server, the newest last. Safe to call from several sessions."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._lock = threading.Lock()
        self._count = 0
        atexit.register(self.close)

    def all(self) -> list[Job]:
        with self._lock:
            return list(self._jobs)

    def start(self, request: Request) -> Job:
        """Start it. `InputError` while another one is under way: they would only slow each other down."""
        arguments = request.arguments()
        with self._lock:
            if any(job.active for job in self._jobs):
                raise InputError("a run is under way; wait for it or cancel it, then start the next one")
            self._count += 1
            files = Path(tempfile.mkdtemp(prefix="selector-audit-job-"))
            words = [*arguments, "--json", f"--progress-file={files / 'progress.json'}"]
            with (files / "stdout").open("wb") as out, (files / "stderr").open("wb") as err:
                process = subprocess.Popen(
                    [sys.executable, "-m", "engine.cli", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                    start_new_session=True, env={**os.environ, "COLUMNS": "1000"},
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
            shutil.rmtree(job.files, ignore_errors=True)


def _note_end(job: Job) -> None:
    job.process.wait()
    if job.ended_s is None:
        job.ended_s = time.monotonic()


def _stop(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Interrupt, then terminate, then kill, with time in between. An interrupt may be ignored (started with nohup)."""
    for kind in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if process.poll() is not None:
            return
        _signal(process, kind)
        try:
            process.wait(grace_s / 2)
            return
        except subprocess.TimeoutExpired:
            continue


def _signal(process: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, kind)  # it leads its own group; its children stop with it
        else:
            process.terminate()
    except OSError:
        pass  # it has just ended
