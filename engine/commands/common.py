"""What the commands share: options, progress with time left, and output for people or machines."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from engine.errors import InputError
from engine.masks import parse_rate
from engine.progress_file import ProgressFile
from engine.store import Store

if TYPE_CHECKING:
    from engine.models import LoadedModel
    from engine.scores import ProgressCallback, ScorePlan

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def add_model(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The MODEL argument and how it is loaded."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?" if optional else None,
        help="a Hugging Face id, a local folder, or `demo` (the shipped model)",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hugging Face model")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device", default="auto", help="auto (CUDA if there is one), cpu, cuda, cuda:1, mps"
    )
    parser.add_argument(
        "--dtype", default="auto", help="auto (bfloat16 on CUDA, float32 elsewhere), float32, bfloat16"
    )
    parser.add_argument(
        "--device-map", help="`auto` spreads a model that is larger than one card over all of them"
    )


def add_storage(parser: argparse.ArgumentParser, *, folder: bool = True) -> None:
    parser.add_argument(
        "--store", type=Path, help="folder of cached results (default: the user's cache folder)"
    )
    if folder:
        parser.add_argument(
            "--out", type=Path, help="folder for the tables (default: results/MODEL inside the store)"
        )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of text, and no progress bar"
    )
    parser.add_argument(
        "--progress-file", type=Path, metavar="FILE",
        help="keep {stage, done, total, seconds_left} as JSON in FILE, for other programs",
    )  # fmt: skip


def add_scoring(parser: argparse.ArgumentParser, *, of_preset: bool = False) -> None:
    """What scores depend on. of_preset: what is not given comes from a preset and is None here."""

    def option(name: str, value: object, help_text: str, **more: Any) -> None:
        default, said = (None, "the preset's") if of_preset else (value, value)
        parser.add_argument(name, default=default, help=f"{help_text} (default: {said})", **more)

    parser.add_argument(
        "--selectors",
        help=f"comma-separated ids (default: {'the preset' if of_preset else 'all of the paper'}'s)",
    )
    parser.add_argument(
        "--corpus", default=None, help="calibration text: wikitext2, c4, demo, a .txt or a .jsonl file"
    )
    option("--samples", 128, "calibration windows", type=int)
    option("--max-length", 128, "tokens per calibration window", type=int)
    option("--seeds", "42,43,44", "seeds of the random selector")
    option("--objective", "loss", "what lrp and ig explain", choices=["loss", "logit"])
    parser.add_argument("--batch-size", type=int, help="windows per pass (default: as many as fit)")


def score_plan(args: argparse.Namespace) -> ScorePlan:
    """The scores that the arguments ask for."""
    from engine.scores import PAPER_SELECTORS, ScorePlan, default_corpus
    from engine.selectors import available_selectors

    known = [selector.id for selector in available_selectors()]
    return ScorePlan(
        selectors=names(args.selectors, "selector", known) if args.selectors else PAPER_SELECTORS,
        corpus=args.corpus or default_corpus(args.model),
        samples=at_least("--samples", args.samples, 1),
        length=at_least("--max-length", args.max_length, 2),
        seeds=seeds(args.seeds),
        objective=args.objective,
        batch_size=at_least("--batch-size", args.batch_size, 1),
    )


def load(args: argparse.Namespace) -> LoadedModel:
    """The model that the arguments name."""
    from engine.models import load_model

    return load_model(
        args.model,
        revision=args.revision,
        dtype=args.dtype,
        device=args.device,
        device_map=args.device_map,
    )


def output_folder(args: argparse.Namespace, store: Store) -> Path:
    """`--out`, or the model's own folder inside the store; made if absent."""
    folder: Path = args.out or store.results_dir(args.model)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {folder} ({error.strerror}); give another one with --out"
        ) from None
    return folder


def names(text: str, kind: str, available: Sequence[str]) -> tuple[str, ...]:
    """`a,b` to ('a', 'b'), each checked against what there is."""
    from engine.errors import unknown

    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not wanted:
        raise InputError(f"no {kind} given; available: {', '.join(sorted(available))}")
    for name in wanted:
        if name not in available:
            raise unknown(kind, name, available)
    return wanted


def at_least(option: str, value: Any, least: int) -> Any:
    """The number, or None where none was given. `InputError` below `least`."""
    if value is not None and value < least:
        raise InputError(f"{option} must be at least {least}, got {value}")
    return value


def seeds(text: str) -> tuple[int, ...]:
    """`42,43` to (42, 43), each once and not negative."""
    found = tuple(dict.fromkeys(integers(text, "--seeds")))
    at_least("--seeds", min(found), 0)
    return found


def integers(text: str, option: str) -> tuple[int, ...]:
    """`42,43` to (42, 43)."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"{option} takes whole numbers separated by commas, got {text!r}; write 42,43,44"
        ) from None


def rates(text: str) -> tuple[float, ...]:
    """`0.1,30%` or `FROM:TO:STEP` (both ends included) to ascending rates in [0, 1]."""
    if ":" not in text:
        return tuple(sorted({parse_rate(part) for part in text.split(",")}))
    parts = text.split(":")
    if len(parts) != 3:
        raise InputError(f"--rates takes a list or FROM:TO:STEP, got {text!r}; write 0.1,0.3 or 0:0.9:0.05")
    first, last, step = (parse_rate(part) for part in parts)
    if step <= 0 or last < first:
        raise InputError(
            f"--rates FROM:TO:STEP needs FROM <= TO and STEP > 0, got {text!r}; write 0:0.9:0.05"
        )
    count = math.floor((last - first) / step + 1e-9) + 1
    return tuple(round(first + step * i, 10) for i in range(count))


@contextmanager
def progress_bar(args: argparse.Namespace) -> Iterator[ProgressCallback | None]:
    """A bar on stderr with done, total, elapsed and remaining time, one line per stage; none with --json.

    With --progress-file the same goes into that file.
    """
    to_file = ProgressFile(args.progress_file) if args.progress_file else None
    if args.json:
        yield to_file
        return
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=False) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)
            if to_file is not None:
                to_file(stage, done, total)

        yield report


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(json.dumps(value, indent=1, default=str) + "\n")
