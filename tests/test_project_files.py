"""What stands beside the code says what is true of it: citation, changelog, container, lower bounds."""

import ast
import importlib
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from dashboard.pages.reference import documents
from engine.cli import build_parser
from engine.selectors.base import BUILT_IN, get_selector

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT / ".github"
PAGES = [ROOT / "README.md", HERE / "CONTRIBUTING.md", *(documents.FOLDER / name for name in documents.FILES.values())]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((HERE / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format requires
    assert str(citation["version"]) == PROJECT["project"]["version"]
    assert PROJECT["project"]["license"].split(" AND ")[0] == citation["license"]  # what is cited is our own part
    assert citation["abstract"] == PROJECT["project"]["description"]
    paper = citation["references"][0]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert paper["title"] in readme
    assert ", ".join(one["family-names"] for one in paper["authors"]) in readme
    attnlrp = citation["references"][1]["identifiers"][0]["value"]
    assert attnlrp in (ROOT / "engine" / "selectors" / "lrp.py").read_text(encoding="utf-8")


def test_the_readme_is_short_and_every_document_is_on_the_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200
    assert {path.name for path in documents.FOLDER.glob("*.md")} == set(documents.FILES.values())
    for title, name in documents.FILES.items():
        assert (documents.FOLDER / name).read_text(encoding="utf-8").startswith(f"# {title}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_the_texts_name_is_there_and_what_they_tell_to_type_is_taken(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, place in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
        file = (page.parent / name).resolve() if name else page
        assert ROOT in file.parents, name
        assert file.exists(), name
        titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE) if place else []
        assert not place or place in map(documents.anchor, titles), place
    for path in re.findall(r"`((?:tests|engine|dashboard|precomputed)/[\w./-]+)`", text):
        assert "NAME" in path or (ROOT / path).exists(), path
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "\n".join([*re.findall(r"`([^`\n]+)`", text), *(body for kind, body in blocks if kind in ("sh", "bash"))])
    typed = re.findall(r"selector-audit ([^#&…\n]+)", lines)
    if page.name == "README.md":  # its table of commands
        typed += re.findall(r"^\| `(\w[^`]+)` \|", text.replace("[MODEL]", "MODEL"), re.MULTILINE)
        assert len(typed) > 20
    for words in (re.sub(r"\$\w+", "1", one) for one in typed if not one.startswith("COMMAND ")):
        build_parser().parse_args(shlex.split(words + '"' * (words.count('"') % 2)))
    for node in (one for kind, body in blocks if kind == "python" for one in ast.walk(ast.parse(body))):
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(importlib.import_module(str(node.module)), one.name) for one in node.names)


def test_every_name_of_the_python_api_loads() -> None:
    engine = importlib.import_module("engine")
    assert all(getattr(engine, name) for name in engine.__all__)


def test_the_changelog_begins_with_this_version_and_counts_what_is_there() -> None:
    said = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d+\.\d+\.\d+)", said, re.MULTILINE)[0] == PROJECT["project"]["version"]
    words = {9: "nine", 10: "ten"}
    from engine.run.audit_plan import PRESETS

    in_presets = {name for one in PRESETS.values() for name in one.plan.scoring.selectors}
    further = set(BUILT_IN) - in_presets
    assert f"{words[len(in_presets)]} selectors in presets and {words[len(further)]} further ones by name" in said
    for name in ("lrp", "relp", "consensus2"):
        assert get_selector(name).id == name


def container(file: Path = HERE / "Containerfile") -> list[tuple[str, str]]:
    """Instructions of a container file and what follows them."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [tuple(line.split(" ", 1)) for line in lines if not line.startswith("#")]  # type: ignore[misc]


def test_the_container_copies_what_is_there_and_all_that_the_wheel_is_built_of() -> None:
    copied = {name for word, rest in container() if word == "COPY" for name in rest.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    built = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    licences = {name for name in PROJECT["project"]["license-files"] if name.split("/")[0] not in built}
    assert copied == {"pyproject.toml", PROJECT["project"]["readme"], *licences, *built}


def test_what_the_container_runs_is_a_command() -> None:
    said = dict(container())
    assert json.loads(said["ENTRYPOINT"]) == list(PROJECT["project"]["scripts"])
    args = build_parser().parse_args(json.loads(said["CMD"]))
    assert args.command == "dashboard"
    assert str(args.port) == said["EXPOSE"]
    shown = [line for line in (HERE / "Containerfile").read_text(encoding="utf-8").splitlines() if " run " in line]
    for line in shown:
        _, _, typed = line.partition(" selector-audit ")
        if typed:
            build_parser().parse_args(shlex.split(typed))
    assert len(shown) == 2


def test_a_space_is_the_container_for_everybody() -> None:
    """The front matter has what the hub asks of a Space of its kind; the container differs in what it starts alone."""
    space = ROOT / ".space"
    front = yaml.safe_load((space / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    told = dict(container(space / "Dockerfile"))
    assert (front["sdk"], str(front["app_port"])) == ("docker", told["EXPOSE"])
    assert len(front["short_description"]) <= 60  # which the hub refuses beyond
    steps = [step for step in container() if step[0] not in ("ENTRYPOINT", "CMD")]
    assert [step for step in container(space / "Dockerfile") if step[0] != "CMD"] == steps
    shell, flag, line = json.loads(told["CMD"])
    first, program, *words = shlex.split(line)
    assert (shell, flag, first, program) == ("sh", "-c", "exec", *PROJECT["project"]["scripts"])
    args = build_parser().parse_args(words)
    assert (str(args.port), args.public, args.allow_runs) == (told["EXPOSE"], "$SPACE_HOST", False)
    uploaded = (space / "README.md").read_text(encoding="utf-8").split("--include ")[1].replace('"', "").split("\n")[0]
    copied = {name for word, rest in container() if word == "COPY" for name in rest.split()[:-1]}
    assert {name.removesuffix("/*") for name in uploaded.split()} | {"README.md"} == copied


@pytest.mark.parametrize("extra", ["lrp", "downstream", "sharded"])
def test_extras_are_in_the_default_set_up(extra: str) -> None:
    """`uv run` brings what an extra would, so that no test is left out for want of it."""
    assert set(PROJECT["project"]["optional-dependencies"][extra]) <= set(PROJECT["dependency-groups"]["dev"])
