"""What was made by the software before its rebuild still opens: links, and a folder of results.

`data/results_before` are the tables that shipped with commit 7bd4457, `data/url_keys_before.json` the names that its
pages bound to their address.
"""

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from dashboard.show import former
from dashboard.state import results
from engine.cli import main
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names
from engine.results.tables import spec

DATA = Path(__file__).parent / "data"
OLD = DATA / "results_before"
DASHBOARD = Path(__file__).parents[1] / "dashboard"
# page -> parameters of a link that the pages before wrote
LINKS = {
    "curves": {"selectors": "lrp", "view": "Gap", "rates": "0.1"},
    "where": {"first": "lrp", "second": "wanda", "rate": "0.3"},
    "tasks": {"task": "arc_easy"},
    "refusal": {"domain": "hate", "cell": "lrp/hate/0.5/0.02"},
    "overview": {"rate": "0.3"},
}


def constants(tree: ast.Module) -> Iterator[str]:
    return (one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str))


# Settings that went.
GONE = {
    "first_run", "second", "margins", "pin", "row_examples", "second_run", "around", "mask_rate", "mask_selector",
    "dangerous_selectors", "language_domain", "language_lambda", "learn_block", "learn_projection",
}  # fmt: skip


def test_every_name_in_an_old_address_is_still_one() -> None:
    """A name that no page mentions any more could not be read from a link."""
    named = {
        text for path in DASHBOARD.rglob("*.py") for text in constants(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert set(json.loads((DATA / "url_keys_before.json").read_text())) - named == GONE


@pytest.mark.parametrize("stem", table_names(OLD))
def test_every_old_table_passes_the_gate(stem: str) -> None:
    table = read_table(OLD, stem)
    assert table.height
    assert set(table.columns) <= {column.name for column in spec(stem).columns}


@pytest.mark.parametrize("page", LINKS)
def test_old_links_to_an_old_folder_open(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(OLD, tmp_path / "results" / "before")
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))

    def script(page: str) -> None:
        from importlib import import_module

        import_module(f"dashboard.pages.{page}.{page}_page").render()

    if page == "overview":
        app = AppTest.from_file(str(DASHBOARD / "app.py"), default_timeout=120)
    else:
        app = AppTest.from_function(script, args=(page,), default_timeout=120)
    for name, value in {"source": "My results", **LINKS[page]}.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    assert not app.error
    # the tables alone are kept here: the page that draws from the scores may say that they are not in the folder, and
    # the one whose draws no earlier version measured that there are none
    expected = ("scores", "holds no draws")
    assert [one.value for one in app.warning if not any(words in one.value for words in expected)] == []
    assert app.get("plotly_chart")


# Address of a page that became a part of another, its settings -> title, part, and what its widgets are at.
MOVED = [
    ("agreement", {"rate": "20%"}, "Where and who", "Agreement", {"rate": 0.2}),
    ("depth", {"level": "Projections"}, "Where and who", "Depth", {"level": "Projections"}),
    ("stability", {"stability_rate": "20%"}, "Can it be believed", "Stability", {"stability_rate": 0.2}),
    ("stability", {"measure": "Spearman"}, "Can it be believed", "Verdict", {"measure": "spearman"}),
    ("controls", {"control_order": "MoRF"}, "Can it be believed", "Controls", {"control_order": "MoRF"}),
    ("controls", {"part": "Rank distribution"}, "Can it be believed", "Controls", {"control_order": "LeRF"}),
    ("controls", {"part": "Claims"}, "Can it be believed", "Verdict", {"measure": "jaccard"}),
    ("controls", {"part": "Second domain", "domain_rate": "20%"}, "Can it be believed", "Second domain",
     {"domain_rate": 0.2}),
    ("downstream", {"task": "town prices"}, "Tasks", None, {"task": "town_prices"}),
    ("judges", {"replies": "Shipped model", "own_reply": "No."}, "Refusal", "Judges",
     {"own_reply": "No.", "source": "Shipped model"}),
    ("judges", {"folder": "/no/such", "judged": "x"}, "Refusal", "Judges", {"source": "My results"}),
    ("paper", {"find": "Wanda"}, "Reference", None, {"document": "Paper tables", "find": "Wanda"}),
    ("methods", {}, "Reference", None, {"document": "Methods"}),
]  # fmt: skip


@pytest.mark.first_run("at0$|at2$|at8$|at9$|at11$")
@pytest.mark.parametrize(("path", "settings", "title", "part", "at"), MOVED)
def test_addresses_of_pages_that_became_parts(
    path: str, settings: dict[str, str], title: str, part: str | None, at: dict[str, object]
) -> None:
    app = AppTest.from_file(str(DASHBOARD / "app.py"), default_timeout=120)
    page, _, query = former.address(path, {name: [value] for name, value in settings.items()}).partition("?")
    app._page_hash = calc_hash(page)  # what the browser asks for then
    for name, values in parse_qs(query, strict_parsing=True).items():
        app.query_params[name] = values
    app.run()
    assert not app.exception
    assert [one.value for one in app.title] == [title]
    parts = [one.value for one in (*app.segmented_control, *app.selectbox) if one.label == "Part"]
    assert parts == ([part] if part else [])
    kinds = (app.selectbox, app.select_slider, app.segmented_control, app.text_area, app.text_input)
    values = {one.key: one.value for kind in kinds for one in kind}
    assert {name: values[name] for name in at} == at


def test_a_report_of_an_old_folder(tmp_path: Path) -> None:
    assert main(["report", str(OLD), "--out", str(tmp_path / "report.html")]) == 0
    model = read_manifest(OLD)["model"]["id"]
    assert model in (tmp_path / "report.html").read_text(encoding="utf-8")
