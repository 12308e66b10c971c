"""`replay`: a folder's own numbers hold, a changed one is named, another model or text is refused."""

import json
import shutil

import polars as pl
import pytest
from manifests import edited, resealed
from tiny_models import load_tiny, text

from engine.cli import main
from engine.records.files import write_parquet
from engine.records.manifest import MANIFEST
from precomputed import demo_dir, paper_runs_dir

AUDIT = ["--samples", "4", "--max-length", "16", "--eval-samples", "5", "--eval-length", "16"]


@pytest.fixture
def call(capsys):
    def run(*arguments):
        code = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, " ".join(captured.err.split())

    return run


@pytest.fixture(scope="module")
def made(tiny_llama, tiny_text, tmp_path_factory):
    """A results folder: a sweep with lrp, ig and random, and the analyses that read scores alone or few cells."""
    out, store = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("store")
    chosen = ["--selectors", "random,wanda,lrp,ig,consensus2", "--corpus", tiny_text, *AUDIT, "--out", out]
    assert main(["sweep", tiny_llama.id, *map(str, chosen), "--rates", "0,30%,60%", "--store", str(store)]) == 0
    names = ["agreement", "depth", "rank-distribution", "gap", "differences"]
    assert main(["analyze", tiny_llama.id, *names, *map(str, chosen), "--store", str(store)]) == 0
    return out


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it that may be changed."""
    return shutil.copytree(made, tmp_path / "run")


def changed(folder, stem, column, line, value):
    """One value of a table, with a checksum that fits: what a person who edits numbers would do."""
    path = folder / f"{stem}.parquet"
    table = pl.read_parquet(path)
    values = table[column].to_list()
    before, values[line] = values[line], value(values[line])
    write_parquet(path, table.with_columns(pl.Series(column, values, dtype=table.schema[column])))
    resealed(folder, path.name)
    return before


def test_numbers_hold_and_the_folder_is_left_alone(call, made, tiny_text):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    code, out, err = call("replay", made / MANIFEST, "--text", tiny_text, "--json")
    found = json.loads(out)
    assert (code, err, found["holds"]) == (0, "", True)
    files = {one["file"] for one in found["tables"]}
    assert files == before.keys() - {MANIFEST}
    assert all(one["values"] and one["holds"] for one in found["tables"] if one["file"] != "claims.parquet")
    assert found["left_out"] == {}
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_only_what_is_named_is_run(call, made, tiny_text):
    code, out, _ = call("replay", made, "--only", "jaccard,scores", "--text", tiny_text, "--json")
    found = json.loads(out)
    assert code == 0
    assert {one["file"] for one in found["tables"]} == {"scores.safetensors", "rows.parquet", "jaccard.parquet"}


@pytest.mark.parametrize(("off", "tolerance", "holds"), [(1e-5, 1e-3, True), (1e-5, 1e-7, False), (0.1, 1e-3, False)])
def test_a_changed_number_is_found_at_the_tolerance(call, folder, tiny_text, off, tolerance, holds):
    changed(folder, "sweep", "nll", 4, lambda nll: nll * (1 + off))
    line = pl.read_parquet(folder / "sweep.parquet").row(4, named=True)
    code, out, err = call("replay", folder, "--only", "sweep", "--text", tiny_text, "--tolerance", tolerance, "--json")
    (table,) = json.loads(out)["tables"]
    assert code == (0 if holds else 1)
    assert table["holds"] is holds
    if not holds:
        (sentence,) = table["sentences"]
        assert f"selector={line['selector']}" in sentence
        assert f"order={line['order']}, rate={line['rate']:g}" in sentence
        assert str(line["nll"]) in sentence
        assert "1 of 1 files do not hold" in err
        assert "sweep.parquet" in err


def test_a_changed_score_is_found(call, folder, tiny_text):
    from safetensors.numpy import load_file, save_file

    path = folder / "scores.safetensors"
    scores = load_file(path)
    scores["lrp"][11] *= 1.5
    save_file(scores, path)
    resealed(folder, path.name)
    code, out, _ = call("replay", folder, "--only", "scores", "--text", tiny_text)
    assert code == 1
    assert "lrp at row_id=11: stored" in out
    assert "tolerance 0.001: a number holds if" in " ".join(out.split())


def test_rounding_holds(call, tiny_llama, tiny_text, tmp_path):
    """The same run with other batches: its last bits differ, and nothing else may."""
    out = tmp_path / "one_by_one"
    more = ["--selectors", "lrp,wanda", "--corpus", tiny_text, *AUDIT, "--rates", "0,50%", "--batch-size", "1"]
    assert call("sweep", tiny_llama.id, *more, "--out", out, "--store", tmp_path / "store")[0] == 0
    code, printed, _ = call("replay", out, "--text", tiny_text, "--json")
    assert code == 0
    assert max(one["largest_distance"] for one in json.loads(printed)["tables"]) < 1e-4


def test_another_models_weights_are_refused(call, made, tiny_text, tmp_path):
    other = load_tiny("llama", tmp_path / "other", seed=1)
    code, _, err = call("replay", made, "--text", tiny_text, "--model", other.id)
    assert code == 2
    assert "weights_hash" in err
    assert "another model's numbers say nothing about these" in err


def test_another_text_is_refused(call, made, tiny_text, tmp_path):
    other = tmp_path / tiny_text.name
    other.write_text(text(seed=5), encoding="utf-8")
    code, _, err = call("replay", made, "--only", "sweep", "--text", other)
    assert code == 2
    assert f"the calibration text {tiny_text.name} is not the one that was read" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--only", "swep"], "did you mean 'sweep'?"),
        (
            ["--only", "sweep"],
            "the run read text.txt, which is a file or folder of its own; say where it is with --text",
        ),
        (["--tolerance=-1"], "--tolerance must be 0 or more"),
        (["--text", "nowhere.txt"], "there is no nowhere.txt"),
        (["--model", "/no/such/model"], "/no/such/model"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(call, made, arguments, says):
    code, _, err = call("replay", made, *arguments)
    assert code == 2
    assert says in err


def test_a_damaged_table_is_an_error(call, folder, tiny_text):
    path = folder / "jaccard.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    code, _, err = call("replay", folder, "--only", "agreement", "--text", tiny_text)
    assert code == 2
    assert "does not fit the checksum" in err


def test_published_values_cannot_be_run_again(call):
    folder = next(path.parent for path in paper_runs_dir().glob("*/manifest.json"))
    code, _, err = call("replay", folder)
    assert code == 2
    assert "values that a paper printed" in err


def test_a_store_that_other_commands_filled_would_answer_itself(call, made, tiny_llama, tiny_text, tmp_path):
    store = tmp_path / "store"
    more = ["--selectors", "magnitude", "--corpus", tiny_text, *AUDIT, "--rates", "0,50%", "--out", tmp_path / "run"]
    assert call("sweep", tiny_llama.id, *more, "--store", store)[0] == 0
    again = ["replay", made, "--only", "depth", "--text", tiny_text, "--store"]
    code, _, err = call(*again, store)
    assert code == 2
    assert "were not measured by a replay" in err
    for _ in range(2):  # its own it may go on with
        assert call(*again, tmp_path / "fresh")[0] == 0


@pytest.mark.long
def test_a_part_that_cannot_be_had_is_left_out_with_a_reason(call, folder, tiny_text):
    """Without --only; with it, the same is an error (above)."""
    with edited(folder) as manifest:
        manifest["files"]["sweep.parquet"]["spec"]["scores"]["calibration"]["corpus"] = "elsewhere.txt"
    code, out, _ = call("replay", folder, "--text", tiny_text, "--json")
    found = json.loads(out)
    assert code == 0
    assert set(found["left_out"]) == {"sweep"}
    assert "elsewhere.txt" in found["left_out"]["sweep"]


def test_a_text_that_cannot_be_read_leaves_out_what_reads_it(call, folder, tiny_text):
    """No network in the tests: a text of the hub is out of reach, and what reads none of it is run all the same."""
    with edited(folder) as manifest:
        for stem in ("gap", "differences", "sweep"):
            spec = manifest["files"][f"{stem}.parquet"]["spec"]
            spec["settings"]["eval_corpus"] = spec["evaluation"]["corpus"] = "wikitext2"
    code, out, err = call("replay", folder, "--text", tiny_text, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert set(found["left_out"]) == {"gap", "differences", "sweep"}
    assert "jaccard.parquet" in {one["file"] for one in found["tables"]}


def test_settings_of_another_version_are_told(call, folder, tiny_text):
    with edited(folder) as manifest:
        settings = manifest["files"]["depth.parquet"]["spec"]["settings"]
        settings["a_setting_of_tomorrow"] = 3
        del settings["draws_seed"]  # one that was not there yesterday
        manifest["files"]["mask_depth.parquet"]["spec"]["settings"] = settings
        manifest["files"]["depth.parquet"]["environment"]["libraries"]["torch"] = "1.0"
    code, out, _ = call("replay", folder, "--only", "depth", "--text", tiny_text, "--json")
    notes = " ".join(json.loads(out)["notes"])
    assert code == 0
    assert "depth: settings that this version does not have were left out: a_setting_of_tomorrow" in notes
    assert "made with other versions: torch 1.0, here" in notes


@pytest.mark.first_run("^(?!where6)")
@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("scores", "seeds"), [10**30], "seeds must be a number below 2^63"),
        (("scores", "seeds"), [1.5], "seeds must be a whole number, got 1.5"),
        (("scores", "seeds"), ["a"], "seeds must be a whole number, got 'a'"),
        (("scores", "calibration", "samples_requested"), 1e308, "samples must be a whole number"),
        (("scores", "calibration", "corpus"), 3, "the run read 3, which is a file"),
        (("settings", "agreement_rates"), [n / 1e5 for n in range(10**5)], "at most 1,000 values, got 100,000"),
        (("settings", "agreement_rates"), ["x"], "agreement rates must be a number, got 'x'"),
        (("settings", "agreement_rates"), {"a": 1}, "agreement rates must be a number, got {'a': 1}"),
        (("settings", "calibration_draws"), 10**12, "calibration draws must be in [0, 10,000]"),
        (("settings", "calibration_draws"), "many", "calibration draws must be a whole number, got 'many'"),
        (("settings", "invariance"), {"decoys": 10**12}, "decoys must be in [1, 10,000]"),
        (("settings",), 7, "settings is 7, expected an object"),
    ],
)
def test_absurd_settings_are_one_line(call, folder, tiny_text, where, value, says):
    with edited(folder) as manifest:
        for stem in ("jaccard", "spearman"):
            place = manifest["files"][f"{stem}.parquet"]["spec"]
            for name in where[:-1]:
                place = place[name]
            place[where[-1]] = value
    code, _, err = call("replay", folder, "--only", "agreement", "--text", tiny_text)
    assert (code, says in err, "Traceback" in err) == (2, True, False), err


@pytest.mark.long
def test_the_shipped_results_hold(call):
    """The cheap analyses of the shipped model, on whatever machine this is."""
    names = "scores,agreement,depth,rank-distribution,claims"
    code, out, _ = call("replay", demo_dir() / "results", "--only", names, "--json")
    found = json.loads(out)
    assert code == 0, [one["sentences"] for one in found["tables"]]
    assert found["holds"]
