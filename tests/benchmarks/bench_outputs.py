"""Several edits per batch at the outputs against one mask at a time in the weights, on a refusal grid.

    python tests/benchmarks/bench_outputs.py

The shipped model, refusal masks of several k, both prompts of held-out pairs; the replies must be the same.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch
from rich.console import Console

from engine.data.corpora import contrast_pairs
from engine.edits.contrasts import load_contrasts, refusal_mask
from engine.edits.edit import Edit, edit_of
from engine.interventions.in_weights import zeroed
from engine.measures.generation import BATCH_SIZE, Reply, generate_batch, generate_under
from engine.models.loading import LoadedModel, load_model
from precomputed import demo_dir

DOMAIN, SELECTOR, LAMBDA = "hate", "lrp", 0.5
KS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1)
PAIRS, REPLY_TOKENS, ROUNDS = (4, 16), 60, 3


def in_turn(loaded: LoadedModel, edits: list[Edit], prompts: list[str]) -> list[list[Reply]]:
    """One mask after the other in the weights, its prompts as batches."""
    replies = []
    for edit in edits:
        with zeroed(loaded, edit.units):
            replies.append(generate_batch(loaded, prompts, REPLY_TOKENS))
    return replies


def main() -> int:
    """Print medians over interleaved rounds; exit code 1 if a reply differs."""
    loaded = load_model("demo", dtype="float32", device="cpu")
    contrasts, _ = load_contrasts(demo_dir() / "results" / "contrast.safetensors")
    contrast = next(one for one in contrasts if (one.selector, one.domain) == (SELECTOR, DOMAIN))
    edits = [edit_of(refusal_mask(contrast, LAMBDA, k), loaded.rows.n_rows) for k in KS]
    pairs = contrast_pairs("demo", DOMAIN, "heldout")
    console = Console(highlight=False)
    console.print(f"{len(edits)} masks, batches of {BATCH_SIZE}, {torch.get_num_threads()} threads, {ROUNDS} rounds")
    ways = {
        "one mask at a time": in_turn,
        "several per batch": lambda *grid: generate_under(*grid, REPLY_TOKENS),
    }
    differing = 0
    for count in PAIRS:
        prompts = [prompt for pair in pairs[:count] for prompt in (pair.risk, pair.base)]
        times: dict[str, list[float]] = {name: [] for name in ways}
        found = {}
        for way in ways.values():  # warm up
            way(loaded, edits[:2], prompts[:2])
        for _ in range(ROUNDS):  # in turn: what else the machine does counts for both
            for name, way in ways.items():
                start = time.perf_counter()
                found[name] = [[reply.text for reply in replies] for replies in way(loaded, edits, prompts)]
                times[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(some) for name, some in times.items()}
        slow, fast = medians.values()
        one, other = found.values()
        same = sum(a == b for first, second in zip(one, other, strict=True) for a, b in zip(first, second, strict=True))
        differing += len(edits) * len(prompts) - same
        told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in medians.items())
        console.print(
            f"{len(prompts):4} prompts: {told}; {slow / fast:.2f} times faster, "
            f"{same} of {len(edits) * len(prompts)} replies the same"
        )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
