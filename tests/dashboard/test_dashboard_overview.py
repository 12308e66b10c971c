"""The overview: the figure's numbers, and the page as a script on full, empty and damaged folders."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from app_pages import warnings_of
from relatives import relatives
from streamlit.testing.v1 import AppTest
from synthetic import SLOPES, UNMASKED_NLL, add_table, stability, sweep, verdicts, write_run

import precomputed
from dashboard.charts import formats, overview, palette, verdict_chips
from dashboard.pages.overview import overview_page
from dashboard.show import menu
from dashboard.show.layout import NOT_DRAWN
from dashboard.state import results
from engine.records.errors import InputError

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
MODEL = "made-up-1B"


def curves(slopes=SLOPES):
    """A measured sweep as `results.read_run` gives it."""
    return sweep(slopes).with_columns(printed=pl.lit(None, pl.String), plateau=pl.lit(False))


def test_a_rate_that_was_not_measured_is_an_error_that_says_what_to_run():
    with pytest.raises(InputError, match="LeRF at 30%"):
        overview.over_models({"m": (curves().filter(pl.col("rate") < 0.2), MODEL)})


def test_the_snapshot_is_the_sweep_at_its_rate():
    paper = results.read_paper().frame
    table = overview.over_models({"one": (curves(), MODEL), "two": (paper, "Qwen3-8B")})
    lrp = table.filter(label="one", selector="lrp").row(0, named=True)
    assert lrp["nll"] == pytest.approx(UNMASKED_NLL + 0.3)
    assert lrp["unmasked_nll"] == pytest.approx(UNMASKED_NLL)
    printed = paper.filter(model="Qwen3-8B", selector="wanda", order="lerf", rate=0.3)["nll"][0]
    assert table.filter(label="two", selector="wanda")["nll"].to_list() == [printed]


def test_the_figure_holds_every_selector_of_every_model_and_escapes_names():
    paper = results.read_paper().frame
    table = overview.over_models({"<b>": (curves(), MODEL), "two": (paper, "Qwen3-8B")})
    figure = overview.snapshot(table, "below")
    cells = {(int(note.y), int(note.x)): note.text for note in figure.layout.annotations}
    names = list(figure.layout.xaxis.ticktext)
    for row in table.iter_rows(named=True):
        line = ["<b>", "two"].index(row["label"])
        column = names.index(palette.title(row["selector"]))
        assert cells[line, column] == formats.perplexity(row["nll"])
        assert cells[line, len(names) - 1] == formats.perplexity(row["unmasked_nll"])
    assert figure.layout.yaxis.ticktext == ("&lt;b&gt;", "two")
    shades = figure.data[0].z
    own = table.filter(label="<b>").sort("nll")["selector"].to_list()
    order = [shades[0][names.index(palette.title(name))] for name in own]
    assert order == sorted(order)  # of the model alone, whatever another one's heights are


def test_the_rows_of_the_shipped_model_are_counted():
    height = pl.read_parquet(precomputed.demo_dir() / "results" / "rows.parquet").height
    rows = {fact.name: fact for fact in overview_page.run_facts(precomputed.demo_dir() / "results")}["Rows"]
    assert rows.exact.startswith(f"{height:,} ")


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


def test_a_full_run_has_its_figure_and_a_verdict_per_selector(full_run):
    app = page()
    assert warnings_of(app) == []
    assert len(app.get("plotly_chart")) == 1
    texts = [block.value for block in app.markdown]
    (wanda,) = [text for text in texts if "**Wanda**:" in text]
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
        [":green-badge[✓ yes]", ":green-badge[✓ both]", ":green-badge[✓ stable]"],
        [":red-badge[✗ no]", ":red-badge[✗ neither]", ":green-badge[✓ stable]"],
    ]
    app = page()
    names = [one.value for one in app.markdown]
    assert ":green[✓] **LRP**" in names
    assert "**Wanda**" in names
    told = " ".join(caption.value.replace("\\", "") for caption in app.caption)
    assert "Robust was not measured here; `selector-audit analyze made-up-1B invariance` measures it." in told
    for row, name in zip(found.values(), ("LRP", "Wanda"), strict=True):
        assert [chip.page for chip in row] == ["curves", "believed", "believed"]
        assert f"selectors={name}" in row[0].query_string
        assert "part=Stability" in row[2].query_string


@pytest.mark.parametrize(
    ("validities", "said"),
    [
        ({"lrp": "sufficient", "wanda": "not", "random": "faithful"}, verdict_chips.NONE_FAITHFUL),
        (
            {"wanda": "faithful", "lrp": "faithful", "ig": "sufficient", "fisher": "sufficient"},
            "LRP and Wanda are faithful",
        ),
        ({"ig": "faithful", "lrp": "partly"}, "IG is faithful"),
    ],
)
def test_the_answer_names_what_its_verdicts_call_so(validities, said):
    assert (
        verdict_chips.answer(pl.DataFrame({"selector": list(validities), "validity": list(validities.values())}))
        == said
    )


@pytest.mark.parametrize(
    ("specific", "reason"),
    [
        (["MoRF only", "not"], ": Fisher is sufficient, but specific by its top rows only"),
        (["not", "MoRF only"], ": Fisher is sufficient, but not specific"),
    ],
)
def test_the_answer_says_what_a_sufficient_score_lacks(specific, reason):
    verdicts = pl.DataFrame({"selector": ["fisher", "lrp"], "validity": ["sufficient", "not"], "specific": specific})
    assert verdict_chips.answer(verdicts) == verdict_chips.NONE_FAITHFUL + reason
    both = verdicts.with_columns(validity=pl.lit("sufficient"), specific=pl.lit("MoRF only"))
    assert verdict_chips.answer(both).endswith(": LRP and Fisher are sufficient, but specific by their top rows only")


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
        "lrp": ["✓ yes", "✓ stable", "✓ robust"],
        "ig": ["✓ yes", "✗ not stable", "✓ robust"],
        "wanda": ["~ in part", "– not known", "✗ not robust"],
        "magnitude": ["✗ no", "– no text", "– not known"],
    }
    assert [one.selector for one in verdict_chips.lines(table, moves) if one.faithful] == ["lrp"]
    colours = {chip.sign: chip.colour for line in verdict_chips.lines(table, moves) for chip in line.chips}
    assert colours == {"✓": "green", "~": "orange", "✗": "red", "–": "gray"}
    on_a_phone = re.findall(r'named-chips-.*::before { content: "(.+?)"', menu.STYLE)  # by their order alone
    assert tuple(on_a_phone) == verdict_chips.QUESTIONS
    without = verdict_chips.lines(table, None)
    assert {len(line.chips) for line in without} == {2}
    for specific, word in (
        ("specific", "✓ both"),
        ("MoRF only", "~ top rows only"),
        ("LeRF only", "~ low rows only"),
        ("not", "✗ neither"),
        ("saturated", "– saturated"),
        ("not measured", "– not measured"),
    ):
        asked = table.with_columns(specific=pl.lit(specific))
        assert {f"{line.chips[1].sign} {line.chips[1].word}" for line in verdict_chips.lines(asked, None)} == {word}
        assert verdict_chips.questions(asked, None) == ("Sufficient?", "Specific?", "Stable?")
    budgets = verdict_chips.lines(table.with_columns(budget=pl.Series([0.1834, 0.0046, None, 0.02])), None)
    assert {line.selector: line.budget for line in budgets} == {
        "lrp": "18.3%", "ig": "0.46%", "wanda": "", "magnitude": "2%"
    }  # fmt: skip
    better = table.with_columns(validity=pl.lit("partly"), budget=pl.Series([0.01, 0.2, None, 0.02]))
    ends = better.with_columns(
        budget_low=pl.Series([0.009, 0.2, None, 0.02]), budget_high=pl.Series([0.02, 0.2, None, 0.02])
    )
    assert [line.selector for line in verdict_chips.lines(ends, None)] == ["ig", "magnitude", "lrp", "wanda"]
    bars = verdict_chips.bars(ends)
    ticks = re.findall(r'<small style="left:([\d.]+)%">(.*?)</small>', bars.pop(""))
    assert set(bars) == {"lrp", "ig", "magnitude"}

    def place(share):  # from half of the least share to 1.1 times the largest, by ratios
        return 100 * np.log(share / 0.0045) / np.log(0.22 / 0.0045)

    assert ticks == [(f"{place(share):.2f}", text) for share, text in ((0.01, "1%"), (0.1, "10%"))]
    assert f'<i style="left:{place(0.009):.2f}%;width:{place(0.02) - place(0.009):.2f}%">' in bars["lrp"]
    assert f'<b style="left:{place(0.01):.2f}%;' in bars["lrp"]
    assert "<s " not in bars["lrp"]
    with_random = pl.concat([ends, ends.head(1).with_columns(selector=pl.lit("random"))])
    of_random = verdict_chips.bars(with_random)
    assert all(f'<s style="left:{place(0.01):.2f}%">' in one for name, one in of_random.items() if name)
    assert verdict_chips.bars(table) == {}
    assert [line.interval for line in verdict_chips.lines(ends, None)] == ["", "", "0.9% to 2%", ""]
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
    assert warnings_of(app) == []
    assert any("was not judged here" in one.value for one in app.caption)
    assert len([button for button in app.button if button.label == "Compute this now"]) == 1
    assert len(app.get("plotly_chart")) == 1


@pytest.mark.parametrize("model", relatives(["Llama-3.1-8B", "Gemma-3-12B"], ["Gemma-3-12B"]))
def test_published_models_open(model):
    app = page(source="Paper", model=model)
    told = warnings_of(app)
    assert told == []
    assert len(app.get("plotly_chart")) == 1
    assert {"Rows, as printed", "Blocks, as printed"} < {metric.label for metric in app.metric}


def test_a_model_name_with_markdown_stays_text(tmp_path, monkeypatch):
    name = "![x](http:y)"
    model = {"id": name, "weights_hash": "cd" * 32, "dtype": "float32"}
    monkeypatch.setenv(results.STORE_VARIABLE, str(write_run(tmp_path / "run", sweep(model=name), model)))
    app = page()
    assert not app.exception
    assert "\\!\\[x\\]" in next(block.value for block in app.header if "at hand" in block.value)
