"""The refusal page: its data against hand counts, its figures, and the page on full, empty and damaged folders."""

import json
from functools import partial
from itertools import product

import polars as pl
import pyarrow as pa
import pytest
from app_pages import run_page, warnings_of
from relatives import relatives
from scipy.stats import binomtest
from synthetic import add_table
from synthetic_refusal import (
    KS,
    LAMBDAS,
    MAX_NLL,
    N,
    baselines,
    changes,
    composed,
    controls,
    mask_stability,
    points,
    rates,
    refusal_parts,
    specificity,
    sweep,
    transfer,
    write_refusal_run,
)

import precomputed
from dashboard.charts import formats, refusal_edits, refusal_rates, refusal_structure, refusal_values as refusals
from dashboard.pages.refusal import edit_grid
from dashboard.state import results
from engine.records.errors import InputError
from precomputed.paper_tables import load_table

SECTIONS = {  # figures and tables of a full folder, the fold open
    "Edits": 5, "Where the rows are": 5, "Two domains in one mask": 2, "Other methods": 2, "Across models": 1,
    "Operating points": 5,  # a former part, which the fold of Edits has
}  # fmt: skip


@pytest.fixture
def cells():
    return refusals.cells(sweep(), points())


def test_cells_have_wilson_intervals_and_know_the_points(cells):
    row = cells.row(by_predicate=pl.col("id") == "lrp/hate/0.5/0.02", named=True)
    malign, benign, nll = rates("lrp", 0.5, 0.02)
    assert (row["malign"], row["benign"], row["nll"]) == (malign, benign, nll)
    for kind in ("malign", "benign"):
        exact = binomtest(round(row[kind] * N), N).proportion_ci(0.95, method="wilson")
        assert (row[f"{kind}_low"], row[f"{kind}_high"]) == pytest.approx((exact.low, exact.high))
    assert (row["point"], row["rescue"]) == (True, False)
    marked = cells.filter("point")
    assert sorted(marked["id"]) == [
        f"{s}/{d}/0.5/{k}" for s, k in (("ig", "0.05"), ("lrp", "0.02")) for d in ("crime", "hate")
    ]
    assert set(marked.filter("rescue")["selector"]) == {"ig"}
    assert refusals.first_choice(cells.filter(domain="hate")) == "lrp/hate/0.5/0.02"


def test_unwritten_cells_stay_unknown(cells):
    above = [(s, lam, k) for s in ("lrp", "ig") for lam in LAMBDAS for k in KS if rates(s, lam, k)[2] > MAX_NLL] + [
        ("random", 0.0, k) for k in KS if rates("random", 0.0, k)[2] > MAX_NLL
    ]
    unknown = cells.filter(pl.col("malign").is_null(), domain="hate")
    assert sorted(zip(unknown["selector"], unknown["lambda"], unknown["k"], strict=True)) == sorted(above)
    assert unknown["malign_low"].null_count() == unknown.height > 0


def test_points_alone_are_a_source_and_points_without_rates_say_what_to_run(cells):
    alone = refusals.cells(None, points())
    assert refusals.asked(alone)["malign"].to_list() == [0.6, 0.7, 0.6, 0.7]
    assert refusals.unedited(alone, "lrp", "hate")["malign"] == 0.12
    with pytest.raises(InputError, match="refusal control"):
        refusals.cells(None, points().drop("edited_malign"))
    with pytest.raises(InputError, match="refusal sweep"):
        refusals.cells(None, None)


def test_published_numbers_come_out_as_printed():
    frame = results.read_published("operating_points").frame
    row = frame.filter(model="Llama-3.1-8B-Instruct", selector="lrp", domain="hate").row(0, named=True)
    printed = load_table("wilson").filter(selector="lrp", domain="hate", metric="malign").row(0, named=True)
    assert (row["edited_malign_low"], row["edited_malign_high"]) == (printed["ci_low"], printed["ci_high"])
    # Wilson's interval of the printed rate is the printed interval, within its last digit.
    exact = binomtest(round(printed["refusal_rate"] * printed["n"]), printed["n"]).proportion_ci(0.95, "wilson")
    assert exact.low == pytest.approx(printed["ci_low"], abs=6e-4)
    faithful = load_table("faithfulness_controls").filter(domain="hate").row(0, named=True)
    assert (row["control_malign"], row["gain"]) == (faithful["control_mean"], faithful["gain"])
    assert frame.height == load_table("refusal_operating_points").height
    rescued = frame.filter("rescue")
    assert list(zip(rescued["model"], rescued["selector"], rescued["domain"], strict=True)) == [
        ("Llama-3.1-8B-Instruct", "ig", "adult")
    ]


def test_published_grids_hold_every_printed_cell_once():
    frame = results.read_published("refusal_sweep").frame
    keys = ["model", "selector", "domain", "lambda", "k"]
    assert frame.select(keys).is_unique().all()
    chosen = load_table("refusal_operating_points").select(keys)
    for name in ("lambda_sweep", "rescue_sweep"):
        joined = load_table(name).join(frame, on=keys, how="left")
        assert joined["malign_right"].null_count() == 0
        # Where a cell is printed as an operating point too, that table wins: the paper has 0.814 and 0.824 for one.
        others = joined.join(chosen, on=keys, how="anti")
        assert others.height >= 5
        assert (others["malign"] - others["malign_right"]).abs().max() == 0
        assert (others["ppl"].log() - others["nll"]).abs().max() == pytest.approx(0, abs=1e-12)
    ig = frame.filter(model="Llama-3.1-8B-Instruct", selector="ig", domain="adult")
    assert not ig["feasible"].any()  # the printed search for a rescue


def test_marks_of_the_trade_off_are_their_cells(cells):
    part = refusals.asked(cells).filter(domain="hate", selector="lrp")
    unedited = cells.filter(pl.col("k") == 0, domain="hate", selector="lrp")
    figure = refusal_edits.trade_off(part, unedited, "lrp/hate/0.2/0.01", 0.1, "a")
    by_name = {trace.name: trace for trace in figure.data if trace.name}
    within = "at most 10% of harmless prompts refused"
    assert set(by_name) == {within, "not feasible", "unedited model", "best at this perplexity or less"}
    for name, feasible in ((within, True), ("not feasible", False)):
        rows = part.filter(feasible=feasible)
        trace = by_name[name]
        assert [mark[0] for mark in trace.customdata] == rows["id"].to_list()
        assert list(zip(trace.x, trace.y, strict=True)) == [
            (pytest.approx(row["nll"] / formats.LN10), row["malign"]) for row in rows.iter_rows(named=True)
        ]
    assert [text for text in by_name[within].text if text] == ["operating point"]


def test_rates_of_a_point_and_its_controls(cells):
    cell = cells.row(by_predicate=pl.col("id") == "lrp/hate/0.5/0.02", named=True)
    point = refusals.point_of(points(), cell)
    before = refusals.unedited(cells, "lrp", "hate")
    found = refusals.rate_changes(cell, before, point, transfer(name="<b>"), published=False)
    told = [(one.prompts, one.malign, one.before[0], one.after[0]) for one in found]
    assert told == [
        ("prompts of the grid", True, 0.1, cell["malign"]),
        ("prompts of the grid", False, 0.02, cell["benign"]),
        ("held-out prompts", True, 0.12, 0.6),
        ("held-out prompts", False, 0.05, 0.06),
        ("<b>", True, 0.2, 0.8),
    ]
    assert len(refusals.rate_changes(cell, before, point, None, published=True)) == 2
    assert not any("<b>" in label for label in refusal_rates.changes(found).layout.yaxis.ticktext)
    seeds = [0.1, 0.15000000000000002, 0.2]
    drawn = [list(trace.x) for trace in refusal_rates.controls(point, controls().filter(domain="hate")).data]
    assert drawn == [[0.6], seeds, seeds]
    assert list(refusal_rates.controls(point, None).data[1].x) == [0.15, 0.2]
    figure = refusal_rates.composed(composed(), "malign")
    assert figure.layout.yaxis.ticktext == ("unedited", "hate + crime mask", "hate mask", "crime mask")


def test_what_is_said_of_the_shipped_models_mean_activation_holds():
    shipped = results.read_table(precomputed.demo_dir() / "results", "operating_points").frame
    own, lrp = (shipped.filter(selector=name)["edited_malign"].mean() for name in ("mean_activation", "lrp"))
    said = (precomputed.demo_dir() / "README.md").read_text()
    assert f"lrp {lrp:.2f}" in said
    assert f"mean_activation {own:.2f}" in said


def test_ways_show_the_chosen_settings_on_the_final_prompts():
    rows = refusal_rates.final(baselines(), "crime")
    assert rows["setting"].to_list() == ["lambda 0.5, k 0.02", "strict", "block 1, coefficient 0.5", None]
    figure = refusal_rates.ways(rows, "heading", "below")
    malign, benign = figure.data
    assert (list(malign.x), list(benign.x)) == ([0.6, 0.3, 0.4], [0.05, 0.02, 0.06])
    assert [round(place) for place in malign.y] == [0, 1, 2]
    names = [label.split("<br>") for label in figure.layout.yaxis.ticktext]
    assert names[0] == ["Row mask, LRP", "KL 0.07, perplexity 8.17"]
    assert names[3] == ["Vector if condition, refusing − complying", refusal_rates.NONE]
    only = baselines().filter(prompts="calibration")
    assert refusal_rates.final(only, "hate")["chosen"].to_list() == [True] * 3


def test_the_methods_over_models_are_the_printed_ones():
    table = refusals.lrp_and_ig(results.read_published("operating_points").frame)
    figure = refusal_structure.reversal(table, "hate")
    lrp = next(trace for trace in figure.data if trace.name == "LRP")
    printed = load_table("method_reversal").filter(domain="hate", selector="lrp")
    models = figure.layout.yaxis.ticktext
    at = {models[round(place)]: rate for place, rate in zip(lrp.y, lrp.x, strict=True)}
    named = printed.with_columns(pl.col("model").str.replace("-Instruct", "", literal=True))
    assert at == dict(named.select("model", "malign_after").iter_rows())


page = partial(run_page, "refusal")


@pytest.fixture
def full_run(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return write_refusal_run(tmp_path / "run")


def footnotes(app):
    return " ".join(block.proto.body for block in app.get("html"))


def test_a_full_folder_opens_at_the_operating_point(full_run):
    assert len(page().get("plotly_chart")) == 2  # all cells, before and after
    app = page(more="true")
    assert warnings_of(app) == []
    assert app.selectbox(key="cell").value == "lrp/hate/0.5/0.02"
    assert len(app.get("plotly_chart")) == 4  # and its controls, perplexity against k
    badges = next(block.value for block in app.markdown if "badge" in block.value)
    assert badges == ":blue-badge[operating point]"
    metrics = {metric.label.replace("\\", ""): metric.value for metric in app.metric}
    assert metrics["a_task"] == "−5.0 points"
    assert metrics["Rows removed"] == "20"
    assert any("It is no test" in text.value for text in app.text)
    assert "<code>selector-audit refusal draws</code> does" in footnotes(app)  # not measured, and said so
    assert len(app.dataframe) == 1
    table = app.dataframe[0].value
    assert list(table["Rescue"]) == ["", "rescue", ""] * 2
    shown = pa.ipc.open_stream(app.dataframe[0].proto.arrow_data.styler.display_values).read_all().to_pandas()
    assert list(shown["k"])[2] == "no cell will do"


def test_draws_paired_changes_and_stability_are_told(full_run):
    tables = {**specificity(), "mask_stability": mask_stability(), "transfer": changes()}
    tables["refusal_parts"] = refusal_parts()
    for stem, frame in tables.items():
        add_table(full_run, stem, frame)
    app = page(more="true")
    assert warnings_of(app) == []
    assert len(app.get("plotly_chart")) == 7
    told = "80% of what the edit adds to the margin goes when its rows of q_proj are put back"
    titles = [json.loads(chart.proto.spec)["layout"]["title"].get("text", "") for chart in app.get("plotly_chart")]
    assert any(told in title.replace("<br>", " ") for title in titles), titles
    said = " ".join(text.value for text in app.text)
    assert "Rank 1 of 5, p = 0.200, 0.400 by Holm over 2 edits: this does not tell the edit from random rows" in said
    assert "With 4 draws Holm's p cannot be below 0.40 here" in said
    assert "20 of 30 newly refused, 2 no longer; change 60.0% [40.0, 70.0], McNemar's p 0.0001" in said
    assert "Corrected for the judge's measured errors: 15.0% [10.0, 25.0] before, 75.0% [70.0, 85.0] after" in said
    assert "share 50.0% of their rows (Jaccard, mean of 2 splits)" in said
    assert "1 of 4 draws found no operating point" in footnotes(app)
    table = app.dataframe[0].value
    assert list(table["Rank among draws"].fillna(0))[:3] == [1, 0, 0]
    figure = refusal_rates.among_draws(
        tables["specificity"].row(0, named=True), tables["refusal_draws"].filter(domain="hate")
    )
    assert list(figure.data[2].x) == [0.1, 0.2, 0.3, 0.12]
    assert "no point" in figure.data[2].customdata[3]


@pytest.mark.parametrize(
    ("p", "holm", "says"),
    [(0.01, 0.04, "do not reach this by search alone"), (0.03, 0.2, "not over all edits"), (0.3, 0.6, "does not tell")],
)
def test_only_an_adjusted_p_is_read_as_specific(p, holm, says):
    line = specificity()["specificity"].row(0, named=True) | {"p": p, "p_holm": holm, "draws": 99}
    assert says in refusal_rates.told(line)
    assert "cannot be below" not in refusal_rates.told(line)


def test_former_names_of_views_open_them(full_run):
    for former, name in edit_grid.FORMER.items():
        assert page(show=former).button_group(key="show").value == name


@pytest.mark.parametrize("section", SECTIONS)
def test_every_part_of_a_full_folder_opens(full_run, section):
    fold = {} if section == "Operating points" else {"more": "true"}
    app = page(section=section, domain="all", **fold)
    assert warnings_of(app) == []
    assert len(app.get("plotly_chart")) + len(app.dataframe) == SECTIONS[section]


PUBLISHED = list(product(SECTIONS, ("Llama-3.1-8B-Instruct", "Llama-3.2-1B-Instruct", "Qwen3-8B")))
GUARDS = [(section, model) for section, model in PUBLISHED if section == "Edits" or model.startswith("Llama-3.1")]


@pytest.mark.parametrize("case", relatives(PUBLISHED, GUARDS), ids=" ".join)
def test_published_models_open(case):
    section, model = case
    app = page(source="Paper", model=model, section=section, more="true")
    told = warnings_of(app)
    assert len(app.get("plotly_chart")) >= 1 or told
    for text in told:
        assert "paper" in text or "no values" in text


@pytest.mark.parametrize(("before", "now"), edit_grid.FORMER.items())
def test_links_of_before_say_which_edits_are_shown(tmp_path, before, now):
    app = page(source="My results", folder=write_refusal_run(tmp_path / "run"), show=before)
    assert app.segmented_control(key="show").value == now
    (other,) = set(edit_grid.FORMER.values()) - {now}
    app.segmented_control(key="show").set_value(other).run()
    assert app.segmented_control(key="show").value == other
