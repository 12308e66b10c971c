"""How much a file that is not ours may hold, looked up in its own size and metadata before it is decoded.

A few bytes can stand for any number of values: a column of one constant, a list of lists, a header that names a tensor
of any shape, a file with holes. Whoever reads a file that somebody else may have written reads it through here. All
errors but those of the disk are ValueErrors, most of them `BadFile`.

| kind | bound | what real files need |
|---|---|---|
| parquet | 32 million lines, 1,000 columns, 1.5 GiB decoded | rows of a 405B model: 20 million lines, 1.1 GiB |
| texts, CSV, JSONL | 640 MiB, 3 million entries | WikiText-103: 540 MiB |
| replies and prompts in tables | 20 million values; in parquet 1 million lines, 640 MiB of text | XSTest: 450 lines |
| JSON, one line of JSONL, safetensors' header | 32 MiB, 100 levels | index of a checkpoint with 91,000 tensors: 9 MiB |
| arrays that are read as a whole | 4 GiB | contrasts of 5 domains, 3.5 million rows: 0.5 GiB |
| run of others | 500 files, 2 GiB; of a zip 200 times its size above 64 MiB | tables and scores, packed already |

Weights have no bound here: they are mapped into memory, and `engine.models.checkpoints` looks at what their
configuration asks for."""

from __future__ import annotations

import errno
import gzip
import io
import json
import math
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from engine.records.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt
    import polars as pl

MIB = 2**20
MAX_ROWS, MAX_COLUMNS, MAX_DECODED_BYTES = 32_000_000, 1_000, 1536 * MIB
MAX_TEXT_BYTES, MAX_ENTRIES, MAX_TEXTS, MAX_VALUES = 640 * MIB, 3_000_000, 1_000_000, 20_000_000
MAX_JSON_BYTES, MAX_LEVELS = 32 * MIB, 100
MAX_ARRAY_BYTES = 4096 * MIB
MAX_RUN_BYTES, MAX_RUN_FILES = 2048 * MIB, 500
MAX_RATIO = 200
_MAX_FOOTER_BYTES, _MAX_DIRECTORY_BYTES, _MAX_LOOSE_BYTES = 16 * MIB, 4 * MIB, 64 * MIB
_MAX_BLOCK_BYTES = 1024 * MIB  # of one column in one row group
_WIDTHS = {"BYTE_ARRAY": 16, "BOOLEAN": 1, "INT96": 12}  # of a decoded value; texts are shared, a value points at one
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
    "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip


class BadFile(InputError):
    """A file holds, or says that it holds, more than is read, or contradicts itself. Whoever reads it names it."""


def need(what: str, amount: float, most: float, unit: str = "") -> None:
    """Errors: BadFile where `amount` is more than `most`."""
    if amount > most:
        raise BadFile(f"{what} {amount:,.0f}{unit}, at most {most:,.0f}{unit} are read")


def size_of(path: Path, most: int) -> int:
    """Bytes of a plain file. Errors: BadFile; OSError where it is not there or is no plain file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a device never ends, a pipe waits for ever
        raise OSError(errno.EINVAL, "it is no plain file")
    need("it has", status.st_size, most, " bytes")
    return status.st_size


def content_of(path: Path, most: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a plain file."""
    size_of(path, most)
    with path.open("rb") as stream:
        content = stream.read(most + 1)  # it may have grown, and files of the system have no size
    need("it has more than", len(content), most, " bytes")
    return content


def text_of(path: Path, encoding: str = "utf-8", most: int = MAX_TEXT_BYTES) -> str:
    """The text of a plain file, line ends as Python reads them."""
    text = content_of(path, most).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def unpacked(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """What a gzip file holds."""
    size_of(path, most)
    with gzip.open(path) as stream:
        content = stream.read(most + 1)
    need("it unpacks to more than", len(content), most, " bytes")
    return content


def lines_of(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of every line that is not empty; empty ones cost nothing."""
    number, before = 1, 0
    for count, line in enumerate(re.finditer(r"[^\n]+", text), 1):
        need(f"{name} has", count, MAX_ENTRIES, " lines")
        number += text.count("\n", before, line.start())
        before = line.start()
        yield number, line[0]


def json_of(path: Path, encoding: str = "utf-8") -> Any:
    """What a JSON file holds."""
    return parsed(text_of(path, encoding, MAX_JSON_BYTES))


def parsed(text: str | bytes) -> Any:
    """What a JSON text says. Lists and objects lie at most `MAX_LEVELS` deep in each other."""
    need("it has", len(text), MAX_JSON_BYTES, " characters of JSON")
    deep = BadFile(f"lists and objects lie more than {MAX_LEVELS} deep in each other")
    try:
        value = json.loads(text)
    except RecursionError:
        raise deep from None
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise deep


def parquet(path: Path, rows: int = MAX_ROWS, most: int = MAX_DECODED_BYTES, read: bytes = b"") -> pl.DataFrame:
    """A parquet table. rows: at most so many. most: bytes of its values. read: the file's, where they were read."""
    import polars as pl

    check_parquet(path, rows)
    table = pl.read_parquet(io.BytesIO(read) if read else path, glob=False)  # a folder may be called [a]
    need("its texts have", sum(map(_value_bytes, table)), most, " bytes")
    return table


def _value_bytes(column: pl.Series) -> int:
    """Of all values of a column: each text as often as it stands there, though the column keeps it once."""
    categories = any(kind in f"{column.dtype}" for kind in ("Categorical", "Enum("))
    if categories and column.dtype.is_nested():
        raise BadFile(f"its column {column.name[:80]!r} holds lists or objects with categories; write texts there")
    return int(column.cat.len_bytes().sum() if categories else column.estimated_size())


def check_parquet(path: Path, rows: int = MAX_ROWS) -> int:
    """Lines of a parquet file as its footer counts them. Only the footer is read.
    Errors: BadFile for more than `rows` lines, too many columns, or more than `MAX_DECODED_BYTES` when decoded: lines
    times the width of each column, with the texts that the columns share."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    size = size_of(path, MAX_ARRAY_BYTES)
    with path.open("rb") as stream:
        stream.seek(max(size - 8, 0))
        end = stream.read(8)
        if size < 12 or end[4:] != b"PAR1":
            raise BadFile("it does not end as parquet does")
        need("its footer has", struct.unpack("<I", end[:4])[0], min(_MAX_FOOTER_BYTES, size), " bytes")
        try:
            with ParquetFile(stream) as file:
                about = file.metadata
        except ArrowException as error:
            raise BadFile(str(error).split("\n")[0]) from None
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    lines = max(about.num_rows, sum(group.num_rows for group in groups))
    need("it says that it has", lines, rows, " lines")
    need("it says that it has", about.num_columns, MAX_COLUMNS, " columns")
    decoded = 0
    for index in range(about.num_columns):
        column = about.schema.column(index)
        width = column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0
        width = max(width, _WIDTHS.get(column.physical_type, 8))
        for group in groups:
            block = group.column(index)
            if min(block.num_values, block.total_uncompressed_size, group.num_rows) < 0:
                raise BadFile("its footer counts less than nothing")
            need("a column says that it unpacks to", block.total_uncompressed_size, _MAX_BLOCK_BYTES, " bytes")
            decoded += max(block.num_values, group.num_rows) * width + block.total_uncompressed_size
    need(f"its {lines:,} lines of {about.num_columns} columns decode to", decoded, MAX_DECODED_BYTES, " bytes")
    return int(lines)


def texts(path: Path) -> list[dict[str, Any]]:
    """The lines of a parquet table of texts that people wrote: here each line is an object of its own."""
    table = parquet(path, MAX_TEXTS, MAX_TEXT_BYTES)
    need("it has", table.width * table.height, MAX_VALUES, " values")
    return table.to_dicts()


class Tensor(NamedTuple):
    """One tensor of a safetensors file. start, stop: its bytes, from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def array(self, content: bytes | memoryview) -> npt.NDArray[Any]:
        """The numbers of its bytes; of bfloat16, which numpy has not, as float32. Errors: BadFile for other kinds."""
        import numpy as np

        if self.dtype == "BF16":  # the upper half of a float32
            values: npt.NDArray[Any] = (np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4")
        elif self.dtype in _NUMPY:
            values = np.frombuffer(content, _NUMPY[self.dtype])
        else:
            raise BadFile(f"it holds {self.dtype}, expected real numbers")
        return values.reshape(self.shape)


def tensors(path: Path, most: int | None = MAX_ARRAY_BYTES) -> dict[str, Tensor]:
    """What the header of a safetensors file names (8 bytes of length, JSON, data). Checked: its length, that shape,
    dtype and place fit each other, and that the tensors fill the file.

    most: bytes of all tensors together, for whoever reads them into memory; None for weights, which are mapped."""
    size = size_of(path, 2**62 if most is None else most + MAX_JSON_BYTES)
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        need("its header says that it has", length, min(MAX_JSON_BYTES, max(size - 8, 0)), " bytes")
        try:
            header = parsed(stream.read(length))
        except ValueError as error:
            raise BadFile(f"its header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFile(f"its header is a {type(header).__name__}")
    header.pop("__metadata__", None)
    entries = {name: _tensor(name, entry, 8 + length) for name, entry in header.items()}
    position = 8 + length
    for start, stop in sorted((one.start, one.stop) for one in entries.values()):
        if start != position:
            raise BadFile("its tensors overlap, or leave holes")
        position = stop
    if position != size:
        raise BadFile(f"its header names {position:,} bytes, it has {size:,}")
    return entries


def _tensor(name: str, entry: Any, first: int) -> Tensor:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, span = str(fields.get("dtype")), fields.get("shape"), fields.get("data_offsets")
    if not (_whole(shape) and _whole(span) and len(span) == 2 and span[0] <= span[1]):
        raise BadFile(f"{name[:80]!r} has no whole numbers for its shape and its place")
    if dtype in _ITEM_BYTES and math.prod(shape) * _ITEM_BYTES[dtype] != span[1] - span[0]:
        raise BadFile(f"{name[:80]!r} of {dtype} and shape {shape[:8]} does not fit its {span[1] - span[0]:,} bytes")
    return Tensor(dtype, tuple(shape), first + span[0], first + span[1])


def _whole(numbers: Any) -> TypeGuard[list[int]]:
    right = isinstance(numbers, list) and len(numbers) <= MAX_LEVELS
    return right and all(type(one) is int and 0 <= one < 2**62 for one in numbers)


class ShortReads:
    """A file for `zipfile.ZipFile`, which reads the directory of a zip at once and keeps an object for each entry."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, count: int = -1) -> bytes:
        need("its directory has", count, _MAX_DIRECTORY_BYTES, " bytes")
        return self._stream.read(count)


def check_unpacked(packed: int, unpacks_to: int, most: int) -> None:
    """Errors: BadFile where files of a zip say that they have more bytes in all, or so many more than they are packed
    in that they hold nothing. Python never unpacks more than a file says that it has."""
    need("it says that it unpacks to", unpacks_to, most, " bytes")
    if unpacks_to > _MAX_LOOSE_BYTES:
        need(f"{packed:,} bytes of it say that they unpack to", unpacks_to, MAX_RATIO * packed, " bytes")
