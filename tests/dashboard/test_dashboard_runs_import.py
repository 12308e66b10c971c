"""Runs from elsewhere: whole ones come in as they are, anything else leaves no trace."""

import io
import os
import stat
import subprocess
import sys
import zipfile

import pytest
from manifests import edited
from synthetic import add_table, stability, write_run

from dashboard.pages.runs import catalogue, importing
from engine.records.errors import InputError
from engine.records.files import temporary
from engine.records.manifest import read_manifest

LISTED = {"manifest.json", "stability.parquet", "sweep.parquet"}


@pytest.fixture
def source(tmp_path):
    folder = write_run(tmp_path / "elsewhere")
    add_table(folder, "stability", stability({"lrp": 0.9}))
    (folder / "notes.txt").write_text("not part of the run")
    return folder


@pytest.fixture
def top(tmp_path):
    return tmp_path / "results"


def packed(folder, prefix="", extra=(), leave=()):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            if path.name not in leave:
                archive.write(path, prefix + path.name)
        for name, content in extra:
            archive.writestr(name, content)
    stream.seek(0)
    return stream


def refused(top, says, call):
    """The call is an error of one line and leaves nothing behind."""
    before = sorted(path.name for path in top.iterdir()) if top.is_dir() else []
    with pytest.raises(InputError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert (sorted(path.name for path in top.iterdir()) if top.is_dir() else []) == before


def test_a_folder_comes_in_with_what_its_manifest_lists(source, top):
    new = importing.import_folder(source, top, "mine")
    assert {path.name for path in new.iterdir()} == LISTED
    for path in new.iterdir():
        assert path.read_bytes() == (source / path.name).read_bytes()
    (run,) = catalogue.listed(top)
    assert (run.name, run.problem) == ("mine", "")


@pytest.mark.parametrize("prefix", ["", "run/", "../../", "/tmp/x/"])
def test_a_zip_comes_in_wherever_in_it_the_run_lies(source, top, prefix):
    new = importing.import_zip(packed(source, prefix), top, "mine")
    assert {path.name for path in new.iterdir()} == LISTED
    assert read_manifest(new) == read_manifest(source)
    assert [path.name for path in top.parent.iterdir() if path.name != "elsewhere"] == ["results"]


def test_changed_missing_and_foreign_files_are_refused(source, top):
    with (source / "sweep.parquet").open("ab") as stream:
        stream.write(b"x")
    refused(top, "checksum", lambda: importing.import_folder(source, top, "mine"))
    refused(top, "checksum", lambda: importing.import_zip(packed(source), top, "mine"))
    (source / "sweep.parquet").unlink()
    refused(top, "lacks sweep.parquet", lambda: importing.import_folder(source, top, "mine"))
    refused(top, "sweep.parquet is missing", lambda: importing.import_zip(packed(source), top, "mine"))


@pytest.mark.parametrize("name", ["../../evil.parquet", "evil.pkl", "/etc/evil.json"])
def test_names_that_lead_out_or_hold_code_are_refused(source, top, name):
    with edited(source) as manifest:
        manifest["files"][name] = manifest["files"]["sweep.parquet"]
    refused(top, "lists", lambda: importing.import_folder(source, top, "mine"))
    refused(top, "lists", lambda: importing.import_zip(packed(source, extra=[(name, b"x")]), top, "mine"))


def test_links_are_refused(source, top, tmp_path):
    secret = tmp_path / "secret.parquet"
    (source / "sweep.parquet").rename(secret)
    (source / "sweep.parquet").symlink_to(secret)
    refused(top, "lacks sweep.parquet", lambda: importing.import_folder(source, top, "mine"))
    link = zipfile.ZipInfo("sweep.parquet")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    stream = packed(source, extra=[(link, str(secret))], leave=["sweep.parquet"])
    refused(top, "is a link", lambda: importing.import_zip(stream, top, "mine"))


def test_too_much_is_refused_whatever_the_zip_says(source, top, monkeypatch):
    size = sum((source / name).stat().st_size for name in ("sweep.parquet", "stability.parquet"))
    monkeypatch.setattr(importing, "MAX_BYTES", size - 1)
    refused(top, "unpacks to", lambda: importing.import_zip(packed(source), top, "mine"))
    refused(top, "more than", lambda: importing.import_folder(source, top, "mine"))
    monkeypatch.setattr(importing, "MAX_BYTES", size)
    assert importing.import_zip(packed(source), top, "mine").is_dir()
    monkeypatch.setattr(importing, "MAX_FILES", 1)
    refused(top, "more than 1", lambda: importing.import_zip(packed(source), top, "other"))
    monkeypatch.setattr(importing, "MAX_MANIFEST_BYTES", 10)
    refused(top, "manifest.json unpacks to too many", lambda: importing.import_zip(packed(source), top, "other"))


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + b"\0" * 40])
def test_what_is_no_zip_is_one_line(top, content):
    refused(top, "not a readable zip", lambda: importing.import_zip(io.BytesIO(content), top, "mine"))


def test_a_damaged_stream_is_one_line(source, top):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as archive:
        archive.write(source / "manifest.json", "manifest.json")
        start = archive.getinfo("manifest.json").header_offset + 30 + len("manifest.json")
    stream.getbuffer()[start + 4] = 0xFF  # the first of the properties, of which 224 and more are none
    stream.seek(0)
    refused(top, "not a readable zip", lambda: importing.import_zip(stream, top, "mine"))


def test_a_zip_without_a_run_or_with_two_is_refused(source, top, tmp_path):
    refused(
        top, "0 files named manifest.json",
        lambda: importing.import_zip(packed(source, leave=["manifest.json"]), top, "mine"),
    )  # fmt: skip
    second = (source / "manifest.json").read_bytes()
    stream = packed(source, "a/", extra=[("b/manifest.json", second)])
    refused(top, "2 files named manifest.json", lambda: importing.import_zip(stream, top, "mine"))
    refused(top, "no folder", lambda: importing.import_folder(tmp_path / "missing", top, "mine"))


def test_names_are_checked_and_never_taken_twice(source, top):
    for name in ("", "..", "a/b", ".hidden", "a\n"):
        refused(top, "name", lambda name=name: importing.import_folder(source, top, name))
    importing.import_folder(source, top, "mine")
    refused(top, "already", lambda: importing.import_folder(source, top, "mine"))
    assert importing.free_name("mine", top) == "mine-2"
    assert importing.free_name("../ü x", top) == "x"
    assert importing.free_name("..", top) == "run"


def test_a_zip_of_zeros_is_refused_before_they_are_unpacked(source, top):
    with (source / "sweep.parquet").open("wb") as stream:
        stream.truncate(70 * 2**20)
    refused(top, "the zip is not unpacked: .* unpack to", lambda: importing.import_zip(packed(source), top, "mine"))
    assert not (top / "mine").exists()


def test_what_a_killed_server_left_half_imported_goes_and_a_live_one_keeps_its_own(source, top):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    mine = temporary(top / "import").name
    left, living = top / mine.replace(f".{os.getpid()}.", f".{process.pid}."), top / mine
    for folder in (left, living, top / ".import-of-somebody"):
        folder.mkdir(parents=True)
    importing.import_zip(packed(source), top, "mine")
    assert sorted(path.name for path in top.iterdir()) == sorted([mine, ".import-of-somebody", "mine"])
