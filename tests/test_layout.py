"""The layout that the README promises: imports point one way, light things stay light, the tree stays small."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path for room in ("engine", "dashboard", "precomputed") for path in (ROOT / room).rglob("*.py")
)


def imported(path):
    """Top-level names and full names of everything a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def uses(path, package):
    return any(name == package or name.startswith(f"{package}.") for name in imported(path))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    room = path.relative_to(ROOT).parts[0]
    if room == "engine":
        assert not uses(path, "streamlit")
        assert not uses(path, "plotly")
        # The command that opens the app starts it; nothing else in the engine knows of it.
        assert not uses(path, "dashboard") or path.name in ("dashboard.py", "report.py")  # commands that show
    draws = path.is_relative_to(ROOT / "dashboard" / "charts")
    if draws or path.is_relative_to(ROOT / "dashboard" / "views"):
        assert not uses(path, "torch")
        assert not uses(path, "transformers")
    if draws:
        assert not uses(path, "streamlit")
    assert not uses(path, "pickle")


def test_light_modules_load_neither_torch_nor_transformers():
    """What the first chart needs: the readers of results. torch alone takes seconds to import."""
    code = (
        "import sys, engine, engine.records, engine.store, engine.masks, precomputed.paper_tables, dashboard.results\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


def tracked_files():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_tree_stays_small():
    sizes = {path: path.stat().st_size for path in tracked_files()}
    assert sum(sizes.values()) <= 40e6
    model = ROOT / "precomputed" / "demo" / "model"
    assert sum(size for path, size in sizes.items() if path.is_relative_to(model)) <= 6e6


def test_nothing_that_runs_foreign_code_is_switched_on():
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"trust_remote_code\s*=\s*True", text), path
        assert not re.search(r"weights_only\s*=\s*False", text), path
        assert "torch.load" not in text, path


def test_readme_and_ci_run_the_same_commands():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "pip install uv && uv run selector-audit dashboard" in readme
    assert "uv run pytest" in readme
    assert "\nuv run pytest\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
