"""Reading results: full, empty and broken folders; published tables; shipped arrays."""

import math
import os

import polars as pl
import pytest
import scipy.stats
from synthetic import (
    RATES,
    SLOPES,
    UNMASKED_NLL,
    add_table,
    break_manifest,
    date_in_manifest,
    sweep,
    write_run,
)  # fmt: skip

import precomputed
from dashboard.charts import series
from dashboard.state import results, shipped_models as shipped
from engine.records.errors import InputError
from engine.records.manifest import write_manifest
from engine.results.tables import frame, spec


def test_a_run_comes_back_as_written(tmp_path):
    curves = results.read_run(write_run(tmp_path / "run"))
    written = sweep()
    assert curves.models == ["made-up-1B"]
    assert dict(curves.frame.schema) == results.CURVE_SCHEMA
    keys = ["selector", "order", "rate", "seed"]
    assert curves.frame.select(written.columns[:-1]).sort(keys).equals(written.drop("perplexity").sort(keys))
    assert not curves.published
    assert not curves.frame["plateau"].any()


def test_provenance_names_model_weights_corpus_and_day(tmp_path):
    folder = write_run(tmp_path / "run")
    line = results.read_run(folder).provenance
    assert "\n" not in line
    # pragma: allowlist nextline secret: the made-up revision
    parts = ("made-up-1B", "4e20de1c3a55", "abababababab", "float32", "made-up text", date_in_manifest(folder))
    assert [part for part in parts if part not in line] == []


def test_a_rewritten_run_is_read_again(tmp_path):
    folder = write_run(tmp_path / "run")
    assert set(results.read_run(folder).frame["selector"]) == set(SLOPES)
    write_run(folder, sweep({"lrp": (1.0, 2.0)}))
    assert set(results.read_run(folder).frame["selector"]) == {"lrp"}


def test_a_file_that_is_another_has_another_stamp(tmp_path):
    """Rewritten at the same size, at the same time, or both, by writing into it and by putting another in its place."""
    path, other = tmp_path / "table", tmp_path / "other"

    def made(file, content, time_ns):
        file.write_bytes(content)
        os.utime(file, ns=(time_ns, time_ns))
        return results.stamp(file)

    stamps = [made(path, b"abcd", 5), made(path, b"abce", 6), made(path, b"abcde", 6), made(path, b"abcdf", 6)]
    made(other, b"abcdg", 6)
    other.replace(path)
    stamps.append(results.stamp(path))
    assert len(set(stamps)) == 5
    assert results.stamp(path) == stamps[-1]
    assert results.stamp(tmp_path / "missing") is None


def test_runs_are_found_below_a_store(tmp_path):
    write_run(tmp_path / "results" / "b")
    write_run(tmp_path / "results" / "a")
    assert [run.name for run in results.find_runs(tmp_path)] == ["a", "b"]
    assert results.find_runs(tmp_path / "results" / "a") == [tmp_path / "results" / "a"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "sweep.parquet").write_bytes(b"x"), "checksum"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
        (break_manifest, "manifest.json"),
    ],
)
def test_broken_runs_are_one_clear_line(tmp_path, damage, said):
    folder = write_run(tmp_path / "run")
    damage(folder)
    with pytest.raises(InputError, match=said) as caught:
        results.read_run(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("stem", "column"),
    [("refusal_jaccard", "domain_a"), ("refusal_jaccard", "domain_b"), ("refusal_shares", "name"),
     ("composed", "evaluated_domain")],
)  # fmt: skip
def test_names_that_figures_show_are_ids(tmp_path, stem, column):
    values = {"String": "x", "Float64": 0.5, "Int64": 1, "Boolean": False}
    row = {name: values[str(kind)] for name, kind in spec(stem).schema().items()}
    add_table(write_run(tmp_path), stem, frame(stem, [row]))
    assert results.read_table(tmp_path, stem).frame.height == 1
    add_table(tmp_path, stem, frame(stem, [row | {column: "<b>x"}]))
    with pytest.raises(InputError, match=f"{column} is '<b>x', expected an id"):
        results.read_table(tmp_path, stem)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_folders_without_results_say_what_to_run(tmp_path, name):
    (tmp_path / "empty").mkdir()
    for read in (results.find_runs, results.read_run):
        with pytest.raises(InputError, match="selector-audit sweep"):
            read(tmp_path / name)


def test_published_curves_are_the_printed_perplexities():
    curves = results.read_paper()
    assert curves.published
    assert len(curves.models) == 5
    assert len(curves.frame) == 5 * 7 * 2 * 19
    cell = curves.frame.filter(model="Llama-3.2-1B", selector="random", order="lerf", rate=0.1)
    assert cell["printed"].item() == "11.4k"
    assert cell["nll"].item() == pytest.approx(math.log(11_400))
    assert curves.frame["plateau"].sum() == 27
    assert curves.frame["nll"].max() == pytest.approx(math.log(4.56) + 241 * math.log(10))


def test_examples_prefer_their_file_and_fall_back_to_held_out_prompts(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    assert shipped.examples() == []
    (tmp_path / "prompts.jsonl").write_text(
        '{"domain": "hate", "split": "calibration", "risk": "seen", "base": "seen too"}\n'
        '{"domain": "hate", "split": "heldout", "risk": "a risk", "base": "a base"}\n'
    )
    assert [(e.domain, e.kind, e.prompt) for e in shipped.examples()] == [
        ("hate", "risk", "a risk"),
        ("hate", "base", "a base"),
    ]
    (tmp_path / "examples.jsonl").write_text('{"domain": "legal", "kind": "base", "prompt": "Hello"}\n')
    assert [e.prompt for e in shipped.examples()] == ["Hello"]
    (tmp_path / "examples.jsonl").write_text('{"domain": "legal"}\n')
    with pytest.raises(InputError, match="examples.jsonl"):
        shipped.examples()


def test_shipped_arrays_are_empty_when_absent_and_an_error_when_broken(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    assert shipped.scores_of("0", "lrp", 1) is None
    assert shipped.weights_hash_of(shipped.DEMO) is None
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "scores.safetensors").write_bytes(b"not safetensors")
    write_manifest(tmp_path / "results", {"schema_version": 2, "model": {"weights_hash": "0"}, "files": {}})
    with pytest.raises(InputError, match="again"):
        shipped.scores_of("0", "lrp", 1)


def points(tmp_path, **changes):
    frame = results.read_run(write_run(tmp_path / "run")).frame
    wanted = {"selectors": list(SLOPES), "orders": ["lerf", "morf"], "rates": (0.0, 1.0), **changes}
    return series.points(frame, "made-up-1B", **wanted)


def test_points_average_seeds_in_nll_and_keep_their_spread(tmp_path):
    drawn = points(tmp_path)
    random = drawn.filter(selector="random", order="lerf", rate=0.5).row(0, named=True)
    assert random["nll"] == pytest.approx(UNMASKED_NLL + 3.0)
    assert random["error"] == random["bar"] == pytest.approx(0.1)  # standard deviation of -0.1, 0, 0.1
    assert random["seeds"] == 3
    single = drawn.filter(selector="lrp", order="lerf", rate=0.5).row(0, named=True)
    assert single["error"] == pytest.approx(0.05)
    assert single["bar"] == pytest.approx(0.05 * scipy.stats.norm.ppf(0.975))  # over windows, nobody knows how many
    lrp = results.read_run(tmp_path / "run").frame.filter(pl.col("selector") == "lrp", pl.col("rate") == 0.5)
    for blocks in (2, 3, 40):
        over_blocks = lrp.with_columns(blocks=pl.lit(blocks))
        point = series.points(over_blocks, "made-up-1B", ["lrp"], ["lerf"], (0.5, 0.5)).row(0, named=True)
        assert point["interval"] == pytest.approx(0.05 * scipy.stats.t.ppf(0.975, blocks - 1))
        assert point["bar"] == (point["interval"] if blocks >= 5 else None)
    assert single["rows_removed"] == 500
    pair = results.read_run(tmp_path / "run").frame.filter(selector="random", order="lerf", rate=0.5).head(2)
    two = series.points(pair, "made-up-1B", ["random"], ["lerf"], (0.5, 0.5))
    assert two["error"].to_list() == pytest.approx([0.1 / math.sqrt(2)])
    whole = math.hypot(0.1 / math.sqrt(2), pair["nll_stderr"].mean())
    assert two.select(series.whole_error()).to_series().to_list() == pytest.approx([whole])


def test_gap_is_morf_minus_lerf(tmp_path):
    gaps = series.gaps(points(tmp_path))
    row = gaps.filter(pl.col("selector") == "lrp", pl.col("rate") == 0.5).row(0, named=True)
    assert row["log_gap"] == pytest.approx((20.0 - 1.0) * 0.5)
    assert row["gap"] == "1.63×10⁵"  # exp(12) - exp(2.5) = 162,742.6
    assert gaps.filter(pl.col("rate") == 0)["log_gap"].to_list() == [0.0] * len(SLOPES)
    assert series.gaps(points(tmp_path, orders=["lerf"])).is_empty()


def test_tables_and_csv_hold_every_point(tmp_path):
    drawn = points(tmp_path)
    table = series.value_table(drawn)
    assert table.numbers.columns == ["Order", "Removed", "LRP", "IG", "Wanda", "Random"]
    (row,) = ((table.numbers["Order"] == "LeRF") & (table.numbers["Removed"] == 0.5)).arg_true()
    assert table.numbers["LRP"][row] == pytest.approx(math.exp(2.5))
    assert (table.texts["Removed"][row], table.texts["LRP"][row]) == ("50%", "12.2")
    csv = series.download_values(drawn, "made-up-1B", "My results")
    assert len(csv) == len(drawn) == len(SLOPES) * 2 * len(RATES)
    assert csv["perplexity"].to_list() == pytest.approx([math.exp(nll) for nll in drawn["nll"]])
