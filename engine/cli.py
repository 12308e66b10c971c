"""The command line: `selector-audit COMMAND MODEL …`. Exit 0 done, 2 wrong input, 1 failed."""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from engine.commands import outputs
from engine.commands.common import add_command, as_json, err, only_run, only_the_answer, out
from engine.models import downloads
from engine.records.errors import CheckFailed, Ended, InputError, disk_problem, is_out_of_memory, is_panic
from engine.records.hashing import check_threads, installed_version
from engine.records.terminal import one_line, patient_log
from engine.results import damage
from engine.selectors.base import REGISTRY

# In the order of `--help`. A command's module has its name and is loaded when it is asked for.
COMMANDS = {
    "dashboard": "open the browser app on the shipped results and any store",
    "rows": "count blocks, layers and the rows of each projection",
    "score": "score every row with the chosen selectors",
    "mask": "write the row ids that one selector removes at one rate",
    "sweep": "remove more and more rows, least or most relevant first, and measure perplexity",
    "analyze": "is a selector faithful and stable, does it agree with others? writes a verdict per selector",
    "merge": "join the stores of shards into one",
    "compare": "a finished run of one of the paper's models beside the published tables, "
    "or several runs: do their selectors stand in the same order?",
    "report": "one HTML file with protocol, verdicts, figures, numbers and provenance",
    "site": "a folder of static files that shows results and edits the shipped model in the browser, without a server",
    "replay": "measure the tables of a results folder again: do its numbers hold?",
    "push": "upload a finished run to the Hugging Face hub as a data set",
    "refusal": "install refusal by removing rows, measure it, talk to the result",
    "export": "write the masked model as a checkpoint that transformers loads unchanged",
    "doctor": "check this machine: packages, device, memory, store, data sets, a model",
    "estimate": "what a run will take: passes, tokens, FLOPs, peak memory and time, before weights are fetched",
    "fetch": "fetch a model and the texts into the local cache, for runs without a network",
}
_MORE_ROOM = "what was finished is kept; free the device, or use --dtype bfloat16, shorter texts or a larger device"
_WRITTEN = "files that the command wrote are whole, and what was measured is kept: free some space there"
_LONGEST = 1_400  # characters of an error
_STOPPED = "stopped; what was finished is kept, the same command goes on from there"


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands. only: the one that will be run; of the others no more than name and line of help is
    there, and no module is loaded; "" for none."""
    parser = _Parser(
        prog="selector-audit",
        description="Does this attribution score really find the rows of a language model that matter? "
        "Score the rows, remove some, and measure what the model can still do.",
        epilog="Start with: selector-audit dashboard",
    )
    parser.add_argument("--version", action="version", version=f"selector-audit {installed_version('selector-audit')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        command = commands.add_parser(name, help=line)
        if only in (None, name):
            add_command(command, importlib.import_module(f"engine.commands.{name}"))
        command.add_argument("--debug", action="store_true", help="show the full traceback of a failure")
    return parser


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the words of a command in one line, as everything else does; its subparsers too. Options
    may stand between the words of a list, as in `analyze MODEL --samples 8 verdict`."""

    _mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._mixing or not any(one.nargs == "*" for one in self._get_positional_actions()):
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: --"):
            message += ": this command reads no such setting"
        self.exit(2, f"{_in_bounds(one_line(f'{self.prog}: {message}'))}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. A log (stderr) that cannot be written ends no run."""
    with patient_log():
        code = _run(argv)
        try:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where a failure can be told, and not when Python ends
        except OSError as error:
            _leave_stdout()
            if not code and not isinstance(error, BrokenPipeError):
                err.print(f"selector-audit: cannot write to standard output ({error.strerror}); {_WRITTEN}")
            return code or 1
        return code


def _leave_stdout() -> None:
    """Python flushes standard output once more when it ends: that must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(next((word for word in words if not word.startswith("-")), ""))
    for word in words:
        if re.fullmatch(r"--[\w-]+=--", word):  # argparse takes the value for the end of options, and gives a list
            parser.error(f"argument {word[:-3]}: expected one argument")
    args = parser.parse_args(words)
    damage.new_run()
    try:
        check_threads()
        with only_the_answer(args), only_run(words), REGISTRY.only_here():
            outputs.check(args)
            code = args.run(args)
    except Ended as end:
        if not as_json(args, end.answer):
            out.print(str(end))
        return 0
    except InputError as error:
        return _fail(args, str(error), 2)
    except CheckFailed as error:
        return _fail(args, str(error), 1)
    except KeyboardInterrupt:
        code = _fail(args, getattr(args, "stopped", _STOPPED), 130)
        downloads.leave(code)
        return code
    except BrokenPipeError:  # the reader of our output went away (`| head`)
        _leave_stdout()
        return 1
    except OSError as error:
        text = disk_problem(error)
        if text and error.filename is None and error.filename2 is None:
            text = f"cannot write to standard output or a file ({error.strerror}); {_WRITTEN}"
        return _fail(args, text or f"failed: {type(error).__name__}: {error}; --debug shows where", 2 if text else 1)
    except UnicodeEncodeError as error:
        text = f"a name or an option holds {error.object[error.start : error.end]!a}, which is no Unicode"
        return _fail(args, f"{text}; rename the folder or the file, or write the option anew", 2)
    except SystemExit as end:  # of a plug-in or a library: no command of ours ends that way
        return _fail(args, f"failed: a plug-in or a library ended the program (sys.exit, {end.code!r})", 1)
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if isinstance(error, ValueError) and "embedded null" in str(error):
            return _fail(args, "a path has a zero byte in it, which no file can have; give another one", 2)
        if is_out_of_memory(error):
            text = next(iter(str(error).strip().splitlines()), type(error).__name__)
            return _fail(args, f"out of memory ({text}); {_MORE_ROOM}", 1)
        return _fail(args, f"failed: {type(error).__name__}: {error}; --debug shows where", 1)
    return code or 0


def _fail(args: argparse.Namespace, message: str, code: int) -> int:
    if args.debug:
        err.print_exception()
    err.print(_in_bounds(f"selector-audit {args.command}: {one_line(message)}"), soft_wrap=True)
    return code


def _in_bounds(line: str) -> str:
    """The line, shortened in its middle where a name in it is of no use to anybody: its end is the next step."""
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 400]}…{line[-400:]}"


if __name__ == "__main__":
    sys.exit(main())
