"""Cells of a sweep, and three replies at once, with float32 products by oneDNN, which the engine takes on AMD's
processors, and by MKL, in turn.

    uv run python tests/benchmarks/bench_products.py [MODEL] [--random WIDTH LAYERS] [--threads 1] [--repeats 5]

Medians of CPU seconds where there is one thread, else of seconds by the clock; ratios above 1 say that oneDNN is
faster. Then products alone, at the model's own shapes, in billions of multiplications and additions a second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import torch
from bench_sweep import random_model
from torch import nn

import engine
from engine import Cell, LoadedModel, LocalRunner, Nll, Store, compute_scores, edit_of, load_model, removed_rows
from engine.measures.generation import generate_under
from engine.models import products

RATES = (0.0, 0.3, 0.6, 0.9)
TOKENS = 30
WAYS = (products.LEAST, 2**62)  # least size of a product that oneDNN gets: as it is, and never


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--random", nargs=2, type=int, metavar=("WIDTH", "LAYERS"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(random_model(folder, *args.random) if args.random else args.model, dtype="float32")
        if not products.are_offered():
            sys.exit("no processor of AMD's, or torch without MKL or oneDNN: the engine takes MKL's products only")
        clock = time.process_time if args.threads == 1 else time.perf_counter
        cells(loaded, args.repeats, clock)
        replies(loaded, args.repeats, clock)
        shapes(loaded)


def cells(loaded: LoadedModel, repeats: int, clock: Callable[[], float]) -> None:
    text = engine.windows("demo", loaded.tokenizer, role="evaluation", samples=16, length=256)
    scores = compute_scores(loaded, ["random"], None, seeds=(0,))["random"][0]
    for rate in RATES:
        cell = Cell(loaded, edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows), Nll(text))
        seconds: dict[int, list[float]] = {way: [] for way in WAYS}
        nats: dict[int, float] = {}
        for repeat in range(repeats + 1):
            for way in WAYS:
                products.LEAST = way
                with tempfile.TemporaryDirectory() as place, Store(place) as store:
                    start = clock()
                    nats[way] = LocalRunner(store).run([cell])[cell].nats_per_token
                    if repeat:  # the first one warms up
                        seconds[way].append(clock() - start)
        faster, plain = (statistics.median(seconds[way]) for way in WAYS)
        apart = abs(nats[WAYS[0]] - nats[WAYS[1]])
        said = f"rate {rate:3.0%}: {faster:.3f} s with oneDNN, {plain:.3f} s without: {plain / faster:.2f}"
        sys.stdout.write(f"{said}; NLL {apart:.1e} nats apart\n")
        sys.stdout.flush()


def replies(loaded: LoadedModel, repeats: int, clock: Callable[[], float]) -> None:
    """As Live edit writes them: one prompt, unedited and under two edits."""
    scores = compute_scores(loaded, ["random"], None, seeds=(0,))["random"][0]
    edits = [edit_of(removed_rows(scores, "lerf", rate), loaded.rows.n_rows) for rate in (0.0, 0.01, 0.02)]
    seconds: dict[int, list[float]] = {way: [] for way in WAYS}
    found = {}
    for repeat in range(repeats + 1):
        for way in WAYS:
            products.LEAST = way
            start = clock()
            found[way] = [reply.text for [reply] in generate_under(loaded, edits, ["Where can I buy bread?"], TOKENS)]
            if repeat:
                seconds[way].append(clock() - start)
    faster, plain = (statistics.median(seconds[way]) for way in WAYS)
    same = "the same replies" if found[WAYS[0]] == found[WAYS[1]] else "replies differ"
    said = f"three replies of up to {TOKENS} tokens: {faster:.3f} s with oneDNN, {plain:.3f} s without"
    sys.stdout.write(f"{said}: {plain / faster:.2f}; {same}\n")
    sys.stdout.flush()


def shapes(loaded: LoadedModel) -> None:
    products.LEAST = 0
    linears = {tuple(linear.weight.shape): linear for linear in loaded.model.modules() if type(linear) is nn.Linear}
    with torch.inference_mode():
        for (outputs, inputs), linear in linears.items():
            tokens = 128 if outputs == loaded.model.config.vocab_size else 2048  # the head has many outputs
            input = torch.randn(tokens, inputs)
            billions = 2 * input.numel() * outputs / 1e9

            def faster(linear: nn.Linear = linear, input: torch.Tensor = input) -> None:
                with products.faster_products():
                    linear(input)

            def plain(linear: nn.Linear = linear, input: torch.Tensor = input) -> None:
                linear(input)

            one, other = (billions / least_seconds(way) for way in (faster, plain))
            shape = f"{tokens} x {inputs} by {inputs} x {outputs}"
            sys.stdout.write(f"{shape}: {one:.0f} with oneDNN, {other:.0f} without\n")


def least_seconds(work: Callable[[], None]) -> float:
    least = float("inf")
    for _ in range(30):
        start = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - start)
    return least


if __name__ == "__main__":
    main()
