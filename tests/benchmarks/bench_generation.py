"""Batched greedy replies against one prompt at a time with `generate` of transformers, in one run.

    python tests/benchmarks/bench_generation.py [--threads N]

The shipped model, both prompts of 64 held-out pairs, at most 60 new tokens; the replies must be the same.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import torch
from rich.console import Console

from engine.data.corpora import contrast_pairs
from engine.data.prompts import prompt_ids
from engine.measures.generation import generate_batch
from engine.models.loading import LoadedModel, load_model

AT_LEAST = 4.0  # times faster
PAIRS, REPLY_TOKENS, ROUNDS = 64, 60, 3


def one_by_one(loaded: LoadedModel, prompts: list[str]) -> list[str]:
    """Greedy `generate` of transformers, one prompt after the other."""
    replies = []
    for prompt in prompts:
        ids = torch.tensor([prompt_ids(loaded.tokenizer, prompt)])
        new = loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=REPLY_TOKENS, do_sample=False
        )[0, ids.shape[1] :]
        replies.append(loaded.tokenizer.decode(new, skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return replies


def main() -> int:
    """Print both times; exit code 1 if batches are not `AT_LEAST` times faster or a reply differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    torch.set_num_threads(parser.parse_args().threads)
    loaded = load_model("demo", dtype="float32", device="cpu")
    pairs = contrast_pairs("demo", "hate", "heldout")[:PAIRS]
    prompts = [pair.risk for pair in pairs] + [pair.base for pair in pairs]
    generate_batch(loaded, prompts[:2], 4)  # warm up
    one_by_one(loaded, prompts[:1])
    batched_s = single_s = math.inf
    for _ in range(ROUNDS):  # in turn, the best of each: what else the machine does counts for neither
        start = time.perf_counter()
        batched = generate_batch(loaded, prompts, REPLY_TOKENS)
        batched_s = min(batched_s, time.perf_counter() - start)
        start = time.perf_counter()
        single = one_by_one(loaded, prompts)
        single_s = min(single_s, time.perf_counter() - start)
    same = sum(a.text == b for a, b in zip(batched, single, strict=True))
    tokens = sum(reply.tokens for reply in batched)
    console = Console(highlight=False)
    console.print(f"{len(prompts)} prompts, {tokens} new tokens, {torch.get_num_threads()} threads")
    console.print(f"batched     {batched_s:7.2f} s {tokens / batched_s:9.0f} tokens/s")
    console.print(f"one by one  {single_s:7.2f} s {tokens / single_s:9.0f} tokens/s")
    console.print(f"{single_s / batched_s:.1f} times faster, {same} of {len(prompts)} replies the same")
    return 0 if single_s >= AT_LEAST * batched_s and same == len(prompts) else 1


if __name__ == "__main__":
    sys.exit(main())
