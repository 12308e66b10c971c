"""The runs of a results folder: which there are, what is in them, whether they are whole; deleting one, and bringing
one in that was made elsewhere, as a folder of this machine or a zip file.

Nothing of what is brought in is trusted: names are plain, kinds are those that commands write, every checksum must fit,
sizes are limited, and the run appears under its name only when all of it is there. Nothing is unpickled or run."""

import lzma
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

import polars as pl

from dashboard.state import access, results
from engine.commands.outputs import own_results
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import json_object, sweep, temporary
from engine.records.hashing import file_sha256
from engine.records.manifest import MANIFEST, is_manifest, read_manifest
from engine.records.model_names import model_name
from engine.results.folders import read_table, table_names

results_dir, store_dir = results.results_dir, results.store_dir
WRITTEN = frozenset((".parquet", ".safetensors", ".json", ".jsonl", ".html"))  # what commands leave in a run
MAX_BYTES, MAX_FILES = bounds.MAX_RUN_BYTES, bounds.MAX_RUN_FILES
MAX_MANIFEST_BYTES = 20 * 2**20
_CHUNK = 2**20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Run:
    """A folder with a manifest. `problem` is empty where every file is there and fits its checksum."""

    name: str  # relative to the results folder
    folder: Path
    model: str
    files: tuple[str, ...]
    measured: str  # day of the newest file, empty where no date is known
    size_bytes: int
    problem: str
    model_id: str = ""  # what a command takes, "" where that is not known

    @property
    def tables(self) -> list[str]:
        return sorted(Path(name).stem for name in self.files if name.endswith(".parquet"))


def listed(top: Path) -> list[Run]:
    """Every folder at or below `top` with a manifest, by name. An absent `top` has none."""
    found = {path.parent for path in results.below(top, MANIFEST, odd=True)}
    visible = [folder for folder in found if not any(part.startswith(".") for part in folder.relative_to(top).parts)]
    return [run(folder, top) for folder in sorted(visible)]


def run(folder: Path, top: Path) -> Run:
    """One run; what is wrong with it is its `problem`, never an error."""
    name, size = results.shown(folder.relative_to(top) if folder != top else folder.name), 0
    try:
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        if results.shown(folder) != str(folder):
            raise InputError("the name of this folder is not UTF-8, so that its results cannot be named; rename it")
        manifest = read_manifest(folder)
        entries = _entries(manifest)
        of = manifest.get("model") or {"id": "unknown"}
        problem = "; ".join(filter(None, (_wrong(folder / file, entry) for file, entry in entries.items())))
        dated = max((str(entry.get("date", ""))[:10] for entry in entries.values()), default="")
        return Run(name, folder, model_name(of), tuple(sorted(entries)), dated, size, problem, str(of.get("id", "")))
    except (InputError, OSError) as error:
        return Run(name, folder, "unknown", (), "", size, results.shown(str(error)))


def provenance(found: Run) -> dict[str, Any]:
    """The manifest as it was written. `InputError` where it is broken."""
    if results.shown(found.folder) != str(found.folder):
        raise InputError(found.problem)
    return read_manifest(found.folder)


def files(found: Run) -> pl.DataFrame:
    """One row per file of the manifest: file, rows (tables), bytes, date, seconds, state."""
    rows = []
    for name, entry in _entries(provenance(found)).items():
        path = found.folder / name
        size = path.stat().st_size if path.is_file() else None
        about = (str(entry.get("date", "")), entry.get("wall_time_s"), _wrong(path, entry) or "as written")
        rows.append((name, results.height(path), size, *about))
    schema: dict[str, Any] = {"file": pl.String, "rows": pl.Int64, "bytes": pl.Int64, "date": pl.String}
    schema |= {"seconds": pl.Float64, "state": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row", strict=False)


def checked_name(name: str) -> str:
    """A file name that a manifest may list: plain, visible, of a kind that commands write. `InputError` otherwise."""
    plain = name == Path(name).name and "\\" not in name and not name.startswith(".")
    if not plain or Path(name).suffix not in WRITTEN or name == MANIFEST:
        raise InputError(
            f"{MANIFEST} lists {name!r}; a run holds files named *{', *'.join(sorted(WRITTEN))} without folders"
        )
    return name


def delete(folder: Path, top: Path) -> list[str]:
    """Delete a run below `top`: the files that its manifest lists, and the manifest; where that is damaged, the files
    that are results by their content. Returns what was left in place.
    Nothing else is touched, no folder inside it either; the folder goes when it is empty. `InputError` for a
    folder that is not inside `top` (links are followed first) or holds no manifest of ours."""
    access.need("deleting runs")
    real, inside = folder.resolve(), top.resolve()
    if folder.is_symlink() or inside not in real.parents:
        raise InputError(f"{folder} is not inside {top}; only runs of this folder can be deleted here")
    own = [real / name for name in _entries(read_manifest(real))] if is_manifest(real / MANIFEST) else own_results(real)
    damaged = (real / MANIFEST).is_file() and not json_object(real / MANIFEST) and own
    if not is_manifest(real / MANIFEST) and not damaged:
        raise InputError(
            f"{folder} holds no {MANIFEST} that this software wrote, so it is not a run; delete it yourself if you are "
            "sure"
        )
    # The manifest goes last: until then the rest of an interrupted deletion is still offered for deletion.
    for path in [*own, real / MANIFEST]:
        path.unlink(missing_ok=True)
    left = sorted(path.name for path in real.iterdir())
    if not left:
        real.rmdir()
    return left


def _entries(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    entries = manifest.get("files")
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise InputError(f"{MANIFEST} lists no files; delete the folder and run the command again")
    return {checked_name(str(name)): entry for name, entry in entries.items()}


def _wrong(path: Path, entry: dict[str, Any]) -> str:
    if not path.is_file():
        return f"{path.name} is missing"
    return "" if _hash(path) == entry.get("sha256") else f"{path.name} does not fit its checksum"


_hash = results.while_unchanged(512, lambda path: (path,))(file_sha256)


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
        while chunk := packed.read(_CHUNK):
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
    for name, entry in _entries(read_manifest(new)).items():
        if problem := _wrong(new / name, entry):
            raise InputError(f"{problem}; pack or copy the whole folder again")
    for stem in table_names(new):
        try:
            read_table(new, stem)
        except InputError as error:  # named as in the run: where it lies for now tells nothing
            raise InputError(str(error).replace(f"{new}/", "").replace(str(new), "FOLDER")) from None
