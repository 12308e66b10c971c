"""The paper as results folders: re-derivable, in the columns of measured tables, with what was printed beside them."""

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from engine.records.manifest import read_manifest
from engine.results.folders import is_published, read_table, table_names
from engine.results.tables import HALF_UNIT, PRINTED, spec
from precomputed import paper_runs_dir
from precomputed.convert_runs import AUDITED, MADE, convert, half_unit, main, table
from precomputed.paper_tables import load_table

FOLDERS = sorted(path.parent for path in paper_runs_dir().glob("*/manifest.json"))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    convert(out)
    return out


def test_the_shipped_folders_are_what_the_conversion_makes(converted: Path) -> None:
    made = {path.relative_to(converted): path.read_bytes() for path in converted.rglob("*") if path.is_file()}
    assert len(made) == len([path for path in paper_runs_dir().rglob("*") if path.is_file()])
    for name, content in made.items():
        shipped = (paper_runs_dir() / name).read_bytes()
        if content != shipped:  # other versions of polars pack the same table in other bytes
            assert lasting(name, content) == lasting(name, shipped), name


def lasting(name: Path, content: bytes) -> Any:
    """What a file says, however it is packed: rows of a table, a manifest without sizes and checksums."""
    if name.suffix == ".parquet":
        frame = pl.read_parquet(io.BytesIO(content))
        return frame.schema, [repr(row) for row in frame.iter_rows()]
    manifest = json.loads(content)
    return {**manifest, "files": {one: {**entry, "sha256": ""} for one, entry in manifest["files"].items()}}


def test_they_stay_small() -> None:
    assert sum(path.stat().st_size for path in paper_runs_dir().rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_every_folder_is_one_model_and_says_that_it_was_published(folder: Path) -> None:
    assert is_published(folder)
    manifest = read_manifest(folder)
    assert manifest["model"] == {"id": folder.name}
    for stem in table_names(folder):
        read = read_table(folder, stem)  # checksum and gate
        assert read["model"].unique().to_list() == [folder.name]
        entry = manifest["files"][f"{stem}.parquet"]
        assert entry["what"].startswith("Published values: ")
        assert bool(entry["spec"]) == (stem in AUDITED)
        keys = [key for key in spec(stem).keys if key in read.columns]
        assert not read.select(keys).is_duplicated().any(), stem


def test_nothing_is_lost_between_the_models() -> None:
    for stem in MADE:
        there = [read_table(folder, stem) for folder in FOLDERS if stem in table_names(folder)]
        assert pl.concat(there).sort(pl.all()).equals(table(stem).sort(pl.all())), stem
    assert table("sweep").height == load_table("lerf_morf_ppl").height
    assert table("operating_points").height == load_table("refusal_operating_points").height


@pytest.mark.parametrize("stem", MADE)
def test_what_was_printed_is_the_value_within_half_a_unit(stem: str) -> None:
    frame = table(stem)
    for name in [name.removesuffix(PRINTED) for name in frame.columns if name.endswith(PRINTED)]:
        shown = frame.select(value=name, printed=f"{name}{PRINTED}", half=f"{name}{HALF_UNIT}").drop_nulls("printed")
        assert shown["half"].null_count() == 0
        scale = 0.01 if stem == "signal_density" else 1.0  # printed in percent, without the sign
        for value, printed, half in shown.iter_rows():
            assert value == pytest.approx(number(printed) * scale, rel=1e-9, abs=1e-12), (name, printed)
            assert 0 < half <= max(abs(value), 1.0)


def number(printed: str) -> float:
    """`11.4k`, `1.54e6`, `1,301`, `52.2%`, `+0.540`, `±0.000`."""
    text = re.sub(r"[,+±%]", "", printed)
    scale = {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)
    return float(text.rstrip("kM")) * scale * (0.01 if printed.endswith("%") else 1.0)


def test_half_units() -> None:
    found = [half_unit(text) for text in ("66.08", "1.54e6", "1,301", ".985", "41.4%", "-0.05", "±0.000")]
    assert found == pytest.approx([0.005, 5000, 0.5, 0.0005, 0.05, 0.005, 0.0005])
    with pytest.raises(ValueError, match="none"):
        half_unit("none")


def test_no_sentence_of_the_paper_is_in_them() -> None:
    """Texts are names and printed numbers: no cell is longer than a few words."""
    for folder in FOLDERS:
        for stem in table_names(folder):
            for column in read_table(folder, stem).select(pl.col(pl.String)):
                longest = column.drop_nulls().str.len_chars().max()
                assert longest is None or int(longest) < 40, (folder.name, stem, column.name)  # type: ignore[call-overload]


def test_a_folder_with_other_files_is_left_as_it_is(converted: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(converted, out)
    (note := next(out.iterdir()) / "note.txt").write_text("mine")
    (other := tmp_path / "other").mkdir()
    (other / "letter.txt").write_text("mine as well")
    for folder in (out, other):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert main(["--out", str(folder)]) == 2
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    note.unlink()
    assert main(["--out", str(out)]) == 0
