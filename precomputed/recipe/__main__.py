"""Rebuild what ships under precomputed/demo: `uv run python -m precomputed.recipe`. Takes hours; see the demo's README.

`--only seeds` trains the second seed, of which only the numbers are kept: it shows what does not depend on the seed.
"""

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
from transformers import PreTrainedTokenizerFast

from precomputed import demo_dir

log = logging.getLogger("precomputed.recipe")
START = Path(__file__).parent / "start"  # the weights that training goes on from, and their tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m precomputed.recipe", description=__doc__)
    parser.add_argument("--out", type=Path, default=demo_dir(), help="folder to write (default: precomputed/demo)")
    parser.add_argument(
        "--only",
        choices=("text", "model", "replies", "results", "refusal", "seeds"),
        help="one part; replies: those that the README prints; refusal: of the results only these; "
        "seeds: the second training seed",
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="keep training checkpoints and measured cells in this folder, so that an interrupted build goes on",
    )
    parser.add_argument(
        "--from-nothing",
        action="store_true",
        help="train from new weights with a tokenizer of their own, in the place of those in precomputed/recipe/start, "
        "which had stage 1: much longer, and another model",
    )
    args = parser.parse_args()
    if not args.from_nothing and not START.is_dir():
        parser.error(f"{START} is missing; expected a clone of the repository, which has it; or add --from-nothing")
    out: Path = args.out
    if out != demo_dir() and out.exists() and any(out.iterdir()) and not (out / "corpus").is_dir():
        parser.error(f"{out} holds what this program did not write; give a new folder with --out")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    rebuild(args.out.resolve(), args.only, args.work, None if args.from_nothing else START)


def rebuild(out: Path, only: str | None = None, work: Path | None = None, start: Path | None = START) -> None:
    """Text and tasks, then the model and its numbers, then its results and some replies."""
    from precomputed.recipe import (
        demo_files as files,
        demo_results as results,
        demo_tasks as tasks,
        numbers,
        seeds,
        shown,
    )
    from precomputed.recipe.same_bits import keep_to_common_instructions

    if only in (None, "model", "seeds") and not keep_to_common_instructions():
        log.warning("this process does not keep to AVX2, so that weights may not have the bits of those shipped")
    torch.manual_seed(0)
    splits = files.corpus() if only in (None, "text", "model", "seeds") else {}
    if only in (None, "text"):
        files.write_corpus(out / "corpus", splits)
        files.write_instructions(out / "corpus")
        files.write_prompts(out)
        tasks.write_tasks(out / "tasks")
        log.info("text written: %s documents", {name: len(documents) for name, documents in splits.items()})
    if only in (None, "model"):
        _train(out, splits["training"], seeds.SHIPPED, work, start)
    if only in (None, "seeds"):
        _train(out, splits["training"], seeds.SECOND, work, start)
    if only in (None, "results", "refusal", "replies"):
        from engine.models.loading import load_model

        name = "demo" if out == demo_dir() else str(out / "model")
        loaded = load_model(name, dtype="float32", device="cpu")
        store = work / "store" if work else None
        if only == "refusal":
            results.refusal_only(loaded, out / "results", store_folder=store)
        elif only != "replies":
            results.build(loaded, out / "results", store_folder=store)
        shown.write(loaded, out)
    if only != "text":
        numbers.write(out)


def _train(out: Path, training: list[str], seed: int, work: Path | None, start: Path | None) -> None:
    """Train one seed; the shipped one goes to `out/model`, the numbers of each to `out/seeds.json`."""
    from engine.models.loading import load_model
    from precomputed.recipe import seeds
    from precomputed.recipe.data import stream
    from precomputed.recipe.save import save_model
    from precomputed.recipe.tokenizer import tokenizer_of_recipe
    from precomputed.recipe.train import Plan, train

    tokenizer = (
        PreTrainedTokenizerFast.from_pretrained(start)  # nosec B615 # local
        if start
        else tokenizer_of_recipe(training)
    )
    tokens = stream(tokenizer, training)
    log.info("training seed %d on %d tokens of text", seed, len(tokens))
    kept_in = work / f"training-{seed}.safetensors" if work else None
    model, planted = train(tokenizer, tokens, Plan(), seed, kept_in, start)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        save_model(model, tokenizer, folder)
        if seed == seeds.SHIPPED:
            shutil.rmtree(out / "model", ignore_errors=True)
            shutil.copytree(folder, out / "model")
        one = seeds.record(load_model(str(folder), dtype="float32", device="cpu"), seed, out)
    one["planted"] = {str(block): neurons for block, neurons in planted.items()}
    path = out / "seeds.json"
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    seeds.write(path, sorted([*(r for r in records if r["seed"] != seed), one], key=lambda r: int(r["seed"])))
    room = {name: round(value, 2) for name, value in seeds.margins(one).items()}
    log.info("seed %d, room in nats: %s; replies: %s", seed, room, one["replies"])


if __name__ == "__main__":
    random.seed(0)
    main()
