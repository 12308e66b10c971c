"""The app in a real, cold Chromium: first chart, a changed selector, a live edit. Prints times, asserts none.

    uv run python tests/benchmarks/bench_dashboard.py [--rounds 5]

First chart: a fresh server and a fresh browser process and profile each round, from the request of the overview
until a figure has its marks; the same for both figures of the curves. Selector: from the click until the redrawn
figures have their marks. Live edit: shipped model, from the click on Run until both replies and the figure of
removed rows are there; the first one, which may wait for the model to load, is told apart.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
TIMEOUT_MS, PRELOAD_S = 120_000, 20.0
MARKS = ".scatterlayer .points path"


@contextmanager
def served() -> Iterator[str]:
    """The app on a free port, as `selector-audit dashboard --no-browser` serves it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = f"from dashboard.serve import main; main(port={port}, open_browser=False)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
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
    """Wait until the figure whose description holds `says` has its marks."""
    page.locator(f"[data-testid=stPlotlyChart][aria-label*='{says}'] {MARKS}").first.wait_for(state="attached")


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


def selector_changes(playwright: Any, address: str, rounds: int) -> list[float]:
    browser = cold_browser(playwright)
    page = new_page(browser)
    page.goto(f"{address}/curves")
    figure(page, "under MoRF")
    page.wait_for_timeout(1000)
    times = []
    for round_ in range(rounds):
        removed = round_ % 2 == 0
        start = time.perf_counter()
        page.get_by_role("button", name="Random", exact=True).click()
        for order in ("LeRF", "MoRF"):
            random = "[aria-label*='Random']"
            figure_ = f"[data-testid=stPlotlyChart][aria-label*='under {order}']"
            selector = f"{figure_}:not({random})" if removed else f"{figure_}{random}"
            selector += f" {MARKS}"
            page.locator(selector).first.wait_for(state="attached")
        times.append(time.perf_counter() - start)
        page.wait_for_timeout(500)
    browser.close()
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
        page.locator(".st-key-reply-before [data-testid=stText]").wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=running]").wait_for()
        page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
        page.locator(".st-key-reply-after").get_by_text("tokens").wait_for()
        page.locator("[data-testid=stPlotlyChart][aria-label*='projection'] .barlayer").wait_for(state="attached")
        times.append(time.perf_counter() - start)
        facts = " | ".join(page.locator(f".st-key-reply-{side}").inner_text() for side in ("before", "after"))
    browser.close()
    return times, facts


def report(console: Console, name: str, times: list[float], target_s: float) -> None:
    spread = f"median {statistics.median(times):.2f} s, all {', '.join(f'{t:.2f}' for t in times)}"
    console.print(f"{name:<34} {spread} (wanted: {target_s} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    console = Console(soft_wrap=True, highlight=False)
    with sync_playwright() as playwright:
        for name, path, says in (
            ("first chart, cold browser", "", ("LeRF perplexity",)),
            ("both curves, cold browser", "/curves", ("under LeRF", "under MoRF")),
        ):
            times = []
            for _ in range(rounds):
                with served() as address:  # a fresh one: the model is loaded once the first page is up
                    times.append(first_chart(playwright, address + path, *says))
            report(console, name, times, 3.0)
    with served() as address, sync_playwright() as playwright:
        first_chart(playwright, address, "LeRF perplexity")
        time.sleep(PRELOAD_S)  # the model is loaded in the background now
        report(console, "selector changed, both redrawn", selector_changes(playwright, address, rounds), 0.7)
        times, facts = live_edits(playwright, address, rounds)
        report(console, "live edit, first", times[:1], 3.0)
        report(console, "live edit, two replies of 40", times[1:], 3.0)
        console.print(facts.replace("\n", " "))


if __name__ == "__main__":
    main()
