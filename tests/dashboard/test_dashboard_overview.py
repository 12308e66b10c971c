"""The overview: the headline's numbers, and the page as a script on full, empty and damaged folders."""

import math
from pathlib import Path

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest
from synthetic import SLOPES, UNMASKED_NLL, add_table, break_manifest, stability, sweep, verdicts, write_run

import precomputed
from dashboard.charts import formats, headline, overview, palette, verdict_chips
from dashboard.pages.overview import model_card
from dashboard.show.layout import NOT_DRAWN
from dashboard.state import results
from engine.records.errors import InputError

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
MODEL = "made-up-1B"


def curves(slopes=SLOPES):
    """A measured sweep as `results.read_run` gives it."""
    return sweep(slopes).with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))


def stable(rho, jaccard=0.9):
    """A made-up stability; the verdict's line, 16 of 32 windows, has the Spearman (rho + 1) / 2."""
    return stability(rho).with_columns(jaccard=pl.lit(jaccard))


def test_without_verdicts_every_selector_lands_where_their_thresholds_put_it():
    slopes = {
        "lrp": (1.0, 20.0), "ig": (1.5, 12.0), "wanda": (6.0, 7.0), "magnitude": (5.8, 20.0), "random": (6.0, 6.0),
    }  # fmt: skip
    rho = {"lrp": 0.99, "ig": 0.8, "wanda": 0.999, "magnitude": 0.97, "random": 0.2}
    table = headline.scatter(curves(slopes), stable(rho), MODEL)
    found = {row["selector"]: row for row in table.iter_rows(named=True)}
    assert found["lrp"]["quadrant"] == "stable and valid"
    assert found["ig"]["quadrant"] == "valid, not stable"
    assert found["wanda"]["quadrant"] == "stable but invalid"
    # A log gap of 4.3 nats, and 97% of the harm of random removal: invalid all the same.
    assert (found["magnitude"]["quadrant"], found["magnitude"]["corner"]) == ("stable but invalid", "stable and valid")
    assert found["random"]["quadrant"] == "neither"
    assert table["verdict"].null_count() == len(slopes)
    for name, (lerf, morf) in slopes.items():
        assert found[name]["log_gap"] == pytest.approx((morf - lerf) * 0.3)
        assert found[name]["damage"] == pytest.approx(lerf / 6.0)
        assert (found[name]["size"], found[name]["reference_size"]) == (16, 32)
        assert found[name]["spearman"] == pytest.approx((rho[name] + 1) / 2)


def test_masks_that_differ_are_not_stable_however_alike_the_scores():
    rho = {"lrp": 0.999}
    for jaccard, quadrant in ((0.79, "valid, not stable"), (0.81, "stable and valid"), (None, "stable and valid")):
        assert headline.scatter(curves(), stable(rho, jaccard), MODEL)["quadrant"].to_list() == [quadrant]


def test_valid_and_stable_are_the_verdicts_words():
    """Every verdict against what the two numbers alone say: the scores alike, lrp's gap large and wanda's small."""
    rho = {"lrp": 0.999, "wanda": 0.999}
    rows = {"lrp": ("not", "not"), "wanda": ("partly", "unknown")}
    table = verdicts().with_columns(
        pl.col("selector").replace_strict({name: words[place] for name, words in rows.items()}).alias(column)
        for place, column in enumerate(("validity", "stability"))
    )
    found = headline.scatter(curves(), stable(rho), MODEL, table)
    assert found.select("selector", "corner", "quadrant", "verdict").rows() == [
        ("lrp", "stable and valid", "neither", "not faithful, not stable"),
        ("wanda", "stable but invalid", "valid, not stable", "partly faithful, stability unknown"),
    ]
    figure = overview.stability_validity(found)
    assert figure.data[0].customdata[0].startswith("verdict: not faithful, not stable<br>")
    assert len(figure.data[-1].x) == 2  # both have a ring


def test_the_shipped_page_and_its_verdicts_agree():
    folder = precomputed.demo_dir() / "results"
    tables = {stem: results.read_table(folder, stem).frame for stem in ("stability", "verdicts")}
    found = headline.scatter(results.read_run(folder).frame, tables["stability"], "demo", tables["verdicts"])
    judged = {row["selector"]: row for row in tables["verdicts"].iter_rows(named=True)}
    for row in found.iter_rows(named=True):
        words = judged[row["selector"]]
        assert (row["spearman"], row["jaccard"]) == (words["spearman"], words["jaccard"])
        stable_and_valid = words["stability"] == "stable" and words["validity"] != "not"
        assert (row["quadrant"] == headline.STABLE_VALID) == stable_and_valid


def test_without_random_nothing_is_said_about_damage():
    table = headline.scatter(curves({"lrp": (1.0, 20.0)}), stable({"lrp": 0.99}), MODEL)
    assert table["damage"].to_list() == [None]
    assert table["quadrant"].to_list() == ["stable and valid"]


def test_nothing_in_common_is_an_error_that_says_what_to_run():
    with pytest.raises(InputError, match="analyze made-up-1B sweep stability"):
        headline.scatter(curves({"lrp": (1.0, 20.0)}), stability({"ig": 0.99}), MODEL)
    with pytest.raises(InputError, match="LeRF at 30%"):
        headline.snapshot({"m": (curves().filter(pl.col("rate") < 0.2), MODEL)})


def test_the_snapshot_is_the_sweep_at_its_rate():
    paper = results.read_paper().frame
    table = headline.snapshot({"one": (curves(), MODEL), "two": (paper, "Qwen3-8B")})
    lrp = table.filter(label="one", selector="lrp").row(0, named=True)
    assert lrp["nll"] == pytest.approx(UNMASKED_NLL + 0.3)
    assert lrp["unmasked_nll"] == pytest.approx(UNMASKED_NLL)
    printed = paper.filter(model="Qwen3-8B", selector="wanda", order="lerf", rate=0.3)["nll"][0]
    assert table.filter(label="two", selector="wanda")["nll"].to_list() == [printed]


def test_the_figures_draw_every_selector_and_escape_names():
    table = headline.snapshot({"<b>": (curves(), MODEL)})
    figure = overview.snapshot(table)
    assert [trace.name for trace in figure.data] == ["LRP", "IG", "Wanda", "Random", "unmasked model"]
    assert figure.data[0].x[0] == pytest.approx((UNMASKED_NLL + 0.3) / math.log(10))
    assert set(figure.data[0].y) == {"&lt;b&gt;"}
    scatter = overview.stability_validity(
        headline.scatter(curves({"lrp": (5.9, 20.0), "random": (6.0, 6.0)}), stable({"lrp": 0.99}), MODEL)
    )
    assert [trace.name for trace in scatter.data] == ["LRP", "not what its corner says: see the hover"]
    names = {"stable and valid", "valid, not stable", "stable but invalid", "neither"}
    assert {f"<b>{name}</b>" for name in names} < {note.text for note in scatter.layout.annotations}


def test_other_models_do_not_make_one_blob_of_the_first():
    paper = results.read_paper().frame
    wide = headline.snapshot({"own": (curves(), MODEL), "Qwen3-8B": (paper, "Qwen3-8B")})
    figure = overview.snapshot(wide)
    low, high = figure.layout.xaxis.range
    own = [x for trace in figure.data for x, label in zip(trace.x, trace.y, strict=True) if label == "own"]
    end = min(own) + 3 * (max(own) - min(own))
    (band,) = figure.layout.shapes
    assert low < min(own) < max(own) < band.x0 <= band.x1 == high
    assert band.x0 == pytest.approx(max(end, min(own) + 2))
    far = {}
    for row in wide.filter(label="Qwen3-8B").iter_rows(named=True):
        (trace,) = (trace for trace in figure.data if trace.name == palette.title(row["selector"]))
        place = trace.x[list(trace.y).index("Qwen3-8B")]
        if row["nll"] / math.log(10) <= band.x0:
            assert place == pytest.approx(row["nll"] / math.log(10))
        else:
            assert band.x0 < place < band.x1
            far[place] = row["nll"]
            assert formats.perplexity(row["nll"]) in trace.customdata[list(trace.y).index("Qwen3-8B")]
    assert len(far) > 1  # none on another
    assert [far[place] for place in sorted(far)] == sorted(far.values())
    assert all(tick <= band.x0 for tick in figure.layout.xaxis.tickvals)


def test_one_model_has_the_whole_axis():
    figure = overview.snapshot(headline.snapshot({"own": (curves(), MODEL)}))
    assert not figure.layout.shapes


def test_the_shipped_model_is_counted_tensor_by_tensor():
    from safetensors.torch import load_file

    tensors = load_file(precomputed.demo_model_dir() / "model.safetensors")
    exact = sum(tensor.numel() for tensor in tensors.values())
    facts = {fact.name: fact for fact in model_card.shipped_facts()}
    assert facts["Parameters"].exact == f"{exact:,}"
    height = pl.read_parquet(precomputed.demo_dir() / "results" / "rows.parquet").height
    rows = {fact.name: fact for fact in model_card.run_facts(precomputed.demo_dir() / "results")}["Rows"]
    assert rows.exact.startswith(f"{height:,} ")


def test_a_damaged_model_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    monkeypatch.setattr(precomputed, "demo_model_dir", lambda: tmp_path)
    with pytest.raises(InputError, match="restore it"):
        model_card.shipped_facts()


def page(**parameters):
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    assert not any(NOT_DRAWN in warning.value for warning in app.warning)
    return app


@pytest.fixture
def full_run(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    folder = write_run(tmp_path / "run")
    add_table(folder, "stability", stability({"lrp": 0.99, "wanda": 0.999}))
    add_table(folder, "verdicts", verdicts())
    return folder


def warnings_of(app):
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]


def test_a_full_run_has_both_figures_and_a_verdict_per_selector(full_run):
    app = page()
    assert warnings_of(app) == []
    assert len(app.get("plotly_chart")) == 2
    assert "LRP faithful, stable, Wanda not faithful, stable" in app.get("plotly_chart")[1].proto.alt
    texts = [block.value for block in app.markdown]
    assert any("**LRP**" in text and "finds what matters" in text for text in texts)
    (wanda,) = [text for text in texts if "**Wanda**:" in text]
    assert ":red-badge[stable but invalid]" in wanda
    assert "\\*why\\*" in wanda  # words of a file are no markdown
    assert {metric.label for metric in app.metric} == {"Number format", "Revision", "Perplexity, unmasked"}


def chips(app):
    """Labels, paths and settings of the links in the table of verdicts."""
    found = {}
    for link in app.get("page_link"):
        if "-badge[" in link.proto.label:
            found.setdefault(link.proto.help.split("\\:")[0].split(":")[0], []).append(link.proto)
    return found


def test_a_verdict_is_a_row_of_chips_that_lead_to_the_evidence(full_run):
    found = chips(page())
    assert [[chip.label for chip in row] for row in found.values()] == [
        [":green-badge[✓ faithful]", ":green-badge[✓ stable]", ":gray-badge[– not measured]"],
        [":red-badge[✗ not faithful]", ":green-badge[✓ stable]", ":gray-badge[– not measured]"],
    ]
    app = page()
    assert any(":red-badge[stable but invalid]" in block.value for block in app.markdown)
    told = " ".join(caption.value.replace("\\", "") for caption in app.caption)
    assert "Robust was not measured here; `selector-audit analyze made-up-1B invariance` measures it." in told
    for row, name in zip(found.values(), ("LRP", "Wanda"), strict=True):
        assert [chip.page for chip in row] == ["curves", "stability", "controls"]
        assert f"selectors={name}" in row[0].query_string
        assert f"selectors={name}" in row[1].query_string
        assert "part=Exact+controls" in row[2].query_string


def test_the_chips_say_what_the_tables_say():
    """Every word of the tables, and what older folders and missing tables become, by a list of our own."""
    words = {
        "lrp": ("faithful", "stable", "exact"), "ig": ("sufficient", "not", "rounding"),
        "wanda": ("partly", "unknown", "moved"), "magnitude": ("not", "not applicable", "unknown"),
    }  # fmt: skip
    table = pl.DataFrame(
        [(name, valid, stable, False) for name, (valid, stable, _) in words.items()],
        schema=["selector", "validity", "stability", "stable_but_invalid"], orient="row",
    )  # fmt: skip
    moves = pl.DataFrame({"selector": list(words), "invariance": [three for *_, three in words.values()]})
    said = {
        one.selector: [f"{chip.sign} {chip.word}" for chip in one.chips] for one in verdict_chips.lines(table, moves)
    }
    assert said == {
        "lrp": ["✓ faithful", "✓ stable", "✓ robust"],
        "ig": ["~ sufficient", "✗ not stable", "✓ robust"],
        "wanda": ["~ partly", "– not known", "✗ not robust"],
        "magnitude": ["✗ not faithful", "– no text", "– not known"],
    }
    colours = {chip.sign: chip.colour for line in verdict_chips.lines(table, moves) for chip in line.chips}
    assert colours == {"✓": "green", "~": "orange", "✗": "red", "–": "gray"}
    without = verdict_chips.lines(table, None)
    assert {line.chips[2].word for line in without} == {"not measured"}
    assert {line.chips[2].word for line in verdict_chips.lines(table, moves.clear())} == {"not measured"}
    random = pl.concat([table, table.head(1).with_columns(selector=pl.lit("random"))])
    parameters = {line.selector: line.chips[0].parameters["selectors"] for line in verdict_chips.lines(random, None)}
    assert parameters["ig"] == ["IG", "Random"]
    assert parameters["random"] == ["Random"]


def test_facts_of_a_manifest_are_text(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    model = {"id": "made-up-1B", "dtype": "![x](y)", "revision": "**bold** and more"}
    write_run(tmp_path / "run", model=model)
    facts = {metric.label: metric for metric in page().metric}
    assert facts["Number format"].value == "\\!\\[x\\]\\(y\\)"
    assert facts["Revision"].value == "\\*\\*bold\\*\\* a"
    assert facts["Revision"].help.startswith("\\*\\*bold")


def test_missing_tables_are_told_and_the_rest_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(write_run(tmp_path / "run")))
    app = page()
    (told,) = warnings_of(app)
    assert "analyze made-up-1B verdict" in told
    assert len([button for button in app.button if button.label == "Compute this now"]) == 2  # and the stability
    assert len(app.get("plotly_chart")) == 1


@pytest.mark.parametrize("state", ["missing", "empty", "broken"])
def test_a_bad_folder_is_one_line_and_the_way_on_stays(tmp_path, state):
    folder = tmp_path / state
    if state == "empty":
        folder.mkdir()
    if state == "broken":
        break_manifest(write_run(folder))
    app = page(source="My results", folder=str(folder))
    (text,) = warnings_of(app)
    assert "\n" not in text
    assert len(app.get("plotly_chart")) == 0
    assert any("Where to go next" in block.value for block in app.header)


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Gemma-3-12B"])
def test_published_models_open(model):
    app = page(source="Paper", model=model)
    told = warnings_of(app)
    assert told == []
    figures = len(app.get("plotly_chart"))
    # Stability was printed for two of the five models.
    assert (figures, len(app.info)) == ((2, 0) if model == "Llama-3.1-8B" else (1, 1))
    assert {"Rows, as printed", "Blocks, as printed"} < {metric.label for metric in app.metric}


def test_a_model_name_with_markdown_stays_text(tmp_path, monkeypatch):
    name = "![x](http:y)"
    model = {"id": name, "weights_hash": "cd" * 32, "dtype": "float32"}
    monkeypatch.setenv(results.STORE_VARIABLE, str(write_run(tmp_path / "run", sweep(model=name), model)))
    app = page()
    assert not app.exception
    assert "\\!\\[x\\]" in next(block.value for block in app.header if "at hand" in block.value)


def test_the_overview_links_every_page_it_knows():
    app = page(source="Paper")
    linked = {link.proto.label for link in app.get("page_link")}
    assert {"Curves", "Live edit", "Methods"} <= linked
