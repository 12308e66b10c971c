"""The paper's published numbers: complete, typed, equal to their source, and in our own words."""

import csv
import math
import re
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import polars as pl
import pytest

from engine.records.errors import InputError
from precomputed import convert_paper, convert_runs, paper_dir
from precomputed.paper_schema import PAPER, TABLES
from precomputed.paper_tables import describe, load_table, table_names

SOURCE = Path(__file__).parents[2].parent / "shared" / "paper"
needs_csv = pytest.mark.skipif(not SOURCE.is_dir(), reason="the CSV files are not beside this checkout")
needs_text = pytest.mark.skipif(not (SOURCE / "paper.tex").is_file(), reason="the paper's source is not here")

MODELS = ["Llama-3.2-1B", "Llama-3.2-3B", "Llama-3.1-8B", "Qwen3-8B", "Gemma-3-12B"]
SELECTORS = ["random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2"]
DOMAINS = ["hate", "crime", "adult", "medical", "legal"]
LONGEST_SHARED_RUN = 7  # words; 8 consecutive words of the paper would be a quotation


def one(table: str, **where: object) -> dict[str, object]:
    """The single row of a table with these values."""
    return load_table(table).row(by_predicate=pl.all_horizontal(pl.col(k) == v for k, v in where.items()), named=True)


@pytest.mark.parametrize("name", table_names())
def test_shape_types_and_missing_values(name: str) -> None:
    frame, table = load_table(name), describe(name)
    assert frame.schema == {column.name: column.dtype for column in table.columns}
    assert frame.height == table.rows
    for column in table.columns:
        values = frame[column.name].drop_nulls()
        assert values.len() > 0, f"{column.name} is empty"
        if column.dtype == pl.String:
            assert not values.str.to_lowercase().is_in(["", "nan", "null", "none", "true", "false"]).any()
            assert values.str.strip_chars().equals(values)
        if column.dtype == pl.Float64:
            assert values.is_finite().all()
        if column.unit == "fraction" and not column.name.startswith(("delta_", "gain")):
            assert values.is_between(0, 1).all()


def test_every_file_is_described_and_small() -> None:
    assert {path.stem for path in paper_dir().glob("*.parquet")} == set(table_names())
    assert sum(path.stat().st_size for path in paper_dir().iterdir()) < 500_000
    readme = (paper_dir() / "README.md").read_text("utf-8")
    assert readme.endswith(convert_paper.reference())


def test_sweep_is_complete() -> None:
    sweep = load_table("lerf_morf_ppl")
    rates = [round(0.05 * step, 2) for step in range(19)]
    cells = set(sweep.select("model", "selector", "order", "rate").iter_rows())
    assert cells == set(product(MODELS, SELECTORS, ["lerf", "morf"], rates))
    assert sweep.height == len(cells) == 1330
    unmasked = sweep.filter(pl.col("rate") == 0).group_by("model").agg(pl.col("ppl").n_unique())
    assert unmasked["ppl"].to_list() == [1] * 5
    assert sweep["at_ceiling"].sum() == 27


def test_sweep_values() -> None:
    cell = one("lerf_morf_ppl", model="Llama-3.2-1B", selector="random", order="lerf", rate=0.1)
    assert (cell["ppl"], cell["half_unit"], cell["printed"]) == (11_400.0, 50.0, "11.4k")
    cell = one("lerf_morf_ppl", model="Llama-3.1-8B", selector="consensus2", order="lerf", rate=0.2)
    assert (cell["ppl"], cell["at_ceiling"]) == (30.0, False)
    cell = one("lerf_morf_ppl", model="Gemma-3-12B", selector="wanda", order="morf", rate=0.9)
    assert (cell["ppl"], cell["at_ceiling"]) == (4.56e241, True)
    dense = load_table("lerf_morf_ppl").filter(pl.col("rate") == 0).unique("model").select("model", "ppl").rows()
    assert dict(dense) == dict(zip(MODELS, [16.5, 13.3, 10.6, 18.6, 19.0], strict=True))


@pytest.mark.parametrize(
    ("table", "where", "column", "value"),
    [
        ("audit_summary_30", {"model": "Gemma-3-12B", "selector": "ig"}, "gap", 1.00e14),
        ("models", {"model": "Llama-3.2-1B"}, "rows", 376_832),
        ("stability", {"model": "Llama-3.1-8B", "selector": "wanda"}, "spearman_c8_c128", 0.9998),
        ("consensus_controls", {"model": "Llama-3.1-8B", "control": "veto_lrp"}, "lerf_ppl", 28.02),
        ("consensus_rank_distribution", {"rate": 0.3, "category": "both"}, "fraction", 0.659),
        ("false_negatives", {"selector": "wanda"}, "n_danger_rows", 46_800),
        ("random_seeds", {"order": "lerf", "seed": 42}, "ppl", 707_057.0),
        ("faithfulness_controls", {"domain": "medical"}, "control_mean", 0.003),
        ("wilson", {"selector": "lrp", "domain": "hate", "metric": "malign"}, "ci_low", 0.788),
        ("signal_density", {"model": "Qwen3-8B", "selector": "lrp", "domain": "hate"}, "density_pct", 17.39),
        ("rescue_sweep", {"lambda": 0.8, "k": 0.005}, "rescue", True),
        ("prose_values", {"quantity": "mmlu_before"}, "value", 0.68),
        ("inconsistencies", {"id": "P60"}, "severity", "high"),
    ],
)  # fmt: skip
def test_known_figures(table: str, where: dict[str, object], column: str, value: object) -> None:
    assert one(table, **where)[column] == value


def test_refusal_grid_has_70_cells_in_the_contracts_words() -> None:
    points = load_table("refusal_operating_points")
    assert points.select("model", "selector", "domain").n_unique() == points.height == 70
    assert sorted(points["domain"].unique()) == sorted(DOMAINS)
    assert points.filter(pl.col("selector") == "random")["lambda"].null_count() == 20 == points["lambda"].null_count()
    assert points["rescue"].sum() == 1
    eight = points.filter(pl.col("model") == "Llama-3.1-8B-Instruct")
    assert eight["malign_before"].null_count() == 25 == eight["delta_gsm8k"].drop_nulls().len()


@pytest.mark.parametrize("name", [name for name in table_names() if "selector" in load_table(name).columns])
def test_selectors_are_in_the_contracts_words(name: str) -> None:
    allowed = {*SELECTORS, "dense", "attribution"}
    used = load_table(name)["selector"].drop_nulls().str.split("|").explode().str.split("/").explode()
    assert set(used) <= allowed


def test_curves_are_logarithms_of_what_was_printed() -> None:
    curves = convert_runs.table("sweep")
    assert curves.height == 1330
    for ppl, nll, half in curves.select("perplexity", "nll", "perplexity_half_unit").iter_rows():
        assert nll == pytest.approx(math.log(ppl), rel=1e-14)
        assert math.log(ppl - half) < nll < math.log(ppl + half)
    assert curves["nll"].max() == pytest.approx(556.44, abs=0.01)  # ln 4.56 + 241 ln 10


def test_inconsistencies_name_existing_tables() -> None:
    frame = load_table("inconsistencies")
    assert frame["id"].to_list() == [f"P{number:02d}" for number in range(1, 67)]
    known = set(load_table("table_inventory")["table"]) | {"text"}
    assert set(frame["tables"].str.split(", ").explode()) <= known


def test_inventory_covers_every_source_table() -> None:
    inventory = load_table("table_inventory").filter(~pl.col("commented_out"))
    assert inventory.height == 45
    listed = {(label, name) for label, files in inventory["table", "files"].iter_rows() for name in files.split(", ")}
    named = {(label, table.name) for table in TABLES.values() for label in table.sources if label != "text"}
    assert listed == named - {("tab:models", "models_public_config")}
    for each in TABLES.values():
        if "table" in (column.name for column in each.columns) and each.name != "table_inventory":
            assert set(load_table(each.name)["table"]) == set(each.sources)


def test_unknown_table_is_one_clear_error() -> None:
    for call in (load_table, describe):
        with pytest.raises(InputError, match="unknown paper table 'wilsn'; did you mean 'wilson'"):
            call("wilsn")


def test_loader_imports_nothing_heavy() -> None:
    code = (
        "import sys; from precomputed.paper_tables import load_table; load_table('wilson'); "
        "heavy = {'torch', 'transformers', 'pandas', 'streamlit'} & set(sys.modules); sys.exit(str(heavy or '') or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_wrong_folder_is_one_clear_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert convert_paper.main([str(tmp_path / "none")]) == 2
    assert convert_paper.main([str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "lerf_morf_ppl.csv is missing" in caplog.text
    assert not (tmp_path / "out").exists()


@needs_csv
def test_conversion_gives_the_shipped_tables_and_the_same_bytes_twice(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        convert_paper.convert(SOURCE, tmp_path / folder)
    for name in table_names():
        first = tmp_path / "a" / f"{name}.parquet"
        assert first.read_bytes() == (tmp_path / "b" / f"{name}.parquet").read_bytes()
        assert pl.read_parquet(first).equals(load_table(name)), f"{name} is not what is shipped"


@needs_csv
@pytest.mark.parametrize("name", [name for name in table_names() if name != "inconsistencies"])
def test_numbers_equal_the_csv(name: str) -> None:
    """Against the csv module, which shares no parsing with the conversion."""
    theirs = convert_paper.RENAMED.get(name, {})
    with (SOURCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    frame = load_table(name)
    for column, dtype in frame.schema.items():
        cells = [row.get(theirs.get(column, column), "") for row in rows]
        if dtype.is_numeric():
            assert frame[column].to_list() == [float(cell) if cell else None for cell in cells]
        elif dtype == pl.Boolean:
            assert frame[column].to_list() == [cell == "True" for cell in cells]
        elif column in ("printed", "model", "domain", "table", "task"):
            assert frame[column].to_list() == [cell or None for cell in cells]


def words_of(text: str) -> list[str]:
    """Lower-case words, without commands, and without figures, labels and model sizes (tokens with digits or `_:`)."""
    text = re.sub(r"\\cellcolor\{\w+\}", " ", text.replace("\\consensus", " consensus "))
    tokens = re.findall(r"[a-z0-9_:]+", re.sub(r"\\[A-Za-z]+", " ", text).lower())
    return [word for token in tokens if (word := token.strip(":")).isalpha()]


def shared_runs(text: str, runs: set[tuple[str, ...]], length: int) -> list[str]:
    """Every run of `length` words of the text that stands in the paper too."""
    words = words_of(text)
    windows = zip(*(words[start:] for start in range(length)), strict=False)
    return [" ".join(window) for window in windows if window in runs]


@needs_text
def test_no_sentence_of_the_paper_is_shipped() -> None:
    length = LONGEST_SHARED_RUN + 1
    paper = words_of((SOURCE / "paper.tex").read_text("utf-8"))
    runs = set(zip(*(paper[start:] for start in range(length)), strict=False))
    assert shared_runs("x " + " ".join(paper[5000 : 5000 + length]), runs, length), "the check itself must find a run"
    texts = [
        (f"{name}.{column}", cell)
        for name in table_names()
        for column, dtype in load_table(name).schema.items()
        if dtype == pl.String
        for cell in load_table(name)[column].drop_nulls().unique()
    ]
    title = PAPER.split(" (")[0]
    for path in sorted(paper_dir().iterdir()):
        if path.suffix in (".md", ".toml", ".jsonl"):
            paragraphs = path.read_text("utf-8").replace(title, "").replace("\n\n", "\0").split("\0")
            texts += [(path.name, paragraph) for paragraph in paragraphs]
    quoted = [(where, run) for where, text in texts for run in shared_runs(text, runs, length)]
    assert quoted == []


def test_rates_of_each_published_curve_rise() -> None:
    for _, curve in load_table("lerf_morf_ppl").group_by("model", "selector", "order"):
        assert all(low < high for low, high in pairwise(curve["rate"]))
