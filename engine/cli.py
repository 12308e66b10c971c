"""The command line: `selector-audit COMMAND MODEL …`. Exit 0 done, 2 wrong input, 1 failed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from engine.commands import (
    analyze,
    compare,
    dashboard,
    doctor,
    estimate,
    export,
    fetch,
    mask,
    refusal,
    replay,
    report,
    rows,
    score,
    sweep,
)
from engine.commands.common import err
from engine.models import downloads
from engine.records.environment import installed_version
from engine.records.errors import CheckFailed, InputError
from engine.records.out_of_memory import is_out_of_memory

COMMANDS = (
    dashboard, rows, score, mask, sweep, analyze, compare, report, replay, refusal, export, doctor, estimate, fetch,
)  # fmt: skip

_MORE_ROOM = "what was finished is kept; free the device, or use --dtype bfloat16, shorter texts or a larger device"
_STOPPED = "stopped; what was finished is kept, the same command goes on from there"


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="selector-audit",
        description="Does this attribution score really find the rows of a language model that matter? "
        "Score the rows, remove some, and measure what the model can still do.",
        epilog="Start with: selector-audit dashboard",
    )
    parser.add_argument("--version", action="version", version=f"selector-audit {installed_version('selector-audit')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.add_parser(commands)
    for command in commands.choices.values():
        command.add_argument("--debug", action="store_true", help="show the full traceback of a failure")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        code = args.run(args)
    except InputError as error:
        return _fail(args, str(error), 2)
    except CheckFailed as error:
        return _fail(args, str(error), 1)
    except KeyboardInterrupt:
        code = _fail(args, getattr(args, "stopped", _STOPPED), 130)
        downloads.leave(code)
        return code
    except BrokenPipeError:  # the reader of our output went away (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if is_out_of_memory(error):
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            return _fail(args, f"out of memory ({said}); {_MORE_ROOM}", 1)
        return _fail(args, f"failed: {type(error).__name__}: {error}; --debug shows where", 1)
    return code or 0


def _fail(args: argparse.Namespace, message: str, code: int) -> int:
    if args.debug:
        err.print_exception()
    err.print(f"selector-audit {args.command}: {message}", markup=False, soft_wrap=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
