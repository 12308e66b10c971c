"""What pip-audit's report comes to: found, none, and not looked up are three things."""

import json
from pathlib import Path
from typing import Any

import pytest
from harness.advisories import EXCEPTED, FOUND, NOT_CHECKED, PASSED, main, read

WHOLE = {"name": "numpy", "version": "2.4.6", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.13.0+cpu)"}
HURT = {
    "name": "streamlit", "version": "1.0.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["1.0.1", "1.1"], "description": ""}],
}  # fmt: skip
PICKLE = {
    "name": "diskcache", "version": "5.6.3",
    "vulns": [{"id": "GHSA-x", "aliases": ["CVE-2025-69872"], "fix_versions": [], "description": ""}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("packages", "code", "first"),
    [
        ([WHOLE, PICKLE], PASSED, "advisories of all 2 packages looked up"),
        ([WHOLE, SKIPPED], PASSED, "advisories of 1 of 2 packages looked up, not of torch"),
        ([SKIPPED, SKIPPED], NOT_CHECKED, "NOT CHECKED: advisories of none of the 2 packages could be looked up"),
        ([], NOT_CHECKED, "NOT CHECKED: advisories of none of the 0 packages"),
        ([WHOLE, HURT, SKIPPED], FOUND, "advisory PYSEC-1 for streamlit 1.0.0; mended in 1.0.1, 1.1"),
    ],
)
def test_found_none_and_not_looked_up(packages: list[Any], code: int, first: str) -> None:
    report = read({"dependencies": packages})
    assert report.code == code
    assert report.lines()[0].startswith(first)
    assert any("no advisory" in line for line in report.lines()) == (code == PASSED)


def test_an_exception_is_told_with_its_reason() -> None:
    (line,) = [line for line in read({"dependencies": [PICKLE]}).lines() if "CVE" in line]
    assert line == f"CVE-2025-69872 for diskcache: {EXCEPTED['CVE-2025-69872']}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dependencies": 3}', '{"dependencies": [{}]}', "No known"])
def test_what_is_no_report_is_no_pass(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report").write_text(text)
    assert main([str(tmp_path / "report")]) == FOUND
    assert "is no report of pip-audit" in capsys.readouterr().out
    assert main([str(tmp_path / "none")]) == FOUND


def test_the_command_gives_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report").write_text(json.dumps({"dependencies": [SKIPPED], "fixes": []}))
    assert main([str(tmp_path / "report")]) == NOT_CHECKED
    assert capsys.readouterr().out.startswith("NOT CHECKED")
