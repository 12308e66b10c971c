"""What a command is going to write, checked before it begins: each place is new, or holds its own earlier output."""

import argparse
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from engine.records.errors import InputError
from engine.records.files import PLAIN, FileKind, check_file, check_folder_of, check_new, json_object, what_is
from engine.records.manifest import MANIFEST, MANIFEST_FILE, read_manifest
from engine.records.progress import PROGRESS
from engine.results.places import OWN, check_store, results_dir, store_folder

CONTRAST_FILE, SCORE_FILE, JUDGE_FILE = "contrast.safetensors", "scores.safetensors", "judge.json"
SITE_FILE, SITE_MARK = "site.json", "selector-audit site"
JUDGE_MARK = "refusal judge"  # in the metadata of its tables
JUDGED = ("verdicts", "judge_quality", "judge_agreement", "disagreements")  # tables of `refusal judge`
# If anything; `doctor` says what is wrong with it.
_READ_A_STORE = ("compare", "dashboard", "doctor", "push", "report", "site")
_OF_MODELS = (
    "config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json", "model*.safetensors*",
    "pytorch_model*.bin*", "*.gguf",
)  # fmt: skip


def check(args: argparse.Namespace) -> None:
    """`InputError` for the first place that the command may not write to. Loads no model, and takes no time."""
    writes: Callable[[argparse.Namespace], None] | None = getattr(args, "writes", None)
    if hasattr(args, "store"):
        if args.command not in _READ_A_STORE and (writes is not None or args.store is not None):
            check_store(store_folder(args.store))
        for option in ("out", "progress_file"):
            whole = option == "progress_file" or writes is not results
            _check_outside(getattr(args, option, None), args.store, f"--{option.replace('_', '-')}", whole=whole)
    if writes is not None:
        writes(args)
    if getattr(args, "progress_file", None) is not None:
        check_file(args.progress_file, PROGRESS)
        check_folder_of(args.progress_file, PROGRESS.option, made=False)
        _check_apart(args)


def results(args: argparse.Namespace) -> None:
    """The folder of tables: of no model, and no foreign file under a name that commands write there."""
    if not getattr(args, "shard", None):  # which writes no tables
        check_results_folder(args.out or results_dir(args.store, args.model))


def check_results_folder(folder: Path) -> None:
    """`InputError` where results must not be written: among the files of a model, or over what is none of ours."""
    _check_folder(folder)
    _check_no_model(folder)
    for path in sorted(folder.glob("*")):
        if (kind := _result_kind(path.name)) is not None:
            check_file(path, kind)
    if (folder / MANIFEST).exists():
        read_manifest(folder)  # of a newer version, or changed by hand


def _check_no_model(folder: Path) -> None:
    for pattern in _OF_MODELS:
        if found := next(folder.glob(pattern), None):
            raise InputError(f"{folder} holds a model ({found.name}), and no results go there; give another --out")


def _result_kind(name: str) -> FileKind | None:
    """The kind of a file in a folder of results; None for a name that nothing is written under."""
    from engine.edits.contrasts import CONTRASTS, MASK
    from engine.results.folders import SCORES, TABLE
    from engine.results.tables import TABLES

    path = Path(name)
    if path.suffix == ".parquet" and path.stem in TABLES:
        return TABLE
    if path.suffix == ".safetensors" and path.stem.startswith("mask-"):
        return MASK
    return {MANIFEST: MANIFEST_FILE, SCORE_FILE: SCORES, CONTRAST_FILE: CONTRASTS}.get(name)


def own_results(folder: Path) -> list[Path]:
    """The files of a folder that are results by their content, whether or not a manifest lists them."""
    own = []
    for path in sorted(folder.iterdir()):
        kind = _result_kind(path.name)
        with suppress(InputError):
            if kind is not None and path.is_file():
                check_file(path, kind)
                own.append(path)
    return own


def mask(args: argparse.Namespace) -> None:
    from engine.edits.contrasts import MASK

    _check_one(args.out, MASK)


def report(args: argparse.Namespace) -> None:
    if args.out.suffix not in (".html", ".htm"):
        raise InputError(f"--out must name an .html file, got {args.out}")
    _check_one(args.out, REPORT, made=False)


def _is_report(path: Path) -> bool:
    """By its head, in which those of earlier versions name no generator."""
    with path.open("rb") as stream:
        head = stream.read(4096).lstrip()
    marks = (b'<meta name="generator" content="selector-audit">', b"\n<title>Selector audit: ")
    return head.startswith(b"<!doctype html>") and any(mark in head for mark in marks)


REPORT = FileKind("a report", _is_report)


def site(args: argparse.Namespace) -> None:
    check_site(args.out)


def check_site(folder: Path, names: Iterable[str] = ()) -> None:
    """`InputError` unless the folder is free or holds an earlier site, and none of these names is another's file."""
    _check_folder(folder)
    before = site_files(folder)
    if not before:
        check_new(folder)
    for path in (folder / name for name in names):
        if os.path.lexists(path) and str(path.relative_to(folder)) not in before:
            raise InputError(f"{path} is there already and is no file of the earlier site; give another --out")
        check_file(path, PLAIN)


def site_files(folder: Path) -> dict[str, object]:
    """The files of the site that a folder holds, with the SHA-256 that they were written with; none where it holds none
    of ours. What its list says of places outside of it is not believed."""
    about = json_object(folder / SITE_FILE)
    files = about.get("files") if about.get("generator") == SITE_MARK else None
    if not isinstance(files, dict):
        return {}
    here = folder.resolve()
    inside = {name: digest for name, digest in files.items() if (folder / name).resolve().is_relative_to(here)}
    return {SITE_FILE: "", **inside}


def checkpoint(args: argparse.Namespace) -> None:
    check_new(args.out)
    _check_folder(args.out)


def judged(args: argparse.Namespace) -> None:
    if args.out is not None:
        check_judged_folder(args.out, args.files)


def check_judged_folder(folder: Path, read: Iterable[Path]) -> None:
    """`InputError` where tables of verdicts must not be written: over those of a model, or over a file that is read."""
    _check_folder(folder)
    _check_no_model(folder)
    if (folder / MANIFEST).exists():
        raise InputError(f"{folder} holds the results of a model, whose tables would be lost; give another --out")
    check_file(folder / JUDGE_FILE, JUDGE_RECORD)
    given = {_real(path) for path in read}
    for stem in JUDGED:
        table = folder / f"{stem}.parquet"
        check_file(table, JUDGE_TABLE)
        if _real(table) in given:
            raise InputError(f"{table} is read, and would be written over; give another --out")


def _is_judge_record(path: Path) -> bool:
    return {"judges", "replies", "files", "schema_version"} <= json_object(path).keys()


def _is_judge_table(path: Path) -> bool:
    """Named in the record beside it or, where a process was killed before that was written, marked in itself."""
    from engine.results.folders import mark_of

    record = path.with_name(JUDGE_FILE)
    return mark_of(path) == JUDGE_MARK or (_is_judge_record(record) and path.name in json_object(record)["files"])


JUDGE_RECORD = FileKind("a record of judges", _is_judge_record)
JUDGE_TABLE = FileKind("a table of judges", _is_judge_table)


def _check_one(path: Path, kind: FileKind, *, made: bool = True) -> None:
    check_file(path, kind)
    check_folder_of(path, kind.option, made=made)


def _check_folder(folder: Path) -> None:
    """`InputError` for what is no folder, and for one that cannot be made."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{folder} is {what_is(folder)}, and --out names a folder; give another --out")
    check_folder_of(folder / MANIFEST, "--out", made=True)


def _check_outside(path: Path | None, store: Path | None, option: str, *, whole: bool) -> None:
    """`InputError` for an output among the files of a store, or in its place. whole: nothing else may lie in it."""
    if path is None:
        return
    top, place = _real(store_folder(store)), _real(path)
    if any(place == part or part in place.parents for part in (top / name for name in OWN)):
        raise InputError(f"{path} lies where the store {top} keeps its own files; give another {option}")
    if whole and (place == top or place in top.parents):
        raise InputError(f"{path} is where the store {top} lies; give another {option}")


def _check_apart(args: argparse.Namespace) -> None:
    """`InputError` where the progress file would take the place of another output of the command."""
    out: Path | None = getattr(args, "out", None)
    if out is None:
        return
    told, place = _real(args.progress_file), _real(out)
    names = {JUDGE_FILE, *(f"{stem}.parquet" for stem in JUDGED)}
    taken = args.command == "export" or told.name in names or _result_kind(told.name) is not None
    if told == place or (told.parent == place and taken):
        raise InputError(f"{args.progress_file} is also what --out names; give another --progress-file")


def _real(path: Path) -> Path:
    """Where links lead; those in a circle lead nowhere, and are told elsewhere."""
    return Path(os.path.realpath(path))
