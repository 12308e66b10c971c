"""What a manifest's entries share is written once and read as if it stood in each; one text is parsed once."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

import precomputed
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, add_to_manifest, drop_from_manifest, read_manifest, write_manifest

SHIPPED = precomputed.demo_dir() / "results"
LONG: dict[str, Any] = {"scores": {"selectors": ["lrp", "ig"], "note": None, "loss": 1e400}, "letters": "é\u2028" * 40}
MODEL = {"id": "m", "weights_hash": "a" * 64, "dtype": "float32"}


def stored(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text())


def with_files(folder: Path, **specs: dict[str, Any]) -> Path:
    """A folder in which each of these files was added with its spec."""
    for name, spec in specs.items():
        (folder / name).write_bytes(name.encode())
        add_to_manifest(folder, MODEL, name, spec, 1.0)
    return folder


def test_what_entries_share_stands_once_and_is_read_in_each(tmp_path: Path) -> None:
    with_files(tmp_path, one=LONG, two=LONG, other={"short": 1}, third={"short": 1})
    (tmp_path / "one").write_bytes(b"changed")
    entry = add_to_manifest(tmp_path, MODEL, "one", LONG, 2.0)
    text, files = (tmp_path / MANIFEST).read_text(), read_manifest(tmp_path)["files"]
    assert text.count('"selectors"') == text.count('"python"') == 1
    assert stored(tmp_path)["schema_version"] == 2
    assert files["one"] == entry
    assert [files[name]["spec"] for name in ("one", "two", "other", "third")] == [
        LONG, LONG, {"short": 1}, {"short": 1},
    ]  # fmt: skip
    assert read_manifest(tmp_path).keys() == {"files", "model", "schema_version"}
    drop_from_manifest(tmp_path, ["two", "other", "third"])
    assert stored(tmp_path) == read_manifest(tmp_path) == {"files": {"one": entry}, "model": MODEL, "schema_version": 1}


@pytest.mark.parametrize("folder", [SHIPPED, *precomputed.paper_runs_dir().glob("*")], ids=lambda path: path.name)
def test_the_shipped_ones_read_as_the_long_form_reads(folder: Path, tmp_path: Path) -> None:
    long = json.dumps(read_manifest(folder), indent=1, sort_keys=True)
    (tmp_path / MANIFEST).write_text(long)
    assert json.dumps(read_manifest(tmp_path), indent=1, sort_keys=True) == long
    write_manifest(tmp_path, read_manifest(tmp_path))
    assert (tmp_path / MANIFEST).read_bytes() == (folder / MANIFEST).read_bytes()


@pytest.mark.parametrize("field", ["spec", "environment", "numerics"])
def test_a_name_of_nothing_is_one_clear_error(field: str, tmp_path: Path) -> None:
    manifest = stored(with_files(tmp_path, one=LONG, two=LONG))
    manifest["files"]["two"][field] = "0123456789abcdef"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=f"two: {field} names '0123456789abcdef', which shared does not hold"):
        read_manifest(tmp_path)


def test_few_bytes_do_not_stand_for_very_many(tmp_path: Path) -> None:
    files = {f"{number}": {"sha256": "0", "spec": "a"} for number in range(1000)}
    manifest = {"schema_version": 2, "files": files, "shared": {"a": {"text": "x" * (bounds.MAX_JSON_BYTES // 900)}}}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="its entries hold .* at most"):
        read_manifest(tmp_path)


def test_it_is_read_only_and_its_copies_are_not(tmp_path: Path) -> None:
    manifest = read_manifest(with_files(tmp_path, one=LONG, two=LONG))
    scores = manifest["files"]["two"]["spec"]["scores"]
    for change in (
        lambda: manifest.update(a=1),
        lambda: manifest["files"].pop("one"),
        lambda: scores.setdefault("seeds", []),
        lambda: scores["selectors"].append("wanda"),
        lambda: scores["selectors"].sort(),
        lambda: scores["selectors"].__setitem__(0, "wanda"),
    ):
        with pytest.raises(TypeError, match="cannot be changed; copy it first"):
            change()
    for copied in (copy.deepcopy(scores), json.loads(json.dumps(scores))):
        copied["selectors"].append("wanda")
    assert read_manifest(tmp_path)["files"]["one"]["spec"] == LONG


def test_another_text_of_the_same_size_and_time_is_read(tmp_path: Path) -> None:
    with_files(tmp_path, one={"rate": 0.1})
    path = tmp_path / MANIFEST
    before, text = path.stat(), path.read_text()
    assert read_manifest(tmp_path)["files"]["one"]["spec"] == {"rate": 0.1}
    path.write_text(text.replace("0.1}", "0.7}"))  # the same inode, too
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)
    assert read_manifest(tmp_path)["files"]["one"]["spec"] == {"rate": 0.7}
