"""`refusal chat`: what the model replies before and after an edit, in the terminal.

Every line is a prompt of its own (there is no memory of earlier ones). The model answers as it is and with the rows
removed; both answers with the refusal margin and the judge's verdict. Reads standard input, so that a file of prompts
can be piped in; --json prints one object per prompt, on a line of its own. Ctrl-C stops a reply, Ctrl-D ends."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from engine.commands import common, options
from engine.records.errors import InputError
from engine.records.terminal import shown
from engine.run.refusal_plan import RefusalPlan

if TYPE_CHECKING:
    from engine.edits.edit import Edit
    from engine.judges.base import Judge
    from engine.models.loading import LoadedModel
    from engine.studies.refusal.dialogue import Outcome, Piece

    Event = Piece[str] | Outcome[str]


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    options.add_edit(parser)
    options.add_effect(parser, "An edit that breaks the model is shown without being asked these, and called BROKEN.")
    parser.add_argument(
        "--max-new-tokens", type=int, default=RefusalPlan.reply_tokens,
        help=f"longest reply (default: {RefusalPlan.reply_tokens})",
    )  # fmt: skip
    parser.add_argument(
        "--thinking", action="store_true",
        help="leave the chat template's thinking mode on; what is judged is what comes after the thinking (default: "
        "off)",
    )  # fmt: skip
    common.add_run(parser, folder=False)


def run(args: argparse.Namespace) -> None:
    from engine.data.prompts import check_thinking

    if args.max_new_tokens < 1:
        raise InputError(f"--max-new-tokens must be at least 1, got {args.max_new_tokens}")
    options.preflight(args)
    if args.thinking:
        check_thinking(common.sketch(args).tokenizer)
    judge = common.one_judge(args.judge or RefusalPlan.judge)
    loaded = common.load(args)
    edit = options.chosen_edit(args, loaded.rows.n_rows, loaded.weights_hash)
    effect = options.effect_of(args, loaded, edit, judge, text_first=True)
    effect.check_shown(edit, loaded.weights_hash)
    if effect.broken:
        common.err.print(f"BROKEN: {effect.on_text()}")
    interactive = sys.stdin.isatty() and not args.json
    if not args.json:
        common.err.print(f"{loaded.name}: {edit.size:,} of {loaded.rows.n_rows:,} rows removed in `after`")
    for prompt in _prompts(interactive):
        try:
            _exchange(loaded, edit, prompt, judge, args)
        except InputError as error:
            if not interactive:
                raise
            common.err.print(str(error))
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


def _exchange(loaded: LoadedModel, edit: Edit, prompt: str, judge: Judge, args: argparse.Namespace) -> None:
    from engine.edits.edit import UNEDITED
    from engine.studies.refusal.dialogue import Outcome, dialogue

    if not args.json and not sys.stdin.isatty():
        _write(f"> {shown(prompt)}\n")
    edits = {"before": UNEDITED, "after": edit}
    # Closed also where writing fails.
    with closing(dialogue(loaded, prompt, edits, judge, args.max_new_tokens, thinking=args.thinking)) as events:
        if args.json:
            ended = [event for event in events if isinstance(event, Outcome)]
            _write(json.dumps(_record(prompt, judge, ended)) + "\n")
            return
        begun: set[str] = set()
        for event in _in_turn(events):
            if event.side not in begun:
                begun.add(event.side)
                _write(f"{event.side}: ")
            _write(shown(event.text if not isinstance(event, Outcome) else _facts(event)))
    _write("\n")


def _in_turn(events: Iterator[Event]) -> Iterator[Event]:
    """The events of `before` as they come, then those of `after`, first what was written meanwhile."""
    from engine.studies.refusal.dialogue import Outcome

    shown = "before"
    later: list[Event] = []
    for event in events:
        if event.side != shown:
            later.append(event)
            continue
        yield event
        if isinstance(event, Outcome):
            shown = "after"
            yield from later
            later.clear()


def _facts(answer: Outcome[str]) -> str:
    note = f" ({answer.margin_note})" if answer.margin_note else ""
    margin = answer.margin_note if answer.margin is None else f"margin {answer.margin:+.3f}{note}"
    cut = "" if answer.finished else f"; cut off at {answer.tokens} tokens"
    nothing = "" if answer.text else "(no text)"
    return f"{nothing}\n        [{answer.verdict} ({answer.reason}); {margin}; {answer.elapsed_s:.1f} s{cut}]\n"


def _record(prompt: str, judge: Judge, answers: list[Outcome[str]]) -> dict[str, Any]:
    names = ("finished", "tokens", "refusal", "judged", "reason", "margin", "margin_note", "elapsed_s")
    sides = {one.side: {"reply": one.text, **{name: getattr(one, name) for name in names}} for one in answers}
    both = {side: sides[side] for side in ("before", "after")}
    return {"prompt": prompt, "judge": judge.id, "judge_version": judge.version, **both}


def _write(text: str) -> None:
    common.stdout().write(text)
    common.stdout().flush()
