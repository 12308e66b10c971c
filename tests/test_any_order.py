"""Tests hold in any order: files that patch what others use run in one process, shuffled by three seeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
# They patch where the shipped files lie, clocks, limits, registries, titles and what reads tables.
FILES = (
    "dashboard/test_dashboard_basket.py", "dashboard/test_dashboard_curves_page.py",
    "dashboard/test_dashboard_leaderboard.py", "dashboard/test_dashboard_live_page.py",
    "dashboard/test_dashboard_plug_in_titles.py", "dashboard/test_dashboard_results.py",
    "dashboard/test_dashboard_return.py", "dashboard/test_dashboard_sources.py",
)  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_files_that_patch_pass_in_a_random_order(seed: int) -> None:
    words = ["-n", "0", "-p", "no:cacheprovider", "--shuffle", str(seed), *(str(ROOT / "tests" / one) for one in FILES)]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
