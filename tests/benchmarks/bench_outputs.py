"""A refusal grid: several edits per batch at the outputs, against one mask at a time.

    python tests/benchmarks/bench_outputs.py [--random WIDTH LAYERS] [--pairs 4 16]

One mask at a time in two ways: a plain script (a deep copy of the model per mask, its rows set to zero, all prompts
padded on the left as one batch of transformers' `generate`), and the engine with the mask in the weights. The plain
script's model is loaded by `from_pretrained` alone; it shares the process, so that freed memory stays with it too. The
shipped model with its refusal masks of several k, or random weights of that hidden size and number of blocks with
random rows; both prompts of held-out pairs. The replies must be the same. Times by the clock, medians.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from bench_sweep import random_model
from rich.console import Console

from engine.data.corpora import contrast_pairs
from engine.data.prompts import pad_left, prompt_ids
from engine.edits.contrasts import load_contrasts, refusal_mask
from engine.edits.edit import Edit, edit_of
from engine.interventions.in_weights import zeroed
from engine.measures.generation import BATCH_SIZE, generate_batch, generate_under
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel, load_model
from precomputed import demo_dir

DOMAIN, SELECTOR, LAMBDA = "hate", "lrp", 0.5
KS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1)
REPLY_TOKENS, ROUNDS = 60, 3
Texts = list[list[str]]  # [mask][prompt]
Way = Callable[[LoadedModel, list[Edit], list[str]], Texts]


def in_turn(loaded: LoadedModel, edits: list[Edit], prompts: list[str]) -> Texts:
    """One mask after the other in the weights, its prompts as batches."""
    replies = []
    for edit in edits:
        with zeroed(loaded, edit.units):
            replies.append([reply.text for reply in generate_batch(loaded, prompts, REPLY_TOKENS)])
    return replies


def together(loaded: LoadedModel, edits: list[Edit], prompts: list[str]) -> Texts:
    return [[reply.text for reply in some] for some in generate_under(loaded, edits, prompts, REPLY_TOKENS)]


class Plain:
    """The script: the model as transformers loads it, and which rows to zero."""

    def __init__(self, folder: str) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.no_grad()
    def __call__(self, loaded: LoadedModel, edits: list[Edit], prompts: list[str]) -> Texts:
        batch = pad_left([prompt_ids(loaded.tokenizer, prompt) for prompt in prompts])
        replies = []
        for edit in edits:
            model = copy.deepcopy(self.model)
            for layer in loaded.rows.layers:
                inside = edit.units[(edit.units >= layer.start) & (edit.units < layer.start + layer.rows)]
                model.get_submodule(layer.name).weight[torch.from_numpy(inside - layer.start)] = 0
            new = model.generate(
                batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=REPLY_TOKENS, do_sample=False
            )[:, batch.input_ids.shape[1] :]
            decoded = loaded.tokenizer.batch_decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            replies.append(decoded)
        return replies


def masks(loaded: LoadedModel, random: bool) -> list[Edit]:
    if random:
        numbers, rows = np.random.default_rng(0), loaded.rows.n_rows
        return [edit_of(np.sort(numbers.choice(rows, round(k * rows), replace=False)), rows) for k in KS]
    contrasts, _ = load_contrasts(demo_dir() / "results" / "contrast.safetensors")
    contrast = next(one for one in contrasts if (one.selector, one.domain) == (SELECTOR, DOMAIN))
    return [edit_of(refusal_mask(contrast, LAMBDA, k), loaded.rows.n_rows) for k in KS]


def main() -> int:
    """Print medians over interleaved rounds; exit code 1 if a reply differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", nargs=2, type=int, metavar=("WIDTH", "LAYERS"))
    parser.add_argument("--pairs", nargs="+", type=int, default=(4, 16))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = random_model(folder, *args.random) if args.random else "demo"
        loaded = load_model(model, dtype="float32", device="cpu")
        return run(loaded, masks(loaded, bool(args.random)), args)


def run(loaded: LoadedModel, edits: list[Edit], args: Any) -> int:
    pairs = contrast_pairs("demo", DOMAIN, "heldout")
    console = Console(highlight=False, width=200)
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    console.print(
        f"{parameters:,} parameters, {len(edits)} masks, batches of {BATCH_SIZE}, {torch.get_num_threads()} threads, "
        f"{ROUNDS} rounds"
    )
    ways: dict[str, Way] = {
        "a plain script": Plain(str(find_checkpoint(loaded.id).folder)),
        "one mask at a time": in_turn,
        "several per batch": together,
    }
    differing = 0
    for count in args.pairs:
        prompts = [prompt for pair in pairs[:count] for prompt in (pair.risk, pair.base)]
        times: dict[str, list[float]] = {name: [] for name in ways}
        found: dict[str, Texts] = {}
        for way in ways.values():  # warm up
            way(loaded, edits[:2], prompts[:2])
        for _ in range(ROUNDS):  # in turn: what else the machine does counts for all
            for name, way in ways.items():
                start = time.perf_counter()
                found[name] = way(loaded, edits, prompts)
                times[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(some) for name, some in times.items()}
        plain, slow, fast = medians.values()
        same = sum(
            len({found[name][edit][prompt] for name in ways}) == 1
            for edit in range(len(edits))
            for prompt in range(len(prompts))
        )
        differing += len(edits) * len(prompts) - same
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
        console.print(
            f"{len(prompts):4} prompts: {told}; {plain / fast:.2f} and {slow / fast:.2f} times faster, "
            f"{same} of {len(edits) * len(prompts)} replies the same"
        )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
