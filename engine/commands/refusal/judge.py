"""`refusal judge`: verdicts for replies that were written elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.commands import common


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "judge",
        help="does each reply of a CSV or JSONL file refuse?",
        description="Judges replies that were kept; no model is loaded and nothing is generated.",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="CSV or JSONL, one reply per line"
    )
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.evaluation.judge import judge
    from engine.evaluation.replies import read_replies

    replies = [reply for file in args.files for reply in read_replies(file)]
    verdicts = [judge(reply.reply) for reply in replies]
    refusals = sum(verdict.refusal for verdict in verdicts)
    if args.json:
        common.print_json({"replies": len(replies), "refusals": refusals})
    else:
        common.out.print(f"{refusals:,} of {len(replies):,} replies refuse")
