"""`replay`: runs again what made the tables of a results folder, and says whether their numbers hold.

Loads the model that the manifest names, checks its weights, text and tokenizer against it, measures again and compares
every value; changes nothing in the folder. Covers the scores, the tables of `sweep` and `analyze`, the claims, and of
`refusal` contrasts, sweep, points with their masks, structure, control, draws and stability. Exit code 0: all hold, 1:
one does not, 2: another model or text."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands import common
from engine.records.errors import CheckFailed, InputError
from engine.records.manifest import read_manifest
from engine.results.store import Store
from engine.run.field_types import parts as names_in
from engine.run.hub_runs import fetch_run, is_address
from engine.studies.same_numbers import RULE, TOLERANCE, Held

if TYPE_CHECKING:
    from engine.models.loading import LoadedModel
    from engine.studies.replayed import Replay

_MARK = "replayed"  # a file in a store that only replays have written to
_SHOWN = 3  # differences of each table that are printed


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"The rule: {RULE}."
    given = "manifest.json of a results folder, the folder, or USER/NAME that `push` uploaded"
    parser.add_argument("manifest", metavar="MANIFEST", help=given)
    parser.add_argument("--only", metavar="NAMES", help="comma-separated: scores, claims, analyses or single tables")
    parser.add_argument(
        "--tolerance", type=float, default=TOLERANCE, help=f"how far a number may be off (default: {TOLERANCE:g})"
    )
    parser.add_argument("--model", help="where the model is, if not where the manifest says")
    parser.add_argument("--revision", help="with --model: branch, tag or commit of a Hugging Face model")
    parser.add_argument(
        "--text", metavar="FILE", type=Path, action="append", default=[],
        help="a text, or folder of tasks, that the run read, under the name that it had, or a file of scores; may be "
        "given several times",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto (CUDA if there is one), cpu, cuda, cuda:1, mps")
    parser.add_argument("--device-map", help="`auto` spreads a model that is larger than one card over all of them")
    parser.add_argument(
        "--store", type=Path, help="folder for what is measured now, so that a stopped replay goes on (default: none)"
    )
    common.add_json(parser)
    parser.set_defaults(stopped="stopped; nothing is kept where no --store was given")


def run(args: argparse.Namespace) -> None:
    from engine.studies.replayed import check_model, chosen, folder_of, replay

    if not 0 <= args.tolerance < math.inf:
        raise InputError(f"--tolerance must be 0 or more, got {args.tolerance:g}; write {TOLERANCE:g}")
    for path in args.text:
        if not path.exists():
            raise InputError(f"--text: there is no {path}; give a file, or a folder of tasks, that exists")
    on_disk = Path(args.manifest).exists() or not is_address(args.manifest)
    only, folder = names_in(args.only), folder_of(Path(args.manifest) if on_disk else fetch_run(args.manifest))
    chosen(folder, only)  # an unknown name is told before a model is loaded
    with _store(args) as store:
        loaded = _load(args, folder)
        check_model(folder, loaded)
        with common.local_runner(args, store) as (runner, progress):
            found = replay(
                folder, loaded, store, runner,
                only=only, texts=args.text, tolerance=args.tolerance, progress=progress,
            )  # fmt: skip
    if not found.tables:
        raise InputError(f"nothing could be run again: {'; '.join(found.left_out.values())}")
    if not common.as_json(args, _record(args, folder, found)):
        _print(args, found)
    broken = [one for one in found.tables if not one.holds]
    if broken:
        raise CheckFailed(
            f"{len(broken)} of {len(found.tables)} files do not hold at a tolerance of {args.tolerance:g}: "
            + ", ".join(one.table for one in broken)
        )


@contextmanager
def _store(args: argparse.Namespace) -> Iterator[Store]:
    """A store of its own. One that other commands wrote to would answer with the numbers that are to be checked."""
    if args.store is None:
        with tempfile.TemporaryDirectory() as place, Store(place) as store:
            yield store
        return
    if (args.store / "cells").exists() and not (args.store / _MARK).exists():
        raise InputError(
            f"{args.store} has results that were not measured by a replay, and would answer with them; give a new "
            "folder with --store, or leave it out"
        )
    with Store(args.store) as store:
        (store.folder / _MARK).touch()
        yield store


def _load(args: argparse.Namespace, folder: Path) -> LoadedModel:
    from engine.models.loading import load_model

    model = read_manifest(folder).get("model") or {}
    name = args.model or str(model.get("id"))
    if args.model is None and Path(name).is_absolute() and not Path(name).exists():
        raise InputError(f"the results are of {name}, which is not here; say where the model is with --model MODEL")
    revision = args.revision if args.model else model.get("revision")
    return load_model(
        name, revision=revision, dtype=str(model.get("dtype")), device=args.device, device_map=args.device_map
    )


def _print(args: argparse.Namespace, found: Replay) -> None:
    for note in found.notes:
        common.err.print(f"note: {note}", soft_wrap=True)
    lines = []
    for one in found.tables:
        wrong = f"no: {len(one.differences):,} of {one.values:,}" if one.differences else "no"
        furthest = f"{one.furthest:.1e}" if math.isfinite(one.furthest) else "not a number"
        lines.append((one.table, "yes" if one.holds else wrong, f"{one.values:,}", furthest))
    common.print_table("run again", ("file", "holds", "values", "largest distance"), lines, texts=2)
    for one in found.tables:
        for sentence in _what(one):
            common.out.print(f"{one.table}: {sentence}")
    if found.left_out:
        common.out.print(f"left out: {', '.join(found.left_out)}")
        for reason in dict.fromkeys(found.left_out.values()):
            common.out.print(f"  {reason}")
    common.out.print(f"tolerance {args.tolerance:g}: {RULE}")


def _what(one: Held) -> Iterator[str]:
    """What does not hold, in sentences."""
    for wrong in one.differences[:_SHOWN]:
        yield f"{wrong.column} at {wrong.line}: stored {wrong.stored}, now {wrong.again}"
    if len(one.differences) > _SHOWN:
        yield f"and {len(one.differences) - _SHOWN:,} more"
    if one.lost or one.gained:
        yield f"{one.lost:,} lines are gone, {one.gained:,} are new"
    if one.columns_lost:
        yield f"not written any more: {', '.join(one.columns_lost)}"


def _record(args: argparse.Namespace, folder: Path, found: Replay) -> dict[str, Any]:
    return {
        "folder": str(folder), "tolerance": args.tolerance, "rule": RULE, "holds": found.holds,
        "tables": [
            {
                "file": one.table, "holds": one.holds, "lines": one.lines, "values": one.values,
                "largest_distance": one.furthest if math.isfinite(one.furthest) else None,
                "do_not_hold": len(one.differences), "sentences": list(_what(one)),
            }
            for one in found.tables
        ],
        "left_out": found.left_out,
        "notes": list(found.notes),
    }  # fmt: skip
