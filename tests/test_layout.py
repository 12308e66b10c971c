"""The layout that the README promises: imports point one way, light things stay light, the tree stays small."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(path for room in ("engine", "dashboard", "precomputed") for path in (ROOT / room).rglob("*.py"))


# The rooms of the engine: a file imports from its own room or earlier ones. Above them all: engine/__init__, cli.
ROOMS = (
    "records", "results", "stats", "models", "data", "selectors", "edits", "interventions", "measures", "judges",
    "run", "studies", "commands",
)  # fmt: skip


DASHBOARD = ("charts", "show", "state", "chat", "pages", "report", "site")  # likewise; above them app.py and serve.py


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def named(nodes):
    """The full name of everything that these import statements name: modules, or names of modules."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports name their module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def statements(node):
    """Everything below that is no expression; an import is in none."""
    yield node
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, name, ()):
            yield from statements(one)


@cache
def imported(path):
    """Names of everything a file imports, anywhere in it."""
    return list(named(statements(tree_of(path))))


def uses(path, package):
    return any(name == package or name.startswith(f"{package}.") for name in imported(path))


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCES}


def modules(names):
    """The modules of ours that these names are, or are names of."""
    candidates = {name if name in MODULES else name.rpartition(".")[0] for name in names}
    return candidates & MODULES.keys()


def at_import_time(path):
    """The import statements that run when the file is imported: outside of functions and of TYPE_CHECKING."""
    waiting = list(tree_of(path).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


@cache
def loaded_with(name):
    """Modules of ours that importing this one loads by its own import statements."""
    return frozenset(modules(named(at_import_time(MODULES[name]))) - {name})


def arrows(path, names):
    return {f"{path.relative_to(ROOT).as_posix()} → {name}" for name in names}


def forbidden(path):
    """Packages that this file may not import."""
    yield "pickle"
    if path.relative_to(ROOT).parts[0] == "engine":
        yield from ("streamlit", "plotly")
        # What opens the app or draws with its charts; nothing else in the engine knows of it.
        yield from () if path.name in ("dashboard.py", "report.py", "audit_scores.py", "site.py") else ("dashboard",)
    if path.is_relative_to(ROOT / "dashboard" / "charts"):
        yield from ("torch", "transformers", "streamlit")
    if path.is_relative_to(ROOT / "dashboard" / "pages"):
        yield from ("torch", "transformers")


def test_imports_point_one_way():
    wrong = [(str(path.relative_to(ROOT)), name) for path in SOURCES for name in forbidden(path) if uses(path, name)]
    assert wrong == []


def room_of(name):
    """The place of a module among the rooms; what lies in none is above them all."""
    top, *parts = name.split(".")
    rooms = ROOMS if top == "engine" else DASHBOARD
    return rooms.index(parts[0]) if parts and parts[0] in rooms else len(rooms)


def test_every_folder_is_a_room():
    assert {path.parent.name for path in (ROOT / "engine").glob("*/__init__.py")} == set(ROOMS)
    assert {path.parent.name for path in (ROOT / "dashboard").glob("*/__init__.py")} == set(DASHBOARD)


@pytest.mark.parametrize("top", ["engine", "dashboard"])
def test_rooms_import_from_earlier_rooms_only(top):
    upwards = set()
    for name, path in MODULES.items():
        if name.split(".")[0] == top:
            ours = (other for other in modules(imported(path)) if other.split(".")[0] == top)
            upwards |= arrows(path, (other for other in ours if room_of(other) > room_of(name)))
    assert sorted(upwards) == []


def test_one_arrow_from_the_engine_to_the_shipped_files():
    found = set()
    for name, path in MODULES.items():
        if name.startswith("engine"):
            names = (other for other in modules(imported(path)) if other.startswith("precomputed"))
            found |= arrows(path, names)
    assert len(found) <= 1, sorted(found)


def test_no_module_loads_itself_in_a_circle():
    done, way = set(), []

    def walk(name):
        assert name not in way, " → ".join([*way[way.index(name) :], name])
        if name not in done:
            way.append(name)
            for other in sorted(loaded_with(name)):
                walk(other)
            way.pop()
            done.add(name)

    for name in MODULES:
        walk(name)


@pytest.mark.parametrize(
    "room",
    [
        "engine.records", "engine.results", "engine.stats", "engine.studies.verdict", "engine.studies.claims",
        "dashboard.pages", "dashboard.charts",
    ],
)  # fmt: skip
def test_light_rooms_load_no_torch_at_import_time_over_any_number_of_steps(room):
    """The way to torch is what the failure shows."""
    seen = {name for name in MODULES if f"{name}.".startswith(f"{room}.")}
    waiting = [(name,) for name in sorted(seen)]
    while waiting:
        *_, name = way = waiting.pop()
        outside = {other.split(".")[0] for other in named(at_import_time(MODULES[name]))}
        assert not outside & {"torch", "transformers", "datasets"}, " → ".join(way)
        packages = {name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)}
        for other in (loaded_with(name) | packages) - seen:
            seen.add(other)
            waiting.append((*way, other))


def test_light_modules_load_neither_torch_nor_transformers():
    """What the first chart needs: the readers of results. torch alone takes seconds to import."""
    code = (
        "import sys, engine, engine.records.manifest, engine.results.store, engine.edits.masks\n"
        "import precomputed.paper_tables, dashboard.state.results\n"
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
    assert sum(size for path, size in sizes.items() if path.is_relative_to(model)) <= 12e6


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
    assert "\nuv run pytest\nuv run pytest -m long\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
