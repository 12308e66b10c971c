"""Masks measured by the engine against a plain script: a copy of the model per mask, one window at a time, all logits.

    uv run python tests/benchmarks/bench_sweep.py [MODEL] [--threads 2] [--random WIDTH LAYERS]
        [--peer deepcopy|from_pretrained]

The two take turns, and every number is a median: of CPU seconds where each has one thread (what else runs on the
machine then matters little), else of seconds by the clock. The engine's side is `sweep_model`, mask by mask, with a
store for each repeat: hashing and what the store writes are in it, the model's own load is not. The peer is a process
of its own, as a script is, with torch's own settings and nothing of the engine but the rows to zero and the tokens; its
copy or load of the model is in it, once per mask. Prints seconds and their ratio (above 1: the engine is faster) per
rate, over the grid, and over rates from 50%; and the largest difference of an NLL. MODEL: default the shipped model.
--random: random weights of that hidden size and number of blocks in its place, MLPs three times as wide.
On few windows the engine measures several masks in one pass, which one mask at a time does not use: give 16 and more.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch
import transformers
from torch import Tensor
from torch.nn import functional

from engine import LoadedModel, Store, compute_scores, load_model, removed_rows, sweep_model, windows
from engine.data.corpora import Windows
from engine.models.checkpoints import find_checkpoint

RATES = (0.0, *(round(0.1 * step, 1) for step in range(1, 10)))
ORDERS = ("lerf", "morf")


class Plain:
    """The script: what it knows is the model's folder, the tokens, and which rows to zero."""

    def __init__(self, folder: str, peer: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.folder, self.peer = folder, peer
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def fresh(self) -> Any:
        if self.peer == "from_pretrained":
            return transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        return copy.deepcopy(self.model)

    def nll(self, rows: dict[str, Tensor], text: Tensor) -> float:
        """Nats per token of a fresh model without these rows: {name of the Linear: numbers of its rows}."""
        model = self.fresh()
        with torch.no_grad():
            for name, numbers in rows.items():
                linear = model.get_submodule(name)
                linear.weight[numbers] = 0
                if linear.bias is not None:
                    linear.bias[numbers] = 0
            total = 0.0
            for window in text:
                logits = model(input_ids=window[None]).logits
                total += functional.cross_entropy(logits[0, :-1].float(), window[1:], reduction="sum").item()
        return total / (text.shape[0] * (text.shape[1] - 1))


_plain: list[Plain] = []  # of the peer's process


def begin_plain(folder: str, peer: str, threads: int) -> None:
    _plain.append(Plain(folder, peer, threads))


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
    parser.add_argument("--peer", choices=("deepcopy", "from_pretrained"), default="deepcopy")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--selector", default="lrp", help="whose masks")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_model(random_model(folder, *args.random) if args.random else args.model, dtype="float32")
        path = str(find_checkpoint(loaded.id).folder)
        with ExitStack() as opened:
            stores = [opened.enter_context(Store(f"{folder}/store{one}")) for one in range(args.repeats + 1)]
            spawned = multiprocessing.get_context("spawn")
            process = ProcessPoolExecutor(1, spawned, begin_plain, (path, args.peer, args.threads))
            run(loaded, args, stores, opened.enter_context(process))


def run(loaded: LoadedModel, args: argparse.Namespace, stores: Sequence[Store], process: ProcessPoolExecutor) -> None:
    calibration = windows("demo", loaded.tokenizer, role="calibration", samples=8, length=128)
    scores = compute_scores(loaded, [args.selector], calibration)[args.selector]
    scores = scores if scores.ndim == 1 else scores[0]
    text = windows("demo", loaded.tokenizer, role="evaluation", samples=args.windows, length=args.length)
    tokens, by_clock = text.input_ids.numpy(), args.threads > 1

    engine_nll(loaded, scores, text, "lerf", 0.5, stores[-1])  # warm
    process.submit(timed_plain, {}, tokens, by_clock).result()
    medians: dict[float, tuple[float, float]] = {}
    difference = 0.0
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    name = "random weights" if args.random else loaded.id
    sys.stdout.write(
        f"{name}, {parameters:,} parameters, {text.input_ids.numel():,} tokens in windows of {args.length}, masks "
        f"of {args.selector}, peer {args.peer}, {args.repeats} repeats, threads {args.threads}\n"
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
