"""A run that was made elsewhere, brought in as a folder of this machine or a zip file.

Nothing of it is trusted: names are plain, kinds are those that commands write, every checksum must fit, sizes are
limited, and the run appears under its name only when all of it is there. Nothing is unpickled or run."""

import lzma
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from dashboard.pages.runs.catalogue import checked_name, entries_of, what_is_wrong
from dashboard.state import access
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import sweep, temporary
from engine.records.manifest import MANIFEST, read_manifest
from engine.results.folders import read_table, table_names

MAX_BYTES, MAX_FILES = bounds.MAX_RUN_BYTES, bounds.MAX_RUN_FILES
MAX_MANIFEST_BYTES = 20 * 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def import_folder(source: Path, top: Path, name: str) -> Path:
    """Copy the run in `source` to `top / name`; returns the new folder.
    Only what its manifest lists is copied, and the copies are checked, not the originals. `InputError` where
    a file is missing, changed or of another kind, and where the name is taken."""
    if not source.is_dir():
        raise InputError(f"there is no folder {source}; give the folder that a command wrote with --out")
    with _new_run(top, name) as new:
        listed = _files_of(source)
        size = sum((source / file).stat().st_size for file in listed if (source / file).is_file())
        if size > MAX_BYTES:
            raise InputError(f"{source} holds {size:,} bytes, more than {MAX_BYTES:,}; copy it by hand")
        for file in (*listed, MANIFEST):
            if (source / file).is_symlink() or not (source / file).is_file():
                raise InputError(f"{source} lacks {file}, which its {MANIFEST} lists; copy the whole folder again")
            shutil.copyfile(source / file, new / file)
        _check(new)
    return top / name


def import_zip(stream: BinaryIO, top: Path, name: str) -> Path:
    """Unpack a zip of one results folder to `top / name`; returns the new folder.
    Only the manifest and the files that it lists are unpacked, wherever in the zip they lie. `InputError` for
    links, missing files, other kinds, too many or too large ones, wrong checksums, and a name that is taken."""
    with _new_run(top, name) as new:
        try:
            with zipfile.ZipFile(cast("BinaryIO", bounds.ShortReads(stream))) as archive:
                _unpack(archive, new)
        except (
            zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError,
            UnicodeDecodeError, struct.error, OverflowError,
        ) as error:  # fmt: skip
            raise InputError(f"this is not a readable zip file ({error}); pack the results folder again") from None
        except bounds.BadFile as error:
            raise InputError(f"the zip is not unpacked: {error}; copy the folder by hand") from None
        _check(new)
    return top / name


def slug(wanted: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("-._")[:80] or "run"


def free_name(wanted: str, top: Path) -> str:
    """`wanted` as a folder name that is not taken in `top`."""
    name = slug(wanted)
    taken = [name, *(f"{name}-{count}" for count in range(2, 10_000))]
    return next(candidate for candidate in taken if not (top / candidate).exists())


@contextmanager
def _new_run(top: Path, name: str) -> Iterator[Path]:
    """A hidden folder that becomes `top / name` when all went well and is gone otherwise."""
    access.need("importing runs")
    if not _NAME.fullmatch(name):
        raise InputError(f"a run's name has letters, digits and . _ - only, got {name!r}")
    try:
        top.mkdir(parents=True, exist_ok=True)
        sweep(top / "import")  # what killed servers left half copied
        hidden = temporary(top / "import")
        hidden.mkdir()
    except OSError as error:
        raise InputError(f"cannot write to {top} ({error.strerror}); start the app on another --store") from None
    try:
        yield hidden
        if (top / name).exists():
            raise InputError(f"there is a run named {name} already; choose another name")
        hidden.rename(top / name)
    except OSError as error:
        raise InputError(f"cannot write to {top} ({error.strerror}); free some space or choose another name") from None
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _unpack(archive: zipfile.ZipFile, new: Path) -> None:
    """The manifest, then the files that it lists and no others: names of the zip never become paths."""
    inside = [entry for entry in archive.infolist() if PurePosixPath(entry.filename).name == MANIFEST]
    if len(inside) != 1:
        raise InputError(f"the zip holds {len(inside)} files named {MANIFEST}; pack one results folder")
    _write(archive, inside[0], new / MANIFEST, MAX_MANIFEST_BYTES)
    prefix, entries = inside[0].filename.removesuffix(MANIFEST), dict[str, zipfile.ZipInfo]()
    for name in _files_of(new):
        try:
            entries[name] = archive.getinfo(prefix + name)
        except KeyError:
            raise InputError(f"{name} is missing, though {MANIFEST} lists it; pack the whole folder again") from None
    packed, unpacks_to = (sum(getattr(one, of) for one in entries.values()) for of in ("compress_size", "file_size"))
    bounds.check_unpacked(packed, unpacks_to, MAX_BYTES)
    for name, entry in entries.items():
        _write(archive, entry, new / name, MAX_BYTES)


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, limit: int) -> None:
    """Unpack one file of at most `limit` bytes. Sizes that the zip states are not trusted."""
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise InputError(f"{entry.filename!r} is a link; pack the files themselves")
    with archive.open(entry) as packed, target.open("xb") as unpacked:
        while chunk := packed.read(2**20):
            limit -= len(chunk)
            if limit < 0:
                raise InputError(f"{target.name} unpacks to too many bytes; copy the folder by hand")
            unpacked.write(chunk)


def _files_of(folder: Path) -> list[str]:
    listed = read_manifest(folder).get("files")
    if not isinstance(listed, dict) or not listed:
        raise InputError(f"{MANIFEST} lists no files, so there is nothing to import")
    if len(listed) > MAX_FILES:
        raise InputError(f"{MANIFEST} lists {len(listed)} files, more than {MAX_FILES}")
    return [checked_name(str(name)) for name in listed]


def _check(new: Path) -> None:
    """The copy is what its manifest says, no more and no less, and its tables are what their names say."""
    for name, entry in entries_of(read_manifest(new)).items():
        if problem := what_is_wrong(new / name, entry):
            raise InputError(f"{problem}; pack or copy the whole folder again")
    for stem in table_names(new):
        try:
            read_table(new, stem)
        except InputError as error:  # named as in the run: where it lies for now tells nothing
            raise InputError(str(error).replace(f"{new}/", "").replace(str(new), "FOLDER")) from None
