"""`refusal`: install, measure and try refusal edits. One file per subcommand."""

from __future__ import annotations

import argparse

from engine.commands.listed import COMMANDS
from engine.commands.refusal import (
    baselines,
    calibrate,
    chat,
    compose,
    control,
    draws,
    evaluate,
    judge,
    run,
    select,
    stability,
    structure,
    sweep,
)

SUBCOMMANDS = (
    run, calibrate, sweep, select, control, draws, evaluate, structure, stability, compose, baselines, judge, chat,
)  # fmt: skip


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
    for module in SUBCOMMANDS:
        module.add_parser(subcommands)
    for subcommand in subcommands.choices.values():
        # The group itself has `--debug` too: the subcommand must not reset what was given there.
        subcommand.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the full traceback of a failure"
        )
