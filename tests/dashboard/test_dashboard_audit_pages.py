"""Agreement, Depth, Stability, Controls and Downstream as scripts: full, published, empty and damaged tables."""

import json

import polars as pl
import pytest
from made_up_audit import jaccard_of, pairs, rows_of, write_audit
from streamlit.testing.v1 import AppTest
from synthetic import add_table, break_manifest

import precomputed
from dashboard import results

PAGES = {  # what makes the first table of each
    "agreement": "selector-audit analyze MODEL agreement",
    "depth": "selector-audit analyze MODEL depth",
    "stability": "selector-audit analyze MODEL stability",
    "controls": "selector-audit analyze MODEL controls",
    "downstream": "selector-audit analyze MODEL downstream",
}
PARTS = {"Controls": 1, "Rank distribution": 1, "Dangerous groups": 3, "Second domain": 2, "Seeds": 2}


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


def page(name, state=None, **parameters):
    def script(name):
        from importlib import import_module

        import_module(f"dashboard.views.{name}").render()

    app = AppTest.from_function(script, args=(name,), default_timeout=60)
    for key, value in parameters.items():
        app.query_params[key] = value
    for key, value in (state or {}).items():
        app.session_state[key] = value
    app.run()
    assert not app.exception
    return app


def figures(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def warnings(app):
    return [warning.value.replace("\\", "") for warning in app.warning]


@pytest.mark.parametrize(
    ("name", "count"), [("agreement", 5), ("depth", 2), ("stability", 4), ("downstream", 1)]
)
@pytest.mark.usefixtures("full")
def test_full_results_open_without_a_warning(name, count):
    app = page(name)
    assert warnings(app) == []
    assert len(figures(app)) == count
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))
    assert len(app.get("download_button")) == 2
    assert any("made-up-1B" in block.proto.body for block in app.get("html"))


@pytest.mark.parametrize(("part", "count"), PARTS.items())
@pytest.mark.usefixtures("full")
def test_every_part_of_the_controls_opens(part, count):
    app = page("controls", part=part)
    assert warnings(app) == []
    assert len(figures(app)) == count


@pytest.mark.parametrize("name", PAGES)
def test_every_page_says_what_it_needs_where_nothing_is_there(name, nothing, tmp_path):
    app = page(name, source="Shipped model")
    (told,) = warnings(app)
    assert PAGES[name] in told
    assert figures(app) == []
    empty = tmp_path / "empty"
    empty.mkdir()
    (told,) = warnings(page(name, source="My results", folder=str(empty)))
    assert f"{empty} holds no results" in told


@pytest.mark.parametrize("name", PAGES)
def test_damaged_folders_are_one_line(name, tmp_path):
    folder = write_audit(tmp_path / "damaged")
    break_manifest(folder)
    (told,) = warnings(page(name, source="My results", folder=str(folder)))
    assert "manifest.json" in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("name", "stem", "left"),
    [("agreement", "spearman", 4), ("depth", "mask_depth", 1), ("stability", "verdicts", 3)],
)
def test_one_damaged_table_leaves_the_rest(name, stem, left, tmp_path):
    folder = write_audit(tmp_path / "damaged")
    (folder / f"{stem}.parquet").write_bytes(b"not what the manifest says")
    app = page(name, source="My results", folder=str(folder))
    (told,) = warnings(app)
    assert f"{stem}.parquet does not fit the checksum" in told
    assert len(figures(app)) == left


@pytest.mark.parametrize(
    ("name", "model", "count"),
    [
        ("agreement", "Llama-3.2-1B", 2), ("stability", "Qwen3-8B", 4), ("controls", "Llama-3.1-8B", 1),
        ("downstream", "Gemma-3-12B", 1),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("nothing")
def test_published_tables_open(name, model, count):
    app = page(name, source="Paper", model=model)
    assert warnings(app) == []
    assert len(figures(app)) == count
    assert any("Published values" in block.proto.body for block in app.get("html"))


@pytest.mark.usefixtures("full")
def test_agreement_draws_overlaps_that_were_counted_by_hand():
    triangles = figures(page("agreement", rate="20%"))[0]
    order = ["consensus2", "lrp", "ig", "wanda", "random"]
    cells = triangles["data"][0]["z"]
    for a, b in pairs():
        i, j = sorted((order.index(a), order.index(b)))
        assert cells[i][j] == pytest.approx(jaccard_of(a, b, 0.2, rows_of("attention")))
        assert cells[j][i] == pytest.approx(jaccard_of(a, b, 0.2, rows_of("mlp")))
    assert [cells[i][i] for i in range(5)] == [None] * 5
    above = figures(page("agreement", rate="20%", value="Above chance"))[0]["data"][0]["z"]
    assert above[0][1] == pytest.approx(cells[0][1] - 0.12)


@pytest.mark.usefixtures("full")
def test_a_chosen_pair_shows_its_two_masks():
    app = page("agreement", first="Wanda", second="LRP")
    assert [chart.proto.alt.rsplit("that ")[-1] for chart in app.get("plotly_chart")[2:4]] == [
        "Wanda removes.",
        "LRP removes.",
    ]
    expected = jaccard_of("lrp", "wanda", 0.3, rows_of("mlp"))
    assert any(f"Jaccard in MLP {expected:.3f}" in text.value for text in app.text)


@pytest.mark.usefixtures("full")
def test_depth_levels_have_one_figure_per_part():
    assert len(figures(page("depth", level="Attention and MLP"))) == 2 + 1
    app = page("depth", level="Projections")
    assert len(figures(app)) == 4 + 1
    assert any(
        "LRP at 30%: perplexity 14.9; random rows in the same layers: 33.1" in text.value for text in app.text
    )


@pytest.mark.usefixtures("full")
def test_the_stable_but_invalid_selector_is_named():
    app = page("stability")
    assert "Judged stable but invalid: Wanda." in app.get("plotly_chart")[-1].proto.alt
    by_perplexity = figures(page("stability", validity="LeRF perplexity"))[-1]
    low, high = by_perplexity["layout"]["xaxis"]["range"]
    assert low > high  # right is valid here too


@pytest.mark.usefixtures("full")
def test_controls_say_what_is_left_at_equal_size():
    app = page("controls")
    texts = [block.value for block in app.markdown]
    assert any(text.startswith("**No**") and "fewer rows are removed: LRP ∩ IG" in text for text in texts)
    answers = app.dataframe[0].value
    assert (
        dict(zip(answers["Control"], answers["At equal size"], strict=True))["LRP, layer-matched"] == "worse"
    )


@pytest.mark.usefixtures("full")
def test_downstream_mean_is_over_tasks_and_seeds():
    figure = figures(page("downstream"))[0]
    lrp, random = figure["data"]
    assert lrp["y"] == pytest.approx([0.85, 0.55])  # 0.9 and 0.8, 0.6 and 0.5
    assert lrp["error_y"]["array"] == pytest.approx([(2 * 0.05**2) ** 0.5 / 2] * 2)
    assert random["name"] == "Random"
    assert [shape["y0"] for shape in figure["layout"]["shapes"]] == [0.375]
    assert len(figures(page("downstream", task="Every task"))) == 2


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.usefixtures("full")
def test_presentation_enlarges_the_figures_of_every_page(name):
    large, plain = figures(page(name, state={"present": True})), figures(page(name))
    for one, other in zip(large, plain, strict=True):
        assert one["layout"]["height"] == pytest.approx(1.4 * other["layout"]["height"])
        assert one["layout"]["font"]["size"] == pytest.approx(1.4 * other["layout"]["font"]["size"])


@pytest.mark.parametrize(
    ("part", "stem", "broken", "column"),
    [
        ("Controls", "controls", {"control": "intersection"}, "nll"),
        ("Second domain", "domain", {"selector": "lrp"}, "nll_b"),
    ],
)
def test_values_that_are_not_finite_are_counted(tmp_path, monkeypatch, part, stem, broken, column):
    folder = write_audit(tmp_path)
    frame = pl.read_parquet(folder / f"{stem}.parquet")
    ((key, name),) = broken.items()
    value = pl.when(pl.col(key) == name).then(float("inf")).otherwise(pl.col(column))
    add_table(folder, stem, frame.with_columns(value.alias(column)))
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder))
    app = page("controls", part=part)
    assert warnings(app) == []
    assert any("1 value(s) are missing or not finite" in caption.value for caption in app.caption)
