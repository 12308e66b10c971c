"""Cells over little text: edits that share a pass at the outputs against each in the weights, and a plain loop.

    uv run python tests/benchmarks/bench_little_text.py [MODEL]

CPU seconds of one thread, in turn, of one cell and of eight, with 30% random rows removed each: eight edits to a pass,
as many as `ENOUGH_TOKENS` says, one in the weights; plain: rows set to zero, transformers' own loss of all windows in
one batch. Asserts nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console

from engine import Nll, edit_of, load_model, windows
from engine.interventions.in_weights import zeroed
from engine.run import edited_passes

EDITS, RATE = 8, 0.3
TEXTS = ((1, 256), (2, 256), (4, 256), (4, 512))


def cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    model = parser.parse_args().model
    torch.set_num_threads(1)
    loaded, draw, console = load_model(model, device="cpu"), np.random.default_rng(0), Console(soft_wrap=True)
    n = loaded.rows.n_rows
    edits = [edit_of(np.sort(draw.choice(n, int(RATE * n), replace=False)), n) for _ in range(EDITS)]
    console.print("tokens  edits  eight to a pass  by rule  in the weights  plain")
    for samples, length in TEXTS:
        text = windows("demo", loaded.tokenizer, role="evaluation", samples=samples, length=length)
        measure, rule = Nll(text), edited_passes.edits_together(loaded, Nll(text))

        def engine(together: int, count: int, measure: Nll = measure) -> None:
            with patch.object(edited_passes, "edits_together", lambda *_: together):
                for start in range(0, count, together):
                    edited_passes.measured(loaded, measure, edits[start : min(start + together, count)])

        def plain(count: int, ids: torch.Tensor = text.input_ids) -> None:
            for edit in edits[:count]:
                with zeroed(loaded, edit.units), torch.inference_mode():
                    loaded.model(input_ids=ids, labels=ids, use_cache=False)

        engine(1, 1)
        for count in (1, EDITS):
            seconds = [cpu_seconds(lambda k=k, count=count: engine(k, count)) for k in (EDITS, rule, 1)]
            seconds.append(cpu_seconds(lambda count=count: plain(count)))
            console.print(f"{samples * length:6} {count:6} " + " ".join(f"{one:14.2f}" for one in seconds))


if __name__ == "__main__":
    main()
