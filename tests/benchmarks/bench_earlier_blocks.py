"""Edits that begin in later blocks: passes from the first edited block against passes through all blocks, in turn.

    uv run python tests/benchmarks/bench_earlier_blocks.py [MODEL] [--rounds 3]

Two of the questions that edit one block at a time: what an audit's `dangerous` removes (the masked rows of each
sublayer, of six random rankings) and what its `singles` does (single rows). Prints medians of seconds, their ratio
(above 1: beginning late is faster), and whether all losses have the same bits; asserts none.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import nullcontext
from unittest.mock import patch

import numpy as np
from rich.console import Console

import engine.run.runner as runner_module
from engine import Cell, LocalRunner, Nll, Store, compute_scores, edit_of, load_model, removed_rows, windows
from engine.studies.audit.groups import mask_groups

RATE, RANKINGS, ROWS = 0.3, 6, 192


def measured(cells: list[Cell]) -> tuple[float, list[tuple[float, ...]]]:
    """Seconds, and the losses of all windows of each cell; from an empty store."""
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        start = time.perf_counter()
        results = LocalRunner(store).run(cells)
        return time.perf_counter() - start, [results[cell].window_nats for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    loaded = load_model(args.model, device="cpu")
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=64, length=256)
    n = loaded.rows.n_rows
    rankings = compute_scores(loaded, ["random"], None, seeds=tuple(range(RANKINGS)))["random"]
    groups = [group for one in rankings for *_, group in mask_groups(removed_rows(one, "lerf", RATE), loaded.rows)]
    rows = np.random.default_rng(0).choice(n, ROWS, replace=False)
    questions = {
        f"{len(groups)} groups": [Cell(loaded, edit_of(group, n), Nll(text)) for group in groups],
        f"{ROWS} single rows": [Cell(loaded, edit_of([row], n), Nll(text.first(16))) for row in rows],
    }
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{'':20}  late s   all s   ratio   same bits")
    for what, cells in questions.items():
        measured(cells[:4])
        late: list[float] = []
        whole: list[float] = []
        same = True
        for _ in range(args.rounds):
            seconds, found = measured(cells)
            late.append(seconds)
            with patch.object(runner_module, "outputs_kept", nullcontext):
                seconds, expected = measured(cells)
            whole.append(seconds)
            same &= found == expected
        ours, theirs = statistics.median(late), statistics.median(whole)
        console.print(f"{what:20} {ours:7.2f} {theirs:7.2f} {theirs / ours:7.2f}   {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
