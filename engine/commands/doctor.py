"""`doctor`: what is installed, which device, does the model fit, which data sets are reachable."""

from __future__ import annotations

import argparse

from rich.table import Table

from engine.commands import common

_SIGNS = {"ok": "[green]ok[/green]", "note": "[yellow]note[/yellow]", "problem": "[red]problem[/red]"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check this machine: packages, device, memory, store, data sets, a model",
        description="Each line says what was found and, where something is missing, the next step.",
    )
    common.add_model(parser, optional=True)
    common.add_device(parser)
    common.add_storage(parser, folder=False)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.doctor import examine

    findings = examine(args.model, args.revision, args.device, args.dtype, args.store)
    if args.json:
        common.print_json({"findings": [finding.__dict__ for finding in findings]})
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row(_SIGNS[finding.state], finding.subject, finding.found + _next_step(finding.next_step))
    common.out.print(table)


def _next_step(text: str | None) -> str:
    return f"\n→ {text}" if text else ""
