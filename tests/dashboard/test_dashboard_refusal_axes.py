"""The trade-off of one selector, and a picker that says what the page shows."""

import random
from functools import partial

import polars as pl
import pytest
from app_pages import run_page
from synthetic_refusal import write_refusal_run

from dashboard.charts import refusal_edits, refusal_values as refusals
from dashboard.charts.findings import refusal_findings
from dashboard.pages.refusal import edit_grid
from dashboard.state import shipped_models as shipped


@pytest.mark.parametrize("seed", range(3))
def test_the_frontier_is_the_cells_that_no_cheaper_one_equals(seed):
    draw = random.Random(seed)
    rows = [(draw.randrange(9) / 9, draw.randrange(12) / 9, draw.random() < 0.7) for _ in range(40)]
    cells = pl.DataFrame(rows, schema=["malign", "nll", "feasible"], orient="row")
    by_hand = {
        (malign, nll) for malign, nll, feasible in rows
        if feasible and not any(f and n <= nll and m >= malign and (m, n) != (malign, nll) for m, n, f in rows)
    }  # fmt: skip
    best = refusal_edits.frontier(cells)
    assert {row[:2] for row in best.rows()} == by_hand
    assert best["malign"].is_sorted()


def test_few_marks_of_the_shipped_model_lie_on_one_another():
    """Edits of one selector and domain differ in perplexity, though many refuse no harmless prompt."""
    folder = shipped.demo_results_dir()
    cells = refusals.cells(pl.read_parquet(folder / "refusal_sweep.parquet"), None)
    for (_, _), part in refusals.asked(cells).group_by("selector", "domain"):
        figure = refusal_edits.trade_off(part, part.clear(), part["id"][0], 0.1, "a")
        marks = [trace for trace in figure.data if trace.customdata is not None]
        places = [place for trace in marks for place in zip(trace.x, trace.y, strict=True)]
        assert len(places) == part.height
        assert max(places.count(x) for x in set(places)) <= 2


def points(*rows):
    """selector, domain, unedited and edited (rate, low, high), random rows' mean."""
    names = [f"{side}_malign{end}" for side in ("unedited", "edited") for end in ("", "_low", "_high")]
    return pl.DataFrame(
        [
            {"selector": name, "domain": domain, "lambda": 0.5, "k": 0.02, "rescue": False, "control_malign": random,
             "heldout": True, **dict(zip(names, (*before, *after), strict=True))}
            for name, domain, before, after, random in rows
        ]
    )  # fmt: skip


LITTLE, MUCH = (0.2, 0.1, 0.3), (0.8, 0.7, 0.9)
ABOUT = {
    "Risk prompts refused: 20% before, 80% after LRP's edits, 30% after random rows of the same layers":
        [("lrp", "hate", LITTLE, MUCH, 0.3), ("ig", "hate", LITTLE, LITTLE, 0.2)],
    "Risk prompts refused: 50% before, 65% after IG's edits, 25% after random rows of the same layers":
        [("ig", "hate", LITTLE, MUCH, 0.3), ("ig", "crime", MUCH, (0.5, 0.4, 0.6), 0.2),
         ("lrp", "hate", LITTLE, LITTLE, 0.3), ("lrp", "crime", MUCH, MUCH, 0.3)],
    "Risk prompts refused: 20% before, 25% after IG's edits, 20% after random rows of the same layers, before and "
    "after no difference beyond the errors":
        [("lrp", "hate", LITTLE, (0.25, 0.1, 0.4), 0.3), ("ig", "hate", LITTLE, (0.25, 0.1, 0.4), 0.2)],
}  # fmt: skip


@pytest.mark.parametrize("said", ABOUT)
def test_the_sentence_is_about_the_selector_that_stands_first(said):
    table = points(*ABOUT[said])
    sentence, of = refusal_findings.installed(table, "malign")
    assert sentence == said
    several = table["domain"].n_unique() > 1
    assert of == f"held-out prompts; {'means of 2 domains' if several else 'hate'}; 2% of the rows zeroed"
    figure = refusal_edits.edits(table, "malign", "", of)
    assert f"after {figure.layout.yaxis.ticktext[0]}'s" in said
    assert figure.layout.xaxis.domain == (0, 1)  # the mean, or the only domain, above all others
    if several:
        assert figure.layout.xaxis2.domain[1] < figure.layout.xaxis3.domain[0]
        assert figure.layout.yaxis.domain[0] > figure.layout.yaxis2.domain[1]
    assert f"<sub>{of}; bars" in figure.layout.title.text
    wide = table.with_columns(k=pl.when(pl.col("domain") == "crime").then(0.1).otherwise(0.005), heldout=False)
    shares = ("means of 2 domains; 0.5% to 10%" if several else "hate; 0.5%") + " of the rows zeroed"
    assert refusal_findings.installed(wide, "malign")[1] == shares


def test_nothing_that_is_drawn_lies_beyond_the_axis():
    """A model that refused much, and little after its edit; few under random rows."""
    for before, after, lots in ((MUCH, LITTLE, 0.1), (LITTLE, LITTLE, 0.9), (LITTLE, LITTLE, 0.1)):
        figure = refusal_edits.edits(points(("lrp", "hate", before, after, lots)), "malign", "", "h")
        low, high = figure.layout.xaxis.range
        drawn = [x for trace in figure.data for x in trace.x if x is not None]
        assert drawn
        assert all(low <= x <= high for x in (*drawn, after[2]))
    assert high < 0.5


page = partial(run_page, "refusal")


def shown(app):
    """The cell in detail, as its heading says."""
    assert not app.exception
    return next(block.value for block in app.header if "λ" in block.value or "k " in block.value).replace("\\", "")


def picked(app):
    """What the picker says: the browser keeps what it showed unless it is told another value."""
    picker = app.selectbox(key="cell").proto
    return picker.raw_value if picker.set_value else None


@pytest.mark.first_run("source")
@pytest.mark.parametrize("change", ["domain", "selector", "source"])
def test_the_picker_says_the_cell_of_the_page_after_a_change(tmp_path, change):
    run = write_refusal_run(tmp_path / "run")
    app = page(source="My results", folder=run, show=edit_grid.GRID)
    app.selectbox(key="cell").set_value("lrp/hate/0.2/0.01").run()
    assert shown(app) == "LRP, hate, λ 0.2, k 1%"
    if change == "domain":
        app.selectbox(key="domain").set_value("crime").run()
    elif change == "selector":
        app.selectbox(key="selector").set_value("ig").run()
    else:
        app.selectbox(key="source").set_value("Paper").run()
    assert shown(app) != "LRP, hate, λ 0.2, k 1%"
    assert picked(app) == shown(app)
