"""Every page on a result of 48 blocks and 2.2 million rows: CPU time and bytes of every change. Asserts no times.

    python tests/benchmarks/bench_pages.py [PAGE...] [--folder FOLDER]

The time is that of the process (all its threads) for one script run without a browser. The folder is kept and used
again where one is given; with a folder of results of your own, its pages are measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dashboard"))

from large_audit import write_large_audit
from page_changes import PAGES, walk

AT_MOST_S = 1.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}; all where none is named")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if unknown := set(given.pages) - set(PAGES):
        parser.error(f"there is no page {', '.join(sorted(unknown))}; pages: {', '.join(PAGES)}")
    console = Console(soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch) / "large"
        if not (folder / "manifest.json").is_file():
            write_large_audit(folder)
        for one in walk(folder, given.pages or list(PAGES)):
            slow = "  <-- over 1.5 s" if one.cpu_s > AT_MOST_S else ""
            console.print(f"{one.page:<11} {one.change:<26} {one.cpu_s:6.2f} s {one.sent_bytes / 1e6:8.3f} MB{slow}")


if __name__ == "__main__":
    main()
