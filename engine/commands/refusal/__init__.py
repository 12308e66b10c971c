"""`refusal`: install, measure and try refusal edits. Stages are made from their registry (`stage.py`).

Finds rows whose removal makes a model refuse one domain of harm. It is made to install refusal: lambda and k have
ranges, swapped prompts and another model's files are refused, and an edit measured to lower refusal is neither
exported, nor chatted with, nor shown in the app. Whoever writes code of their own can remove rows of their choice."""

import argparse

from engine.commands import common
from engine.commands.refusal import chat, judge, run, stage
from engine.studies.base import STAGES


def add_options(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    whole = "all stages by one command: calibrate, sweep, select, structure, control, evaluate; resumes"
    common.add_command(subcommands.add_parser("run", help=whole), run)
    for info in STAGES:
        stage.add_stage_options(subcommands.add_parser(info.id, help=info.title, description=info.description), info)
    judged = subcommands.add_parser("judge", help="does each reply of a CSV, JSONL or parquet file refuse?")
    common.add_command(judged, judge)
    common.add_command(subcommands.add_parser("chat", help="talk to the model before and after an edit"), chat)
    for subcommand in subcommands.choices.values():
        # The group itself has `--debug` too: the subcommand must not reset what was given there.
        subcommand.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the full traceback of a failure"
        )
