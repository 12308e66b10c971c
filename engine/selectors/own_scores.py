"""Scores of one's own as selectors: files that anyone's tool wrote (captum, inseq, TransformerLens, a notebook).

    --scores mine=mine.safetensors      the selector `mine`
    --scores mine=a.npz,b.npz           `mine` is the first; all of them are its disjoint draws (**choice**)

What a file may hold stands in `engine.selectors.score_files`. A NAME is a selector of one run: commands, audits and
sessions of the app that give it another file do not meet."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine.models.row_index import RowIndex
from engine.records.errors import InputError
from engine.records.files import make_folder, write_atomic
from engine.records.hashing import Json, file_sha256
from engine.selectors.base import REGISTRY, SelectorInfo, get_selector
from engine.selectors.score_files import ENDINGS, ScoreFile, Scores, read_scores

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.loading import LoadedModel
    from engine.selectors.run import ScoringRun

BASELINES = ("random", "magnitude", "wanda")  # what stands beside them where no other selector is named
KEPT = "score_files"  # folder of a store, and entry of a manifest
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")  # in tables, addresses and names of masks


class OwnScores:
    """The selector of files: its scores are those of the first, or one ranking per seed where that has several."""

    def __init__(self, name: str, files: tuple[ScoreFile, ...]) -> None:
        self.name, self.files = name, files

    def check(self, loaded: LoadedModel) -> None:
        for file in self.files:
            file.on(loaded.rows)

    def score(self, run: ScoringRun) -> Tensor:
        import torch

        values = torch.tensor(self.files[0].on(run.rows))  # a copy: two NAMEs may have one file
        if values.ndim == 2 and len(values) != len(run.seeds):
            seeds = ",".join(str(seed) for seed in range(min(len(values), 9)))
            raise InputError(
                f"{self.files[0].name} has {len(values)} rankings of {self.name}, and the run has {len(run.seeds)} "
                f"seeds; give as many with --seeds {seeds}{',…' if len(values) > 9 else ''}"
            )
        return values


def check_protects(selector: str, rows: RowIndex) -> None:
    """`InputError` where scores of one's own cannot protect rows in `refusal`: several rankings, or scores below 0."""
    for file in get_selector(selector).files[:1]:
        if file.rankings is not None:
            raise InputError(f"{file.name} has {file.rankings} rankings, and rows are protected by one; give [rows]")
        if below := int((file.on(rows) < 0).sum()):
            raise InputError(
                f"{file.name} has {below:,} scores below 0, and rows are protected by how much they matter; give "
                "absolute values"
            )


def draws(selector: str, rows: RowIndex) -> list[Scores]:
    """The scores of every file of a selector of one's own."""
    return [file.on(rows) for file in get_selector(selector).files]


def read_option(text: str, called: str) -> tuple[str, ...]:
    """`a=x,y,b=z` to ('a=x', 'a=y', 'b=z'). Each NAME is a selector from now on. Errors: InputError, also for a file
    that cannot be read."""
    found, name = [], ""
    for piece in filter(None, map(str.strip, text.split(","))):
        head, sign, path = piece.partition("=")
        if sign and _NAME.fullmatch(head):
            name, piece = head, path
        if not name or not piece:
            raise InputError(
                f"{called} takes NAME=FILE, a NAME of letters, digits, _ and -, got {piece!r}; write "
                f"{called} mine=mine.safetensors"
            )
        found.append(f"{name}={piece}")
    register(found, declared=True)
    return tuple(found)


def names_of(files: Sequence[str]) -> list[str]:
    """The NAMEs of `NAME=FILE`, each once."""
    return list(dict.fromkeys(one.partition("=")[0] for one in files))


def register(files: Sequence[str], reduce: str | None = None, *, declared: bool = False) -> None:
    """Makes each NAME of `NAME=FILE` a selector of this thread's run; done again, it is read anew where its file has
    changed. declared: a NAME that has these bytes already stays as it is.

    Errors: InputError for a NAME that another selector has, and for a file that cannot be read."""
    for name in names_of(files):
        if not _NAME.fullmatch(name):
            raise InputError(f"scores are named by letters, digits, _ and -, got {name[:80]!r}; write mine")
        if name in REGISTRY.offered() and name not in REGISTRY.here:
            raise InputError(f"there is a selector {name!r} already; give your scores another NAME")
        paths = [Path(path).expanduser() for key, _, path in (one.partition("=") for one in files) if key == name]
        read = tuple(read_scores(path, reduce) for path in paths)
        known = REGISTRY.here[name][0].files if declared and name in REGISTRY.here else ()
        if [file.sha256 for file in known] == [file.sha256 for file in read]:
            continue
        if len({file.rankings for file in read}) > 1:
            raise InputError(f"the files of {name} have unlike numbers of rankings; give files of one kind")
        info = SelectorInfo(
            name, name, "attribution", True, "none: read from a file", f"s_i as {read[0].name} has it.",
            seeded=read[0].rankings is not None, cache_id=f"file/1/{read[0].sha256}/{reduce or ''}", files=read,
        )  # fmt: skip
        REGISTRY.add_here(name, (info, partial(OwnScores, name, read)))


def record(selectors: Iterable[str], reduce: str | None) -> Json:
    """What a manifest says of the selectors that are of one's own: their files and checksums; {} without any."""
    infos = [info for info in map(get_selector, selectors) if info.files]
    if not infos:
        return {}
    files = {info.id: [{"file": file.name, "sha256": file.sha256} for file in info.files] for info in infos}
    return {KEPT: files, **({"scores_reduce": reduce} if reduce else {})}


def found_again(recorded: Mapping[str, Sequence[Mapping[str, str]]], places: Sequence[Path]) -> tuple[str, ...]:
    """`NAME=FILE` of a manifest's record, among files, and files of folders, that have the recorded bytes.
    Errors: InputError that names the file that is not there, or is another one now."""
    if not recorded:
        return ()
    near = (one for place in places for one in (sorted(place.iterdir()) if place.is_dir() else [place]))
    there = {path: file_sha256(path) for path in near if path.suffix.lower() in ENDINGS and path.is_file()}
    by_hash = {sha256: path for path, sha256 in there.items()}
    found = []
    for name, files in recorded.items():
        for one in files:
            if one["sha256"] not in by_hash:
                now = next(
                    (f", and {path} has {sha[:12]}" for path, sha in there.items() if path.name == one["file"]), ""
                )
                raise InputError(
                    f"the scores {name} were read from {one['file']} (SHA-256 {one['sha256'][:12]}){now}; say where "
                    f"that file is with --text {one['file']}"
                )
            found.append(f"{name}={by_hash[one['sha256']]}")
    return tuple(found)


def keep(store: Path, name: str, content: bytes) -> Path:
    """A file of scores in a store's folder, under its name and SHA-256; the same bytes are kept once."""
    stem, ending = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(name).stem)[:40], Path(name).suffix.lower()
    path = store / KEPT / f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}{ending}"
    if not path.exists():
        make_folder(path.parent, "--store")
        path.parent.chmod(0o700)
        write_atomic(path, content)
    return path


def kept_beside(folder: Path) -> list[Path]:
    """The files that were kept in the store of a results folder."""
    return [place] if (place := folder.absolute().parent.parent / KEPT).is_dir() else []
