"""The app in a real, cold Chromium, in turn with a bare page of Streamlit that has two charts of the same results
(`bare_page.py`): every page's first load, its bytes, and changes. Prints times and ratios, asserts none.

    uv run python tests/benchmarks/bench_dashboard.py [--rounds 3] [PAGE …]

First load: a fresh server and a fresh browser process and profile each time, from the request of the page until the
script has ended and all of its charts are drawn. Bytes: what the browser received until then;
a frame of the websocket counts as its base64, a third more.
A change: from a click until the script has ended, the first chart says something else, and all are drawn.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

from precomputed import demo_dir

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
TIMEOUT_MS, PRELOAD_S, PAUSE_MS = 120_000, 20.0, 500
BARE = ("--server.headless=true", "--server.fileWatcherType=none", "--browser.gatherUsageStats=false")
LOADS = ("overview", "learn", "curves", "where", "believed", "tasks", "refusal", "rows")  # Live edit answers at once
CURVES, AGREEMENT = "/", "/?page=agreement"  # of the bare page
# path, the bare page beside it; what is clicked there and back, in the app and on the bare page
CHANGES = (
    ("curves", CURVES, ("Random", "Random"), ("random", "random")),
    ("where", AGREEMENT, ("Whole rankings", "Shared rows"), ("Whole rankings", "Shared rows")),
    ("refusal", CURVES, ("Harmless prompts", "Risk prompts"), ("random", "random")),
)
LABELS = "[...document.querySelectorAll('[data-testid=stPlotlyChart]')].map(one => one.ariaLabel).join()"
DRAWN = f"""before => {{
    const app = document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]');
    const charts = [...document.querySelectorAll('[data-testid=stPlotlyChart]')];
    return app && !document.querySelector('[data-stale=true]') && {LABELS} !== before
        && charts.length && charts.every(one => one.querySelector('.main-svg'));
}}"""


@contextmanager
def served(*, bare: bool = False) -> Iterator[str]:
    """The app on a free port, as `selector-audit dashboard --no-browser` serves it; or the bare page."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-c", f"from dashboard.serve import main; main(port={port}, open_browser=False)"]
    if bare:
        page = ROOT / "tests" / "benchmarks" / "bare_page.py"
        words = ["-m", "streamlit", "run", str(page), f"--server.port={port}", *BARE, "--", str(demo_dir() / "results")]
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        while True:
            if process.poll() is not None:
                raise RuntimeError("the app ended before it was up")
            try:
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def cold_browser(playwright: Any) -> Browser:
    browser: Browser = playwright.chromium.launch(
        executable_path=shutil.which("chromium") or shutil.which("chromium-browser"), args=FLAGS.split()
    )
    return browser


def new_page(browser: Browser) -> Page:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(TIMEOUT_MS)
    return page


def drawn(page: Page, before: str | None = None) -> None:
    page.wait_for_function(DRAWN, arg=before)


def first_load(playwright: Any, path: str, *, bare: bool = False) -> tuple[float, int]:
    """Seconds and bytes of a page, from a fresh server to a cold browser."""
    with served(bare=bare) as address:
        browser = cold_browser(playwright)
        page, received = new_page(browser), [0]
        wire = page.context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda said: received.append(said["encodedDataLength"]))
        wire.on("Network.webSocketFrameReceived", lambda said: received.append(len(said["response"]["payloadData"])))
        start = time.perf_counter()
        page.goto(address + path, wait_until="commit")
        drawn(page)
        seconds = time.perf_counter() - start
        browser.close()
        return seconds, sum(received)


def change(page: Page, name: str) -> float:
    """Seconds from a click on a button or radio of this name until another chart is drawn."""
    before, start = page.evaluate(LABELS), time.perf_counter()
    named = re.compile(f"^{name}$")
    page.get_by_role("radio", name=named).or_(page.get_by_role("button", name=named)).first.click()
    drawn(page, before)
    return time.perf_counter() - start


def changes(pages: Sequence[Page], names: Sequence[Sequence[str]], rounds: int) -> list[list[float]]:
    """Seconds of each change on each page, the pages in turn."""
    times: list[list[float]] = [[] for _ in pages]
    for round_ in range(rounds):
        for page, taken, there_and_back in zip(pages, times, names, strict=True):
            taken.append(change(page, there_and_back[round_ % 2]))
            page.wait_for_timeout(PAUSE_MS)
    return times


def beside(console: Console, name: str, ours: list[float], bare: list[float], more: str = "") -> None:
    ratio = statistics.median(ours) / statistics.median(bare)
    spread = "; ".join(", ".join(f"{one:.2f}" for one in times) for times in (ours, bare))
    console.print(
        f"{name:<22} {statistics.median(ours):.2f} s, bare {statistics.median(bare):.2f} s: {ratio:.2f}{more}; "
        f"all {spread}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("pages", metavar="PAGE", nargs="*", help=f"of {', '.join(LOADS)} (default: all)")
    args = parser.parse_args()
    if unknown := [name for name in args.pages if name not in LOADS]:
        parser.error(f"no page {unknown[0]!r}; of {', '.join(LOADS)}")
    console = Console(soft_wrap=True, highlight=False)
    wanted = args.pages or LOADS
    with sync_playwright() as playwright:
        for name in wanted:
            path = "/" if name == "overview" else f"/{name}"
            pairs = [
                (first_load(playwright, path), first_load(playwright, CURVES, bare=True)) for _ in range(args.rounds)
            ]
            ours, bare = ([pair[side][0] for pair in pairs] for side in (0, 1))
            more = statistics.median(ours[1] - bare[1] for ours, bare in pairs) / 1e6
            beside(console, f"{name}, first load", ours, bare, f", {more:+.2f} MB")
        with served() as address, served(bare=True) as bare_address:
            first = new_page(cold_browser(playwright))
            first.goto(f"{address}/curves")
            drawn(first)
            first.context.browser.close()  # type: ignore[union-attr]
            time.sleep(PRELOAD_S)  # the model is loaded in the background now
            for name, bare_path, *names in CHANGES:
                if name not in wanted:
                    continue
                browsers = [cold_browser(playwright) for _ in range(2)]
                pages = [new_page(browser) for browser in browsers]
                for page, where in zip(pages, (f"{address}/{name}", bare_address + bare_path), strict=True):
                    page.goto(where)
                    drawn(page)
                    drawer = page.locator(".st-key-bar summary")  # of the app, where its selectors lie
                    if drawer.count():
                        drawer.first.click()
                    page.wait_for_timeout(2 * PAUSE_MS)
                beside(console, f"{name}, a change", *changes(pages, names, 4 * args.rounds))
                for browser in browsers:
                    browser.close()


if __name__ == "__main__":
    main()
