"""Make the town's texts, tasks and model in a folder, and check what the model says.

`uv run python -m precomputed.town --out FOLDER`
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
from pathlib import Path

import torch
from rich.logging import RichHandler

from precomputed.town import files
from precomputed.town.tasks import write_tasks

log = logging.getLogger("precomputed.town")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m precomputed.town", description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--only", choices=("text", "model", "check"), help="one part; check: what the model in --out says, as JSON"
    )
    parser.add_argument("--seed", type=int, default=1, help="training seed (default: 1)")
    parser.add_argument("--work", type=Path, help="keep training checkpoints here, so that an interrupted one goes on")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[RichHandler(show_path=False)])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    make(args.out.resolve(), args.only, args.seed, args.work)


def make(out: Path, only: str | None = None, seed: int = 1, work: Path | None = None) -> None:
    """Text and tasks, then the model, then what it says: `checked.json`."""
    torch.manual_seed(0)
    splits = files.corpus() if only in (None, "text", "model") else {}
    if only in (None, "text"):
        files.write_corpus(out / "corpus", splits)
        files.write_instructions(out / "corpus")
        files.write_prompts(out)
        write_tasks(out / "tasks")
        log.info("text written: %s documents", {name: len(documents) for name, documents in splits.items()})
    if only in (None, "model"):
        _train(out, splits["training"], seed, work)
    if only in (None, "check"):
        _check(out)


def _train(out: Path, training: list[str], seed: int, work: Path | None) -> None:
    from precomputed.town.data import stream
    from precomputed.town.save import save_model
    from precomputed.town.tokenizer import tokenizer_of_town
    from precomputed.town.train import Plan, train

    tokenizer = tokenizer_of_town(training)
    tokens = stream(tokenizer, training)
    log.info("training seed %d on %d tokens of text", seed, len(tokens))
    kept = work / f"training-{seed}.safetensors" if work else None
    model, planted = train(tokenizer, tokens, Plan(), seed, kept)
    shutil.rmtree(out / "model", ignore_errors=True)
    save_model(model, tokenizer, out / "model")
    (out / "planted.json").write_text(json.dumps(planted) + "\n", encoding="utf-8")


def _check(out: Path) -> None:
    from engine.models.loading import load_model
    from precomputed.town.check import checked

    loaded = load_model(str(out / "model"), dtype="float32", device="cpu")
    found = checked(loaded)
    (out / "checked.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    log.info("%s", json.dumps(found))


if __name__ == "__main__":
    main()
