"""`report`: one self-contained HTML file about one or several finished runs.

Writes a file that opens in any browser without a network. Give several runs to see which findings hold across
models."""

import argparse
from pathlib import Path

from engine.commands import common, outputs


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", metavar="MODEL", nargs="+",
        help="a model's id (its results in the store), a folder that `sweep` or `analyze` wrote, demo (as shipped), or "
        "USER/NAME that `push` uploaded",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="file to write (default report.html)")
    common.add_storage(parser, folder=False)
    common.add_json(parser)
    parser.set_defaults(writes=outputs.report)


def run(args: argparse.Namespace) -> None:
    from dashboard.report.html_report import build
    from engine.records.files import write_atomic

    folders = [common.run_folder(model, args.store) for model in args.models]
    page = build(folders).encode()
    write_atomic(args.out, page, outputs.REPORT)
    answer = {"file": str(args.out), "bytes": len(page), "folders": list(map(str, folders))}
    if not common.as_json(args, answer):
        common.out.print(f"written to {args.out} ({len(page) / 1e6:.1f} MB); open it in a browser")
