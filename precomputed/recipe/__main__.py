"""Rebuild what ships under precomputed/demo: `uv run python -m precomputed.recipe`. At most 45 minutes on 2 cores.

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

from precomputed import demo_dir

log = logging.getLogger("precomputed.recipe")
SHIPPED_SEED, SECOND_SEED = 1, 2  # of the second only the numbers are kept


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m precomputed.recipe", description=__doc__)
    parser.add_argument("--out", type=Path, default=demo_dir(), help="folder to write (default: precomputed/demo)")
    parser.add_argument(
        "--only",
        choices=("text", "model", "results", "refusal", "seeds"),
        help="one part; refusal: of the results only these; seeds: the second training seed",
    )
    parser.add_argument(
        "--store",
        type=Path,
        help="keep measured cells here, so that an interrupted build of the results goes on",
    )
    parser.add_argument(
        "--tasks", help="folder with local task files, to measure downstream tasks as well (see the README)"
    )
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    rebuild(args.out, args.only, args.store, args.tasks)


def rebuild(out: Path, only: str | None = None, store: Path | None = None, tasks: str | None = None) -> None:
    """Text, then the model and its numbers, then its results."""
    from precomputed.recipe import files, results

    torch.manual_seed(0)
    splits = files.corpus()
    if only in (None, "text"):
        files.write_corpus(out / "corpus", splits)
        files.write_instructions(out / "corpus")
        files.write_prompts(out)
        log.info("text written: %s documents", {name: len(documents) for name, documents in splits.items()})
    if only in (None, "model"):
        _train(out, splits["training"], SHIPPED_SEED)
    if only == "seeds":
        _train(out, splits["training"], SECOND_SEED)
    if only in (None, "results", "refusal"):
        from engine.models.loading import load_model

        shipped = "demo" if out == demo_dir() else str(out / "model")
        loaded = load_model(shipped, dtype="float32", device="cpu")
        if only == "refusal":
            results.refusal_only(loaded, out / "results", store_folder=store)
        else:
            results.build(loaded, out / "results", store_folder=store, tasks=tasks)


def _train(out: Path, training: list[str], seed: int) -> None:
    """Train one seed; the shipped one goes to `out/model`, the numbers of each to `out/seeds.json`."""
    from engine.models.loading import load_model
    from precomputed.recipe import seeds
    from precomputed.recipe.tokenizer import tokenizer_of_recipe
    from precomputed.recipe.train import Plan, train
    from precomputed.town.data import stream
    from precomputed.town.save import save_model

    tokenizer = tokenizer_of_recipe(training)
    tokens = stream(tokenizer, training)
    log.info("training seed %d on %d tokens of text", seed, len(tokens))
    model, planted = train(tokenizer, tokens, Plan(), seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        save_model(model, tokenizer, folder)
        if seed == SHIPPED_SEED:
            shutil.rmtree(out / "model", ignore_errors=True)
            shutil.copytree(folder, out / "model")
        one = seeds.record(load_model(str(folder), dtype="float32", device="cpu"), seed, out)
    one["planted"] = {str(block): neurons for block, neurons in planted.items()}
    path = out / "seeds.json"
    records = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    seeds.write(path, sorted([*(r for r in records if r["seed"] != seed), one], key=lambda r: int(r["seed"])))
    room = {name: round(value, 2) for name, value in seeds.margins(one).items()}
    log.info("seed %d, room in nats: %s", seed, room)


if __name__ == "__main__":
    random.seed(0)
    main()
