"""Who measures the cells of a command: this process or the workers of a Ray cluster, all of them or a shard's share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.commands import common
from engine.records.environment import installed_version
from engine.records.errors import Ended, InputError
from engine.records.hashing import Json
from engine.results.store import Store
from engine.run.share import Measured, Shard, parse_shard

LOCAL, RAY = "local", "ray"

if TYPE_CHECKING:
    from engine.models.loading import LoadedModel
    from engine.records.progress import Progress
    from engine.run.runner import LocalRunner, Runner


def add_runner(parser: argparse.ArgumentParser) -> None:
    """How the cells of the command are shared out."""
    group = parser.add_argument_group("several machines or cards")
    group.add_argument(
        "--shard", type=_shard, metavar="I/N",
        help="measure share I of N (1/8, …, 8/8) of the cells only, into a --store of this shard's own, and write no "
        "tables; `selector-audit merge` joins the stores, and the same command without --shard then writes the tables. "
        "What all cells need (scores, contrasts, the unedited model's replies to the calibration pairs) is computed by "
        "every shard whose store lacks it: to share it, run `score` or `refusal calibrate` once and merge that store "
        "into each shard's first",
    )  # fmt: skip
    group.add_argument(
        "--runner", type=_runner, default=LOCAL, metavar="RUNNER",
        help=f"{LOCAL}: this process (default); {RAY}: workers on the cluster of RAY_ADDRESS, else on this machine's "
        f"cards; {RAY}=ADDRESS: on that cluster, whose machines have this software and the model's files. A worker "
        "holds the model on one card; this process holds it too, computes scores, and writes the store",
    )  # fmt: skip
    group.add_argument(
        "--workers", type=_workers, metavar="N", help=f"of {RAY} (default: one per card; on CPUs one per machine)"
    )


@contextmanager
def cell_runner(
    args: argparse.Namespace, store: Store, loaded: LoadedModel, *, quiet: bool = False
) -> Iterator[tuple[Runner, Progress | None]]:
    """The runner that the options name, and its progress. quiet: it does not say beforehand how many cells are known.
    Errors: Ended where a shard has measured its share."""
    from engine.run.runner import ShardRunner

    with _measuring(args, store, loaded, quiet) as (measures, progress):
        if args.shard is None:
            yield measures, progress
            return
        runner = ShardRunner(measures, args.shard)
        try:
            yield runner, progress
        except Measured as measured:
            skipped, record = measured.skipped, runner.record()
        else:
            raise RuntimeError("a shard went on to the tables")
    for name, reason in skipped.items():
        common.err.print(f"skipped {name}: {reason}", soft_wrap=True)
    raise Ended(_said(args.shard, record, store), {**record, "store": store.folder, "skipped": skipped})


@contextmanager
def _measuring(
    args: argparse.Namespace, store: Store, loaded: LoadedModel, quiet: bool
) -> Iterator[tuple[LocalRunner, Progress | None]]:
    """The runner that measures all that it is asked for."""
    kind, _, address = args.runner.partition("=")
    if kind == LOCAL:
        if args.workers is not None:
            raise InputError(f"--workers are those of --runner {RAY}, got --runner {LOCAL}; leave it out")
        with common.local_runner(args, store, quiet=quiet) as found:
            yield found
        return
    if args.device_map is not None:
        raise InputError(f"a worker of --runner {RAY} holds the model on one device; leave --device-map out")
    from engine.run.ray_runner import ray_runner

    with (
        common.progress_bar(args) as progress,
        ray_runner(
            address or None, args.workers, loaded, store, progress, common.announcing(args, quiet=quiet)
        ) as runner,
    ):
        yield runner, progress


def _said(shard: Shard, record: Json, store: Store) -> str:
    """What the shard did, and what comes next."""
    done = (
        f"shard {shard}: {record['measured']:,} of {record['cells']:,} cells measured, {record['known_before']:,} more "
        f"of its share of {record['share']:,} were known; kept in {store.folder}"
    )
    if not record["left_to_other_shards"]:
        return f"{done}; nothing is left to other shards: the same command without --shard writes the tables"
    return (
        f"{done}; next, when all {shard.total} are done: selector-audit merge STORE… --store TARGET, then the same "
        "command with --store TARGET and without --shard, which measures what could not be told before all of this is "
        "known, if anything, and writes the tables (to share that out as well: selector-audit merge TARGET --store "
        "STORE for each shard's store, and run the shards again)"
    )


def _shard(text: str) -> Shard:
    try:
        return parse_shard(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _runner(text: str) -> str:
    kind, equals, address = text.partition("=")
    if text != LOCAL and (kind != RAY or bool(equals) != bool(address)):
        raise argparse.ArgumentTypeError(f"a runner is {LOCAL}, {RAY} or {RAY}=ADDRESS, got {text!r}; write {RAY}")
    if kind == RAY and installed_version(RAY) is None:
        raise argparse.ArgumentTypeError(f"it needs the package ray; install it: pip install 'selector-audit[{RAY}]'")
    return text


def _workers(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"there is at least one worker, got {text!r}; write 2")
    return int(text)
