"""What our own code could run or trust of others: every such place is known, with its reason; nothing else is there."""

import ast
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for top in ("engine", "dashboard", "precomputed") for path in (ROOT / top).rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Modules that run, load or fetch what somebody else may have written; to import one is to be listed.
MODULES = {
    "pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "jsonpickle", "yaml", "subprocess",
    "pty", "runpy", "code", "ctypes", "cffi", "telnetlib", "ftplib", "smtplib", "xmlrpc", "socketserver", "tarfile",
    "zipfile", "xml", "lxml", "requests", "httpx", "urllib.request", "http.client", "http.server", "importlib",
    "multiprocessing",
}  # fmt: skip
# Calls by the end of their dotted name, as written.
CALLS = {
    "eval", "exec", "compile", "__import__", "breakpoint", "os.system", "os.popen", "os.startfile", "torch.load",
    "torch.hub.load", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle", "pd.read_pickle", "np.load", "numpy.load",
    "tempfile.mktemp", "hashlib.md5", "hashlib.sha1", "ssl._create_unverified_context", "extractall", "Markup",
    "import_module", "entry_points",
}  # fmt: skip
ON = {  # keyword arguments that are not to be this
    "shell": (True,), "trust_remote_code": (True,), "weights_only": (False,), "allow_pickle": (True,),
    "verify": (False,), "unsafe_allow_html": (True,), "unsafe_allow_javascript": (True,), "autoescape": (False,),
    "use_safetensors": (False,), "debug": (True,),
}  # fmt: skip

OWN_MODULES = "imports modules of this software by names that stand in it"
PLUG_INS = "packages that the user installed may bring plug-ins: installing one is trusting it"
OWN_SCRIPT = "a script that stands in this file, without anything of a user's or a run's in it"
KNOWN = {
    ("dashboard/chat/edits.py", "entry_points"): PLUG_INS,
    ("dashboard/pages/learn/learn_page.py", "unsafe_allow_javascript=True"): OWN_SCRIPT,
    ("dashboard/pages/reference/reference_page.py", "unsafe_allow_javascript=True"): "scrolls to a section of our own "
    "documents, whose anchor is letters, digits and dashes of its title (documents.anchor)",
    ("dashboard/pages/runs/importing.py", "import zipfile"): "imports of runs: names never become paths, sizes are "
    "counted while unpacking (test_dashboard_runs_import.py)",
    ("engine/selectors/own_scores.py", "import zipfile"): "npz files of scores: arrays of numbers only, whose sizes "
    "are checked before they are unpacked (test_own_scores.py)",
    ("dashboard/state/jobs.py", "import subprocess"): "starts this software with a list of words, by no shell; "
    "nothing typed becomes an option of its own (test_dashboard_jobs.py)",
    ("dashboard/report/html_report.py", "Markup"): "plotly's own HTML of a figure, its texts through `as_text`",
    ("dashboard/site/build.py", "Markup"): "our own documents by markdown-it, with HTML off, and escaped text",
    ("dashboard/serve.py", "import importlib"): OWN_MODULES,
    ("dashboard/serve.py", "import_module"): OWN_MODULES,
    ("dashboard/show/menu.py", "unsafe_allow_javascript=True"): OWN_SCRIPT,
    ("engine/__init__.py", "import importlib"): OWN_MODULES,
    ("engine/__init__.py", "import_module"): OWN_MODULES,
    ("engine/judges/served.py", "import urllib.request"): "asks the server that the command line names",
    ("engine/measures/harness.py", "import importlib"): "is lm-eval installed?",
    ("engine/models/memory.py", "import ctypes"): "two settings of glibc's allocator and its trim",
    ("engine/models/attnlrp.py", "import importlib"): "lxt's and transformers' modules, of families in our list",
    ("engine/models/attnlrp.py", "import_module"): "lxt's and transformers' modules, of families in our list",
    ("engine/cli.py", "import importlib"): OWN_MODULES,
    ("engine/cli.py", "import_module"): OWN_MODULES,
    ("engine/models/loading.py", "import importlib"): "is accelerate installed?",
    ("engine/models/untrusted.py", "import subprocess"): "starts a script of this software that renders templates, "
    "with nothing of a checkpoint among its words (test_untrusted.py)",
    ("engine/records/hashing.py", "import subprocess"): "git, for the commit of this checkout: a list of words",
    ("engine/records/registry.py", "entry_points"): PLUG_INS,
    ("engine/records/registry.py", "import importlib"): OWN_MODULES,
    ("engine/records/registry.py", "import_module"): OWN_MODULES,
    ("engine/selectors/__init__.py", "import importlib"): OWN_MODULES,
    ("engine/selectors/__init__.py", "import_module"): OWN_MODULES,
    ("engine/studies/base.py", "import importlib"): OWN_MODULES,
    ("engine/studies/base.py", "import_module"): OWN_MODULES,
}


def dotted(node):
    """a.b.c of a name or an attribute; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def places(source):
    """What of the lists above a source has, wherever it stands: at the top, in functions, under conditions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{name}" for name in names)]
            for name in names:
                parts = name.split(".")
                ends = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
                found |= {f"import {one}" for one in ends & MODULES if not name.startswith("importlib.metadata")}
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            parts = name.split(".")
            ends = {".".join(parts[n:]) for n in range(len(parts))}
            bare = {"eval", "exec", "compile"}  # `model.eval()` and `re.compile()` are other things
            found |= {one for one in ends & CALLS if one not in bare or name == one}
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if value is not None and value in ON.get(keyword.arg or "", ()):
                    found.add(f"{keyword.arg}={value}")
    return found


def test_every_place_is_known_and_has_its_reason():
    found = {
        (path.relative_to(ROOT).as_posix(), what)
        for path in SOURCES
        for what in places(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - KNOWN.keys()) == []
    assert sorted(KNOWN.keys() - found) == []  # a reason for nothing is out of date
    assert all(len(reason) > 10 for reason in KNOWN.values())


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("eval('1')", "eval"), ("def f():\n    exec(text)", "exec"), ("import pickle", "import pickle"),
        ("if x:\n    from pickle import loads", "import pickle"), ("import torch as t\ntorch.load(p)", "torch.load"),
        ("subprocess.run(words, shell=True)", "shell=True"), ("f(trust_remote_code=True)", "trust_remote_code=True"),
        ("import yaml\nyaml.load(text)", "yaml.load"), ("np.load(p, allow_pickle=True)", "allow_pickle=True"),
        ("from urllib import request", "import urllib.request"), ("a.b.os.system(word)", "os.system"),
        ("from importlib import import_module", "import importlib"), ("archive.extractall(p)", "extractall"),
        ("st.html(text, unsafe_allow_javascript=True)", "unsafe_allow_javascript=True"),
    ],
)  # fmt: skip
def test_the_walk_finds_each_kind(source, what):
    assert what in places(source)


def test_what_only_looks_like_it_is_not_found():
    harmless = "model.eval(); f().eval(); re.compile(x); json.load(f); from importlib.metadata import version"
    assert places(harmless.replace("; ", "\n")) == set()


def test_nothing_hides_the_warnings_of_a_linter():
    """ruff's S301 (pickle) is on for everything; nobody switches a rule about safety off in place."""
    assert "S301" in PROJECT["tool"]["ruff"]["lint"]["select"]
    for path in SOURCES:
        assert not re.search(r"noqa: S\d", path.read_text(encoding="utf-8")), path


EXCEPTED = re.compile(r"# nosec B\d{3} # \S.{4,}")


def test_every_exception_from_bandit_names_its_rule_and_its_reason():
    """In the place, or for all places in pyproject.toml, where a line before `skips` says why."""
    for path in SOURCES:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "nosec" not in line or EXCEPTED.search(line), f"{path}: {line}"
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    above = text.partition("[tool.bandit]")[2].partition("skips")[0]
    for rule in PROJECT["tool"]["bandit"]["skips"]:
        assert re.search(rf"^# {rule}: .{{20,}}", above, re.M), rule


BOUNDED = ("torch", "transformers", "streamlit", "plotly", "lxt")


@pytest.mark.parametrize("name", BOUNDED)
def test_what_the_code_leans_on_hardest_is_bounded_on_both_sides_and_installed_within(name):
    groups = (
        PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"].values(),
        PROJECT["dependency-groups"]["dev"],
    )
    found = [one for group in groups for one in map(Requirement, group) if one.name == name]
    assert found
    for one in found:
        assert {each.operator for each in one.specifier} == {">=", "<"}, str(one)
        assert one.specifier.contains(version(name), prereleases=True)
    assert len({str(one.specifier) for one in found}) == 1  # everywhere the same range


def test_the_versions_that_the_tests_passed_with_are_those_of_packages_that_are_asked_for() -> None:
    from engine.records.hashing import tested_versions

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(one) for one in [*project["dependencies"], *(one for some in extras.values() for one in some)]]
    listed = tested_versions()
    assert {one.name.lower() for one in asked} - listed.keys() == {"ray"}  # which few machines have
    for one in asked:
        assert one.name == "ray" or one.specifier.contains(listed[one.name.lower()]), one
