"""The app in a real, cold Chromium, in turn with a bare page of Streamlit that has the same figures (`bare_page.py`):
first chart, a changed selector, a switch on Agreement; and live edits. Prints times and ratios, asserts none.

    uv run python tests/benchmarks/bench_dashboard.py [--rounds 5]

First chart: a fresh server and a fresh browser process and profile each round, from the request of the page until its
figures are drawn. Selector: from the click until the redrawn figures have their marks; Agreement: until the figure of
the other measure is there. Live edit: shipped model, from the click on Run until both replies and the figure of removed
rows are there; the first one, which may wait for the model to load, is told apart.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

from precomputed import demo_dir

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
TIMEOUT_MS, PRELOAD_S = 120_000, 20.0
MARKS, CELLS = ".scatterlayer .points path", ".heatmaplayer image"
BARE = ("--server.headless=true", "--server.fileWatcherType=none", "--browser.gatherUsageStats=false")
# name, path of the app, path of the bare page, words of the figures that are waited for
PAGES = (
    ("Curves", "/curves", "/", ("under LeRF", "under MoRF")),
    ("Where and who", "/where", "/?page=agreement", ("Attention", "MLP")),
)


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


def figure(page: Page, says: str) -> None:
    """Wait until the figure whose description holds `says` is drawn: its marks, or its cells."""
    found = f"[data-testid=stPlotlyChart][aria-label*='{says}']"
    page.locator(f"{found} {MARKS}, {found} {CELLS}").first.wait_for(state="attached")


def first_chart(playwright: Any, address: str, *says: str) -> float:
    """Seconds from the request of a page in a cold browser until its figures `says` are drawn."""
    browser = cold_browser(playwright)
    page = new_page(browser)
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    for text in says:
        figure(page, text)
    elapsed_s = time.perf_counter() - start
    browser.close()
    return elapsed_s


def selector_change(page: Page, *, removed: bool) -> float:
    """Random away from both curves, or back."""
    start = time.perf_counter()
    page.get_by_role("button", name=re.compile("^random$", re.IGNORECASE)).first.click()
    for order in ("LeRF", "MoRF"):
        random = "[aria-label*=andom]"
        figure_ = f"[data-testid=stPlotlyChart][aria-label*='under {order}']"
        selector = f"{figure_}:not({random})" if removed else f"{figure_}{random}"
        page.locator(f"{selector} {MARKS}").first.wait_for(state="attached")
    return time.perf_counter() - start


def agreement_change(page: Page, *, removed: bool) -> float:
    """Correlations of whole rankings in the place of overlaps, and back."""
    name = "Whole rankings" if removed else "Shared rows"
    start = time.perf_counter()
    page.get_by_role("radio", name=name, exact=True).or_(
        page.get_by_role("button", name=name, exact=True)
    ).first.click()
    figure(page, "over all of the rows" if removed else "either does; bright")
    return time.perf_counter() - start


def changes(pages: Sequence[Page], change: Callable[..., float], rounds: int) -> list[list[float]]:
    """Seconds of each change on each page, the pages in turn."""
    times: list[list[float]] = [[] for _ in pages]
    for round_ in range(rounds):
        for page, taken in zip(pages, times, strict=True):
            taken.append(change(page, removed=round_ % 2 == 0))
            page.wait_for_timeout(500)
    return times


def live_edits(playwright: Any, address: str, rounds: int) -> tuple[list[float], str]:
    browser = cold_browser(playwright)
    page = new_page(browser)
    # Few removed rows keep the reply long; magnitude needs no calibration pass.
    settings = {"mode": "Remove by rate", "rank_selector": "Magnitude", "rate": "5%"}
    page.goto(f"{address}/live?{urlencode(settings)}")
    run = page.locator("[data-testid=stMain]").get_by_role("button", name="Run", exact=True)
    times, facts = [], ""
    for _ in range(rounds):
        run.wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        start = time.perf_counter()
        run.click()
        # The facts of the last round go as soon as the new one starts to write.
        page.locator(".st-key-reply-before .sa-reply").wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=running]").wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        page.locator(".st-key-reply-after").get_by_text("tokens").first.wait_for()
        page.locator("[data-testid=stPlotlyChart][aria-label*='projection'] .barlayer").wait_for(state="attached")
        times.append(time.perf_counter() - start)
        facts = " | ".join(page.locator(f".st-key-reply-{side}").inner_text() for side in ("before", "after"))
    browser.close()
    return times, facts


def beside(console: Console, name: str, ours: list[float], bare: list[float], target: float) -> None:
    ratio = statistics.median(ours) / statistics.median(bare)
    spread = "; ".join(", ".join(f"{one:.2f}" for one in times) for times in (ours, bare))
    console.print(
        f"{name:<34} {statistics.median(ours):.2f} s, bare {statistics.median(bare):.2f} s: {ratio:.2f} "
        f"(wanted: at most {target}); all {spread}"
    )


def report(console: Console, name: str, times: list[float], target_s: float) -> None:
    spread = f"median {statistics.median(times):.2f} s, all {', '.join(f'{t:.2f}' for t in times)}"
    console.print(f"{name:<34} {spread} (wanted: {target_s} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    console = Console(soft_wrap=True, highlight=False)
    with sync_playwright() as playwright:
        for name, path, bare_path, says in PAGES:
            ours, bare = [], []
            for _ in range(rounds):
                with served() as address:  # a fresh one: the model is loaded once the first page is up
                    ours.append(first_chart(playwright, address + path, *says))
                with served(bare=True) as address:
                    bare.append(first_chart(playwright, address + bare_path, *says))
            beside(console, f"{name}, cold browser", ours, bare, 1.4)
    with served() as address, served(bare=True) as bare_address, sync_playwright() as playwright:
        first_chart(playwright, address + "/curves", "under MoRF")
        time.sleep(PRELOAD_S)  # the model is loaded in the background now
        for (name, path, bare_path, says), change in zip(PAGES, (selector_change, agreement_change), strict=True):
            browsers = [cold_browser(playwright) for _ in range(2)]
            pages = [new_page(browser) for browser in browsers]
            for page, where in zip(pages, (address + path, bare_address + bare_path), strict=True):
                page.goto(where)
                for text in says:
                    figure(page, text)
                drawer = page.locator(".st-key-bar summary")  # of the app, where its selectors lie
                if drawer.count():
                    drawer.first.click()
                page.wait_for_timeout(1000)
            beside(console, f"{name}, a change", *changes(pages, change, 2 * rounds), 1.8)
            for browser in browsers:
                browser.close()
        times, facts = live_edits(playwright, address, max(rounds, 2))
        report(console, "live edit, first", times[:1], 3.0)
        report(console, "live edit, two replies of 40", times[1:], 3.0)
        console.print(facts.replace("\n", " "))


if __name__ == "__main__":
    main()
