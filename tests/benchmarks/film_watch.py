"""Watch it break as a short animated picture: the first page in Chromium, frame by frame, as an animated WebP.

    uv run python tests/benchmarks/film_watch.py .github/watch.webp [--first "LRP, least relevant first"]

The stage is moved to one rate after another and photographed, so that the film does not depend on how fast this machine
draws. Perplexity and replies are those of the page. The file is made at the best quality, and then with as many frames,
that `--most-kb` allows; Pillow writes it, which comes with Streamlit.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, sync_playwright
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dashboard"))

from browser_pages import WATCH_STAGE

ROOT = Path(__file__).resolve().parents[2]
HELD_MS = (900, 1600)  # how long the first and the last frame stand
QUALITIES = (80, 65, 50, 35)


def frames(page: Page, count: int) -> Iterator[bytes]:
    """So many pictures of the stage as PNG, from no row removed to the last measured rate."""
    stage = page.locator(".watch")
    last = page.evaluate(f"{WATCH_STAGE}.data.last")
    page.evaluate(f"{WATCH_STAGE}.go({last})")  # where replies are longest
    box = stage.bounding_box()
    place = {side: round(box[side]) for side in ("x", "y", "width", "height")}  # one for all, whatever the replies are
    for number in range(count):
        page.evaluate(f"{WATCH_STAGE}.go({last * number / (count - 1)})")
        yield page.screenshot(type="png", clip=place, animations="disabled")


def animated(pictures: Sequence[Image.Image], frame_ms: int, most: int) -> tuple[bytes, int, int]:
    """An animated WebP of at most `most` bytes that plays over and over, its quality, and of how many pictures it is.

    Fewer pictures stand longer: the film always takes the same time. `ValueError` where even four are too large.
    """
    every = 1
    while len(kept := _every(pictures, every)) >= 4:
        times = [frame_ms * every] * len(kept)
        times[0], times[-1] = HELD_MS
        for quality in QUALITIES:
            made = io.BytesIO()
            kept[0].save(
                made, "WEBP", save_all=True, append_images=kept[1:], duration=times, loop=0, quality=quality, method=4
            )
            if made.tell() <= most:
                return made.getvalue(), quality, len(kept)
        every += 1
    raise ValueError(
        f"{len(pictures)} pictures of {pictures[0].size} do not fit into {most:,} bytes; make them smaller"
    )


def _every(pictures: Sequence[Image.Image], step: int) -> list[Image.Image]:
    """Every so many-th picture, the last one always among them."""
    return [*pictures[:-1:step], pictures[-1]]


def opened(browser: Any, address: str, width: int, scale: float, settings: dict[str, str]) -> Page:
    page: Page = browser.new_page(
        viewport={"width": width, "height": 1500}, device_scale_factor=scale, color_scheme="light"
    )
    page.set_default_timeout(120_000)
    page.goto(f"{address}/?{urlencode(settings)}")
    page.locator(".watch canvas").first.wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.wait_for_load_state("networkidle")
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the file to write, .webp")
    parser.add_argument("--source", default="SmolLM2-135M", help="what its list Results shall show")
    parser.add_argument("--first", help="what the page's list First shall show")
    parser.add_argument("--second", help="what its list Second shall show")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=6.0, help="from the first frame to the last (6)")
    parser.add_argument("--width", type=int, default=1100, help="of the window (1100)")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels of the picture per pixel of the page (1)")
    parser.add_argument("--most-kb", type=int, default=1000)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    from bench_dashboard import cold_browser, served

    chosen = {"watch_a": given.first, "watch_b": given.second, "source": given.source}
    with served() as address, sync_playwright() as playwright:
        browser = cold_browser(playwright)
        page = opened(browser, address, given.width, given.scale, {k: v for k, v in chosen.items() if v})
        pictures = [Image.open(io.BytesIO(png)).convert("RGB") for png in frames(page, given.frames)]
        browser.close()
    film, quality, count = animated(pictures, round(1000 * given.seconds / given.frames), 1000 * given.most_kb)
    given.out.write_bytes(film)
    width, height = pictures[0].size
    Console(highlight=False).print(
        f"{given.out}: {len(film) / 1000:.0f} kB, {width} x {height}, {count} frames, quality {quality}"
    )


if __name__ == "__main__":
    main()
