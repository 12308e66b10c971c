"""Watch it break in a real Chromium while it plays: frames drawn in a second, and the browser's own pace beside it.

    python tests/benchmarks/bench_watch.py [--seconds 4]

On the shipped model, and on made-up scores for as many rows as a 1B and a 14B model have. The pace is how often an
empty page is asked to draw (requestAnimationFrame), measured before and after. Asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dashboard"))

from bench_dashboard import cold_browser, new_page, served
from browser_pages import WATCH_RACE, WATCH_STAGE
from large_run import LLAMA_1B, QWEN_14B, write_large

PACE = """seconds => new Promise(done => { let count = 0; const start = performance.now();
  const step = now => { count++; now - start < 1000 * seconds ? requestAnimationFrame(step) : done(count / seconds) };
  requestAnimationFrame(step) })"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    seconds = parser.parse_args().seconds
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as store:
        results = Path(store) / "results"
        write_large(results / "as-1B", LLAMA_1B)
        write_large(results / "as-14B", QWEN_14B)
        os.environ["SELECTOR_AUDIT_STORE"] = store
        with served() as address, sync_playwright() as playwright:
            page = new_page(cold_browser(playwright))
            for name, settings in (
                ("shipped model", {"source": "Shipped model"}),
                ("rows of a 1B model", {"source": "My results", "run": "results/as-1B"}),
                ("rows of a 14B model", {"source": "My results", "run": "results/as-14B"}),
            ):
                told = frames(page, f"{address}/?{urlencode({**settings, **WATCH_RACE})}", seconds)
                console.print(
                    f"{name:<20} {told[1]:.0f} frames a second; an empty page {told[0]:.0f} and {told[2]:.0f}"
                )


def frames(page: Page, address: str, seconds: float) -> tuple[float, float, float]:
    """The pace before, the frames that the stage drew in a second, the pace after."""
    page.goto("about:blank")
    before = page.evaluate(PACE, seconds)
    page.goto(address)
    page.locator(".watch canvas").first.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3000)
    page.locator(".watch .play").click()
    page.wait_for_timeout(300)
    start = page.evaluate(f"[{WATCH_STAGE}.frames, performance.now()]")
    page.wait_for_timeout(1000 * seconds)
    end = page.evaluate(f"[{WATCH_STAGE}.frames, performance.now()]")
    page.goto("about:blank")
    return before, 1000 * (end[0] - start[0]) / (end[1] - start[1]), page.evaluate(PACE, seconds)


if __name__ == "__main__":
    main()
