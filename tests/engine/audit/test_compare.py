"""A run made of the published numbers agrees everywhere; known changes are found, and only they."""

import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from engine.cli import main
from engine.records.files import write_parquet
from engine.records.manifest import add_to_manifest
from engine.records.shipped import paper_runs_dir
from engine.results.folders import read_table
from engine.results.tables import spec
from engine.studies.comparison import QUANTITIES, compare, noise_sentences, paper_model, summary
from precomputed.paper_tables import load_table

MODEL = "Llama-3.1-8B"
FINGERPRINT = {"id": f"meta-llama/{MODEL}", "weights_hash": "0" * 64, "dtype": "bfloat16"}


def published_tables() -> dict[str, pl.DataFrame]:
    """The published numbers in the columns of measured tables, without any code of `compare`."""
    ours = pl.col("model") == MODEL
    names = {"lrp_ig_intersection": "intersection", "rank_randomized": "rank_randomised"}
    sweep = load_table("lerf_morf_ppl").filter(ours).select(
        "selector", pl.lit(None, pl.Int64).alias("seed"), "order", "rate", pl.col("ppl").log().alias("nll")
    )  # fmt: skip
    spearman = load_table("spearman_stability").filter(ours).select("selector", "calib_size", "spearman")
    stability = (
        load_table("convergence_ppl").filter(ours)
        .join(load_table("jaccard_stability").filter(ours), on=["selector", "calib_size", "rate"], how="left")
        .join(spearman, on=["selector", "calib_size"], how="left")
        .select("selector", "rate", "spearman", "jaccard", size="calib_size", nll=pl.col("ppl").log())
    )  # fmt: skip
    controls = load_table("consensus_controls").filter(ours)
    columns = [pl.col("control").replace(names), "rate"]
    both = [
        controls.select(*columns, pl.lit(order).alias("order"), pl.col(f"{order}_ppl").log().alias("nll"))
        for order in ("lerf", "morf")
    ]
    pairs = load_table("jaccard_pairs").filter(ours)
    wide = load_table("consensus_rank_distribution").filter(ours).pivot("category", index="rate", values="fraction")
    return {
        "sweep": sweep,
        "stability": stability,
        "jaccard": pairs.select("sublayer", "rate", "selector_a", "selector_b", "jaccard"),
        "spearman": load_table("spearman_pairs").filter(ours).select("selector_a", "selector_b", "spearman"),
        "controls": pl.concat(both).drop_nulls("nll").with_columns(size_matched_to=pl.lit(None, pl.String)),
        "rank_distribution": wide,
    }  # fmt: skip


def filled(stem, table):
    """The columns that a measured table has as well, with anything in them: `compare` reads none of them."""
    blank = {"String": "x", "Float64": 1.0, "Int64": 1, "Boolean": False}
    missing = {
        name: pl.lit(None if spec(stem).column(name).null else blank[str(kind)], kind)
        for name, kind in spec(stem).schema().items()
        if name not in table.columns
    }
    return table.with_columns(**missing)


def write(folder, tables):
    folder.mkdir(exist_ok=True)
    for stem, table in tables.items():
        write_parquet(folder / f"{stem}.parquet", filled(stem, table))
        add_to_manifest(folder, FINGERPRINT, f"{stem}.parquet", {}, 0.0)
    return folder


def test_the_published_numbers_agree_with_themselves(tmp_path):
    found = compare(write(tmp_path, published_tables()))
    assert found.model == MODEL
    assert found.cells["within"].all()
    assert (found.orders["agreeing"] == found.orders["pairs"]).all()
    assert found.signs["same_sign"].all()
    assert found.signs.height == 7 * 18
    assert found.cells.filter(quantity="perplexity").height == 7 * 2 * 19
    names = {quantity.name for quantity in QUANTITIES if quantity.name.startswith(("domain", "accuracy"))}
    assert set(found.missing) == names  # dangerous groups were printed for another model


def test_known_changes_are_found_and_nothing_else(tmp_path):
    tables = published_tables()
    cell = (pl.col("selector") == "lrp") & (pl.col("order") == "lerf") & (pl.col("rate") == 0.3)
    printed = load_table("lerf_morf_ppl").filter(model=MODEL, selector="lrp", order="lerf", rate=0.3)
    ppl, half = printed["ppl"].item(), printed["half_unit"].item()
    inside, outside = math.log(ppl + 0.9 * half), math.log(ppl + 1.1 * half)
    for nll, within in ((inside, True), (outside, False)):
        changed = tables["sweep"].with_columns(nll=pl.when(cell).then(nll).otherwise("nll"))
        found = compare(write(tmp_path / str(within), tables | {"sweep": changed}))
        assert found.cells.filter(~pl.col("within")).height == (0 if within else 1)
    (row,) = found.cells.filter(~pl.col("within")).to_dicts()
    assert (row["selector"], row["order"], row["rate"]) == ("lrp", "lerf", 0.3)
    assert row["difference"] == pytest.approx(1.1 * half)


def test_a_gap_that_turns_round_is_named(tmp_path):
    sweep = published_tables()["sweep"]
    ours = (pl.col("selector") == "consensus2") & (pl.col("rate") == 0.2)
    turned = sweep.with_columns(
        order=pl.when(ours).then(pl.col("order").replace({"lerf": "morf", "morf": "lerf"})).otherwise("order")
    )
    found = compare(write(tmp_path, {"sweep": turned}))
    assert found.signs.filter(~pl.col("same_sign")).select("selector", "rate").rows() == [("consensus2", 0.2)]


def test_seeds_are_averaged_as_the_paper_does(tmp_path):
    sweep = published_tables()["sweep"]
    is_random = pl.col("selector") == "random"
    halves = [
        sweep.filter(is_random).with_columns(seed=pl.lit(seed, pl.Int64), nll=pl.col("nll") + math.log(factor))
        for seed, factor in ((42, 0.5), (43, 1.5))
    ]
    found = compare(write(tmp_path, {"sweep": pl.concat([sweep.filter(~is_random), *halves])}))
    assert found.cells["within"].all()


@pytest.mark.parametrize(
    ("model_id", "expected"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B"), ("/models/llama-3.2-1b", "Llama-3.2-1B"),
        ("Qwen/Qwen3-8B-Base", "Qwen3-8B"), ("google/gemma-3-12b-pt", "Gemma-3-12B"),
        ("meta-llama/Llama-3.1-8B-Instruct", None), ("demo", None),
    ],
)  # fmt: skip
def test_model_ids(model_id, expected):
    assert paper_model(model_id) == expected


def test_command_says_what_agrees(tmp_path, capsys):
    write(tmp_path, published_tables())
    assert main(["compare", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "sign of the validity gap: the same in 126 of 126 cells" in said
    assert "not measured here" in said
    assert summary(compare(tmp_path))["within"].sum() == compare(tmp_path).cells.height


def with_noise(sweep, stderr, shift):
    """The sweep with a stored standard error, and every NLL moved by so many of them."""
    return sweep.with_columns(nll_stderr=pl.lit(stderr), nll=pl.col("nll") + stderr * pl.Series(shift))


def test_noise_of_half_the_stored_error_is_no_difference(tmp_path):
    """Hardly any cell is within half a printed digit then, and none differs."""
    sweep = published_tables()["sweep"]
    shift = 0.5 * np.random.default_rng(0).normal(size=sweep.height)
    found = compare(write(tmp_path, {"sweep": with_noise(sweep, 0.05, shift)}))
    assert found.cells["within"].mean() < 0.2
    counted = summary(found).row(0, named=True)
    assert (counted["tested"], counted["beyond_noise"]) == (sweep.height, 0)
    assert f"0 of {sweep.height} cells" in noise_sentences(found.cells)[0]


def test_errors_over_blocks_of_windows_are_taken_where_they_are_there(tmp_path):
    """z by the wider error, p by Student's t with a degree less than blocks."""
    sweep = published_tables()["sweep"]
    noisy = with_noise(sweep, 0.05, np.full(sweep.height, 30.0))
    alone = compare(write(tmp_path / "windows", {"sweep": noisy})).cells
    wider = noisy.with_columns(stderr_blocks=pl.lit(0.1), blocks=pl.lit(4, pl.Int64))
    found = compare(write(tmp_path / "blocks", {"sweep": wider})).cells
    assert set(alone["stderr"]) == {0.05}
    assert set(found["stderr"]) == {0.1}
    smallest = min(2 * scipy.stats.t.sf(abs(z), 3) for z in found["z"])
    assert found["p_holm"].min() == pytest.approx(min(1.0, found.height * smallest))


def test_a_tenfold_error_in_one_cell_is_named_first(tmp_path, capsys):
    sweep = published_tables()["sweep"]
    shift = np.random.default_rng(1).normal(size=sweep.height)
    wrong = (pl.col("selector") == "lrp") & (pl.col("order") == "lerf") & (pl.col("rate") == 0.3)
    noisy = with_noise(sweep, 0.05, shift)
    tenfold = noisy.with_columns(nll=pl.when(wrong).then(pl.col("nll") + math.log(10)).otherwise("nll"))
    worst = compare(write(tmp_path, {"sweep": tenfold})).cells.row(0, named=True)
    assert (worst["selector"], worst["order"], worst["rate"]) == ("lrp", "lerf", 0.3)
    assert worst["log_ratio"] == pytest.approx(math.log(10), abs=0.2)
    assert worst["z"] == pytest.approx(worst["log_ratio"] / 0.05, rel=0.02)
    assert main(["compare", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"1 of {sweep.height} cells with a standard error differ" in said
    listed = [line for line in said[said.index("worst cells") :].splitlines() if line.startswith("perplexity ")]
    assert listed[0].startswith("perplexity lrp lerf 0.3 ")


def test_cells_at_the_ceiling_are_not_tested(tmp_path):
    """A model whose printed perplexities reach the ceiling in some cells, which say that it collapsed, not how far."""
    other = "Llama-3.2-1B"
    paper = read_table(paper_runs_dir() / other, "sweep")
    there = paper.filter("at_ceiling").height
    assert there > 0
    columns = (
        "selector", "order", "rate", pl.lit(None, pl.Int64).alias("seed"), pl.col("perplexity").log().alias("nll"),
    )  # fmt: skip
    found = compare(write(tmp_path, {"sweep": paper.select(*columns).with_columns(nll_stderr=pl.lit(0.01))}), other)
    assert found.cells.height == paper.height
    assert found.cells["z"].null_count() == found.cells["p_holm"].null_count() == there


def test_the_noise_of_seeds_counts(tmp_path):
    """Arithmetic mean of perplexities: its relative error by hand, for three seeds of one ranking."""
    sweep = published_tables()["sweep"]
    is_random = pl.col("selector") == "random"
    steps = (-0.3, 0.1, 0.4)
    seeds = [
        sweep.filter(is_random).with_columns(seed=pl.lit(seed, pl.Int64), nll=pl.col("nll") + step)
        for seed, step in enumerate(steps)
    ]
    table = pl.concat([sweep.filter(~is_random), *seeds]).with_columns(nll_stderr=pl.lit(0.02))
    found = compare(write(tmp_path, {"sweep": table}))
    parts = np.exp(steps) / np.exp(steps).mean()
    by_hand = math.sqrt(np.mean((0.02 * parts) ** 2) + parts.var(ddof=1) / 3)
    own = found.cells.filter(pl.col("stderr").is_not_null(), selector="random")
    assert own["stderr"].to_list() == pytest.approx([by_hand] * own.height)
    assert own["log_ratio"].to_list() == pytest.approx([math.log(np.exp(steps).mean())] * own.height)
