"""What the commands share: options, progress with time left, and output for people or machines."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from engine.commands import outputs
from engine.records.errors import Ended, InputError
from engine.records.files import make_folder
from engine.records.hashing import Json, installed_version
from engine.records.manifest import MANIFEST, check_folder, notes_of, read_manifest
from engine.records.progress import Progress, ProgressFile, progress_bars
from engine.records.terminal import shown
from engine.results.places import results_dir
from engine.results.running import claimed
from engine.run.share import Measured, Shard, parse_shard

if TYPE_CHECKING:
    from engine.judges.base import Judge
    from engine.models.loading import LoadedModel
    from engine.results.store import Store
    from engine.run.runner import LocalRunner, Runner
    from engine.studies.base import TextTable


class Terminal(Console):
    """A console whose text is text: no markup, links or emoji codes in it, nothing that a terminal would obey."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)
        if self.width < 1:  # COLUMNS=0: nothing at all would be shown
            self.width = 80

    def on_broken_pipe(self) -> None:
        raise  # rich's own way silences this console for good and exits, in the midst of a test too

    def print(self, *objects: Any, **settings: Any) -> None:
        # Before rich, which drops some control characters and takes others to be of no width.
        super().print(*(shown(one) if isinstance(one, str) else one for one in objects), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):  # also what stands in tables and bars
            yield one if one.control else Segment(shown(one.text), one.style)


_stdout: TextIO | None = None  # the real one, while `only_the_answer`
out = Terminal(soft_wrap=True)
err = Terminal(stderr=True)


def add_command(parser: argparse.ArgumentParser, module: Any) -> None:
    """A command's options, what it does (`run`: its exit code, 0 if None), and what `--help` says: its module's text
    behind the first paragraph."""
    parser.description = (module.__doc__ or "").partition("\n\n")[2].replace("\n", " ")
    parser.set_defaults(run=getattr(module, "run", None))
    module.add_options(parser)


def add_model(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The MODEL argument and how it is loaded."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?" if optional else None,
        help="a Hugging Face id, a local folder, a GGUF file, `smollm2` (SmolLM2-135M-Instruct, where its package is "
        "installed), or `demo` (the shipped model)",
    )  # fmt: skip
    parser.add_argument("--revision", help="branch, tag or commit of a Hugging Face model")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto (CUDA if there is one), cpu, cuda, cuda:1, mps")
    parser.add_argument("--dtype", default="auto", help="auto (bfloat16 on CUDA, float32 elsewhere), float32, bfloat16")
    parser.add_argument("--device-map", help="`auto` spreads a model that is larger than one card over all of them")


def add_storage(parser: argparse.ArgumentParser, *, folder: bool = True) -> None:
    parser.add_argument("--store", type=Path, help="folder of cached results (default: the user's cache folder)")
    if folder:
        parser.add_argument("--out", type=Path, help="folder for the tables (default: results/MODEL inside the store)")
        parser.set_defaults(writes=outputs.results)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of text, and no progress bar"
    )
    parser.add_argument(
        "--progress-file", type=Path, metavar="FILE",
        help="keep {stage, done, total, seconds_left} as JSON in FILE, for other programs; of a command in parts "
        "also {part, number, parts, seconds_left_of_all}, and while curves are measured so_far: {table, columns, rows}",
    )  # fmt: skip


def add_run(parser: argparse.ArgumentParser, *, folder: bool = True) -> None:
    """The options of whatever runs a model and writes into the store."""
    add_device(parser)
    add_storage(parser, folder=folder)
    add_json(parser)


def load(args: argparse.Namespace) -> LoadedModel:
    from engine.models.loading import load_model

    where = {"revision": args.revision, "dtype": args.dtype, "device": args.device, "device_map": args.device_map}
    with progress_bar(args) as progress:
        return load_model(args.model, **where, progress=progress)


def sketch(args: argparse.Namespace) -> LoadedModel:
    """The same without its weights, for checks before these are fetched."""
    from engine.models.loading import load_sketch

    return load_sketch(args.model, revision=args.revision, dtype=args.dtype, device=args.device)


def say_left_out(left_out: Mapping[str, str]) -> None:
    """Which selectors of a default this model does not allow."""
    for selector, reason in left_out.items():
        err.print(f"left out {selector}: {reason}", soft_wrap=True)


def one_judge(name: str, device: str = "cpu") -> Judge:
    """The judge of refusal of this name. Errors: InputError for several, where one has to decide."""
    from engine.judges.base import open_judges

    judges = open_judges(name, device)
    if len(judges) > 1:
        raise InputError("one judge decides here; `refusal judge` compares two on replies that were kept")
    return judges[0]


def run_folder(name: str, store: Path | None = None) -> Path:
    """The finished run that a command was given: its folder or manifest, a model with results in the store, for `demo`
    else the shipped ones, or a data set of the hub that `push` made.

    Errors: InputError for a data set that cannot be had; a folder without a manifest is left to its reader."""
    from engine.records.shipped import demo_dir
    from engine.run.hub_runs import fetch_run, is_address

    given = Path(name).parent if Path(name).name == MANIFEST else Path(name)
    folder = results_dir(store, name)
    if given.exists() and (given / MANIFEST).is_file():
        return given
    if (folder / MANIFEST).is_file():
        return folder
    if name == "demo":
        return demo_dir() / "results"
    if given.exists() or not is_address(name):
        return folder
    try:
        return fetch_run(name)
    except InputError as error:
        raise InputError(f"{folder} holds no {MANIFEST}, and {error}") from None


def output_folder(args: argparse.Namespace, store: Store) -> Path:
    """`--out`, or the model's own folder inside the store; made if absent."""
    folder: Path = args.out or store.results_dir(args.model)
    if not getattr(args, "shard", None):  # which writes no tables
        make_folder(folder)
    if _alone and not _alone.names:  # one that asks twice is still the same run
        _alone.names = _names(args, folder)
        _alone.enter_context(claimed(store.folder, _alone.names, _alone.words))
    return folder


def folder_and_model(args: argparse.Namespace, store: Store) -> tuple[Path, LoadedModel]:
    """Where tables go, and the model. Errors: InputError where results of other weights or another dtype lie there."""
    folder, loaded = output_folder(args, store), load(args)
    check_folder(folder, loaded.fingerprint)
    return folder, loaded


class _Alone(ExitStack):
    """What a command holds until it ends, so that no other process does the same."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self.words, self.names = words, list[str]()


_alone: _Alone | None = None


@contextmanager
def only_run(words: Sequence[str]) -> Iterator[None]:
    """Inside, a command that asks for its output folder is the only such run on its store. words: the command's."""
    global _alone
    with _Alone(words) as _alone:
        yield
    _alone = None


def _names(args: argparse.Namespace, folder: Path) -> list[str]:
    """What makes a run the same as another: all that it was told but where it writes and how it tells; or the same
    tables in the same folder, however it was told."""
    settings = {
        name: _plain(value)
        for name, value in vars(args).items()
        if name not in ("out", "store", "json", "progress_file", "debug") and _plain(value) is not None
    }
    tables = {name: settings.get(name) for name in ("command", "subcommand", "analyses", "model", "shard")}
    return [json.dumps(one, sort_keys=True) for one in (settings, tables | {"folder": str(folder.resolve())})]


def _plain(value: object) -> str | None:
    """A word, a path or a list of them as text, the same from process to process; None for what is none."""
    if isinstance(value, list | tuple):
        return " ".join(sorted(filter(None, map(_plain, value))))
    if not isinstance(value, str | int | float | Path):
        return None
    with suppress(OSError, ValueError):
        if isinstance(value, str | Path) and os.path.sep in str(value) and Path(value).expanduser().exists():
            return str(Path(value).expanduser().resolve())
    return str(value)


@contextmanager
def progress_bar(args: argparse.Namespace) -> Iterator[Progress | None]:
    """A bar on stderr, one line per stage; none with --json. With --progress-file the same goes into that file."""
    to_file = ProgressFile(args.progress_file) if args.progress_file else None
    if args.json:
        yield to_file
        return
    with progress_bars(err, to_file) as report:
        yield report


@contextmanager
def local_runner(
    args: argparse.Namespace, store: Store, *, quiet: bool = False
) -> Iterator[tuple[LocalRunner, Progress | None]]:
    """The runner of a command and its progress, which says beforehand how many cells are known, unless it is quiet."""
    from engine.run.runner import LocalRunner

    with progress_bar(args) as progress:
        yield LocalRunner(store, progress, announcing(args, quiet=quiet)), progress


def announcing(args: argparse.Namespace, *, quiet: bool = False) -> Callable[[object], None]:
    """Says how many cells are known and how many are to compute, unless it is quiet."""

    def announce(count: object) -> None:
        if not args.json and not quiet:
            share = f"shard {args.shard}: " if getattr(args, "shard", None) else ""
            err.print(f"{share}{count}", soft_wrap=True)

    return announce


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int | None = None) -> None:
    """A table on stdout. texts: how many of the first columns are no numbers, which stand to the right; all if None."""
    from rich.table import Table

    table = Table(title=shown(title), box=None, padding=(0, 2, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        is_text = texts is None or place < texts
        table.add_column(shown(column), justify="left" if is_text else "right", no_wrap=is_text and texts is not None)
    for row in rows:
        table.add_row(*map(shown, row))
    out.print(table)


def say(text: Iterable[str | TextTable]) -> None:
    """Lines and tables on stdout."""
    for line in text:
        if isinstance(line, str):
            out.print(line)
        else:
            print_table(line.title, line.columns, line.rows, texts=line.texts)


@contextmanager
def only_the_answer(args: argparse.Namespace) -> Iterator[None]:
    """With --json whatever a library or a plug-in prints goes to stderr, so that stdout is the one JSON object."""
    global _stdout
    if not getattr(args, "json", False):
        yield
        return
    _stdout = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout = None


def stdout() -> TextIO:
    """Where an answer is written, also while all else goes to stderr."""
    return _stdout or sys.stdout


def print_json(value: object) -> None:
    """One JSON object on stdout; a table is a list of its rows."""

    def plain(other: Any) -> Any:
        return other.to_dicts() if hasattr(other, "to_dicts") else str(other)

    stdout().write(json.dumps(value, indent=1, default=plain) + "\n")


def say_notes(folder: Path) -> list[str]:
    """What a reader of the folder's numbers has to know, on stderr; returned as well."""
    notes = notes_of(read_manifest(folder)) if (folder / MANIFEST).is_file() else []
    for note in notes:
        err.print(f"note: {note}", soft_wrap=True)
    return notes


def as_json(args: argparse.Namespace, answer: object) -> bool:
    """Is one JSON object wanted instead of text? Then it is printed."""
    if args.json:
        print_json(answer)
    return bool(args.json)


LOCAL, RAY = "local", "ray"


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
        err.print(f"skipped {name}: {reason}", soft_wrap=True)
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
        with local_runner(args, store, quiet=quiet) as found:
            yield found
        return
    if args.device_map is not None:
        raise InputError(f"a worker of --runner {RAY} holds the model on one device; leave --device-map out")
    from engine.run.ray_runner import ray_runner

    with (
        progress_bar(args) as progress,
        ray_runner(address or None, args.workers, loaded, store, progress, announcing(args, quiet=quiet)) as runner,
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
