"""Tests in an environment of their own, with the oldest releases that pyproject.toml allows, or with the newest.

    python -m tests.harness versions --resolution lowest-direct --python 3.12
    python -m tests.harness versions --resolution highest --python 3.13 --torch resolved

uv resolves and installs: what the package asks for and its extras (but ray) at that end of their bounds, then the tools
of the tests at their newest. torch is held at the version that is here, since another build may be gigabytes; `--torch
resolved` takes what resolves. The tests are the plain ones without a browser, or those that are named.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from engine.records.hashing import TESTED

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = ("lrp", "sharded", "downstream")
RESOLUTIONS = ("lowest-direct", "highest")
HELD, RESOLVED = "held", "resolved"
PLAIN = ("-m", "not long and not browser")


class NotInstalledError(Exception):
    """uv is not here, or could not install what was resolved; what it said."""


def environment(folder: Path, resolution: str, python: str, torch: str = HELD) -> tuple[Path, dict[str, str]]:
    """A new environment inside `folder`: its Python, and the version of every package that our own asks for.

    python: a version or a path, as uv takes it. torch: held, resolved, or a version.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise NotInstalledError("uv is not here")
    folder.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    overrides, held, made = folder / "overrides.txt", folder / "held.txt", folder / "environment"
    overrides.write_text("\n".join(project["tool"]["uv"]["override-dependencies"]), encoding="utf-8")
    version = _torch_here() if torch == HELD else torch
    held.write_text("" if torch == RESOLVED else f"torch=={version}\n", encoding="utf-8")

    def run(*words: str) -> str:
        # In a folder without a project: ours pins torch.
        ended = subprocess.run([uv, *words], cwd=folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise NotInstalledError(ended.stderr.strip())
        return ended.stdout

    install = ("pip", "install", "-q", "--python", str(made), "--overrides", str(overrides))
    file = str(ROOT / "pyproject.toml")
    run("venv", "-q", "--python", python, str(made))
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    run(*install, "--resolution", resolution, "-c", str(held), "-r", file, *extras)
    frozen = run("pip", "freeze", "--python", str(made))
    (folder / "frozen.txt").write_text(frozen, encoding="utf-8")
    run(*install, "-c", str(folder / "frozen.txt"), "--group", f"{file}:dev")
    versions = dict(line.split("==", 1) for line in frozen.splitlines() if "==" in line)
    return made / ("Scripts" if os.name == "nt" else "bin") / "python", versions


def _torch_here() -> str:
    import torch

    return torch.__version__.partition("+")[0]


def keep(versions: dict[str, str]) -> None:
    """Write what all tests passed with, of what our own package asks for, as a constraints file that `doctor` reads."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    names = sorted(re.match(r"[\w.-]+", one)[0].lower() for one in asked)  # type: ignore[index]
    folded = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in versions.items()}
    lines = [f"{name}=={folded[name].partition('+')[0]}" for name in names]
    head = "# All tests last passed with these releases (`python -m tests.harness versions --keep`).\n"
    TESTED.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def tests(python: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """pytest on this checkout, by another environment's Python."""
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))
    }
    env |= {"PYTHONPATH": str(ROOT), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(python), "-m", "pytest", "--tb=short", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.harness versions", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--resolution", choices=RESOLUTIONS, default=RESOLUTIONS[0])
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--torch", default=HELD, help=f"{HELD} at the version here, {RESOLVED}, or a version")
    parser.add_argument("--tests", default="", help="words for pytest, blank between them; the plain tests by default")
    parser.add_argument("--keep", action="store_true", help=f"if all pass, write {TESTED.name}, which `doctor` reads")
    given = parser.parse_args(words)
    out = Console(highlight=False, soft_wrap=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        try:
            python, versions = environment(Path(name), given.resolution, given.python, given.torch)
        except NotInstalledError as error:
            out.print(f"NOT CHECKED: {error}", markup=False)
            return 3
        out.print(f"Python {given.python}, {given.resolution}, installed in {time.monotonic() - start:.0f} s:")
        out.print(", ".join(f"{one} {versions[one]}" for one in sorted(versions)), markup=False)
        ended = tests(python, given.tests.split() or PLAIN)
    out.print(ended.stdout[-20_000:], markup=False)
    out.print(ended.stderr[-2_000:], markup=False)
    out.print(f"exit code {ended.returncode}, {(time.monotonic() - start) / 60:.1f} min")
    if given.keep and not ended.returncode and not given.tests:
        keep(versions)
    return 1 if ended.returncode else 0
