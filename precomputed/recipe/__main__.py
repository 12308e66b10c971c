"""Rebuild everything under precomputed/demo: `uv run python -m precomputed.recipe`. At most 45 minutes on 2 cores."""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import tempfile
from pathlib import Path

import torch
from rich.logging import RichHandler

from precomputed import demo_dir

log = logging.getLogger("precomputed.recipe")
SEEDS = (1, 2)  # the first is shipped, of the second only the numbers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m precomputed.recipe", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=demo_dir(), help="folder to write (default: precomputed/demo)"
    )
    parser.add_argument(
        "--only", choices=("text", "model", "seeds", "results"), help="one part instead of all"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    rebuild(args.out, args.only)


def rebuild(out: Path, only: str | None = None) -> None:
    """Text, then both models, then their numbers, then the results of the shipped one."""
    from precomputed.recipe import files, results

    torch.manual_seed(0)
    splits = files.corpus()
    if only in (None, "text"):
        files.write_corpus(out / "corpus", splits)
        files.write_instructions(out / "corpus")
        files.write_prompts(out)
        log.info("text written: %s documents", {name: len(documents) for name, documents in splits.items()})
    if only in (None, "model", "seeds"):
        _models(
            out, splits["training"], SEEDS if only is None else SEEDS[:1] if only == "model" else SEEDS[1:]
        )
    if only in (None, "results"):
        from engine.models import load_model

        results.build(
            load_model(str(out / "model") if out != demo_dir() else "demo", dtype="float32", device="cpu"),
            out / "results",
        )


def _models(out: Path, training: list[str], training_seeds: tuple[int, ...]) -> None:
    """Train the seeds on one tokenizer; the first goes to `out/model`, all numbers to `out/seeds.json`."""
    from engine.models import load_model
    from precomputed.recipe import seeds
    from precomputed.recipe.data import stream
    from precomputed.recipe.save import save_model
    from precomputed.recipe.tokenizer import tokenizer_of_recipe
    from precomputed.recipe.train import Plan, train

    tokenizer = tokenizer_of_recipe(training)
    tokens = stream(tokenizer, training)
    log.info("training text: %d tokens", len(tokens))
    path = out / "seeds.json"
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for seed in training_seeds:
        log.info("training seed %d", seed)
        model, planted = train(tokenizer, tokens, Plan(), seed)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            save_model(model, tokenizer, folder)
            if seed == SEEDS[0]:
                shutil.rmtree(out / "model", ignore_errors=True)
                shutil.copytree(folder, out / "model")
            one = seeds.record(load_model(str(folder), dtype="float32", device="cpu"), seed, out)
        one["planted"] = {str(block): neurons for block, neurons in planted.items()}
        records = sorted([*(r for r in records if r["seed"] != seed), one], key=lambda r: int(r["seed"]))
        seeds.write(path, records)
        log.info(
            "seed %d, room in nats: %s",
            seed,
            {name: round(value, 2) for name, value in seeds.margins(one).items()},
        )


if __name__ == "__main__":
    random.seed(0)
    main()
