"""The app in a process of its own, as the load harness watches it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.load_server import BEGIN, END

from engine.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
STARTS_S = 300.0


@dataclass
class Sample:
    """The server's process at a moment. at: seconds of the monotonic clock. rss: bytes."""

    at: float
    rss: int
    threads: int


class Server:
    """The app in a process of its own, its log, and what the system says of the process."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.port, self.process, self._log = port, process, log

    def lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()

    def odd_lines(self) -> list[str]:
        """What the log says beside the address and the beginnings and ends of replies."""
        usual = (BEGIN, END, "Selector Audit: http://")
        return [line for line in self.lines() if line.strip() and not line.strip().startswith(usual)]

    def unwell(self) -> str:
        """What the app says is wrong with it; empty where it says that nothing is."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/_stcore/health", timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except OSError as error:
            return f"no answer ({error})"

    def sample(self) -> Sample:
        told = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = {name: int(re.search(rf"^{name}:\s+(\d+)", told, re.M)[1]) for name in ("VmRSS", "Threads")}  # type: ignore[index]
        return Sample(time.monotonic(), found["VmRSS"] * 1024, found["Threads"])


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """The app on a folder; stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Store(folder):  # which takes no folder that holds something else, such as the log
        log = folder / "server.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "SELECTOR_AUDIT_STORE": str(folder)}
    words = [sys.executable, str(Path(__file__).with_name("load_server.py")), str(port), str(folder)]
    with log.open("wb") as said:
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=said, stderr=subprocess.STDOUT)
    server = Server(port, process, log)
    try:
        end = time.monotonic() + STARTS_S
        while not any("Selector Audit: http://" in line for line in server.lines()) or not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("\n".join(["the app did not come up", *server.lines()]))
            time.sleep(0.1)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
