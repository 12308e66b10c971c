"""A server that hangs ends with its stacks in the log; one in which something hangs says so, and ends when asked to."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from harness.sessions import Session

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SERVER = """
import ctypes, sys, threading, time
import polars as pl
import streamlit as st
from dashboard import serve, watchdog
from dashboard.pages.reference import reference_page as page
watchdog.HANG_S, watchdog.ASLEEP_S, watchdog.POOL_S = 6.0, 3.0, 2.0
forever = threading.Event()
frame = pl.DataFrame({"a": [1.0], "b": [1.0], "c": ["c"]})
def interpreter():
    ctypes.PyDLL(None).sleep(1000)  # without letting go of it
def circle():
    def again():
        while True:
            frame.select(pl.col("a", "b").map_elements(str, return_dtype=pl.String))
            frame.to_pandas()
    for _ in range(4):
        threading.Thread(target=again, daemon=True).start()
def loop():
    watchdog.Watchdog._look = lambda _: forever.wait()
def pool():
    def stop(value):
        forever.wait()
        return value
    frame.select(pl.col("a", "b").map_elements(stop, return_dtype=pl.Float64))
def asleep():
    forever.wait()
def looks_around():
    for _ in range(60):
        forever.wait(0.1)
def computes():
    end = time.monotonic() + 6
    while time.monotonic() < end:
        sum(range(10_000))
page.render = lambda: globals()[st.query_params["work"]]()
serve.main(port=int(sys.argv[1]), open_browser=False, preload_model=False)
"""


class Server:
    def __init__(self, port, process, log):
        self.port, self.process, self._log = port, process, log

    def health(self, **headers):
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}/_stcore/health", headers=headers)
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def log(self):
        return self._log.read_text(encoding="utf-8")


@contextmanager
def serving(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "POLARS_MAX_THREADS": "2", "SELECTOR_AUDIT_STORE": str(folder)}
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(port)], cwd=ROOT, env=environment, stdout=said, stderr=said
        )
    server = Server(port, process, folder / "log")
    try:
        end = time.monotonic() + 120
        while "http://localhost" not in server.log():
            assert process.poll() is None, server.log()
            assert time.monotonic() < end
            time.sleep(0.1)
        yield server
    finally:
        process.kill()
        process.wait(60)


@contextmanager
def at_work(server, work):
    """A session whose page does this."""
    with closing(Session(server.port)) as session:
        session.visit("reference", work=work)
        yield session


@pytest.mark.parametrize("work", ["interpreter", "circle", "loop"])
def test_a_server_that_hangs_ends_by_itself_with_its_stacks(tmp_path, work):
    with serving(tmp_path) as server:
        session = Session(server.port)
        session.visit("reference", work=work)
        time.sleep(2)
        server.process.send_signal(signal.SIGTERM)  # which an interpreter that hangs does not hear
        assert server.process.wait(30) == 1
        assert "Timeout (0:00:06)!" in server.log()
        assert {"interpreter": "in interpreter", "circle": "in again", "loop": "in wait"}[work] in server.log()


def test_health_tells_of_a_page_that_waits_for_good_and_not_of_one_that_works(tmp_path):
    with serving(tmp_path) as server:
        for work in ("looks_around", "computes"):
            with at_work(server, work) as session:
                for _ in range(10):
                    assert server.health() == (200, "ok")
                    time.sleep(0.5)
                session.read(0)
        with at_work(server, "asleep"):
            time.sleep(1)
            assert server.health() == (200, "ok")
            time.sleep(5)
            status, why = server.health()
            assert status == 503
            assert "1 page(s) have waited for" in why
            assert server.health(**{"Sec-Fetch-Mode": "cors"}) == (200, "ok")  # other browsers are let in
            with closing(Session(server.port)) as other:
                assert other.open("curves").finished
            assert server.log().count("without a look around") == 1
            assert "in asleep" in server.log()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(20)


def test_a_server_that_was_stopped_at_its_terminal_goes_on(tmp_path):
    with serving(tmp_path) as server:
        server.process.send_signal(signal.SIGTSTP)
        time.sleep(9)
        server.process.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert server.health() == (200, "ok")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) != 1
        assert "Timeout" not in server.log()


def test_health_tells_of_threads_of_polars_that_take_no_work(tmp_path):
    with serving(tmp_path) as server, at_work(server, "pool"):
        time.sleep(1)
        for headers in ({}, {"Sec-Fetch-Mode": "cors"}):
            assert server.health(**headers) == (503, "polars' threads have taken no work for 2 s")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(20)
