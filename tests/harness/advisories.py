"""What pip-audit found, and how much of it was looked at: it says "No known vulnerabilities found" also where it could
ask nobody.

    uv export --no-hashes --no-emit-project -q > requirements.txt
    uvx pip-audit -r requirements.txt --no-deps --disable-pip -f json -o advisories.json || true
    python -m tests.harness advisories advisories.json

Exit code 1: an advisory that is not excepted below, or a report that cannot be read. 0: none, with the number of
packages that were looked up. Where none was, a line that begins with "NOT CHECKED" says so, and the exit code is 3, so
that a build can tell it from both: what is not known is neither a failure of this software nor a pass.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

PASSED, FOUND, NOT_CHECKED = 0, 1, 3
EXCEPTED = {
    "CVE-2025-69872": "diskcache unpickles what it reads; ours stores texts only and refuses a pickle by name "
    "(engine/results/cells.py, tests/engine/test_store_damage.py)"
}


@dataclass(frozen=True)
class Report:
    """checked: packages that were looked up. skipped: those that were not. found: advisories as (package, version, id,
    versions that mend it), excepted ones apart."""

    checked: int
    skipped: list[str]
    found: list[tuple[str, str, str, str]]
    excepted: list[tuple[str, str, str, str]]

    @property
    def code(self) -> int:
        if self.found:
            return FOUND
        return PASSED if self.checked else NOT_CHECKED

    def lines(self) -> list[str]:
        """What to say, the worst first."""
        lines = [
            f"advisory {one} for {name} {version}; mended in {mended}" for name, version, one, mended in self.found
        ]
        every = self.checked + len(self.skipped)
        if not self.checked:
            lines.append(
                f"NOT CHECKED: advisories of none of the {every} packages could be looked up (the index that is "
                "reached from here serves none); this says nothing about known vulnerabilities"
            )
        elif self.skipped:
            lines.append(
                f"advisories of {self.checked} of {every} packages looked up, not of {', '.join(self.skipped)}"
            )
        else:
            lines.append(f"advisories of all {every} packages looked up")
        if self.checked and not self.found:
            lines.append("no advisory for those looked up" + (", but for:" if self.excepted else ""))
        return lines + [f"{one} for {name}: {EXCEPTED[one]}" for name, _, one, _ in self.excepted]


def read(found: Any) -> Report:
    """The report of pip-audit's JSON. Errors: KeyError and TypeError for something else."""
    checked, skipped, open_, excepted = 0, [], [], []
    for package in found["dependencies"]:
        if "skip_reason" in package:
            skipped.append(package["name"])
            continue
        checked += 1
        for one in package["vulns"]:
            names = [one["id"], *one.get("aliases", [])]
            known = next((name for name in names if name in EXCEPTED), None)
            mended = ", ".join(one.get("fix_versions", [])) or "no version yet"
            (excepted if known else open_).append((package["name"], package["version"], known or one["id"], mended))
    return Report(checked, skipped, open_, excepted)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.harness advisories", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path, help="pip-audit's report, written with -f json")
    path = parser.parse_args(words).report
    out = Console(highlight=False, soft_wrap=True)
    try:
        report = read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        out.print(f"{path} is no report of pip-audit ({type(error).__name__}: {error}); run it again", markup=False)
        return FOUND
    for line in report.lines():
        out.print(line, markup=False)
    return report.code
