"""Runs of a results folder: listed, whole or not, deleted, compared."""

import pytest
from manifests import edited
from synthetic import add_table, break_manifest, stability, sweep, write_run

from dashboard.pages.runs import catalogue as runs
from dashboard.state import results
from engine.records.errors import InputError
from engine.records.manifest import read_manifest


@pytest.fixture
def top(tmp_path):
    write_run(tmp_path / "one")
    write_run(tmp_path / "group" / "two", sweep(model="other"), {"id": "other", "dtype": "float32"})
    return tmp_path


def names(top):
    return [run.name for run in runs.listed(top)]


def test_every_folder_with_a_manifest_is_listed(top):
    (top / "empty").mkdir()
    write_run(top / ".import-x")
    found = {run.name: run for run in runs.listed(top)}
    assert list(found) == ["group/two", "one"]
    one = found["one"]
    assert (one.model, one.tables, one.problem) == ("made-up-1B", ["sweep"], "")
    assert one.size_bytes == sum(path.stat().st_size for path in (top / "one").iterdir())
    entry = read_manifest(top / "one")["files"]["sweep.parquet"]
    assert one.measured == entry["date"][:10]
    assert runs.listed(top / "missing") == []


def test_what_is_wrong_with_a_run_is_named(top):
    add_table(top / "one", "stability", stability({"lrp": 0.9}))
    (top / "one" / "stability.parquet").unlink()
    with (top / "one" / "sweep.parquet").open("ab") as stream:
        stream.write(b"x")
    break_manifest(top / "group" / "two")
    two, one = runs.listed(top)
    assert "stability.parquet is missing" in one.problem
    assert "sweep.parquet does not fit its checksum" in one.problem
    assert "not readable JSON" in two.problem
    states = dict(runs.files(one).select("file", "state").iter_rows())
    assert states == {
        "stability.parquet": "stability.parquet is missing",
        "sweep.parquet": "sweep.parquet does not fit its checksum",
    }
    with pytest.raises(InputError, match="JSON"):
        runs.provenance(two)


def test_files_are_counted(top):
    (row,) = runs.files(runs.listed(top)[1]).rows(named=True)
    assert row["rows"] == sweep().height
    assert row["bytes"] == (top / "one" / "sweep.parquet").stat().st_size
    assert (row["seconds"], row["state"]) == (1.0, "as written")


@pytest.mark.parametrize(
    "name", ["../x.parquet", "a/b.parquet", "/x.parquet", ".x.parquet", "x.pkl", "x", "a\\b.json", "manifest.json"]
)
def test_a_manifest_may_list_plain_files_of_known_kinds_only(top, name):
    with edited(top / "one") as manifest:
        manifest["files"][name] = {}
    assert "lists" in runs.listed(top)[1].problem
    with pytest.raises(InputError, match="lists"):
        runs.checked_name(name)


def test_deleting_takes_the_run_and_nothing_else(top):
    kept = [top / "one" / "notes.txt", top / "one" / "inner" / "sweep.parquet"]
    kept[1].parent.mkdir()
    for path in kept:
        path.write_text("mine")
    assert runs.delete(top / "one", top) == ["inner", "notes.txt"]
    assert all(path.read_text() == "mine" for path in kept)
    assert names(top) == ["group/two"]
    assert runs.delete(top / "group" / "two", top) == []
    assert not (top / "group" / "two").exists()
    assert names(top) == []


def test_only_runs_inside_the_results_folder_can_be_deleted(top, tmp_path_factory):
    elsewhere = write_run(tmp_path_factory.mktemp("elsewhere") / "run")
    (top / "link").symlink_to(elsewhere)
    (top / "no-run").mkdir()
    (top / "no-run" / "table.parquet").write_text("x")
    for folder, says in (
        (elsewhere, "not inside"),
        (top / "link", "not inside"),
        (top / "one" / ".." / ".." / elsewhere.parent.name / "run", "not inside"),
        (top, "not inside"),
        (top / "no-run", "not a run"),
    ):
        with pytest.raises(InputError, match=says):
            runs.delete(folder, top)
    assert (elsewhere / "sweep.parquet").is_file()
    assert (top / "no-run" / "table.parquet").is_file()


@pytest.mark.parametrize("inside", [None, "results", "cells"])
def test_new_runs_go_into_the_results_of_a_store(tmp_path, monkeypatch, inside):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    if inside:
        (tmp_path / inside).mkdir()
    assert results.results_dir() == (tmp_path / "results" if inside else tmp_path)
    assert results.store_dir() == (tmp_path if inside == "cells" else None)


def test_a_folder_whose_manifest_is_another_program_s_is_no_run(top):
    """A model with a manifest of its own, and a run that was written among its files."""
    web = top / "web"
    web.mkdir()
    (web / "manifest.json").write_text('{"name": "a page", "files": {"a": 1}}')
    (web / "data.json").write_text("{}")
    with pytest.raises(InputError, match="not a run"):
        runs.delete(web, top)
    (web / "manifest.json").write_text('{"name": "a pa')  # damaged, and nothing of a run beside it
    with pytest.raises(InputError, match="not a run"):
        runs.delete(web, top)
    for name in ("config.json", "model.safetensors", "own.parquet", "page.html"):
        (top / "one" / name).write_text("mine")
    assert runs.delete(top / "one", top) == ["config.json", "model.safetensors", "own.parquet", "page.html"]
