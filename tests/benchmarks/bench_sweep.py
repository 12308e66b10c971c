"""Masks measured by the engine against a plain loop at its best: rows zeroed in place, transformers' own passes.

    uv run python tests/benchmarks/bench_sweep.py [MODEL] [--threads 1] [--random WIDTH LAYERS]

The two take turns, and every number is a median: of CPU seconds where each has one thread (what else runs on the
machine then matters little), else of seconds by the clock. The engine's side is `sweep_model`, mask by mask, with a
store for each repeat: hashing and what the store writes are in it, the model's own load is not. The peer is a process
of its own, as a script is, with torch's own settings and nothing of the engine but the rows to zero and the tokens;
it loads the model once, puts the rows back after each mask, and takes 1, 4, 8 or all windows per batch, whichever was
the fastest on the unedited model here. Prints seconds and their ratio (above 1: the engine is faster) per rate, over
the grid, and over rates from 50%; and the largest difference of an NLL. MODEL: default the shipped model; `smollm2` is
its folder of float32 weights (tests/real_models.py). --random: random weights of that hidden size and number of blocks
in its place, MLPs three times as wide.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import functional

from engine import LoadedModel, Store, compute_scores, load_model, removed_rows, sweep_model, windows
from engine.data.corpora import Windows
from engine.models.checkpoints import find_checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.real_models import SMOLLM2_FOLDER, real_models

RATES = (0.0, *(round(0.1 * step, 1) for step in range(1, 10)))
ORDERS = ("lerf", "morf")


class Plain:
    """The script: what it knows is the model's folder, the tokens, and which rows to zero."""

    def __init__(self, folder: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.batch = 1

    def take_the_best_batch(self, text: Tensor) -> int:
        seconds = {}
        for self.batch in {min(batch, text.shape[0]): None for batch in (1, 4, 8, text.shape[0])}:
            self.nll({}, text[: self.batch])  # warm
            seconds[self.batch] = min(timed(lambda: self.nll({}, text), by_clock=False)[0] for _ in range(2))
        self.batch = min(seconds, key=seconds.__getitem__)
        return self.batch

    def nll(self, rows: dict[str, Tensor], text: Tensor) -> float:
        """Nats per token without these rows: {name of the Linear: numbers of its rows}."""
        kept = []
        with torch.inference_mode():
            for name, numbers in rows.items():
                for tensor in self.model.get_submodule(name).parameters(recurse=False):
                    kept.append((tensor, numbers, tensor[numbers]))
                    tensor[numbers] = 0
            total = 0.0
            for windows in text.split(self.batch):
                logits = self.model(input_ids=windows, use_cache=False).logits[:, :-1]
                total += functional.cross_entropy(
                    logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="sum"
                ).item()
            for tensor, numbers, values in kept:
                tensor[numbers] = values
        return total / (text.shape[0] * (text.shape[1] - 1))


_plain: list[Plain] = []  # of the peer's process


def begin_plain(folder: str, threads: int) -> None:
    _plain.append(Plain(folder, threads))


def best_batch(text: Any) -> int:
    return _plain[0].take_the_best_batch(torch.from_numpy(text))


def timed_plain(rows: dict[str, Any], text: Any, by_clock: bool) -> tuple[float, float]:
    given = {name: torch.from_numpy(numbers) for name, numbers in rows.items()}
    return timed(lambda: _plain[0].nll(given, torch.from_numpy(text)), by_clock)


def rows_by_linear(loaded: LoadedModel, scores: Tensor, order: str, rate: float) -> dict[str, Any]:
    removed = removed_rows(scores, order, rate)
    found = {}
    for layer in loaded.rows.layers:
        inside = removed[(removed >= layer.start) & (removed < layer.start + layer.rows)] - layer.start
        if len(inside):
            found[layer.name] = inside
    return found


def engine_nll(loaded: LoadedModel, scores: Tensor, text: Windows, order: str, rate: float, store: Store) -> float:
    table = sweep_model(loaded, {"measured": scores}, text, store=store, rates=(rate,), orders=(order,))
    return float(table["nll"][0])


def random_model(folder: str, width: int, blocks: int) -> str:
    tokenizer = load_model("demo").tokenizer
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=blocks,
        num_attention_heads=width // 64, num_key_value_heads=width // 64, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def timed(work: Callable[[], float], by_clock: bool) -> tuple[float, float]:
    clock = time.perf_counter if by_clock else time.process_time
    start = clock()
    result = work()
    return clock() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="demo")
    parser.add_argument("--random", nargs=2, type=int, metavar=("WIDTH", "LAYERS"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--selector", default="lrp", help="whose masks")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        name = str(real_models() / SMOLLM2_FOLDER) if args.model == "smollm2" else args.model
        loaded = load_model(random_model(folder, *args.random) if args.random else name, dtype="float32")
        path = str(find_checkpoint(loaded.id).folder)
        with ExitStack() as opened:
            stores = [opened.enter_context(Store(f"{folder}/store{one}")) for one in range(args.repeats + 1)]
            spawned = multiprocessing.get_context("spawn")
            process = ProcessPoolExecutor(1, spawned, begin_plain, (path, args.threads))
            run(loaded, args, stores, opened.enter_context(process))


def run(loaded: LoadedModel, args: argparse.Namespace, stores: Sequence[Store], process: ProcessPoolExecutor) -> None:
    calibration = windows("demo", loaded.tokenizer, role="calibration", samples=8, length=128)
    scores = compute_scores(loaded, [args.selector], calibration)[args.selector]
    scores = scores if scores.ndim == 1 else scores[0]
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=args.windows, length=args.length)
    tokens, by_clock = text.input_ids.numpy(), args.threads > 1

    engine_nll(loaded, scores, text, "lerf", 0.5, stores[-1])  # warm
    batch = process.submit(best_batch, tokens).result()
    medians: dict[float, tuple[float, float]] = {}
    difference = 0.0
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    name = "random weights" if args.random else args.model
    sys.stdout.write(
        f"{name}, {parameters:,} parameters, {text.input_ids.numel():,} tokens in windows of {args.length}, masks "
        f"of {args.selector}, plain batches of {batch}, {args.repeats} repeats, threads {args.threads}\n"
        " rate   engine s    plain s    ratio\n"
    )
    for rate in args.rates:
        seconds: dict[str, list[list[float]]] = {"engine": [], "plain": []}
        for order in ORDERS if rate else ORDERS[:1]:
            found: dict[str, list[float]] = {"engine": [], "plain": []}
            rows = rows_by_linear(loaded, scores, order, rate)
            nll: dict[str, float] = {}

            def ours(store: Store, order: str = order, rate: float = rate) -> tuple[float, float]:
                return timed(lambda: engine_nll(loaded, scores, text, order, rate, store), by_clock)

            def theirs(_: Store, rows: dict[str, Any] = rows) -> tuple[float, float]:
                return process.submit(timed_plain, rows, tokens, by_clock).result()

            sides: list[tuple[str, Callable[[Store], tuple[float, float]]]] = [("engine", ours), ("plain", theirs)]
            for repeat, store in enumerate(stores[:-1]):
                for name, work in sides if repeat % 2 == 0 else reversed(sides):
                    spent, nll[name] = work(store)
                    found[name].append(spent)
            difference = max(difference, abs(nll["engine"] - nll["plain"]))
            for name, spents in found.items():
                seconds[name].append(spents)
        here, there = (sum(map(statistics.median, seconds[name])) for name in ("engine", "plain"))
        medians[rate] = here, there
        sys.stdout.write(f"{rate:5.0%} {here:10.3f} {there:10.3f} {there / here:8.2f}\n")
        sys.stdout.flush()
    for what, some in (("grid", medians), ("from 50%", {rate: pair for rate, pair in medians.items() if rate >= 0.5})):
        if some:
            here, there = (sum(pair[side] for pair in some.values()) for side in (0, 1))
            sys.stdout.write(f"{what:>9} {here:.3f} s against {there:.3f} s: {there / here:.2f}\n")
    sys.stdout.write(f"largest difference of an NLL {difference:.1e} nats\n")


if __name__ == "__main__":
    main()
