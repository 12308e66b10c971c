"""What `estimate --probe` says beforehand against what `score` and `sweep` then take: shipped model, random Llamas.

    python tests/benchmarks/bench_estimate.py [demo|MILLIONS ...] [--probe SECONDS] [--windows N] [--rates RATE,…]

MILLIONS: of parameters of a random Llama without its embeddings, such as 3 34 150. Wall time of this process from an
empty store: next to nothing else should run. Printed are the lower bound of the products, what the probe says, and what
the run took.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from engine.models.loading import load_model, load_sketch
from engine.records.shipped import demo_model_dir
from engine.results.store import Store
from engine.run.audit_plan import preset
from engine.run.estimate import SCORE, SWEEP, estimate, flops_per_second
from engine.run.probe import BUDGET_S, probe
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import LocalRunner, Results
from engine.run.scoring import score_model
from engine.studies.audit.inputs import AuditInputs
from engine.studies.audit.sweep import Sweep

SIZES = {3: (128, 384, 6), 34: (512, 1536, 8), 150: (1024, 3072, 10)}  # width, MLP, blocks
WITHIN = 0.25
RATES = (0.0, 0.15, 0.3, 0.5, 0.7, 0.9)


def main() -> int:
    """Exit code 1 if an estimate is off by more than `WITHIN` of what the run took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["demo", *map(str, SIZES)])
    parser.add_argument("--probe", type=float, default=BUDGET_S)
    parser.add_argument("--windows", type=int, default=64, help="of calibration and of evaluation")
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    args = parser.parse_args()
    out, off = Console(highlight=False, width=140), 0
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            model = name if name == "demo" else save_random(SIZES[int(name)], Path(folder) / "model")
            whole = preset("demo")
            rates = tuple(map(float, args.rates.split(",")))
            scoring = replace(whole.scoring, samples=args.windows)
            plan = replace(whole, scoring=scoring, eval_samples=args.windows, sweep_rates=rates)
            sketch, loaded = load_sketch(model, device="cpu"), load_model(model, device="cpu")
            speed = flops_per_second(sketch)
            found = estimate(sketch, plan, RefusalPlan(), [SCORE, SWEEP])
            timed = {one.stage: one for one in probe(loaded, plan, found, speed, args.probe)}
            with Store(Path(folder) / "store") as store:
                start = time.perf_counter()
                score_model(loaded, plan.scoring, store=store)
                scored = time.perf_counter()
                audit = AuditInputs(loaded, plan, store)
                LocalRunner(store).run(Sweep().cells(audit, Results()))
                took = {SCORE: scored - start, SWEEP: time.perf_counter() - scored}
            for stage, seconds in took.items():
                bound = sum(one.flops for one in found.work if one.stage == stage) / speed
                one = timed[stage]
                told = one.seconds or float("nan")
                ratio = told / seconds
                off += not abs(ratio - 1) <= WITHIN
                out.print(
                    f"{name:>5} {stage:6} products {bound:7.1f} s, probe {told:7.1f} s (in {one.took_s:4.1f} s), "
                    f"took {seconds:7.1f} s: {ratio:.2f}"
                )
    return 1 if off else 0


def save_random(size: tuple[int, int, int], folder: Path) -> str:
    """A random Llama of that width, MLP and number of blocks, with the shipped model's tokenizer."""
    torch.manual_seed(0)
    width, mlp, blocks = size
    config = LlamaConfig(
        vocab_size=6528, hidden_size=width, intermediate_size=mlp, num_hidden_layers=blocks,
        num_attention_heads=width // 64, num_key_value_heads=width // 64, max_position_embeddings=1024,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(demo_model_dir()).save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    sys.exit(main())
