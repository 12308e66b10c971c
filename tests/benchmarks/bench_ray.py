"""Two Ray workers against one, on this machine, each with one thread, in turn.

    uv run --with ray python tests/benchmarks/bench_ray.py [MODEL] [--rounds 3] [--cells 24] [--windows 160]

Seconds by the clock for the same cells, once the workers have their model: sending, hashing and what the store writes
are in it. Prints every round's seconds, the mean seconds of a cell, and the ratio of the medians (above 1: two are
faster); asserts none.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"  # of this process and of the workers that Ray starts

from rich.console import Console

from engine import Cell, LoadedModel, Nll, Store, compute_scores, edit_of, load_model, removed_rows, windows
from engine.run.ray_runner import ray_runner


def edits_of(loaded: LoadedModel, count: int) -> list:
    """Masks of 5 to 60% of the rows, in no order of their costs, and four more for the workers to begin with."""
    scores = compute_scores(loaded, ["random"], None, seeds=(0,))["random"][0]
    total = count + 4  # 28, which has no divisor in common with 9
    rates = [0.05 + 0.55 * ((9 * number) % total) / total for number in range(total)]
    return [edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows) for rate in rates]


def seconds_of(loaded: LoadedModel, cells: list[Cell], workers: int) -> tuple[float, float]:
    """By the clock for all cells but the first four, and the mean of what a cell took its worker."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(folder) as store,
        ray_runner(None, workers, loaded, store) as runner,
    ):
        runner.run(cells[:4])
        start = time.perf_counter()
        runner.run(cells)
        took = time.perf_counter() - start
        return took, runner.pace.seconds([cells[0].measure]) or 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--windows", type=int, default=160)
    args = parser.parse_args()
    loaded = load_model(args.model, device="cpu")
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=args.windows, length=256)
    cells = [Cell(loaded, edit, Nll(text)) for edit in edits_of(loaded, args.cells)]
    console = Console(highlight=False, soft_wrap=True)
    found: dict[int, list[float]] = {1: [], 2: []}
    for round_ in range(args.rounds):
        for workers in (1, 2) if round_ % 2 == 0 else (2, 1):
            took, a_cell = seconds_of(loaded, cells, workers)
            found[workers].append(took)
            console.print(f"{workers} worker{'s' * (workers > 1)}: {took:6.1f} s, a cell {a_cell:.2f} s")
    one, two = (statistics.median(found[workers]) for workers in (1, 2))
    console.print(f"one worker {one:.1f} s, two {two:.1f} s: {one / two:.2f}")


if __name__ == "__main__":
    main()
