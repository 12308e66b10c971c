"""Files that are small on disk and huge when read: refused in one line, from their own metadata, without the memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from engine.data.pairs import read_pairs
from engine.data.texts import json_lines, read_text
from engine.judges.given_replies import read_replies
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.selectors.own_scores import read_scores

SOME = 300_000  # lines of a parquet bomb in a test; of 400 columns it decodes to 1.9 GB


def constant(path: Path, lines: int = SOME, columns: int = 400, kind: pa.DataType | None = None) -> Path:
    """Parquet of constant columns: a few kB on disk."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(lines, np.int8)), pa.array(["a"], kind))
    table = pa.table({f"c{number}": column for number in range(columns)})
    pq.write_table(table, path, compression="zstd", store_schema=False, write_statistics=False)
    return path


def header(path: Path, entries: object, data: int = 0, length: int | None = None) -> Path:
    """A safetensors file with this header; its data is a hole."""
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text)
    os.truncate(path, 8 + len(text) + data)
    return path


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_a_table_is_refused_by_what_its_footer_says(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_DECODED_BYTES", 20_000_000)
    path = constant(tmp_path / "a.parquet", columns=5)
    assert path.stat().st_size < 10_000
    with pytest.raises(bounds.BadFile, match=r"its 300,000 lines of 5 columns decode to 24,\d{3},\d{3} bytes"):
        bounds.parquet(path)
    with pytest.raises(bounds.BadFile, match="300,000 lines, at most 100,000"):
        bounds.parquet(path, 100_000)
    with pytest.raises(bounds.BadFile, match="1,001 columns"):
        bounds.parquet(constant(tmp_path / "wide.parquet", 1, 1001))


def test_real_tables_are_read(tmp_path):
    """Rows of a model of 3.5 million rows with the scores of seven selectors."""
    rows = 3_500_000
    about = {"row_id": pl.Int64, "block": pl.Int64, "sublayer": pl.String, "projection": pl.String, "row": pl.Int64}
    columns = [pl.lit(None, kind).alias(name) for name, kind in about.items()]
    scores = [pl.lit(0.5, pl.Float32).alias(f"score{number}") for number in range(7)]
    pl.select(pl.int_range(rows).alias("n")).with_columns(columns + scores).drop("n").write_parquet(
        tmp_path / "r.parquet"
    )
    assert bounds.check_parquet(tmp_path / "r.parquet") == rows


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 4, b"PAR1" + b"\xff" * 40 + b"\xff\xff\xff\x7fPAR1"])
def test_what_is_no_parquet_is_said(tmp_path, content):
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises((bounds.BadFile, OSError)):
        bounds.parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("levels", [101, 950, 100_000])
def test_json_is_as_deep_as_is_read(tmp_path, levels):
    assert bounds.parsed(nested(100)) is not None
    with pytest.raises(bounds.BadFile, match="more than 100 deep"):
        bounds.parsed(nested(levels))
    manifest = tmp_path / "manifest.json"
    manifest.write_text('{"schema_version": 1, "files": {}, "more": ' + nested(levels) + "}")
    with pytest.raises(
        InputError, match=r"manifest.json is not readable JSON \(lists and objects lie more than 100 deep"
    ):
        read_manifest(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n\n{"text": ' + nested(levels) + "}")
    with pytest.raises(InputError, match=r"a.jsonl line 3 is not JSON \(lists and objects lie"):
        list(json_lines(tmp_path / "a.jsonl"))


def test_files_with_holes_are_not_read(tmp_path):
    for name in ("a.txt", "a.jsonl", "a.csv", "a.json", "manifest.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2**40)
    for name in ("a.txt", "a.jsonl"):
        with pytest.raises(InputError, match=f"{name} is too large: it has 1,099,511,627,776 bytes"):
            read_text(str(tmp_path / name), "evaluation")
    with pytest.raises(InputError, match="1,099,511,627,776 bytes"):
        read_replies(tmp_path / "a.csv")
    with pytest.raises(InputError, match="1,099,511,627,776 bytes"):
        read_pairs(str(tmp_path / "a.json"), "calibration")
    with pytest.raises(InputError, match="1,099,511,627,776 bytes"):
        read_manifest(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_a_device_is_no_file():
    with pytest.raises(OSError, match="no plain file"):
        bounds.content_of(Path("/dev/zero"))


def test_a_gzip_is_unpacked_as_far_as_is_read(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"0" * 1001))
    assert len(bounds.unpacked(tmp_path / "a.gz", 1001)) == 1001
    with pytest.raises(bounds.BadFile, match="unpacks to more than"):
        bounds.unpacked(tmp_path / "a.gz", 1000)


def test_one_text_shared_by_many_lines_is_counted_as_often_as_it_would_be_copied(tmp_path):
    """polars keeps it once; an object for each line would not."""
    path = constant(tmp_path / "a.parquet", 20_000, 1)
    long = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int8)), pa.array(["a" * 50_000]))
    pq.write_table(pa.table({"reply": long}), path, compression="zstd", write_statistics=False, store_schema=False)
    with pytest.raises(InputError, match="its texts have 1,000,000,000 bytes"):
        read_replies(path)


@pytest.mark.parametrize("inside", ["", "list", "object"])
@pytest.mark.parametrize("kind", ["text", "category", "bytes"])
def test_nor_are_categories_bytes_and_what_lies_in_lists_and_objects_more_than_is_read(tmp_path, kind, inside):
    one = pa.array([b"a" * 50_000]) if kind == "bytes" else pa.array(["a" * 50_000])
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(40_000, np.int8)), one)
    if inside == "list":
        column = pa.ListArray.from_arrays(pa.array(np.arange(40_001, dtype=np.int32)), column)
    elif inside == "object":
        column = pa.StructArray.from_arrays([column], ["a"])
    table, path = pa.table({"reply": column, "score": np.zeros(40_000)}), tmp_path / "a.parquet"
    try:  # with the schema, from which categories are known
        pq.write_table(table, path, write_statistics=False, store_schema=kind == "category")
    except pa.ArrowNotImplementedError:
        pytest.skip("nobody writes it so")
    for read in (read_replies, read_scores):
        with pytest.raises(InputError, match=r"its texts have 2,000,\d{3},000 bytes|objects with categories"):
            read(path)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("entries", "data", "says"),
    [
        ({"a": F32 | {"shape": [2**40]}}, 8, "does not fit its 8 bytes"),
        ({"a": F32 | {"shape": [2**61, 2**61]}}, 8, "does not fit"),
        ({"a": F32 | {"shape": [-1, -2]}}, 8, "no whole numbers"),
        ({"a": F32 | {"shape": [2.0]}}, 8, "no whole numbers"),
        ({"a": F32 | {"shape": [1] * 101 + [2]}}, 8, "no whole numbers"),
        ({"a": F32 | {"data_offsets": [8, 0]}}, 8, "no whole numbers"),
        ({"a": F32, "b": F32}, 8, "overlap"),
        ({"a": F32, "b": F32 | {"data_offsets": [16, 24]}}, 24, "holes"),
        ({"a": F32}, 9, "names"),
        ({"a": F32 | {"data_offsets": [0, 2**41], "shape": [2**39]}}, 2**41, "at most"),
        ({"a": []}, 8, "no whole numbers"),
        ([], 0, "is a list"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path, entries, data, says):
    with pytest.raises(bounds.BadFile, match=says):
        bounds.tensors(header(tmp_path / "a.safetensors", entries, data))


def test_a_header_has_the_length_of_its_file_at_most(tmp_path):
    for length in (2**63, 2**30, 200):
        with pytest.raises(bounds.BadFile, match="its header says that it has"):
            bounds.tensors(header(tmp_path / "a.safetensors", {}, length=length))
    os.truncate(header(tmp_path / "a.safetensors", {}, length=2**30), 2**31)
    with pytest.raises(bounds.BadFile, match="at most 33,554,432"):
        bounds.tensors(tmp_path / "a.safetensors")


def test_what_the_library_writes_is_read_and_weights_have_no_bound(tmp_path):
    arrays = {"a": np.ones((2, 3), np.float32), "b": np.zeros((0, 5), np.int64), "c": np.ones(7, np.float16)}
    save_file(arrays, tmp_path / "a.safetensors", metadata={"x": "y"})
    found = bounds.tensors(tmp_path / "a.safetensors")
    assert {name: one.shape for name, one in found.items()} == {name: one.shape for name, one in arrays.items()}
    content = (tmp_path / "a.safetensors").read_bytes()
    assert content[found["a"].start : found["a"].stop] == arrays["a"].tobytes()
    weights = {"w": F32 | {"shape": [2**39], "data_offsets": [0, 2**41]}}
    assert bounds.tensors(header(tmp_path / "w.safetensors", weights, 2**41), None)["w"].shape == (2**39,)


def test_the_directory_of_a_zip_is_not_read_beyond_its_bound():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for number in range(5_000):
            archive.writestr(f"{number:01000}", b"")
    with pytest.raises(bounds.BadFile, match="its directory has"):
        zipfile.ZipFile(bounds.ShortReads(stream))  # type: ignore[arg-type]


def test_a_zip_that_holds_nothing_but_zeros_is_not_unpacked():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(70 * 2**20))
    with pytest.raises(bounds.BadFile, match="unpack to 73,400,320 bytes"):
        bounds.check_unpacked(len(stream.getvalue()), 70 * 2**20, 2**31)
    with pytest.raises(bounds.BadFile, match="at most 1,000"):
        bounds.check_unpacked(1001, 1001, 1000)
    bounds.check_unpacked(2**20, 70 * 2**20, 2**31)


READERS = """
import resource, sys
from pathlib import Path
import polars, pyarrow.parquet
from dashboard.pages.runs.importing import import_zip
from engine.data.pairs import read_pairs
from engine.data.prompt_sets import read_prompt_sets
from engine.data.texts import read_text
from engine.edits.contrasts import load_contrasts, read_mask
from engine.edits.exporting import read_header
from engine.judges.given_replies import read_replies
from engine.records.errors import InputError
from engine.results.folders import read_table
folder = Path(sys.argv[1])
polars.read_parquet(folder / "small.parquet")
used = lambda: int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used() + 2**30, used() + 2**30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for read in (
    lambda: read_table(folder, "mine"),
    lambda: import_zip((folder / "run.zip").open("rb"), folder / "top", "x"),
    lambda: read_replies(folder / "mine.parquet"),
    lambda: read_replies(folder / "holes.csv"),
    lambda: read_prompt_sets([f"harmful={folder / 'holes.jsonl'}"]),
    lambda: read_text(str(folder / "holes.txt"), "evaluation"),
    lambda: read_pairs(str(folder / "holes.json"), "calibration"),
    lambda: read_mask(folder / "holes.safetensors", 1000),
    lambda: load_contrasts(folder / "holes.safetensors"),
    lambda: read_header(folder / "header.safetensors"),
):
    try:
        read()
    except InputError as error:
        print(f"refused: {str(error)!r}")
    else:
        print("READ")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.long  # a process of its own, with torch
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_no_bomb_takes_memory_or_ends_the_process(tmp_path):
    """Every reader on a file that would be gigabytes when read, in a process that may have 1 GiB more than it has."""
    constant(tmp_path / "small.parquet", 1, 1)
    content = constant(tmp_path / "mine.parquet").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    manifest = {"schema_version": 1, "model": {"id": "m"}, "files": {"mine.parquet": {"sha256": digest}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with zipfile.ZipFile(tmp_path / "run.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("manifest.json", "mine.parquet"):
            archive.write(tmp_path / name, name)
    for name in ("holes.csv", "holes.jsonl", "holes.txt", "holes.json"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 2**34)
    entry = {"dtype": "I64", "shape": [2**31], "data_offsets": [0, 2**34]}
    header(tmp_path / "holes.safetensors", {"__metadata__": {"manifest": "{}", "sha256": ""}, "removed": entry}, 2**34)
    os.truncate(header(tmp_path / "header.safetensors", {}, length=2**33), 2**34)
    done = subprocess.run([sys.executable, "-c", READERS, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *lines, grown_mib = done.stdout.splitlines()
    assert len(lines) == 10
    assert all(line.startswith("refused: ") and "\\n" not in line for line in lines), lines
    assert int(grown_mib) < 150, lines
