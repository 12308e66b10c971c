"""Hashes of files: those of the bytes, in both layouts of a hub's cache, and read only as often as needed."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from engine.data.corpora import Windows
from engine.edits.contrasts import checksum as contrast_checksum
from engine.models import hashes
from engine.models.checkpoints import Checkpoint
from engine.models.hashes import file_sha256
from engine.records.errors import InputError
from engine.results.store import checksum as kept_checksum

CONTENT = b"weights " * 1000
Numbers = npt.NDArray[Any]
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OTHER_NAME = hashlib.sha256(b"a name in the storage layer").hexdigest()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hashes, "_known", {})
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read."""
    names: list[str] = []
    real = hashlib.file_digest

    def digest(file: Any, kind: str) -> Any:
        names.append(Path(file.name).name)
        return real(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", digest)
    return names


def cached(repository: Path, *, shared: bool, content: bytes = CONTENT) -> Path:
    """A weight file as the hub's cache keeps it: a link to a blob, which may be a link to the storage layer's blob."""
    snapshot, blobs = repository / "snapshots" / "c0ffee", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    blob = blobs / DIGEST
    if shared:
        store = repository.parent / "blobs" / OTHER_NAME[:2] / OTHER_NAME
        store.parent.mkdir(parents=True)
        store.write_bytes(content)
        blob.symlink_to(os.path.relpath(store, blobs))
    else:
        blob.write_bytes(content)
    file = snapshot / "model.safetensors"
    file.symlink_to(os.path.relpath(blob, snapshot))
    return file


def test_one_hash_in_both_layouts_and_of_a_plain_file(tmp_path: Path) -> None:
    plain = tmp_path / "model.safetensors"
    plain.write_bytes(CONTENT)
    files = [cached(tmp_path / "a", shared=False), cached(tmp_path / "b" / "c", shared=True), plain]
    assert [file_sha256(file) for file in files] == [DIGEST] * 3
    assert len({Checkpoint("m", file.parent, None).weights_hash() for file in files}) == 1


@pytest.mark.parametrize("shared", [False, True])
def test_other_bytes_than_the_hub_stated(tmp_path: Path, shared: bool) -> None:
    file = cached(tmp_path / "r", shared=shared, content=CONTENT[:-1] + b"?")
    with pytest.raises(InputError, match=rf"is damaged: .* the hub states {DIGEST[:12]}…; remove .* fetches it anew"):
        file_sha256(file)


def test_a_name_that_looks_like_a_hash_promises_nothing_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / OTHER_NAME
    file.write_bytes(CONTENT)
    link = tmp_path / "model.safetensors"
    link.symlink_to(file)
    assert file_sha256(link) == DIGEST


def test_a_file_is_read_once_per_state(tmp_path: Path, read: list[str]) -> None:
    file = tmp_path / "w"
    file.write_bytes(CONTENT)
    assert file_sha256(file) == file_sha256(file) == DIGEST
    assert read == ["w"]
    before = file.stat()
    time.sleep(0.05)  # a file system counts time in ticks of a few milliseconds
    file.write_bytes(CONTENT[::-1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the same size and time of change
    assert file_sha256(file) == hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert read == ["w", "w"]


def test_the_next_process_remembers_large_files(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small, gone = tmp_path / "large", tmp_path / "small", tmp_path / "gone"
    for file in (large, gone):
        file.write_bytes(CONTENT)
    small.write_bytes(b"small")
    monkeypatch.setattr(hashes, "_REMEMBER_FROM", len(CONTENT))
    file_sha256(gone)
    gone.unlink()
    file_sha256(small)
    file_sha256(large)
    monkeypatch.setattr(hashes, "_known", {})  # another process
    assert file_sha256(large) == DIGEST
    assert read == ["gone", "small", "large"]
    memory = tmp_path / "store" / "file_hashes.json"
    assert "large" in memory.read_text()
    assert "small" not in memory.read_text()
    assert "gone" not in memory.read_text()
    for damage in ("{", "[]", json.dumps({str(large): {"state": 3}})):
        memory.write_text(damage)
        monkeypatch.setattr(hashes, "_known", {})
        assert file_sha256(large) == DIGEST
    assert read.count("large") == 4


def windows_of(tokens: Numbers) -> str:
    ids = torch.from_numpy(tokens.astype(np.int64))
    numbers = tuple(range(len(ids)))
    return Windows("text", "0", ids, numbers, role="calibration", samples_requested=len(ids)).token_hash


CHECKSUMS: dict[str, tuple[Callable[[Numbers], str], bool]] = {  # the second: may its numbers be of several types?
    "kept arrays": (lambda numbers: kept_checksum("key", {"a": numbers}), True),
    "contrasts": (lambda numbers: contrast_checksum({"a": numbers}), False),
    "tokens": (windows_of, False),
}


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_checksum_tells_shapes_and_types_of_the_same_bytes_apart(name: str) -> None:
    checksum, typed = CHECKSUMS[name]
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
    others = [numbers.reshape(4, 3), numbers.reshape(2, 6), numbers.T, *([numbers.view(np.int32)] if typed else [])]
    assert len({checksum(one) for one in (numbers, *others)}) == 1 + len(others)
    assert checksum(np.asfortranarray(numbers)) == checksum(numbers.copy())
