"""A cell of a sweep with freed memory kept by the process, and with it given back as glibc does by itself, in turn.

    uv run python tests/benchmarks/bench_allocator.py [MODEL] [--repeats 7]

The peer's limits are those that glibc comes to by itself (`allocators.py`). Prints seconds and ratios, asserts none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import allocators
from rich.console import Console

from engine import Cell, LocalRunner, Nll, Store, compute_scores, edit_of, load_model, removed_rows, windows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    loaded = load_model(args.model, device="cpu")
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=64, length=256)
    scores = compute_scores(loaded, ["random"], None, seeds=(0,))["random"][0]

    def seconds(rate: float) -> float:
        edit = edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows)
        with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
            start = time.perf_counter()
            LocalRunner(store).run([Cell(loaded, edit, Nll(text))])
            return time.perf_counter() - start

    console = Console(highlight=False, soft_wrap=True)
    console.print(" rate   kept s  given back s   ratio")
    for rate in (0.0, 0.3, 0.6, 0.9):
        kept, given_back = [], []
        for _ in range(args.repeats):
            allocators.of_the_engine()
            kept.append(seconds(rate))
            allocators.of_a_plain_script()
            given_back.append(seconds(rate))
        ours, plain = statistics.median(kept), statistics.median(given_back)
        console.print(f"{rate:5.0%} {ours:8.3f} {plain:13.3f} {plain / ours:7.2f}")


if __name__ == "__main__":
    main()
