"""Processes of `selector-audit` that have made their imports, and die when they are asked to."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900
# Reads commands as JSON lines; each is carried out by a process of its own, forked from this one, which has made the
# imports and computed nothing. Answers with the process's number, and with its exit code once it has ended.
SOURCE = """
import importlib, json, os, signal, sys
import engine.cli, engine.models.loading, engine.run.runner, engine.studies.conduct, engine.edits.exporting
import torch, transformers, pyarrow, pandas, datasets, scipy.stats
from engine.records.hashing import environment
torch.set_num_threads(1)
engine.cli.build_parser()  # every command's module
environment()  # kept: the commit that files name is the same in all, although somebody may commit meanwhile
def carried_out(folder, fatal, words):
    folder, writes = os.path.realpath(folder), 0
    def told(event, given):
        nonlocal writes
        if event == "open":
            mode, flags = given[1], given[2] or 0
            if not (set(mode or "") & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return
        elif event not in ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "sqlite3.connect"):
            return
        if isinstance(given[0], (str, bytes, os.PathLike)) and os.fsdecode(given[0]).startswith(folder):
            writes += 1
            if writes == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
    before = set(sys.modules)
    sys.addaudithook(told)
    try:
        code = engine.cli.main(words)
    except SystemExit as error:
        code = error.code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code, writes, sorted(set(sys.modules) - before)
for line in sys.stdin:
    asked = json.loads(line)
    for name in asked["modules"]:
        try:
            importlib.import_module(name)
        except Exception:
            pass
    number = os.fork()
    if not number:
        code = 1
        try:
            with open(os.devnull) as nothing, open(asked["said"], "w") as said:
                os.dup2(nothing.fileno(), 0), os.dup2(said.fileno(), 1), os.dup2(said.fileno(), 2)
            code, writes, modules = carried_out(asked["folder"], asked["before_write"], asked["words"])
            with open(asked["ended"] + ".part", "w") as ended:  # it may be killed in the midst of this too
                json.dump({"writes": writes, "modules": modules}, ended)
            os.replace(ended.name, asked["ended"])
        finally:
            os._exit(code)
    print(number, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """A process that has ended. code: -9 after a SIGKILL. writes, modules: of one that was not killed."""

    code: int
    seconds: float
    said: str
    writes: int = 0
    modules: tuple[str, ...] = ()


class Source:
    """Starts processes that have made their imports, so that a hundred of them take minutes and not hours."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: list[str] = []  # that processes imported late: to be imported before the next one
        more = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SOURCE], cwd=ROOT, env={**os.environ, **more, "PYTHONPATH": str(ROOT)}, text=True,
            bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def started(
        self, words: Sequence[str], place: Path, *, before_write: int = 0, after_s: float | None = None
    ) -> Ended:
        """Run a command; it dies just before its write of this number in `place`, or is killed after so long."""
        assert self._process.stdin is not None
        said, ended = self._folder / "said", self._folder / "ended"
        ended.unlink(missing_ok=True)
        asked = {"words": list(words), "folder": str(place), "before_write": before_write, "said": str(said)}
        asked |= {"ended": str(ended), "modules": self._modules}
        self._process.stdin.write(json.dumps(asked) + "\n")
        number = self._answer(LIMIT_S)
        start = time.monotonic()
        code = self._answer(LIMIT_S if after_s is None else after_s, or_none=True)
        if code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number or 0, signal.SIGKILL)
            code = self._answer(LIMIT_S)
            if after_s is None:
                raise TimeoutError(f"{' '.join(words)} took more than {LIMIT_S} s")
        seconds = time.monotonic() - start
        self._modules = []
        if not ended.is_file():
            return Ended(code or 0, seconds, said.read_text(encoding="utf-8", errors="replace"))
        told = json.loads(ended.read_text(encoding="utf-8"))
        # lxt's own packages cannot be imported by their names beside transformers 5; the engine has its way to them.
        self._modules = [name for name in told["modules"] if name.split(".")[0] not in ("lxt", "__mp_main__")]
        return Ended(
            code or 0,
            seconds,
            said.read_text(encoding="utf-8", errors="replace"),
            told["writes"],
            tuple(told["modules"]),
        )

    def _answer(self, limit_s: float, *, or_none: bool = False) -> int | None:
        """The next number; None after so many seconds, where that may be."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit_s)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return int(line)
        if ready or not or_none:
            raise RuntimeError("the processes' source has ended, or says nothing")
        return None

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            if self._process.stdout is not None:
                self._process.stdout.close()
