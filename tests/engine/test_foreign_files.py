"""No command writes over what it did not write: each output is new, its own earlier one, or refused before any work."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from foreign_files import FOREIGN, MODEL, OWN, folder, linked, own_mask, pipe, table, text

from engine.cli import main
from engine.commands import outputs
from engine.commands.outputs import check_results_folder
from engine.edits.contrasts import write_mask
from engine.records.errors import InputError
from engine.records.files import FileKind
from engine.records.shipped import demo_dir
from engine.results.folders import write_tables
from engine.results.running import running
from engine.results.store import Store

pytestmark = pytest.mark.usefixtures("one_parser")

ANSWERS = "reply,label\nI cannot help with that.,1\nSure.,0\n"


@pytest.fixture(autouse=True)
def no_work(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Whoever begins to work in these tests fails: everything is refused before."""
    if "works" in request.fixturenames:
        return

    def begins(*_: object, **__: object) -> None:
        raise AssertionError("the command began to work")

    for name in ("models.loading.load_sketch", "models.loading.load_model", "models.checkpoints.find_checkpoint"):
        monkeypatch.setattr(f"engine.{name}", begins)
    monkeypatch.setattr("engine.judges.base.open_judges", begins)
    monkeypatch.setattr("dashboard.report.html_report.build", begins, raising=False)


@pytest.fixture
def works() -> None:
    """Marks a test whose commands do work."""


def state(top: Path) -> dict[str, tuple[int, bytes]]:
    """Kind, mode and bytes of everything below a folder."""
    found = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(top))] = (status.st_mode, content)
    return found


def commands(out: str, tmp: Path) -> dict[str, list[str]]:
    """Every command that writes a file of a name that is given, with `out` as that name."""
    replies = tmp.parent / f"{tmp.name}-replies.csv"
    replies.write_text(ANSWERS)
    model = ["--store", str(tmp.parent / f"{tmp.name}-store")]
    progress = ["--progress-file", out, *model]
    return {
        "mask": ["mask", "demo", "--selector", "magnitude", "--rate", "0.1", "--out", out, *model],
        "report": ["report", "demo", "--out", out, *model],
        "progress of score": ["score", "demo", *progress],
        "progress of mask": ["mask", "demo", "--selector", "lrp", "--rate", "0.1", "--out", f"{out}.new", *progress],
        "progress of doctor": ["doctor", *progress],
        "progress of fetch": ["fetch", "demo", *progress[:2]],
        "progress of rows": ["rows", "demo", *progress[:2]],
        "progress of judge": ["refusal", "judge", str(replies), *progress[:2]],
        "progress of replay": ["replay", str(demo_dir() / "results"), *progress],
        "progress of merge": ["merge", str(tmp), *progress],
    }


OF_COMMANDS = list(commands("", Path("/tmp/none")))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    (line,) = err.strip().splitlines()
    assert not out
    assert re.search("--(out|store|progress-file)", line), line
    return line


VICTIMS = [*FOREIGN, *(f"own {name}" for name in OWN)]
WHOLE = ("mask", "report", "progress of score")  # the others write through the same functions: every fifth victim


@pytest.mark.parametrize(
    ("command", "victim"),
    [(name, one) for place, name in enumerate(OF_COMMANDS) for number, one in enumerate(VICTIMS)
     if name in WHOLE or (number + place) % 5 == 0],
)  # fmt: skip
def test_a_file_of_another_kind_is_refused(
    command: str, victim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = command.split()[0]
    put = FOREIGN.get(victim) or OWN[victim.removeprefix("own ")]
    if victim == f"own {kind}":
        pytest.skip("its own earlier output")
    path = tmp_path / ("victim.html" if kind == "report" else "victim")
    put(path)
    before = state(tmp_path)
    line = refused(commands(str(path), tmp_path)[command], capsys)
    assert str(path) in line
    assert state(tmp_path) == before


RESULT_NAMES = {
    "manifest.json": ("text", "config", "other_manifest", "folder", "pipe", "device", "own mask", "own progress"),
    "scores.safetensors": ("weights", "tensors", "text", "dangling", "own mask", "own contrasts", "link to weights"),
    "contrast.safetensors": ("weights", "text", "own scores", "own mask"),
    "rows.parquet": ("table", "text", "folder", "own table"),
    "sweep.parquet": ("table", "text", "read_only", "link to pipe"),
    "verdicts.parquet": ("table", "own table"),
    "mask-lrp-hate.safetensors": ("weights", "tensors", "text", "own contrasts", "listening"),
}


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no such file system here")
@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys"])
def test_a_folder_that_takes_no_files_is_refused_though_it_may_be_written_to(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the system lets root do in such a place is not what can be done there."""
    for command in ("sweep demo", "refusal run demo", "mask demo --selector lrp --rate 0.1"):
        name = f"{folder}/new.safetensors" if "mask" in command else f"{folder}/new"
        line = refused([*command.split(), "--out", name, "--store", str(tmp_path / "store")], capsys)
        assert f"cannot write to the folder {folder} (" in line
    assert "--store" in refused(["sweep", "demo", "--store", f"{folder}/store"], capsys)


MODEL_NAMES = ("config.json", "model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.json", "a.gguf")
OF_FOLDERS = ["score demo", "sweep demo", "analyze demo", "refusal run demo", "refusal compose demo"]


@pytest.mark.first_run("^manifest|-text$|own|link")
@pytest.mark.parametrize(
    ("name", "victim"), [(name, victim) for name, victims in RESULT_NAMES.items() for victim in victims]
)
def test_no_result_takes_the_place_of_another_file(
    name: str, victim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (FOREIGN.get(victim) or OWN[victim.removeprefix("own ")])(out / name)
    before = state(out)
    for command in OF_FOLDERS:
        line = refused([*command.split(), "--out", str(out), "--store", str(tmp_path / "store")], capsys)
        assert name in line
    assert state(out) == before
    default = tmp_path / "second" / "results" / "demo"  # the same without --out
    default.parent.mkdir(parents=True)
    out.rename(default)
    assert name in refused(["sweep", "demo", "--store", str(tmp_path / "second")], capsys)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_no_results_go_among_the_files_of_a_model(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b"a model")
    before = state(tmp_path)
    for command in OF_FOLDERS:
        assert "holds a model" in refused([*command.split(), "--out", str(tmp_path)], capsys)
    assert "holds other files" in refused(["sweep", "demo", "--store", str(tmp_path)], capsys)
    assert "not empty" in refused(["export", "demo", "--mask", "none", "--out", str(tmp_path)], capsys)
    assert state(tmp_path) == before


@pytest.mark.parametrize("victim", ["text", "pipe", "device", "listening", "dangling", "link to text"])
@pytest.mark.parametrize("below", ["", "/a/b"])
def test_what_is_no_folder_holds_no_output(
    victim: str, below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, replies = tmp_path / "place", tmp_path / "replies.csv"
    FOREIGN[victim](place)
    replies.write_text(ANSWERS)
    before, out, store = state(tmp_path), f"{place}{below}", str(tmp_path / "store")
    for command in (*OF_FOLDERS, "export demo --mask none"):
        refused([*command.split(), "--out", out, "--store", store], capsys)
    refused(["refusal", "judge", str(replies), "--out", out], capsys)
    if victim != "dangling" or below:
        refused(["mask", "demo", "--selector", "lrp", "--rate", "0.1", "--out", f"{out}/m", "--store", store], capsys)
    for command in ("sweep demo", "merge a", "replay a", "mask demo --selector lrp --rate 0.1 --out m"):
        refused([*command.split(), "--store", out], capsys)
    assert state(tmp_path) == before


def test_a_store_begins_in_no_folder_of_somebody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine"
    (mine / "results").mkdir(parents=True)
    (mine / "results" / "thesis.txt").write_text("years of work")
    (mine / "letter.txt").write_text("dear all")
    mine.chmod(0o755)
    before = state(tmp_path)
    for command in ("sweep demo", "score demo", "merge x", "refusal sweep demo", "replay x"):
        assert "letter.txt" in refused([*command.split(), "--store", str(mine)], capsys)
    assert state(tmp_path) == before
    for store in (tmp_path / "new", tmp_path / "empty", tmp_path / "hidden"):
        store.mkdir(exist_ok=True)
        (tmp_path / "hidden" / ".DS_Store").write_text("") if store.name == "hidden" else None
        Store(store).close()
        (store / "note.txt").write_text("beside a store")
        Store(store).close()  # which it is now


def test_looking_for_runs_removes_nobodys_records(tmp_path: Path) -> None:
    (tmp_path / "running").mkdir()
    (tmp_path / "running" / "marathon.json").write_text("{}")
    assert running(tmp_path) == []
    assert state(tmp_path / "running").keys() == {"marathon.json"}


@pytest.mark.parametrize("part", ["cells", "cells/cache.db", "arrays", "arrays/deep/er", "damaged", "running/a"])
def test_no_output_goes_where_a_store_keeps_its_own(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "store") as store:
        store.put("kept", {"nll": 1.5})
    before, place = state(tmp_path), str(tmp_path / "store" / part)
    for command in ("sweep demo --out", "mask demo --selector lrp --rate 0.1 --out", "report demo --out"):
        out = place + "/a.html" * ("report" in command)
        refused([*command.split(), out, "--store", str(tmp_path / "store")], capsys)
    refused(["score", "demo", "--progress-file", f"{place}", "--store", str(tmp_path / "store")], capsys)
    assert state(tmp_path) == before


def test_no_output_takes_the_place_of_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "place"
    for store in (place, place / "store"):
        for command in ("mask demo --selector lrp --rate 0.1 --out", "export demo --mask m --out"):
            assert "the store" in refused([*command.split(), str(place), "--store", str(store)], capsys)
        assert "the store" in refused(["score", "demo", "--progress-file", str(place), "--store", str(store)], capsys)
    assert state(tmp_path) == {}


def test_what_is_read_is_not_written_over(works: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replies = tmp_path / "replies.csv"
    replies.write_text(ANSWERS)
    assert "is a file" in refused(["refusal", "judge", str(replies), "--out", str(replies)], capsys)
    out = tmp_path / "out"
    for _ in range(2):  # its own earlier tables are written anew
        assert main(["refusal", "judge", str(replies), "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} >= {"judge.json", "verdicts.parquet", "judge_quality.parquet"}
    before = state(out)
    verdicts = out / "verdicts.parquet"
    assert "is read" in refused(["refusal", "judge", str(verdicts), "--out", str(out)], capsys)
    assert "verdicts.parquet" in refused(["sweep", "demo", "--out", str(out)], capsys)  # another kind of that name
    assert state(out) == before
    shutil.copytree(out, tmp_path / "later")
    (tmp_path / "later" / "judge.json").unlink()  # as a process leaves it that is killed before its last file
    assert main(["refusal", "judge", str(replies), "--out", str(tmp_path / "later")]) == 0
    table(tmp_path / "later" / "verdicts.parquet")
    (tmp_path / "later" / "judge.json").unlink()
    assert "verdicts.parquet" in refused(["refusal", "judge", str(replies), "--out", str(tmp_path / "later")], capsys)


@pytest.mark.long
def test_own_earlier_outputs_are_written_anew(works: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, mask, told, report = tmp_path / "out", tmp_path / "deep" / "m", tmp_path / "p.json", tmp_path / "r.html"
    few = ["--selectors", "magnitude", "--rates", "0,0.3", "--eval-samples", "2", "--eval-length", "16"]
    few += ["--orders", "lerf", "--device", "cpu"]
    store = ["--store", str(tmp_path / "store"), "--progress-file", str(told), "--json"]
    for _ in range(2):
        assert main(["sweep", "demo", *few, "--out", str(out), *store]) == 0, capsys.readouterr().err
        assert main(["mask", "demo", "--selector", "magnitude", "--rate", "0.1", "--out", str(mask), *store]) == 0
        assert main(["report", str(out), "--out", str(report), *store]) == 0
        (out / "manifest.json").unlink() if _ else None
    check_results_folder(out)  # as a process leaves it that is killed before the manifest
    for path, other in ((mask, report), (told, mask), (report, told)):
        shutil.copyfile(path, tmp_path / "kept")
        shutil.copyfile(other, path)
        with pytest.raises(InputError, match="is not a"):
            outputs.check_file(path, {mask: outputs_of("MASK"), told: outputs.PROGRESS, report: outputs.REPORT}[path])
        shutil.copyfile(tmp_path / "kept", path)


def outputs_of(name: str) -> FileKind:
    from engine.edits import contrasts

    kind: FileKind = getattr(contrasts, name)
    return kind


def test_a_table_of_a_plug_in_is_known_by_its_mark(tmp_path: Path) -> None:
    own = {"of-a-plug-in": pl.DataFrame({"a": [1]})}
    write_tables(tmp_path, own, MODEL, {}, 0.1)
    (tmp_path / "manifest.json").unlink()
    write_tables(tmp_path, own, MODEL, {}, 0.1)
    (tmp_path / "manifest.json").unlink()
    table(tmp_path / "of-a-plug-in.parquet")
    with pytest.raises(InputError, match="not a table that this software wrote"):
        write_tables(tmp_path, own, MODEL, {}, 0.1)


def test_what_comes_between_check_and_write_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mask"
    fsync = os.fsync

    def late(number: int) -> None:
        fsync(number)
        if not path.exists():
            path.write_text("somebody was faster")

    monkeypatch.setattr(os, "fsync", late)
    with pytest.raises(InputError, match="there already"):
        own_mask(path)
    assert path.read_text() == "somebody was faster"
    assert [one.name for one in tmp_path.iterdir()] == ["mask"]


def test_names_on_the_way_take_nobodys_place(tmp_path: Path) -> None:
    from engine.records.files import temporary

    for put in (text, folder, pipe, linked(text)):
        place = tmp_path / put.__name__
        place.mkdir()
        put(taken := temporary(place / "mask"))
        before = state(place)
        own_mask(place / "mask")
        assert {name: kept for name, kept in state(place).items() if name != "mask"} == before
        assert temporary(place / "mask") != taken


def test_a_second_name_of_a_file_keeps_its_bytes(tmp_path: Path) -> None:
    own_mask(tmp_path / "mask")
    os.link(tmp_path / "mask", tmp_path / "second")
    before = (tmp_path / "second").read_bytes()
    write_mask(tmp_path / "mask", np.arange(7), MODEL, {})
    assert (tmp_path / "second").read_bytes() == before != (tmp_path / "mask").read_bytes()
