"""Where and who, Can it be believed, and Tasks as scripts: full, published, empty and damaged tables."""

import itertools

import polars as pl
import pytest
from app_pages import drawn_page as page, figures, warnings_of
from made_up_audit import jaccard_of, pairs, rows_of, write_audit
from relatives import relatives
from synthetic import add_table, break_manifest
from synthetic_refusal import write_refusal_run

import precomputed
from dashboard.charts import overlap_matrix as agreement, palette
from dashboard.pages.where import where_page
from dashboard.state import results

PAGES = {  # page and part -> what makes its first table
    ("where", "Agreement"): "selector-audit analyze MODEL agreement",
    ("where", "Depth"): "selector-audit analyze MODEL depth",
    ("believed", "Verdict"): "selector-audit analyze MODEL verdict",
    ("believed", "Stability"): "selector-audit analyze MODEL stability",
    ("believed", "Controls"): "selector-audit analyze MODEL controls",
    ("tasks", ""): "selector-audit analyze MODEL downstream",
}
PARTS = {  # page and part -> figures, and those in its fold
    ("where", "Agreement"): (2, 0),
    ("where", "Depth"): (1, 0),
    ("believed", "Verdict"): (1, 0),
    ("believed", "Stability"): (1, 3),
    ("believed", "Second domain"): (2, 0),
    ("believed", "Explained by depth"): (2, 0),
    ("believed", "Controls"): (1, 1),
    ("believed", "Dangerous groups"): (1, 0),
    ("believed", "Single units"): (1, 0),
    ("believed", "Exact controls"): (2, 0),
    ("tasks", ""): (1, 0),
}


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    return write_audit(tmp_path_factory.mktemp("audit"))


@pytest.fixture
def full(audit, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(audit))


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    monkeypatch.delenv(results.STORE_VARIABLE, raising=False)
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing shipped")


@pytest.mark.first_run("of[02468]-")
@pytest.mark.parametrize(("of", "counts"), PARTS.items())
@pytest.mark.usefixtures("full")
def test_full_results_open_without_a_warning(of, counts):
    name, part = of
    app = page(name, part=part)
    assert warnings_of(app) == []
    assert len(figures(app)) == counts[0]
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))
    assert len(app.get("download_button")) == 2
    assert any("made-up-1B" in block.proto.body for block in app.get("html"))
    unfolded = page(name, part=part, more="true")
    assert warnings_of(unfolded) == []
    assert len(figures(unfolded)) == sum(counts)


@pytest.mark.usefixtures("full")
def test_what_depths_explain_is_shown_with_its_interval():
    app = page("believed", part="Explained by depth", more="true")
    differences, shares = figures(app)
    assert {tuple(trace["x"]) for trace in differences["data"]} == {(-0.5,)}
    assert {trace["name"]: trace["x"] == [None] for trace in shares["data"]} == {
        "Consensus-2": False, "LRP": False, "IG": False, "Wanda": True,  # without a clear advantage: no mark
    }  # fmt: skip
    assert shares["data"][0]["error_x"]["array"] == [pytest.approx(0.1)]
    assert any("1 selector(s) have no clear advantage over random" in caption.value for caption in app.caption)
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert "LRP, -0.5000 nats per token from its controls: better; " in alts[0]
    assert len(alts[1].split("; LRP, ")) == 2
    (table,) = (frame.value for frame in app.dataframe)
    assert table["Nats per token"].tolist() == [-0.5] * 4
    morf = figures(page("believed", part="Explained by depth", specific_order="MoRF"))
    assert {tuple(trace["x"]) for trace in morf[0]["data"]} == {(0.5,)}


@pytest.mark.usefixtures("full")
def test_disjoint_draws_stand_beside_nested_sizes(audit):
    app = page("believed", part="Stability", more="true")
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert "LRP, Jaccard 0.8500 (" in alts[0]
    assert any("80 windows, too few for 5 draws of 32" in caption.value for caption in app.caption)
    assert any(heading.value == "Nested sizes" for heading in app.header)
    quadrant = figures(app := page("believed"))[0]
    unread = pl.read_parquet(audit / "verdicts.parquet").filter(stability="not applicable")["selector"].to_list()
    silent = f"Not drawn, as they read no text: {', '.join(map(palette.title, unread))}."
    assert any(silent in one.value for one in app.caption) == bool(unread)
    assert quadrant["layout"]["xaxis"]["title"]["text"] == "same rows from other text → (Jaccard ≥ 0.8)"


def test_draws_in_files_have_no_windows(tmp_path, monkeypatch):
    """Scores of one's own: a mark beside the others, and what they are of."""
    full = write_audit(tmp_path / "run")
    monkeypatch.setenv(results.STORE_VARIABLE, str(full))
    table = pl.read_parquet(full / "draws.parquet")
    own = table.filter(selector="lrp").with_columns(
        pl.lit("mine").alias("selector"), calibration_draws=pl.lit(3, pl.Int64),
        **{name: pl.lit(None, pl.Int64) for name in ("draw_size", "size_wanted", "windows_available")},
    )  # fmt: skip
    add_table(full, "draws", pl.concat([own, table]))
    app = page("believed", part="Stability")
    assert "mine, Jaccard 0.8500 (" in app.get("plotly_chart")[0].proto.alt
    said = next(caption.value for caption in app.caption if "files" in caption.value)
    assert "mine: 3 files, a draw each" in said
    assert "80 windows, too few" in said


@pytest.mark.parametrize(("name", "part"), PAGES)
def test_every_page_says_what_it_needs_where_nothing_is_there(name, part, nothing):
    app = page(name, source="Shipped model", part=part)
    (told,) = warnings_of(app)
    assert PAGES[name, part] in told
    assert figures(app) == []


OTHERS = [("overview", ""), ("curves", ""), ("refusal", "")]


@pytest.mark.parametrize("of", relatives([*PAGES, *OTHERS], [("where", "Agreement"), *OTHERS]), ids="-".join)
def test_missing_empty_and_damaged_folders_are_one_line_and_controls_stay(of, tmp_path):
    name, part = of
    folder, write = tmp_path / "run", write_refusal_run if name == "refusal" else write_audit
    for made, said in (
        (lambda: None, "there is no folder"), (folder.mkdir, "holds no results"),
        (lambda: break_manifest(write(folder)), "manifest.json"),
    ):  # fmt: skip
        made()
        app = page(name, source="My results", folder=folder, part=part)
        (told,) = warnings_of(app)
        assert said in told
        assert "\n" not in told
        assert figures(app) == []
        assert app.text_input(key="folder").value == str(folder)


@pytest.mark.first_run("spearman|draws")
@pytest.mark.parametrize(
    ("name", "part", "stem", "left"),
    [
        ("where", "Agreement", "jaccard", 0), ("believed", "Controls", "rank_distribution", 1),
        ("believed", "Stability", "draws", 3), ("believed", "Single units", "singles_recall", 1),
    ],
)  # fmt: skip
def test_one_damaged_table_leaves_the_rest(name, part, stem, left, tmp_path):
    folder = write_audit(tmp_path / "damaged")
    (folder / f"{stem}.parquet").write_bytes(b"not what the manifest says")
    app = page(name, source="My results", folder=str(folder), part=part, more="true")
    (told,) = warnings_of(app)
    assert f"{stem}.parquet does not fit the checksum" in told
    assert len(figures(app)) == left


@pytest.mark.parametrize(
    ("name", "part", "model", "count"),
    [
        ("where", "Agreement", "Llama-3.2-1B", 2), ("believed", "Verdict", "Qwen3-8B", 1),
        ("believed", "Stability", "Qwen3-8B", 3), ("believed", "Controls", "Llama-3.1-8B", 1),
        ("tasks", "", "Gemma-3-12B", 1),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("nothing")
def test_published_tables_open(name, part, model, count):
    app = page(name, source="Paper", model=model, part=part)
    assert warnings_of(app) == []
    assert len(figures(app)) == count
    assert any("Published values" in block.proto.body for block in app.get("html"))


@pytest.mark.parametrize(("able", "opens"), [(False, "Paper"), (True, "Shipped model")])
def test_tasks_open_on_a_model_with_something_to_lose(able, opens, tmp_path, monkeypatch):
    monkeypatch.delenv(results.STORE_VARIABLE, raising=False)
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    folder = write_audit(tmp_path / "results")
    frame = pl.read_parquet(folder / "downstream.parquet")
    if not able:
        add_table(folder, "downstream", frame.with_columns(accuracy=pl.col("chance") + pl.col("stderr")))
    app = page("tasks")
    assert app.selectbox(key="source").value == opens
    told = " ".join(block.proto.body for block in app.get("html"))
    assert ("does not open on it" in told) != able
    app.selectbox(key="source").set_value("Shipped model").run()
    assert not warnings_of(app)
    asked = pl.read_parquet(precomputed.demo_dir() / "results" / "downstream.parquet").unique("task")["items"].sum()
    good = f"a good selector stays high; filled: above chance; hollow: could be guessing; {asked:,} questions"
    assert any(good in block.proto.body for block in page("tasks", source="Shipped model").get("html"))


@pytest.mark.usefixtures("full")
def test_agreement_shows_overlaps_that_were_counted_by_hand():
    matrix, drawn = figures(app := page("where", rate="20%"))
    titles = {palette.title(name): name for name in ("consensus2", "lrp", "ig", "wanda")}
    columns, lines = (matrix["layout"][axis]["ticktext"] for axis in ("xaxis", "yaxis"))
    order = [titles[one] for one in (columns[0], *lines)]
    assert columns == [palette.title(name) for name in order[:-1]]
    cells = matrix["data"][0]["z"]
    numbers = {(note["y"], note["x"]): note["text"] for note in matrix["layout"]["annotations"]}
    labels = drawn["layout"]["yaxis"]["ticktext"]
    marks = {trace["name"]: trace for trace in drawn["data"] if trace.get("customdata")}
    found = {
        (labels[place], sublayer): share
        for sublayer, title in (("attention", "Attention"), ("mlp", "MLP"))
        for share, place in zip(marks[title]["x"], marks[title]["y"], strict=True)
    }
    named = [
        (a, b) for a, b in pairs() if "random" not in (a, b) and not ("consensus2" in (a, b) and {a, b} & {"lrp", "ig"})
    ]
    assert list(numbers.values()).count("–") == len(pairs()) - len(named) - 4  # of the consensus and its parts
    assert len(numbers) - 2 == len(labels) == len(named) == len(found) / 2
    most, random = {}, 0.1 + 0.2 / 10  # as it is expected of every pair of the run
    for a, b in named:
        label = next(one for one in labels if set(one.split(" · ")) == {palette.title(a), palette.title(b)})
        both = [jaccard_of(a, b, 0.2, rows_of(sublayer)) / random for sublayer in ("attention", "mlp")]
        assert [found[label, sublayer] for sublayer in ("attention", "mlp")] == pytest.approx(both)
        j, i = sorted((order.index(a), order.index(b)))
        assert numbers[i - 1, j] == f"{max(both):.1f}×"  # the first selector has no row
        if max(both) <= 1.5:
            assert cells[i - 1][j] is None  # a number without a colour
        else:
            assert cells[i - 1][j] == pytest.approx(max(both))
        most[label] = max(both)
    assert [most[label] for label in labels] == sorted(most.values(), reverse=True)
    below = " ".join(block.proto.body for block in app.get("html"))
    assert ("without colour: at most 1.5×" in below) == (min(most.values()) <= 1.5)
    assert "left out: Random, Consensus-2 with LRP and IG, of which it is made" in below


@pytest.mark.usefixtures("full")
def test_many_pairs_are_a_matrix_alone(monkeypatch):
    monkeypatch.setattr(where_page, "MOST_PAIRS", 0)
    assert len(figures(page("where", rate="20%"))) == 1


def test_overlaps_of_one_sublayer_of_random_rows_and_of_nothing():
    columns = ["selector_a", "selector_b", "jaccard", "expected_random"]
    lines = [("lrp", "wanda", 0.3, 0.1), ("lrp", "random", 0.12, 0.1), ("random", "wanda", 0.11, 0.1)]
    mlp = pl.DataFrame(lines, schema=columns, orient="row")
    figure = agreement.overlaps({"Attention": mlp.clear(), "MLP": mlp}, "")
    assert [note.text for note in figure.layout.annotations] == ["3.0×"]
    assert "the larger of" not in figure.layout.title.text
    assert "colour" not in figure.layout.title.text
    with_random = agreement.overlaps({"Attention": mlp[1:], "MLP": mlp[1:]}, "")  # where all pairs hold it
    assert sorted(note.text for note in with_random.layout.annotations) == ["1.1×", "1.2×", "–"]
    printed = mlp.with_columns(expected_random=pl.lit(None, pl.Float64))
    assert [note.text for note in agreement.overlaps({"MLP": printed}, "").layout.annotations] == ["0.30"]
    nothing = {"Attention": mlp.clear(), "MLP": mlp.clear()}
    assert not agreement.overlaps(nothing, "").layout.annotations
    assert not agreement.listed(nothing, "", "").data[0].x


def test_selectors_that_rank_alike_stand_side_by_side():
    names = ["c", "wanda", "ig", "mean", "random", "fisher", "lrp"]
    groups = {"c": 0, "ig": 0, "lrp": 0, "fisher": 0, "wanda": 1, "mean": 1, "random": 2}
    pairs = {
        frozenset((a, b)): 0.9 - 0.01 * (i + j) if groups[a] == groups[b] else 0.0
        for i, a in enumerate(names) for j, b in enumerate(names) if a != b
    }  # fmt: skip
    order = [groups[name] for name in agreement.by_likeness(pairs, names)]
    assert sum(a != b for a, b in itertools.pairwise(order)) == 2
    assert agreement.by_likeness(pairs | {frozenset(("c", "ig")): None}, names) == names


def test_colours_of_correlations_are_of_the_pairs_that_sentences_name():
    columns = ["selector_a", "selector_b", "spearman"]
    lines = [("lrp", "wanda", 0.1), ("consensus2", "lrp", 0.9), ("consensus2", "wanda", 0.6)]
    rankings = pl.DataFrame(lines, schema=columns, orient="row")
    scale = agreement.correlations(rankings, "", "").data[0]
    assert (scale.zmin, scale.zmax) == (0.1, 0.6)
    assert sorted(one for line in scale.z for one in line if one is not None) == [0.1, 0.6]
    made_of = agreement.correlations(rankings[1:2], "", "").data[0]  # where there are no others
    assert made_of.z[0][0] == 0.9


def test_damaged_rankings_are_told_where_they_were_asked_for(tmp_path):
    folder = write_audit(tmp_path / "damaged")
    (folder / "spearman.parquet").write_bytes(b"not what the manifest says")
    app = page("where", source="My results", folder=str(folder), value="Whole rankings")
    (told,) = warnings_of(app)
    assert "spearman.parquet does not fit the checksum" in told
    assert not app.exception
    assert not figures(app)


@pytest.mark.usefixtures("full")
def test_the_stable_but_invalid_selector_is_named():
    app = page("believed")
    assert app.get("plotly_chart")[-1].proto.alt.startswith("Wanda is stable but not sufficient; ")


@pytest.mark.usefixtures("full")
def test_exact_controls_show_what_moves_and_what_is_proven():
    app = page("believed", part="Exact controls", more="true")
    moves, decoys = figures(app)
    labels = moves["layout"]["yaxis"]["ticktext"]
    values = {
        marks["name"]: dict(zip(labels, marks["x"], strict=True)) for marks in moves["data"] if len(marks["x"]) > 1
    }
    assert values["neurons rescaled"] == {
        "Wanda": pytest.approx(0.4), "LRP": 0.0, "IG": 0.0, "Consensus-2": 0.0, "Random": 0.0,
    }  # fmt: skip
    assert values["values rescaled"]["Wanda"] == pytest.approx(-0.1)
    assert set(values) == {"neurons rescaled", "values rescaled"}  # what is not proven is not drawn
    protected = next(bar for bar in decoys["data"] if bar["name"] == "among the top 30%")
    shares = dict(zip(protected["y"], protected["x"], strict=True))
    assert (shares["Wanda"], shares["LRP"], shares["Random"]) == (1.0, 0.0, 0.25)
    alts = [chart.proto.alt for chart in app.get("plotly_chart")]
    assert "Wanda, neurons rescaled, +0.40 nats" in alts[0]
    assert "Wanda, 100.0% protected" in alts[1]
    answers, proofs = (frame.value for frame in app.dataframe[:2])
    assert dict(zip(answers["Selector"], answers["Ranking"], strict=True)) == {
        "Wanda": "moves", "LRP": "the same bits", "IG": "the same bits", "Consensus-2": "the same bits",
        "Random": "the same bits",
    }  # fmt: skip
    assert proofs["Same function"].to_list() == ["yes, every bit", "yes, every bit", "no proof", "yes, every bit"]
    spearman = figures(page("believed", part="Exact controls", exact_measure="Spearman"))[0]
    assert spearman["data"][0]["x"][spearman["layout"]["yaxis"]["ticktext"].index("Wanda")] == 0.6
    assert [shape["x0"] for shape in spearman["layout"]["shapes"]] == [1.0]


@pytest.mark.parametrize(
    ("part", "stem", "broken", "column"),
    [
        ("Controls", "controls", {"control": "intersection"}, "nll"),
        ("Second domain", "domain", {"selector": "lrp"}, "nll_b"),
        ("Exact controls", "invariance", {"selector": "lrp"}, "moved"),
    ],
)
def test_values_that_are_not_finite_are_counted(tmp_path, monkeypatch, part, stem, broken, column):
    folder = write_audit(tmp_path)
    frame = pl.read_parquet(folder / f"{stem}.parquet")
    ((key, name),) = broken.items()
    value = pl.when(pl.col(key) == name).then(float("inf")).otherwise(pl.col(column))
    add_table(folder, stem, frame.with_columns(value.alias(column)))
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder))
    app = page("believed", part=part)
    assert warnings_of(app) == []
    count = 2 if part == "Exact controls" else 1  # one of each rewrite
    assert any(f"{count} value(s) are missing or not finite" in caption.value for caption in app.caption)


@pytest.mark.usefixtures("nothing")
def test_tasks_offer_the_rates_that_every_selector_was_measured_at(tmp_path):
    folder = write_audit(tmp_path / "few")
    frame = pl.read_parquet(folder / "downstream.parquet")
    whole, removed = frame.filter(pl.col("rate") == 0), frame.filter(pl.col("rate") > 0)
    at = [removed.with_columns(rate=pl.lit(rate)) for rate in (0.1, 0.3)]
    without = removed.filter(pl.col("selector") != "lrp").with_columns(rate=pl.lit(0.5))
    add_table(folder, "downstream", pl.concat([whole, *at, without]))
    app = page("tasks", source="My results", folder=str(folder))
    assert app.select_slider(key="rate").options == ["10%", "30%"]
    assert len(figures(app)) == 1
