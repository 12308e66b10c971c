"""Scores of one's own as selectors: files that anyone's tool wrote (captum, inseq, TransformerLens, a notebook).
No torch.

    --scores mine=mine.safetensors      the selector `mine`
    --scores mine=a.npz,b.npz           `mine` is the first; all of them are its disjoint draws (**choice**)

A NAME is a selector of one run: commands, audits and sessions of the app that give it another file do not meet.

| file | holds |
|---|---|
| .safetensors, .npz | a tensor [rows] for each Linear under its module's name, which `.weight` may follow |
| the same | [rows, columns] instead, a_ij per weight: s_i = sum_j abs(a_ij), only with `--scores-reduce abs-sum` |
| the same | one tensor [N] in the order of the row index, or [seeds, N]: a ranking for each of the run's seeds |
| the same | tensors under TransformerLens' names of activations (`engine.selectors.other_names`) |
| .json | CircuitKIT's `*_scores.json`: a score for every head and every MLP (the same) |
| .parquet, .csv | columns `score` and `row_id`, or `score`, `block`, `projection` and `row`; others are not read |

Higher = more important; kept as float32. Every row has exactly one finite score. No pickle is read, and sizes are
checked before anything is decoded. What is read is known by the SHA-256 of the file's bytes, in keys and manifests."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.models.row_index import RowIndex
from engine.records import bounds
from engine.records.errors import InputError, is_out_of_memory, is_panic
from engine.records.files import make_folder, write_atomic
from engine.records.hashing import Json, file_sha256
from engine.selectors import other_names
from engine.selectors.base import REGISTRY, SelectorInfo, get_selector

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

    from engine.models.loading import LoadedModel
    from engine.selectors.scoring_run import ScoringRun

BASELINES = ("random", "magnitude", "wanda")  # what stands beside them where no other selector is named
KEPT = "score_files"  # folder of a store, and entry of a manifest
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")  # in tables, addresses and names of masks
Scores = npt.NDArray[np.float32]  # [N] or [seeds, N]
_OF_STORE = re.compile(r"-[0-9a-f]{32}(?=\.)")  # what `keep` adds to a file's name
ABS_SUM = "abs-sum"
ENDINGS = (".safetensors", ".npz", ".parquet", ".csv", ".json")


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """What a file says of rows, in finite numbers. arrays: its tensors by name, weights' summed; per_weight: shapes of
    those that were not; table: of parquet and CSV. Errors: BadFile."""

    path: Path
    sha256: str
    arrays: dict[str, npt.NDArray[np.float32]]
    per_weight: dict[str, tuple[int, ...]]
    table: pl.DataFrame | None = None
    _of_rows: dict[str, Scores] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        table = {} if self.table is None else {"score": _float32(self.table["score"].to_numpy())}
        for name, values in (self.arrays | table).items():
            if len(wrong := np.argwhere(~np.isfinite(values))):
                reason = "NaN, infinite or too large for float32"
                raise bounds.BadFile(f"{len(wrong):,} numbers of {name} are {reason}, the first at {wrong[0].tolist()}")

    @property
    def name(self) -> str:
        return _OF_STORE.sub("", self.path.name)

    @cached_property
    def record(self) -> dict[str, Any]:
        """For a manifest; where most rows share their score with another row, with their number."""
        parts = [*self.arrays.values()] if self.table is None else [self.table["score"].to_numpy()]
        _, counts = np.unique(np.concatenate([part.ravel() for part in parts]), return_counts=True)
        tied = int(counts[counts > 1].sum())
        return {"file": self.path.name, "sha256": self.sha256, **({"tied": tied} if 2 * tied > counts.sum() else {})}

    @cached_property
    def rankings(self) -> int | None:
        """Of a file with one tensor [seeds, N]; None where it has one ranking."""
        only = next(iter(self.arrays.values())) if len(self.arrays) == 1 else None
        return len(only) if only is not None and only.ndim == 2 else None

    def on(self, rows: RowIndex) -> Scores:
        """The scores of a model's rows, in their order. Errors: InputError, one line, for what does not fit it."""
        if (key := rows.signature()) not in self._of_rows:
            self._of_rows[key] = self._matched(rows)
        return self._of_rows[key]

    def _matched(self, rows: RowIndex) -> Scores:
        if self.table is not None:
            return self._of_table(self.table, rows)
        if other_names.are_other(self.arrays):
            no_rows = {name: np.empty(0, np.float32) for name in self.per_weight}
            named = other_names.by_module({**self.arrays, **no_rows}, rows, self.name)
            return np.concatenate([named[layer.name] for layer in rows.layers])
        names = {layer.name for layer in rows.layers}
        if len(self._named) == 1 and not names & set(self._named):
            (values,) = self.arrays.values()
            if values.ndim not in (1, 2) or values.shape[-1] != rows.n_rows:
                raise InputError(
                    f"{self.name} has one tensor of shape {list(values.shape)}, the model {rows.n_rows:,} rows; "
                    "give [rows] or [seeds, rows] in the order of rows.parquet, or a tensor per Linear under its name"
                )
            return values
        self._check_names(names)
        parts = []
        for layer in rows.layers:
            name = self._named[layer.name]
            shape = self.per_weight[name] if name in self.per_weight else self.arrays[name].shape
            if shape[:1] != (layer.rows,):
                raise InputError(
                    f"{self.name}: {name} has shape {list(shape)}, the model's {layer.name} has {layer.rows:,} rows; "
                    "they are scores of another model or another tensor"
                )
            if len(shape) != 1:
                raise InputError(
                    f"{self.name}: {name} has shape {list(shape)}, a number per weight; give [{layer.rows}], or "
                    f"--scores-reduce {ABS_SUM} for the sum of absolute values over columns"
                )
            parts.append(self.arrays[name])
        return np.concatenate(parts)

    @cached_property
    def _named(self) -> dict[str, str]:
        """Module -> the tensor's name."""
        named = {}
        for name in (*self.arrays, *self.per_weight):
            module = name.removesuffix(".weight")
            if module in named:
                raise InputError(f"{self.name} holds both {module} and {name}; leave one of them out")
            named[module] = name
        return named

    def _check_names(self, names: set[str]) -> None:
        missing = sorted(names - self._named.keys(), key=_by_number)
        surplus = sorted(self._named.keys() - names, key=_by_number)
        wrong = []
        if missing:
            wrong.append(f"has no scores of {len(missing):,} of the model's {len(names):,} Linears ({missing[0]}, …)")
        if surplus:
            wrong.append(f"holds {len(surplus):,} tensors that are none of them ({surplus[0][:80]!r}, …)")
        inside = [{name.partition("layers.")[2] for name in some} for some in (missing, surplus)]
        if wrong and inside[0] == inside[1]:
            wrong[-1] += "; they differ by what stands before `layers`"
        if wrong:
            raise InputError(
                f"{self.name} {' and '.join(wrong)}; give one tensor [rows] under the name of each Linear of a decoder "
                "block, and no other: embeddings and the head have no rows here"
            )

    def _of_table(self, table: pl.DataFrame, rows: RowIndex) -> Scores:
        import polars as pl

        keys = [name for name in table.columns if name != "score"]
        index = rows.frame().select("row_id", *(name for name in keys if name != "row_id"))
        joined = index.join(table, on=keys, how="left", maintain_order="left")
        twice, lines = table.height - table.n_unique(keys), table.height
        missing = joined.filter(pl.col("score").is_null())
        surplus = table.join(index, on=keys, how="anti").height
        for count, what in (
            (twice, "lines for a row that has one already"),
            (surplus, f"lines for rows that the model does not have ({rows.n_rows:,})"),
            (missing.height, f"rows without a score, the first is row {missing['row_id'].min()!s}"),
        ):
            if count:
                raise InputError(
                    f"{self.name} ({lines:,} lines) has {count:,} {what}; give one line for each row of rows.parquet"
                )
        return joined["score"].to_numpy().astype(np.float32)


def read_scores(path: Path, reduce: str | None = None) -> ScoreFile:
    """The file as it is now; read once. reduce: `abs-sum` for numbers per weight. Errors: InputError."""
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"cannot read the scores {path} ({error.strerror}); give a file that is there") from None
    return _read(path.absolute(), reduce, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=16)
def _read(path: Path, reduce: str | None, _file_stamp: object) -> ScoreFile:
    called, ending = _OF_STORE.sub("", path.name), path.suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{called} ends with {ending!r}; expected one of {', '.join(ENDINGS)}")
    try:
        content = bounds.content_of(path, bounds.MAX_TEXT_BYTES if ending == ".csv" else bounds.MAX_ARRAY_BYTES)
        sha256 = hashlib.sha256(content).hexdigest()
        if ending in (".parquet", ".csv"):
            return ScoreFile(path, sha256, {}, {}, _table(path, content))
        if ending == ".json":
            return ScoreFile(path, sha256, other_names.nodes_of(bounds.parsed(content)), {})
        if ending == ".npz":
            named = dict(_npz(content))
        else:
            whole = memoryview(content)
            named = {name: one.array(whole[one.start : one.stop]) for name, one in bounds.tensors(path).items()}
        if not named:
            raise bounds.BadFile("it holds no tensor")
        arrays, per_weight = {}, {}
        for name, one in named.items():
            if other_names.HOOK.fullmatch(name):
                arrays[name] = _float32(one)
            elif len(named) > 1 and one.ndim == 2 and reduce == ABS_SUM:
                arrays[name] = _float32(np.abs(one.astype(np.float64)).sum(axis=1))
            elif len(named) > 1 and one.ndim != 1:
                per_weight[name] = one.shape
            else:
                arrays[name] = _float32(one)
        return ScoreFile(path, sha256, arrays, per_weight)
    except BaseException as error:  # whatever a file of anyone's makes a reader raise
        if is_out_of_memory(error) or not (isinstance(error, Exception) or is_panic(error)):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{called} cannot be read as scores ({reason}); write it again") from None


def _float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """What is too large is infinite, and told later. Errors: BadFile where most scores are so small that they are 0."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if 2 * np.count_nonzero(narrow) < np.count_nonzero(values):
        raise bounds.BadFile("most of its scores are too small for float32; multiply all of them by one number")
    return narrow


def _npz(content: bytes) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Arrays of numbers: an array of objects, which numpy would unpickle, is an error."""
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with zipfile.ZipFile(bounds.ShortReads(io.BytesIO(content))) as archive:
        entries = archive.infolist()
        bounds.check_unpacked(len(content), sum(entry.file_size for entry in entries), bounds.MAX_ARRAY_BYTES)
        for entry in entries:
            with archive.open(entry) as stream:
                version = np.lib.format.read_magic(stream)
                if version not in read_header:
                    raise bounds.BadFile(f"{entry.filename[:80]!r} is of format {version}, expected 1.0 or 2.0")
                shape, by_column, dtype = read_header[version](stream)
                if dtype.kind not in "fiu":
                    raise bounds.BadFile(f"{entry.filename[:80]!r} holds {dtype}, expected real numbers")
                values = np.frombuffer(stream.read(), dtype)  # as many as there are, whatever the shape says
            yield entry.filename.removesuffix(".npy"), values.reshape(shape, order="F" if by_column else "C")


def _table(path: Path, content: bytes) -> pl.DataFrame:
    """Columns `score` (float64) and those that name rows."""
    import polars as pl

    if path.suffix.lower() == ".parquet":
        table = bounds.parquet(path, read=content)
    else:
        bounds.need("it has", content.count(b"\n"), bounds.MAX_ROWS, " lines")
        table = pl.read_csv(io.BytesIO(content), infer_schema=False)
    kinds = {"row_id": pl.Int64, "block": pl.Int32, "projection": pl.String, "row": pl.Int32, "score": pl.Float64}
    given = [name for name in kinds if name in table.columns]
    if "score" not in given or not ("row_id" in given or {"block", "projection", "row"} <= set(given)):
        raise bounds.BadFile(
            f"its columns are {', '.join(table.columns)[:200]}; expected score with row_id, or with block, projection, "
            "row"
        )
    table = table.select(pl.col(name).cast(kinds[name]) for name in given)
    if empty := [name for name, count in table.null_count().row(0, named=True).items() if count]:
        raise bounds.BadFile(f"its column {empty[0]} has empty cells")
    return table


def _by_number(name: str) -> list[tuple[int, str]]:
    """`layers.2` before `layers.10`."""
    return [(int(part) if part.isdecimal() else -1, part) for part in name.split(".")]


@dataclass(frozen=True, eq=False)
class OwnScores:
    """The selector of files: its scores are those of the first, or one ranking per seed where that has several."""

    name: str
    files: tuple[ScoreFile, ...]

    def check(self, loaded: LoadedModel) -> None:
        _disjoint(self.name, self.files, loaded.rows)

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


def _disjoint(name: str, files: Sequence[ScoreFile], rows: RowIndex) -> list[Scores]:
    """The scores of every file. Errors: InputError where two hold the same, which say nothing of what is stable."""
    scores, seen = [file.on(rows) for file in files], dict[bytes, str]()
    for values, file in zip(scores, files, strict=True):
        content = hashlib.sha256(values.tobytes()).digest()
        if content in seen:
            raise InputError(
                f"{name}: {seen[content]} and {file.name} hold the same scores; several files of one NAME are draws, "
                "each from calibration text of its own"
            )
        seen[content] = file.name
    return scores


def check_protects(selector: str, rows: RowIndex) -> None:
    """`InputError` where scores of one's own cannot protect rows in `refusal`: several rankings, or scores below 0."""
    for file in get_selector(selector).files[:1]:
        if file.rankings is not None:
            raise InputError(f"{file.name} has {file.rankings} rankings, and rows are protected by one; give [rows]")
        if below := int((file.on(rows) < 0).sum()):
            raise InputError(
                f"{file.name} has {below:,} scores below 0, and rows are protected by how much they matter; give "
                "absolute values where the sign is a direction, or add a number where lower is less important"
            )


def draws(selector: str, rows: RowIndex) -> list[Scores]:
    """The scores of every file of a selector of one's own."""
    return _disjoint(selector, get_selector(selector).files, rows)


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


def check_name(name: str) -> None:
    """Errors: InputError for a NAME that no scores can have, and for one that another selector has."""
    if not _NAME.fullmatch(name):
        allowed = "a letter, then up to 39 letters, digits, _ and -"
        raise InputError(f"the name of the scores must be {allowed}, got {name[:80]!r}; write mine")
    if {name, name.lower()} & set(REGISTRY.offered()) and name not in REGISTRY.here:
        raise InputError(f"there is a selector {name!r} already; give your scores another name")


def register(files: Sequence[str], reduce: str | None = None, *, declared: bool = False) -> None:
    """Makes each NAME of `NAME=FILE` a selector of this thread's run; done again, it is read anew where its file has
    changed. declared: a NAME that has these bytes already stays as it is.

    Errors: InputError for a NAME that another selector has, and for a file that cannot be read."""
    for name in names_of(files):
        check_name(name)
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
    files = {info.id: [file.record for file in info.files] for info in infos}
    return {KEPT: files, **({"scores_reduce": reduce} if reduce else {})}


def found_again(recorded: Mapping[str, Sequence[Mapping[str, str]]], places: Sequence[Path]) -> tuple[str, ...]:
    """`NAME=FILE` of a manifest's record, among files, and files of folders, that have the recorded bytes.
    Errors: InputError that names the file that is not there, or is another one now."""
    if not recorded:
        return ()
    near = (one for place in places for one in (sorted(place.iterdir()) if place.is_dir() else [place]))
    by_path = {path: file_sha256(path) for path in near if path.suffix.lower() in ENDINGS and path.is_file()}
    by_hash = {sha256: path for path, sha256 in by_path.items()}
    found = []
    for name, files in recorded.items():
        for one in files:
            if one["sha256"] not in by_hash:
                now = next(
                    (f", and {path} has {sha[:12]}" for path, sha in by_path.items() if path.name == one["file"]), ""
                )
                raise InputError(
                    f"the scores {name} were read from {one['file']} (SHA-256 {one['sha256'][:12]}){now}; say where "
                    f"that file is with --text {one['file']}"
                )
            found.append(f"{name}={by_hash[one['sha256']]}")
    return tuple(found)


def keep(store: Path, name: str, content: bytes) -> Path:
    """A file of scores in a store's folder, under its name and SHA-256; the same bytes are kept once."""
    stem, ending = re.sub(r"[^\w .()-]+", "-", Path(name).stem)[:40], Path(name).suffix.lower()
    path = store / KEPT / f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}{ending}"
    if not path.exists():
        make_folder(path.parent, "--store")
        path.parent.chmod(0o700)
        write_atomic(path, content)
    return path


def kept_beside(folder: Path) -> list[Path]:
    """The files that were kept in the store of a results folder."""
    return [place] if (place := folder.absolute().parent.parent / KEPT).is_dir() else []
