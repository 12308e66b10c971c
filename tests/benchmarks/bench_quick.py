"""`selector-audit analyze MODEL --preset quick verdict` to its end, with a fresh store and the text that ships.

    uv run python tests/benchmarks/bench_quick.py [MODEL]

Minutes by the clock, so next to nothing else; of them those that the command says each part took. Asserts nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time

from rich.console import Console


def main() -> None:
    model, console = (sys.argv[1:] or ["smollm2"])[0], Console(soft_wrap=True, highlight=False)
    options = ["--preset", "quick", "verdict", "--corpus", "demo", "--eval-corpus", "demo"]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "engine", "analyze", model, *options, "--out", f"{folder}/run"],
            env={**os.environ, "SELECTOR_AUDIT_STORE": f"{folder}/store"}, capture_output=True, text=True,
        )  # fmt: skip
        minutes = (time.monotonic() - begun) / 60
    if done.returncode:
        sys.exit(done.stderr)
    console.print(f"analyze {model} {' '.join(options)}: {minutes:.1f} minutes")
    for part, seconds in re.findall(r"^(scores|verdict)\s+([\d.]+)\s*$", done.stdout, re.MULTILINE):
        console.print(f"{part}: {float(seconds) / 60:.1f} minutes")
    console.print(done.stdout[done.stdout.index("verdicts\n") :].partition("\nrandom is ")[0])


if __name__ == "__main__":
    main()
