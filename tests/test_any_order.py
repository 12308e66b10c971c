"""Tests hold in any order: files that patch what others use run in one process, shuffled."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
# They patch where the shipped files lie, clocks, limits, registries, titles and what reads tables.
FILES = tuple(
    f"tests/dashboard/test_dashboard_{name}.py"
    for name in ("curves_page", "live_page", "plug_in_titles", "results", "return", "sources")
)


def run(*words: str) -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


def test_files_that_patch_pass_in_a_random_order() -> None:
    run("--shuffle", "1", *FILES)


def test_what_a_fixture_has_patched_stays_with_no_module_that_is_imported_meanwhile() -> None:
    run(*FILES[:2], "-k", "without_shipped or live_page")
