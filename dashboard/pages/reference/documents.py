"""The documents of Reference: Markdown beside this file, its sections and links, and the search over everything."""

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dashboard.pages.reference import published
from dashboard.show import shown_tables as tables
from engine.cli import build_parser
from precomputed.paper_tables import load_table

PAPER, METHODS, COMMANDS = "Paper tables", "Methods", "Commands"
# Title -> file, in the order of the page; the first is opened by an address that says nothing.
FILES = {
    METHODS: "methods.md", "Your own scores": "own-scores.md", COMMANDS: "commands.md", "The app": "app.md",
    "Refusal": "refusal.md", "Shipped results": "shipped.md", "Against others": "others.md",
    "What we got wrong": "mended.md", "Speed": "speed.md", "Plug-ins": "plug-ins.md", "Tests": "tests.md",
    "Security": "security.md",
}  # fmt: skip
TITLES = (PAPER, *FILES)
FOLDER = Path(__file__).parent
HELP_COLUMNS = 96
_LINK = re.compile(r"!?\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?=[-|] |\d+\. )")  # between paragraphs, items of a list and lines of a table
_MARKS = re.compile(r"\*\*|`|^#+ |^[-*] |\\|(?<!\w)\*|\*(?!\w)", re.MULTILINE)


@cache
def sections(document: str) -> dict[str, str]:
    """Title -> text of the parts of a Markdown document; the text before the first has the title ""."""
    _, text = (FOLDER / FILES[document]).read_text("utf-8").removeprefix("# ").split("\n", 1)
    first, *others = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"": first.strip()} | {title: body.strip() for title, body in (one.split("\n", 1) for one in others)}


def anchor(title: str) -> str:
    """The place of a section in an address, as GitHub names it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def linked(text: str) -> str:
    """Links between documents as addresses of this page; what leads to a file of the repository is its path."""

    def address(found: re.Match[str]) -> str:
        label, target, place = found.groups(default="")
        for title, file in FILES.items():
            if file == target:
                return f"[{label}](?document={title.replace(' ', '+')}{place})"
        if not target or target.startswith("http"):
            return found[0]
        path = f"`{(FOLDER / target).resolve().relative_to(FOLDER.parents[2]).as_posix()}`"
        return path if label.startswith("`") else f"{label} ({path})"

    return _LINK.sub(address, text)


@cache
def helps() -> dict[str, str]:
    """Command -> its whole help, as the command itself prints it in a terminal of `HELP_COLUMNS`."""
    return dict(_helps(build_parser()))


def _helps(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, str]]:
    groups = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for word, command in (one for group in groups for one in group.items()):
        yield from _helps(command, f"{name} {word}".strip())
    for later in (getattr(action, "later", {}) for action in parser._actions):
        for action, text in later.items():
            action.help = text  # what only --help-all tells
    if not groups:
        kind: Any = parser.formatter_class
        parser.formatter_class = lambda prog: kind(prog, width=HELP_COLUMNS)
        yield name, parser.format_help()


class Passage(NamedTuple):
    """A paragraph that the search reads. name: of the command, published table or section that it stands in."""

    document: str
    name: str
    text: str


def search(words: str) -> list[Passage]:
    """The passages with all of these words, those with most of them in their title first."""
    wanted = words.lower().split()
    matches = [one for one in passages() if all(word in " ".join(one).lower() for word in wanted)]
    return sorted(matches, key=lambda one: -sum(word in " ".join(one[:2]).lower() for word in wanted))


@cache
def passages() -> list[Passage]:
    all_passages = [
        Passage(document, title, plain)
        for document in FILES for title, body in sections(document).items() for block in _BLOCK.split(body)
        if (plain := _plain(block))
    ]  # fmt: skip
    for name, text in helps().items():
        all_passages += [Passage(COMMANDS, name, " ".join(block.split())) for block in re.split(r"\n(?=  ?-|\n)", text)]
    all_passages += [
        Passage(METHODS, "Tables", f"{file}: {column}{f' ({unit})' if unit else ''}: {meaning}")
        for file, column, unit, meaning in tables.columns().select("File", "Column", "Unit", "Meaning").iter_rows()
    ]
    all_passages += [Passage(PAPER, name, published.caption(name)) for name in published.tables()]
    points = load_table(published.POINTS).select("id", "topic", "statement")
    return all_passages + [
        Passage(PAPER, name, f"{topic}: {statement}") for name, topic, statement in points.iter_rows()
    ]


def _plain(block: str) -> str:
    """Markdown without its marks, on one line; nothing of a formula or a table's rule."""
    if block.lstrip().startswith("$$"):
        return ""
    lines = [line for line in _LINK.sub(r"\1", block).splitlines() if not re.fullmatch(r"[|\s:-]*|```\w*", line)]
    return " ".join(_MARKS.sub("", "\n".join(lines)).replace("|", " ").split())
