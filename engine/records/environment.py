"""What ran: versions of everything that took part, and the commit."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "transformers", "lxt", "tokenizers", "datasets", "numpy", "safetensors")
_NOT_DATA = ":(exclude)precomputed/demo"  # a git pathspec


@cache
def installed_version(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@cache
def distributions_of(package: str) -> tuple[str, ...]:
    """The installed distributions that bring a top-level package, by name; asks every one once, about a second."""
    return tuple(sorted(set(packages_distributions().get(package, ()))))


def environment() -> dict[str, Any]:
    """Versions of everything that took part, and the commit when run from a checkout."""
    return {
        "selector-audit": installed_version("selector-audit"),
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "libraries": {name: installed_version(name) for name in _LIBRARIES},
    }


@cache
def git_commit() -> str | None:
    """Commit of the checkout this code runs from (`+changes` when its files differ), None outside one.

    The shipped data do not count: building them changes them, and they have checksums of their own.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", _NOT_DATA)
        return f"{commit}+changes" if changed else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    words = ["git", "-C", str(root), *arguments]  # of the user's own PATH, in this software's own folder
    done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=True)  # nosec B603 # no shell
    return done.stdout.strip()
