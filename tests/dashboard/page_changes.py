"""What people change on the pages of an audit, one thing at a time, and what the server sends for it."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app_pages import run_page
from streamlit.testing.v1 import AppTest

from dashboard.state.results import STORE_VARIABLE

Change = Callable[[AppTest], object]


@dataclass(frozen=True)
class Taken:
    """cpu_s: of the script run and of reading it back here. sent_bytes: of all elements of the page together."""

    page: str
    change: str
    cpu_s: float
    sent_bytes: int


def box(key: str, value: object) -> Change:
    """Chooses from a list."""
    return lambda app: app.selectbox(key=key).set_value(value)


def slider(key: str, value: object) -> Change:
    """Moves a slider."""
    return lambda app: app.select_slider(key=key).set_value(value)


def switch(key: str, value: object) -> Change:
    """Presses one of few."""
    return lambda app: app.segmented_control(key=key).set_value(value)


def several(key: str, *values: str) -> Change:
    """Leaves these pressed."""
    return lambda app: app.pills(key=key).set_value(list(values))


def typed(key: str, text: str) -> Change:
    """Writes into a line."""
    return lambda app: app.text_input(key=key).set_value(text)


# Page -> what is in its address besides the folder, and the changes, each on top of those before.
PAGES: dict[str, list[tuple[dict[str, str], dict[str, Change]]]] = {
    "overview": [({}, {"racer": box("watch_a", "ig lerf"), "other racer": box("watch_b", "wanda morf")})],
    "curves": [
        ({}, {
            "selectors": several("selectors", "lrp", "ig"), "scale": switch("scale", "÷ unmasked"),
            "gap": switch("view", "Gap"), "models": switch("view", "Models"),
        }),
    ],
    "where": [
        ({}, {
            "rate": slider("rate", 0.5), "whole rankings": switch("value", "Spearman"),
        }),
        ({"part": "Depth"}, {
            "level": switch("level", "Projections"), "selectors": several("selectors", "lrp", "wanda"),
        }),
    ],
    "believed": [
        ({}, {"measure": switch("measure", "spearman"), "domain": box("part", "Second domain")}),
        ({"part": "Stability", "more": "true"}, {"rate": slider("stability_rate", 0.2)}),
        ({"part": "Controls", "more": "true"}, {
            "order": switch("control_order", "MoRF"), "depth": box("part", "Explained by depth"),
        }),
        ({"part": "Dangerous groups", "more": "true"}, {}),
        ({"part": "Single units", "more": "true"}, {"absolute": switch("single_effects", "Absolute")}),
        ({"part": "Protocols", "more": "true"}, {}),
        ({"part": "Exact controls", "more": "true"}, {"measure": switch("exact_measure", "jaccard")}),
    ],
    "tasks": [({}, {"curves": switch("tasks_view", "As rows go"), "task": box("task", "boolq")})],
    "refusal": [
        ({}, {
            "domain": box("domain", "crime"), "harmless": switch("prompts", "benign"), "all": box("domain", "all"),
            "structure": box("section", "Where the rows are"),
        }),
        ({"show": "All edits", "domain": "Crime", "selector": "LRP"}, {
            "cell": box("cell", "lrp/crime/0.3/0.015"), "domain": box("domain", "hate"),
        }),
    ],
    "rows": [
        ({}, {
            "selector": box("row_selector", "wanda"), "share": switch("measure", "Removed rows"),
            "rate": slider("row_rate", 0.5), "two": switch("measure", "Two selectors"), "block": box("block", 30),
            "projection": box("projection", "gate_proj"), "sort": box("row_sort", "wanda"),
            "ticks": typed("rows", "100-120, 2000000"),
        }),
    ],
    "runs": [({"runs_view": "Tables"}, {"rows": box("run_table", "rows"), "scores": box("run_table", "dangerous")})],
    "reference": [
        ({"document": "Paper tables"}, {"table": box("table", "selectors"), "methods": switch("document", "Methods")}),
        ({"document": "Commands"}, {"command": box("command", "sweep"), "find": typed("find", "eval-length")}),
    ],
}  # fmt: skip


def walk(folder: Path, pages: list[str]) -> Iterator[Taken]:
    """Opens the pages on a results folder, which the app is started on, and makes every change."""
    os.environ[STORE_VARIABLE] = str(folder)
    for page in pages:
        for settings, changes in PAGES[page]:
            start = time.process_time()
            app = run_page(page, source="My results", folder=folder, **settings)
            yield taken(app, page, " ".join(["opened", *settings.values()]), start)
            for name, change in changes.items():
                change(app)
                start = time.process_time()
                app.run()
                yield taken(app, page, name, start)


def taken(app: AppTest, page: str, change: str, start: float) -> Taken:
    """Since `start`, for the page as it is now."""
    elapsed_s = time.process_time() - start
    assert not app.exception, (page, change, app.exception)
    odd = [warning.value for warning in app.warning]
    assert odd == [], (page, change, odd)
    return Taken(page, change, elapsed_s, sum(sizes(app.main)) + sum(sizes(app.sidebar)))


def sizes(block: object) -> Iterator[int]:
    """Bytes of every element's message."""
    for child in block.children.values():  # type: ignore[attr-defined]
        if hasattr(child, "children"):
            yield from sizes(child)
        elif hasattr(child, "proto"):
            yield child.proto.ByteSize()
