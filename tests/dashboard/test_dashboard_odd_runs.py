"""Run folders that are signed but odd: one line from the report and the import, "not whole" on Runs, no traceback."""

import io
import math
import os
import zipfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from app_pages import run_page
from manifests import edited, resealed
from relatives import relatives
from synthetic import add_table, stability, sweep, typed, verdicts, write_run

from dashboard.pages.runs import catalogue, importing
from dashboard.report.html_report import build
from dashboard.state import results
from engine.cli import main
from engine.records.errors import InputError

PLAIN = typed("sweep", sweep())


def constant(name: str, value: object) -> pl.DataFrame:
    return PLAIN.with_columns(pl.lit(value, dtype=PLAIN.schema[name]).alias(name))


# What signs nothing away: the checksum fits, and the table is not one of sweeps.
TABLES: dict[str, tuple[pl.DataFrame, str]] = {
    "rates not a number": (constant("rate", math.nan), "rate is nan, expected 0 to 1"),
    "rates of 30": (constant("rate", 30.0), "rate is 30.0"),
    "rates below 0": (constant("rate", -0.1), "rate is -0.1"),
    "rates as text": (PLAIN.with_columns(pl.col("rate").cast(pl.String)), "rate holds String"),
    "rates as whole numbers": (PLAIN.with_columns(pl.col("rate").cast(pl.Int64)), "rate holds Int64"),
    "no rates": (constant("rate", None), "rate is empty"),
    "no model": (constant("model", None), "model is empty"),
    "another order": (constant("order", "first"), "order is 'first', expected lerf or morf"),
    "selector as markup": (constant("selector", "<b>x</b>"), "selector is '<b>x</b>'"),
    "selector as lists": (PLAIN.with_columns(selector=pl.concat_list("selector")), "selector holds List"),
    "negative rows": (constant("rows_removed", -5), "rows_removed is -5"),
    "NLL below 0": (constant("nll", -2.0), "nll is -2.0"),
    "no NLL": (constant("nll", math.nan), "nowhere a number"),
    "NLL endless": (constant("nll", math.inf), "nowhere a number"),
    "tokens as fractions": (PLAIN.with_columns(pl.col("tokens").cast(pl.Float64)), "tokens holds Float64"),
    "seeds as text": (PLAIN.with_columns(pl.col("seed").cast(pl.String)), "seed holds String"),
    "flags as NLL": (PLAIN.with_columns(nll=pl.lit(True)), "nll holds Boolean"),
    "dates as NLL": (PLAIN.with_columns(nll=pl.lit(0).cast(pl.Datetime)), "nll holds Datetime"),
    "a column too many": (PLAIN.with_columns(rats=1), "has a column 'rats'"),
    "a column too few": (PLAIN.drop("nll"), "lacks the columns nll"),
    "no columns": (pl.DataFrame(), "lacks the columns model"),
    "no lines": (PLAIN.clear(), "holds no sweep"),
}
IMPORTED = ("no NLL", "NLL endless", "no lines")  # are tables of a sweep all the same: a broken model gives such


def signed(folder: Path, name: str, content: bytes) -> None:
    """Write a file with its true checksum in the manifest."""
    (folder / name).write_bytes(content)
    resealed(folder, name)


def odd_run(folder: Path, table: pl.DataFrame) -> Path:
    write_run(folder)
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    signed(folder, "sweep.parquet", buffer.getvalue())
    return folder


def report(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """`report` as people run it: its exit code and what it said of a failure, one line."""
    out = folder.parent / "report.html"
    code = main(["report", str(folder), "--out", str(out), "--store", str(folder.parent / "store")])
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "Traceback" not in said
    assert out.exists() == (code == 0)
    return code, said


@pytest.mark.parametrize("name", TABLES)
def test_report_and_import_refuse_it(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, told = TABLES[name]
    folder = odd_run(tmp_path / "run", table)
    assert catalogue.run(folder, tmp_path).problem == ""  # signed: only the gate sees it
    code, said = report(folder, capsys)
    assert code == 2
    assert told in said
    if name in IMPORTED:
        importing.import_folder(folder, tmp_path / "results", "mine")
        return
    with pytest.raises(InputError) as error:
        importing.import_folder(folder, tmp_path / "results", "mine")
    assert told in str(error.value)
    assert str(error.value).startswith("sweep.parquet")  # not where the copy lay for a moment
    assert ".import-" not in str(error.value)
    assert list((tmp_path / "results").iterdir()) == []


PARQUET = {
    "no bytes": lambda content: b"",
    "text": lambda content: b"model,selector\n",
    "half": lambda content: content[: len(content) // 2],
    "no footer": lambda content: content[:-20],
    "footer of zeros": lambda content: content[:-200] + bytes(192) + content[-8:],
    "length of the footer": lambda content: content[:-8] + b"\xff\xff\xff\x7fPAR1",
    "magic only": lambda content: b"PAR1PAR1",
}


@pytest.mark.parametrize("change", PARQUET.values(), ids=PARQUET)
def test_signed_files_that_are_no_parquet(change: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "run")
    signed(folder, "sweep.parquet", change((folder / "sweep.parquet").read_bytes()))
    code, said = report(folder, capsys)
    assert code == 2
    assert "sweep.parquet is not readable parquet" in said
    with pytest.raises(InputError, match="sweep.parquet is not readable parquet"):
        importing.import_folder(folder, tmp_path / "results", "mine")


@pytest.mark.parametrize("place", relatives(range(24), range(0, 24, 5)))
def test_signed_parquet_with_a_bit_flipped(place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Anywhere in the file: a report or one line, never another exception (polars may panic)."""
    folder = write_run(tmp_path / "run")
    content = bytearray((folder / "sweep.parquet").read_bytes())
    content[len(content) * place // 24] ^= 1 << place % 8
    signed(folder, "sweep.parquet", bytes(content))
    code, said = report(folder, capsys)
    assert code in (0, 2)
    assert bool(said) == bool(code)
    if code:
        with pytest.raises(InputError):
            importing.import_folder(folder, tmp_path / "results", "mine")


def manifests() -> dict[str, tuple[tuple[str, ...], Any]]:
    entry = ("files", "sweep.parquet")
    return {
        "wall_time_s a text": ((*entry, "wall_time_s"), "x"),
        "wall_time_s endless": ((*entry, "wall_time_s"), math.inf),
        "wall_time_s NaN": ((*entry, "wall_time_s"), math.nan),
        "wall_time_s of 400 digits": ((*entry, "wall_time_s"), 10**400),
        "wall_time_s a flag": ((*entry, "wall_time_s"), True),
        "date a number": ((*entry, "date"), 20261122),
        "spec a text": ((*entry, "spec"), "x"),
        "spec null": ((*entry, "spec"), None),
        "environment null": ((*entry, "environment"), None),
        "files null": (("files",), None), "spec a list": ((*entry, "spec"), [1]),
        "settings a text": ((*entry, "spec"), {"settings": "x"}),
        "seeds a number": ((*entry, "spec"), {"scores": {"seeds": 3}}),
        "environment a list": ((*entry, "environment"), []),
        "libraries a text": ((*entry, "environment"), {"libraries": "x"}), "notes a text": ((*entry, "notes"), "x"),
        "notes of numbers": ((*entry, "notes"), [1]), "sha256 a number": ((*entry, "sha256"), 1),
        "entry null": (entry, None), "entry a text": (entry, "x"), "files a list": (("files",), []),
        "model a text": (("model",), "x"), "model id a list": (("model", "id"), ["x"]),
        "model id no Unicode": (("model", "id"), "x\ud800"), "dtype a number": (("model", "dtype"), 32),
        "published a flag": (("published",), True), "version a text": (("schema_version",), "1"),
        "version a flag": (("schema_version",), True),
        "a name no Unicode": (("files", "\udcff.parquet"), {"sha256": "x"}),
    }  # fmt: skip


@pytest.mark.parametrize("name", manifests())
def test_manifests_with_other_types(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, value = manifests()[name]
    folder = write_run(tmp_path / "results" / "run")
    with edited(folder) as manifest:
        place = manifest
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
    code, said = report(folder, capsys)
    assert code == 2
    assert "manifest.json" in said
    (run,) = catalogue.listed(tmp_path / "results")
    assert "manifest.json" in run.problem
    with pytest.raises(InputError, match=r"manifest\.json"):
        results.read_run(folder)
    with pytest.raises(InputError, match=r"manifest\.json"):
        importing.import_folder(folder, tmp_path / "elsewhere", "mine")


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    write_run(tmp_path / "results" / "fine")
    return tmp_path / "results"


def test_names_that_are_no_unicode_are_shown_as_unreadable(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = write_run(Path(os.fsdecode(os.fsencode(top) + b"/run-\xff\xfe")))
    runs = catalogue.listed(top)
    assert [(run.name, bool(run.problem)) for run in runs] == [("fine", False), ("run-??", True)]
    assert results.find_runs(top) == [top / "fine"]
    app = run_page("runs")
    assert not app.exception
    assert any("the name of this folder" in warning.value for warning in app.warning)
    app.selectbox(key="kept_run").set_value("run-??").run()
    assert not app.exception
    assert report(odd, capsys)[0] in (0, 2)


def test_links_that_lead_back_show_a_run_once(top: Path) -> None:
    (top / "fine" / "again").symlink_to(top)
    (top / "itself").symlink_to("itself")
    (top / "other").symlink_to("another")
    (top / "another").symlink_to("other")
    broken = top / "broken"
    broken.mkdir()
    (broken / "manifest.json").symlink_to("manifest.json")
    looped = write_run(top / "looped")
    (looped / "sweep.parquet").unlink()
    (looped / "sweep.parquet").symlink_to("sweep.parquet")
    runs = {run.name: run.problem for run in catalogue.listed(top)}
    assert runs["fine"] == ""
    assert set(runs) <= {"fine", "looped", "broken"}
    assert "sweep.parquet is missing" in runs["looped"]
    assert top / "fine" in results.find_runs(top)
    with pytest.raises(InputError):
        results.read_run(looped)
    app = run_page("runs")
    assert not app.exception


def test_a_pipe_as_a_manifest_is_not_waited_for(top: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = top / "piped"
    folder.mkdir()
    os.mkfifo(folder / "manifest.json")
    runs = {run.name: run.problem for run in catalogue.listed(top)}
    assert "it is no file" in runs["piped"]
    with pytest.raises(InputError, match="it is no file"):
        build([folder])


def test_tables_that_do_not_go_together_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is what its name says, and yet no report can be made of them."""
    folder = write_run(tmp_path / "run")
    add_table(folder, "stability", stability({"lrp": 0.9}))
    add_table(folder, "verdicts", verdicts())
    moves = pl.DataFrame(
        {
            "model": ["made-up-1B"], "selector": ["lrp"], "limit": ["no-such-limit"], "base_value": ["1"],
            "moved_value": ["2"], "validity": ["faithful"], "specific": ["specific"], "stability": ["stable"],
            "changed": [None],
        },
        schema_overrides={"changed": pl.String},
    )  # fmt: skip
    add_table(folder, "verdict_moves", moves)
    code, said = report(folder, capsys)
    assert code == 2
    assert "its tables do not go together (KeyError" in said


def test_a_zip_goes_through_the_gate_too(tmp_path: Path) -> None:
    folder = odd_run(tmp_path / "run", constant("rate", math.nan))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
    stream.seek(0)
    with pytest.raises(InputError, match=r"^sweep\.parquet: rate is nan"):
        importing.import_zip(stream, tmp_path / "results", "mine")
    assert list((tmp_path / "results").iterdir()) == []
