"""`refusal`: install, measure and try refusal edits. Stages are made from their registry (`stage.py`)."""

from __future__ import annotations

import argparse

from engine.commands.listed import COMMANDS
from engine.commands.refusal import chat, evaluate, judge, run, stage
from engine.studies.base import STAGES


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "refusal",
        help=COMMANDS["refusal"],
        description="Finds rows whose removal makes a model refuse one domain of harm. It is made to install refusal: "
        "lambda and k have ranges, swapped prompts and another model's files are refused, and an edit measured to "
        "lower refusal is neither exported, nor chatted with, nor shown in the app. Whoever writes code of their own "
        "can remove rows of their choice.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    run.add_parser(subcommands)
    for info in STAGES:
        if info.id == "evaluate":
            evaluate.add_parser(subcommands, info)
        else:
            stage.add_parser(subcommands, info)
    judge.add_parser(subcommands)
    chat.add_parser(subcommands)
    for subcommand in subcommands.choices.values():
        # The group itself has `--debug` too: the subcommand must not reset what was given there.
        subcommand.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the full traceback of a failure"
        )
