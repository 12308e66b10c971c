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
    common.add_run(parser, run, folder=False)


def run(args: argparse.Namespace) -> None:
    from engine.run.doctor import examine

    findings = examine(args.model, args.revision, args.device, args.dtype, args.store)
    if common.as_json(args, {"findings": [finding.__dict__ for finding in findings]}):
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for finding in findings:
        next_step = f"\n→ {finding.next_step}" if finding.next_step else ""
        table.add_row(_SIGNS[finding.state], finding.subject, finding.found + next_step)
    common.out.print(table)
