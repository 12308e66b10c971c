"""A sweep in one process against loading the model anew for every mask: same numbers, which time?

    uv run python tests/benchmarks/bench_sweep.py [MODEL]

Prints both times, their ratio and the largest difference of an NLL. MODEL: default the shipped model.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import torch

from engine import Store, load_model, negative_log_likelihood, removed_rows, sweep_model, windows

RATES = tuple(round(0.1 * step, 1) for step in range(1, 10))


def reload_and_evaluate(model_id: str, scores: torch.Tensor, text: object) -> list[float]:
    """What a script without an undoable intervention does: load, zero, evaluate, throw away."""
    results = []
    for order in ("lerf", "morf"):
        for rate in RATES:
            loaded = load_model(model_id)
            removed = removed_rows(scores, order, rate)
            with torch.no_grad():
                for layer in loaded.rows.layers:
                    inside = removed[(removed >= layer.start) & (removed < layer.start + layer.rows)] - layer.start
                    loaded.model.get_submodule(layer.name).weight[torch.from_numpy(inside)] = 0
            results.append(negative_log_likelihood(loaded, text).nats_per_token)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="demo")
    model_id = parser.parse_args().model
    loaded = load_model(model_id)
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=8, length=128)
    scores = torch.rand(loaded.rows.n_rows, generator=torch.Generator().manual_seed(0))
    negative_log_likelihood(loaded, text)  # warm

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        table = sweep_model(loaded, {"random": scores}, text, store=store, rates=RATES)
    sweep_s = time.perf_counter() - start

    start = time.perf_counter()
    reloaded = reload_and_evaluate(model_id, scores, text)
    reload_s = time.perf_counter() - start

    difference = max(abs(a - b) for a, b in zip(table["nll"], reloaded, strict=True))
    sys.stdout.write(
        f"{len(reloaded)} masks, {text.input_ids.numel():,} tokens each, {torch.get_num_threads()} threads\n"
        f"one model, masks installed and undone  {sweep_s:8.2f} s\n"
        f"model loaded again for every mask      {reload_s:8.2f} s\n"
        f"ratio                                  {reload_s / sweep_s:8.1f}\n"
        f"largest difference of an NLL           {difference:8.1e} nats\n"
    )


if __name__ == "__main__":
    main()
