"""`site`: a folder of static files that shows results and edits the shipped model in the browser.

Writes pages that any web server shows without running anything, and that open from a disk. The shipped model answers on
them in the reader's browser, under the edits whose effect was measured."""

import argparse
from functools import partial
from pathlib import Path

from engine.commands import common, outputs
from engine.results.places import results_dir


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", default=["demo", "smollm2", "gemma3-270m", "paper"],
        help="demo, smollm2 or gemma3-270m (as shipped), paper (all its models), a model's id (its results in the "
        "store), or a folder of results (default: all shipped)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("site"),
        help="folder to write: a new one, or one of an earlier site (default site)",
    )  # fmt: skip
    common.add_storage(parser, folder=False)
    common.add_json(parser)
    parser.set_defaults(writes=outputs.site)


def run(args: argparse.Namespace) -> None:
    from dashboard.site.build import build, runs_of

    with common.progress_bar(args) as progress:
        page = build(runs_of(args.runs, partial(_folder, args.store)), args.out, progress or (lambda *_: None))
    files = [path for path in args.out.rglob("*") if path.is_file()]
    size_bytes = sum(path.stat().st_size for path in files)
    if not common.as_json(args, {"page": str(page), "files": len(files), "bytes": size_bytes}):
        common.out.print(f"written to {args.out} ({len(files)} files, {size_bytes / 1e6:.1f} MB); open {page}")


def _folder(store: Path | None, name: str) -> Path:
    """A folder of results by its path, else a model's in the store."""
    return Path(name) if (Path(name) / "manifest.json").is_file() else results_dir(store, name)
