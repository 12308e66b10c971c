"""The registry of tables: every shipped table passes its gate, and each thing that can be wrong is one line."""

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import precomputed
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names, write_tables
from engine.results.tables import TABLES, Column, TableSpec, checked, frame, register_table, spec

SHIPPED = precomputed.demo_dir() / "results"
FINGERPRINT = {"id": "tiny", "weights_hash": "ab", "dtype": "float32"}
POINT = ("m", "lrp", "hate", 0.5, 0.01, 7)


def shipped(stem: str) -> pl.DataFrame:
    return pl.read_parquet(SHIPPED / f"{stem}.parquet")


@pytest.mark.parametrize("stem", table_names(SHIPPED))
def test_every_shipped_table_goes_round(stem: str, tmp_path: Path) -> None:
    raw = shipped(stem)
    assert read_table(SHIPPED, stem).equals(raw)
    for rows in (raw.rows(), raw.to_dicts()):
        made = frame(stem, rows, optional=raw.columns)
        assert made.schema == raw.schema
        assert made.equals(raw)
    write_tables(tmp_path, {stem: raw.select(sorted(raw.columns))}, FINGERPRINT, {"a": 1}, 2.0)
    assert read_table(tmp_path, stem).equals(raw)  # in the registry's order, whatever the order was
    entry = read_manifest(tmp_path)["files"][f"{stem}.parquet"]
    assert (entry["spec"], entry["wall_time_s"]) == ({"a": 1}, 2.0)


def test_the_same_table_gives_the_shipped_bytes(tmp_path: Path) -> None:
    for stem in ("sweep", "operating_points", "refusal_shares"):
        rows = shipped(stem).to_dicts()
        write_tables(tmp_path, {stem: frame(stem, rows, optional=list(rows[0]))}, FINGERPRINT, {}, 0.0)
        assert pl.read_parquet(tmp_path / f"{stem}.parquet").schema == shipped(stem).schema
        assert read_table(tmp_path, stem).equals(shipped(stem))


def test_columns_are_described_and_keys_name_a_line() -> None:
    for table in TABLES:
        assert table.title
        assert all(column.meaning for column in table.columns), table.stem
        optional = [column.optional for column in table.columns]
        assert optional == sorted(optional), f"{table.stem}: optional columns come last"
        assert not any(column.null for column in table.columns if column.name == "model")
    for stem in table_names(SHIPPED):
        raw = shipped(stem)
        keys = [key for key in spec(stem).keys if key in raw.columns]
        assert not raw.select(keys).is_duplicated().any(), stem


def test_unknown_tables_and_columns_name_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown table 'swep'; did you mean 'sweep'"):
        spec("swep")
    with pytest.raises(InputError, match="has a column 'rats' that a table spearman does not have"):
        checked("spearman", shipped("spearman").with_columns(rats=1), "here")
    with pytest.raises(InputError, match="did you mean 'spearman'"):
        frame("spearman", [{"model": "m", "spearmann": 0.5}])
    with pytest.raises(InputError, match=r"has a column 'nll_printed'"):  # a paper's column in a measured table
        checked("sweep", shipped("sweep").with_columns(nll_printed=pl.lit("7")), "here")


@pytest.mark.parametrize(
    ("stem", "column", "value", "told"),
    [
        ("sweep", "rate", 1.5, r"rate is 1.5, expected 0 to 1; .*run `selector-audit sweep MODEL` again"),
        ("sweep", "rate", math.nan, "rate is nan, expected 0 to 1"),
        ("sweep", "rows_removed", -1, "rows_removed is -1, expected 0 or more"),
        ("sweep", "rows_removed", None, "rows_removed is empty in 528 of 528 lines"),
        ("sweep", "nll", -0.5, "nll is -0.5, expected 0 or more"),
        ("sweep", "selector", "<b>", "selector is '<b>', expected an id"),
        ("depth", "mean_score", math.inf, "mean_score is inf, expected a finite number"),
        ("jaccard", "jaccard", -0.1, "jaccard is -0.1, expected 0 to 1"),
        ("operating_points", "gain", 1.2, "gain is 1.2, expected -1 to 1"),
        ("transfer", "after_high", math.inf, "after_high is inf, expected 0 to 1"),
        ("refusal_replies", "refused", None, "refused is empty"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(stem: str, column: str, value: object, told: str) -> None:
    table = shipped(stem)
    broken = table.with_columns(pl.lit(value, dtype=table.schema[column]).alias(column))
    with pytest.raises(InputError, match=told) as error:
        checked(stem, broken, f"{stem}.parquet")
    assert str(error.value).startswith(f"{stem}.parquet")
    assert "\n" not in str(error.value)


def test_types_and_missing_columns_are_told() -> None:
    table = shipped("sweep")
    with pytest.raises(InputError, match="rate holds String, expected Float64"):
        checked("sweep", table.with_columns(pl.col("rate").cast(pl.String)), "here")
    with pytest.raises(InputError, match="lacks the columns nll, tokens; another version"):
        checked("sweep", table.drop("nll", "tokens"), "here")


def test_what_a_broken_model_gives_is_a_result() -> None:
    table = shipped("sweep").with_columns(nll=pl.lit(math.nan), perplexity=pl.lit(math.inf))
    assert checked("sweep", table, "here").height == table.height
    gap = shipped("gap").with_columns(log_gap=pl.lit(-math.inf), gap=pl.lit(None, pl.Float64))
    assert checked("gap", gap, "here").height == gap.height


def test_newer_columns_may_lack_and_may_be_there() -> None:
    table = shipped("refusal_sweep").drop("malign_unfinished", "benign_unfinished", "reply_tokens_used")
    assert "malign_unfinished" not in checked("refusal_sweep", table, "here").columns
    newer = table.with_columns(benign_unfinished=pl.lit(0), malign_unfinished=pl.lit(3))
    newer = newer.with_columns(pl.col("^.*_unfinished$").cast(pl.Int64))
    assert checked("refusal_sweep", newer, "here").columns[-2:] == ["malign_unfinished", "benign_unfinished"]
    optional = {column.name for column in spec("sweep").columns if column.optional}
    assert frame("sweep", [], optional=optional & set(shipped("sweep").columns)).schema == shipped("sweep").schema
    assert list(frame("sweep", [], optional=["intervention"]).schema)[-1] == "intervention"
    assert frame("operating_points", [(*POINT, False)]).width == 7  # before any stage has measured it


def test_published_tables_may_lack_values_and_carry_what_was_printed() -> None:
    table = shipped("sweep").with_columns(
        tokens=pl.lit(None, pl.Int64), perplexity_printed=pl.lit("9.1"), perplexity_half_unit=pl.lit(0.05)
    )
    got = checked("sweep", table, "here", published=True)
    assert got.columns[-2:] == ["perplexity_printed", "perplexity_half_unit"]
    described = spec("sweep").column("perplexity_half_unit")
    assert described is not None
    assert (described.unit, "perplexity" in described.meaning) == ("perplexity", True)
    assert spec("sweep").column("rate_x") is None


def test_a_table_of_ones_own_is_registered_from_python(tmp_path: Path) -> None:
    columns = (Column("model", "text", "", "id of the model"), Column("flatness", "number", "", "x", "share"))
    own = TableSpec("flatness", "How flat", "analyze {model} flatness", columns, ("model",))
    try:
        assert register_table(own) is own
        register_table(own)  # again, as on a reload
        write_tables(tmp_path, {"flatness": frame("flatness", [("tiny", 0.5)])}, FINGERPRINT, {}, 0.0)
        assert read_table(tmp_path, "flatness").rows() == [("tiny", 0.5)]
        with pytest.raises(InputError, match="flatness is 2.0, expected 0 to 1"):
            write_tables(tmp_path, {"flatness": frame("flatness", [("tiny", 2.0)])}, FINGERPRINT, {}, 0.0)
        with pytest.raises(InputError, match="table 'flatness' is taken"):
            register_table(replace(own, title="Another"))
        with pytest.raises(InputError, match="table 'sweep' is taken"):
            register_table(replace(own, stem="sweep"))
    finally:
        TABLES.remove("flatness")
    with pytest.raises(InputError, match="expected columns of distinct names"):
        replace(own, columns=(*columns, columns[0]))
    with pytest.raises(InputError, match="got flatness"):
        replace(own, columns=(columns[0], replace(columns[1], range="rates")))


def test_nothing_is_written_where_one_table_is_wrong(tmp_path: Path) -> None:
    good, bad = shipped("spearman"), shipped("gap").with_columns(rate=pl.lit(30.0))
    with pytest.raises(InputError, match=r"table gap: rate is 30.0, expected 0 to 1"):
        write_tables(tmp_path / "run", {"spearman": good, "gap": bad}, FINGERPRINT, {}, 0.0)
    assert not (tmp_path / "run").exists()
    unknown = pl.DataFrame({"anything": [1]})  # of an analysis that registers nothing
    write_tables(tmp_path / "run", {"unheard-of": unknown}, FINGERPRINT, {}, 0.0)
    assert read_table(tmp_path / "run", "unheard-of").equals(unknown)


def test_a_table_of_other_numbers_and_the_same_size_is_not_the_one_that_the_manifest_names(tmp_path):
    for folder, number in (("one", 0.5), ("two", 0.25)):
        write_tables(tmp_path / folder, {"plain": pl.DataFrame({"x": [number]})}, FINGERPRINT, {}, 0.0)
    one, two = (tmp_path / folder / "plain.parquet" for folder in ("one", "two"))
    assert one.stat().st_size == two.stat().st_size
    assert read_table(one.parent, "plain")["x"].to_list() == [0.5]
    one.write_bytes(two.read_bytes())
    with pytest.raises(InputError, match="does not fit the checksum"):
        read_table(one.parent, "plain")
