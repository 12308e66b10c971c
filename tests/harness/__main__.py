"""`python -m tests.harness kills|cycles|load|advisories|versions`: one harness, and its figures printed.

Run from the repository's root; `python -m tests.harness kills --help` tells what it does. Exit code 1 where a figure is
not as wanted. Short forms of the first four are among the tests.
"""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path

HARNESSES = ("kills", "cycles", "load", "advisories", "versions")


def main() -> int:
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root), str(root / "tests"), str(root / "tests" / "dashboard")]
    name, *words = sys.argv[1:] or [""]
    if name not in HARNESSES:
        sys.stderr.write(f"{__doc__}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what it started is ended
    harness = importlib.import_module(f"harness.{name}")
    return int(harness.main(words))


if __name__ == "__main__":
    sys.exit(main())
