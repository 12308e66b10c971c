"""Every command on random weights in the shape of a published model: seconds and peak resident memory of each process.

    python tests/benchmarks/bench_full_size.py [NAME ...] [--dtype bfloat16] [--limit GIB]

Shapes are those of the models' published configurations; tokenizer and chat template are the shipped model's, so that
texts, pairs and replies are too. What is measured is size, not sense. Exit code 1 where a command fails or its memory
is beyond the limit. Peak memory is the kernel's record of the process (`ru_maxrss`), mapped weights included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3TextConfig,
    LlamaConfig,
    PretrainedConfig,
    Qwen3Config,
)

from engine.records.shipped import demo_model_dir

_SMALL: dict[str, Any] = {"max_position_embeddings": 4096, "tie_word_embeddings": True}
SHAPES: dict[str, PretrainedConfig] = {
    "Llama-3.2-1B": LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, **_SMALL,
    ),
    "Qwen3-0.6B": Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, **_SMALL,
    ),
    "Gemma-3-1B": Gemma3TextConfig(
        vocab_size=262144, hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4,
        num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256, sliding_window=512, **_SMALL,
    ),
}  # fmt: skip
TEXT = "--corpus demo --samples 8 --max-length 128"
EVAL = "--eval-corpus demo --eval-samples 4 --eval-length 256"
PROMPTS = "--pairs demo --domains hate --pairs-per-domain 8 --heldout-pairs 8 --reply-tokens 16 --longer-replies 1"
GRID = f"--selectors mean_activation --lambdas .1,.2,.3,.4 --ks .01,.02 --seeds 1 --all-cells --widen 0 {EVAL}"
ASKED = "--pairs demo --heldout-pairs 2 --reply-tokens 16"
STEPS: dict[str, str] = {
    "rows": "rows MODEL",
    "doctor": "doctor MODEL",
    "estimate": f"estimate MODEL {TEXT} {EVAL}",
    "score, 8 windows of 128: wanda": f"score MODEL --selectors wanda {TEXT}",
    "score: grad_x_input": f"score MODEL --selectors grad_x_input {TEXT}",
    "score: lrp": f"score MODEL --selectors lrp {TEXT}",
    "score: ig, 16 steps": f"score MODEL --selectors ig {TEXT}",
    "mask": f"mask MODEL --selector wanda --rate 30% --out OUT/mask.safetensors {TEXT}",
    "sweep, 3 cells of 4 x 256 tokens": f"sweep MODEL --selectors wanda --orders lerf --rates .1,.5,.9 {TEXT} {EVAL}",
    "analyze agreement, depth": f"analyze MODEL agreement depth --selectors wanda,lrp {TEXT}",
    "refusal run, 8 edits x 16 prompts": f"refusal run MODEL {PROMPTS} {GRID} {TEXT}",
    "export": f"export MODEL --mask OUT/mask.safetensors --out OUT/edited {ASKED}",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="NAME", help=f"of {', '.join(SHAPES)} (default: all)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--limit", type=float, default=16.0, help="GiB that no command may pass (default: 16)")
    parser.add_argument("--only", default="", help="the steps that begin with one of these texts, with commas between")
    args = parser.parse_args()
    out, wrong = Console(highlight=False, width=140), 0
    for name in args.models or SHAPES:
        table = Table("command", "seconds", "peak GiB", title=f"{name}, random weights, {args.dtype}")
        with tempfile.TemporaryDirectory() as folder:
            model = str(Path(folder) / "model")
            # In a process of its own: the kernel counts what this one holds as a child's until that has its own.
            made = multiprocessing.get_context("spawn").Process(target=save_random, args=(SHAPES[name], model))
            made.start()
            made.join()
            for step, words in STEPS.items():
                if not step.startswith(tuple(args.only.split(","))):
                    continue
                code, seconds, peak = measured(words, model, Path(folder), args.dtype)
                wrong += code != 0 or peak > args.limit
                table.add_row(step, f"{seconds:.1f}", f"{peak:.2f}" + ("" if code == 0 else f" (exit code {code})"))
                out.print(f"{name}: {step}: {seconds:.1f} s, {peak:.2f} GiB, exit code {code}")
        out.print(table)
    return 1 if wrong else 0


def measured(words: str, model: str, folder: Path, dtype: str) -> tuple[int, float, float]:
    """Exit code, seconds, peak GiB of one command in a process of its own."""
    parts = [part.replace("MODEL", model).replace("OUT", str(folder)) for part in words.split()]
    parts += ["--store", str(folder / "store")] * (parts[0] not in ("rows", "doctor", "estimate"))
    parts += ["--dtype", dtype] * (parts[0] != "rows")
    start = time.perf_counter()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "engine.cli", *parts], stdout=log, stderr=log)
        _, status, used = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if code:
        sys.stderr.write((folder / "log").read_text(encoding="utf-8")[-2000:])
    return code, time.perf_counter() - start, used.ru_maxrss / 2**20


def save_random(config: PretrainedConfig, folder: str) -> None:
    """Random weights of this shape, in bfloat16 as they are published."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = AutoModelForCausalLM.from_config(config)
    finally:
        torch.set_default_dtype(before)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo_model_dir()).save_pretrained(folder)


if __name__ == "__main__":
    sys.exit(main())
