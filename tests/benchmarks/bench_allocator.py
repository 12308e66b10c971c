"""A sweep's cell in processes that keep freed memory and in such that leave glibc's allocator as it is, in turn.

    uv run python tests/benchmarks/bench_allocator.py [MODEL] [--rounds 3]

A process of its own for each round and side, since memory that was kept once serves the other side as well. Prints
medians over all cells of a side, and their ratio (above 1: keeping is faster); asserts none. Linux with glibc only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

from rich.console import Console

RATES = (0.0, 0.3, 0.6, 0.9)
LEFT_ALONE = {"GLIBC_TUNABLES": "glibc.malloc.check=0"}  # a setting of the user's, and one that changes nothing
CELLS = """
import json, sys, tempfile, time
from engine import Cell, LocalRunner, Nll, Store, compute_scores, edit_of, load_model, removed_rows, windows

loaded = load_model(sys.argv[1], device="cpu")
text = windows("demo", loaded.tokenizer, role="evaluation", samples=64, length=256)
scores = compute_scores(loaded, ["random"], None, seeds=(0,))["random"][0]
found = {}
for repeat in range(4):
    for rate in map(float, sys.argv[2:]):
        edit = edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows)
        with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
            start = time.perf_counter()
            LocalRunner(store).run([Cell(loaded, edit, Nll(text))])
            if repeat:  # the first one takes what the process does not have yet
                found.setdefault(rate, []).append(time.perf_counter() - start)
print(json.dumps(list(found.items())))
"""


def cells(model: str, environment: dict[str, str]) -> dict[float, list[float]]:
    """Seconds by rate, from a fresh process."""
    command = [sys.executable, "-c", CELLS, model, *map(str, RATES)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    kept: dict[float, list[float]] = {rate: [] for rate in RATES}
    plain: dict[float, list[float]] = {rate: [] for rate in RATES}
    for _ in range(args.rounds):
        for found, environment in ((kept, {}), (plain, LEFT_ALONE)):
            for rate, seconds in cells(args.model, environment).items():
                found[rate] += seconds
    console = Console(highlight=False, soft_wrap=True)
    console.print(" rate   kept s   plain s   ratio")
    for rate in RATES:
        ours, theirs = statistics.median(kept[rate]), statistics.median(plain[rate])
        console.print(f"{rate:5.0%} {ours:8.3f} {theirs:9.3f} {theirs / ours:7.2f}")


if __name__ == "__main__":
    main()
