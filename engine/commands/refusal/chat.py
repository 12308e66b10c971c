"""`refusal chat`: what the model replies before and after an edit, in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from engine.commands import common, edit_options
from engine.errors import InputError

if TYPE_CHECKING:
    from engine.evaluation.judges import Judge
    from engine.masks import Mask
    from engine.models import LoadedModel
    from engine.refusal.dialogue import Answer, Side


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "chat",
        help="talk to the model before and after an edit",
        description="Every line is a prompt of its own (there is no memory of earlier ones). The model answers as it "
        "is, then with the rows removed; both answers with the refusal margin and the judge's verdict. Reads standard "
        "input, so that a file of prompts can be piped in. Ctrl-C stops a reply, Ctrl-D ends.",
    )
    common.add_model(parser)
    edit_options.add_edit(parser)
    parser.add_argument("--max-new-tokens", type=int, default=200, help="longest reply (default 200)")
    parser.add_argument(
        "--judge", default="embedded", help="`embedded` (default), `rejection-model` or a folder with one"
    )
    common.add_device(parser)
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per prompt, on a line of its own"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.evaluation.judges import open_judges

    judges = open_judges(args.judge)
    if len(judges) > 1:
        raise InputError("chat takes one judge; `refusal judge` compares two")
    if args.max_new_tokens < 1:
        raise InputError(f"--max-new-tokens must be at least 1, got {args.max_new_tokens}")
    loaded = common.load(args)
    edit = edit_options.chosen_edit(args, loaded.rows.n_rows, loaded.weights_hash)
    interactive = sys.stdin.isatty() and not args.json
    if not args.json:
        common.err.print(
            f"{loaded.id}: {len(edit.mask):,} of {loaded.rows.n_rows:,} rows removed in `after`", markup=False
        )
    for prompt in _prompts(interactive):
        try:
            _exchange(loaded, edit.mask, prompt, judges[0], args)
        except InputError as error:
            if not interactive:
                raise
            common.err.print(str(error), markup=False)
        except KeyboardInterrupt:
            if not interactive:
                raise
            _write("\n(stopped)\n")


def _prompts(interactive: bool) -> Iterator[str]:
    """The lines of standard input that hold anything."""
    while True:
        if interactive:
            try:
                line = input("> ")
            except (EOFError, KeyboardInterrupt):
                _write("\n")
                return
        else:
            line = sys.stdin.readline()
            if not line:
                return
        if line.strip():
            yield line.strip()


def _exchange(loaded: LoadedModel, mask: Mask, prompt: str, judge: Judge, args: argparse.Namespace) -> None:
    from engine.refusal.dialogue import answers, plain_text

    if args.json:
        found = list(answers(loaded, mask, prompt, judge, args.max_new_tokens))
        _write(json.dumps(_record(prompt, judge, found)) + "\n")
        return
    if not sys.stdin.isatty():
        _write(f"> {plain_text(prompt)}\n")
    begun: set[Side] = set()

    def show(side: Side, piece: str) -> None:
        if side not in begun:
            begun.add(side)
            _write(f"{side}: ")
        _write(plain_text(piece))

    # Closed also where writing fails, so that the weights are back at once.
    with closing(answers(loaded, mask, prompt, judge, args.max_new_tokens, show)) as both:
        for answer in both:
            if answer.side not in begun:
                _write(f"{answer.side}: (no text)")
            _write(f"\n        [{_verdict(answer)}]\n")
    _write("\n")


def _verdict(answer: Answer) -> str:
    verdict = "refuses" if answer.refusal else "answers"
    margin = answer.margin_note if answer.margin is None else f"margin {answer.margin:+.3f}"
    return f"{verdict} ({answer.reason}); {margin}; {answer.elapsed_s:.1f} s"


def _record(prompt: str, judge: Judge, both: list[Answer]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "judge": judge.id,
        "judge_version": judge.version,
        **{
            answer.side: {key: value for key, value in vars(answer).items() if key != "side"}
            for answer in both
        },
    }


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
