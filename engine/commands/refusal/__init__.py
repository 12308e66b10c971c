"""`refusal`: install, measure and try refusal edits. One file per subcommand."""

from __future__ import annotations

import argparse

from engine.commands.refusal import (
    calibrate,
    chat,
    compose,
    control,
    evaluate,
    judge,
    select,
    structure,
    sweep,
)

SUBCOMMANDS = (calibrate, sweep, select, control, evaluate, structure, compose, judge, chat)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "refusal",
        help="install refusal by removing rows, measure it, talk to the result",
        description="Finds rows whose removal makes a model refuse one domain of harm. It installs refusal "
        "only: there is no way to remove it.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    for module in SUBCOMMANDS:
        module.add_parser(subcommands)
    for subcommand in subcommands.choices.values():
        # The group itself has `--debug` too: the subcommand must not reset what was given there.
        subcommand.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the full traceback of a failure",
        )
