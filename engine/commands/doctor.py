"""`doctor`: what is installed, which device, does the model fit, which data sets are reachable.

Each line says what was found and, where something is missing, the next step. Exit code 1 if there is a problem; notes
do not count."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from engine.commands import common
from engine.records.terminal import shown

if TYPE_CHECKING:
    from engine.run.doctor import Finding

_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser, optional=True)
    common.add_run(parser, folder=False)


def run(args: argparse.Namespace) -> int:
    from engine.run.doctor import examine

    looked_at = examine(args.model, args.revision, args.device, args.dtype, args.store)
    findings = list(looked_at if args.json else _printed(looked_at))
    common.as_json(args, {"findings": [finding.__dict__ for finding in findings]})
    return int(any(finding.state == "problem" for finding in findings))


def _printed(findings: Iterable[Finding]) -> Iterable[Finding]:
    """The findings, each printed as soon as it is there: some take a while."""
    for finding in findings:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(width=len("problem"))
        table.add_column(width=max(17, len(finding.subject)))
        table.add_column(overflow="fold")
        next_step = f"\n→ {finding.next_step}" if finding.next_step else ""
        table.add_row(
            Text(finding.state, _COLOURS[finding.state]), shown(finding.subject), shown(finding.found + next_step)
        )
        common.out.print(table)
        yield finding
