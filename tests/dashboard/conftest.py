"""Fixtures of the browser tests: one app and one real Chromium per worker, pages that reach this machine only.

The app serves one folder, and every test file finds in it what its `store` fixture puts there: by default one
made-up run. A file that needs other results has a `store` of its own that starts from `empty_store`:

    @pytest.fixture(scope="module")
    def store(empty_store):
        write_audit(empty_store / "results" / "full")
        return empty_store
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from browser_pages import FLAGS, TIMEOUT_MS, ScriptRuns
from drawn import sorted_by_others
from scored_runs import write_scored
from synthetic import write_run

import dashboard  # noqa: F401 (its modules, and the engine's, are imported before the first test)
import engine  # noqa: F401
from dashboard.charts.sortable import Sortable

ROOT = Path(__file__).parents[2]
os.environ["SELECTOR_AUDIT_MODEL"] = "demo"  # the model that the app begins with, here and in its processes


@pytest.fixture(scope="session", autouse=True)
def one_scan_for_components():
    """Every run of an AppTest looks through all installed packages for Streamlit components, which takes longer than
    our pages do. A server looks once; so does a worker."""
    from streamlit.components.v2 import manifest_scanner

    with pytest.MonkeyPatch.context() as patch:
        once = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", once)
        yield


@pytest.fixture(autouse=True)
def tables_sort_by_what_they_show(monkeypatch):
    """Whatever table a test makes or a page shows: its columns are sorted by the numbers in their cells."""
    made, found = Sortable.__init__, []

    def watched(table, *parts, **named):
        made(table, *parts, **named)
        found.extend(sorted_by_others(table))

    monkeypatch.setattr(Sortable, "__init__", watched)
    yield
    assert found == []


@pytest.fixture
def registry():
    """The jobs of the app, none of them from another test."""
    import streamlit as st

    from dashboard.state import jobs

    st.cache_resource.clear()
    jobs.registry.cache_clear()
    yield jobs.registry()
    jobs.registry().close()
    jobs.registry.cache_clear()
    st.cache_resource.clear()


@pytest.fixture
def child(monkeypatch, tmp_path):
    """Jobs run the Python code that this is called with instead of the command."""
    from dashboard.state import jobs

    def use(code):
        script = tmp_path / "child"
        script.write_text(f"#!{sys.executable}\n{code}")
        script.chmod(0o700)
        monkeypatch.setattr(jobs.sys, "executable", str(script))

    return use


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium; install Debian's package chromium")
        pytest.skip("there is no chromium")
    return path


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory):
    """What the app of this worker was started on; `server.log` lies there too."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def empty_store(served_folder):
    """The served folder without the results of the test file before."""
    shutil.rmtree(served_folder / "results", ignore_errors=True)
    return served_folder


@pytest.fixture(scope="module")
def store(empty_store):
    """The served folder with one made-up run."""
    write_run(empty_store / "results" / "made-up")
    return empty_store


@contextmanager
def serving(folder):
    """Address of the app on a folder, from a process of its own; stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SELECTOR_AUDIT_STORE": str(folder)}
    written = folder.with_name(f"{folder.name}.log")  # beside it: a store holds nothing else
    with written.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "dashboard" / "served.py"), str(port), str(folder)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}", process, written)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="session")
def running_server(served_folder, chromium):
    """Address of the app on `served_folder`."""
    with serving(served_folder) as address:
        yield address


@pytest.fixture
def fresh_server(tmp_path):
    """Address of an app that nobody has opened."""
    with serving(tmp_path) as address:
        yield address


@pytest.fixture
def server(running_server, store):
    """Address of the app on `store`."""
    return running_server


def wait_until_healthy(address, process, log, limit_s=120):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not come up: {log.read_text()}")


@pytest.fixture(scope="session")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def new_page(browser, server):
    """Opens a path of the app in a context of its own. No request may leave the machine."""
    from playwright.sync_api import expect

    expect.set_options(timeout=TIMEOUT_MS)
    contexts, foreign = [], []

    def answer(route):
        if urlsplit(route.request.url).hostname in ("127.0.0.1", "localhost"):
            route.continue_()
        else:
            foreign.append(route.request.url)
            route.abort()

    def open_page(path="/", width=1280, address=None, **parameters):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        context.route("**/*", answer)
        page = context.new_page()
        ScriptRuns(page)
        page.goto(address or f"{server}{path}?{urlencode(parameters, doseq=True)}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("browser"), max_position_embeddings=512)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_folder):
    """A run with scores of that model."""
    return write_scored(tmp_path_factory.mktemp("runs") / "scored", tiny_folder)
