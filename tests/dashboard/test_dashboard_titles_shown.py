"""Every figure of the pages on results has its sentence in the place of the title, in lines that fit on a phone."""

import html
import json
import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from app_pages import above_figures
from streamlit.testing.v1 import AppTest

import precomputed
from dashboard.charts import palette, verdict_chips
from dashboard.charts.findings import finding_words as words
from dashboard.pages.believed.believed_page import PARTS as BELIEVED
from dashboard.state.results import read_table

APP = Path(__file__).parents[2] / "dashboard" / "app.py"

PAGES = ["", "curves", "where", "believed", "tasks", "refusal"]


def shown(name, **parameters):
    """A page's figures, each as its description and its layout, and the sentences that stand above figures."""

    def script(name):
        from importlib import import_module

        import_module(f"dashboard.pages.{name}.{name}_page").render()

    app = AppTest.from_function(script, kwargs={"name": name or "overview"}, default_timeout=120)
    for key, value in parameters.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    drawn = [(chart.proto.alt, json.loads(chart.proto.spec)["layout"]) for chart in app.get("plotly_chart")]
    return drawn, above_figures(app)


def figures(name, **parameters):
    return shown(name, **parameters)[0]


CASES = [
    *((name, {}) for name in PAGES),
    # Figures of published numbers are built by the same functions.
    *(pytest.param(name, {"source": "Paper"}, marks=pytest.mark.long) for name in PAGES),
    *(("curves", {"view": view}) for view in ("Gap", "Models", "Differences")),
    ("where", {"part": "Depth"}),
    pytest.param("believed", {"part": "Stability", "source": "Paper"}, marks=pytest.mark.long),
    *(("believed", {"part": part, "more": "true"}) for part in BELIEVED if part != "Verdict"),
    *(("refusal", {"section": part, "more": "true"}) for part in ("Edits", "Where the rows are",
                                                  "Two domains in one mask", "Other methods", "Across models")),
]  # fmt: skip


@pytest.mark.first_run(r"parameters(\d|1[0-9]|25)$")
@pytest.mark.parametrize(("name", "parameters"), CASES)
def test_every_title_is_its_sentence(name, parameters):
    drawn, above = shown(name, **parameters)
    assert drawn
    if not name and not parameters:  # Overview's answer, over its table
        assert "can go before" in above.pop(0)
    told = 0
    for alt, layout in drawn:
        if "text" not in layout.get("title", {}):  # a first figure has its sentence above it
            assert above
            assert f"{above.pop(0)}." in alt
            told += 1
            continue
        title, *small = re.split(r"<br><span[^>]*>", layout["title"]["text"])
        lines = [html.unescape(line) for line in title.split("<br>")]
        if f"{' '.join(lines)}." not in alt:
            raise AssertionError((alt, lines))
        told += 1
        assert all(len(line) <= words.TITLE_LETTERS for line in lines)
        below = [html.unescape(line) for part in small for line in part.removesuffix("</span>").split("<br>")]
        assert all(len(line) <= words.BELOW_LETTERS for line in below)
        assert 1 <= len(lines) <= 5
        assert layout["margin"]["t"] >= 19.5 * len(lines) + 15.6 * len(below)
    assert told
    assert above == []


def test_a_chip_opens_its_evidence_with_its_selector_chosen():
    app = AppTest.from_file(str(APP), default_timeout=120).run()
    assert not app.exception
    chips = [link.proto for link in app.get("page_link") if "-badge[" in link.proto.label]
    verdicts = read_table(precomputed.demo_dir() / "results", "verdicts").frame
    selectors = [line.selector for line in verdict_chips.lines(verdicts, None)]
    assert len(chips) == 4 * len(selectors)
    for name, (faithful, specific, stable, robust) in zip(selectors, zip(*[iter(chips)] * 4, strict=True), strict=True):
        if name not in ("lrp", "wanda", "random"):
            continue
        given = parse_qs(faithful.query_string)
        told = {alt for alt, _ in figures(faithful.page, **given)}
        beside = f"{palette.title(name)}; Random" if name != "random" else "Random"
        assert all(alt.endswith(f" {beside}.") for alt in told)
        assert figures(specific.page, **parse_qs(specific.query_string))
        if name != "random":  # which has no stability
            (alt,) = (alt for alt, _ in figures(stable.page, **parse_qs(stable.query_string)))
            assert f"{palette.title(name)}, Jaccard" in alt
        alts = [alt for alt, _ in figures(robust.page, **parse_qs(robust.query_string))]
        assert "How much LeRF at 30% changes" in alts[0]
