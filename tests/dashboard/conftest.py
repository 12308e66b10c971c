"""Fixtures of the browser tests: the app on a store of one made-up run, a real Chromium, pages that reach this machine
only."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from browser_pages import FLAGS, TIMEOUT_MS
from synthetic import write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("there is no chromium; install Debian's package chromium")
        pytest.skip("there is no chromium")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of one made-up run, one per test file."""
    folder = tmp_path_factory.mktemp("store")
    write_run(folder / "results" / "made-up")
    return folder


@pytest.fixture(scope="module")
def server(store, chromium):
    """Address of an app on `store`; stopped at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SELECTOR_AUDIT_STORE": str(store)}
    log = (store / "server.log").open("w")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests" / "dashboard" / "served.py"), str(port), str(store)],
        cwd=store,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}", process, store / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
        log.close()


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


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def new_page(browser, server):
    """Opens a path of the app in a context of its own. No request may leave the machine."""
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
        page.goto(address or f"{server}{path}?{urlencode(parameters, doseq=True)}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("browser"), max_position_embeddings=512)
