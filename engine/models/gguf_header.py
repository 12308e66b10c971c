"""The header of a GGUF file: its metadata and where its tensors lie, without the seconds that torch's import takes.

The file may be anybody's: every count, length and place is compared with the bytes that are there before room is made
for what it announces. Layout (versions 2 and 3, little-endian): ggml's docs/gguf.md."""

import hashlib
import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from engine.records import bounds
from engine.records.errors import InputError

SUFFIX = ".gguf"
PLAIN = ("F32", "F16", "BF16", "F64")  # numbers as they are; all other kinds are blocks of packed ones
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_MOST_BYTES = 256 * bounds.MIB  # of a header; Gemma 3's, with 262,144 tokens, has 6 MiB
_MOST_DIMENSIONS = 4
_LARGEST = 2**40


class GgufTensor(NamedTuple):
    """kind: ggml's name, as Q4_1. shape: rows first, as torch has it. start, stop: its bytes in the file."""

    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class GgufHeader:
    """sha256: of the header's bytes, which tell all of the model but its weights."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]
    sha256: str

    @property
    def packed_as(self) -> str | None:
        """How its weights are packed, as Q4_K_M; None where all are plain numbers.
        The name that the file gives itself, if it holds such tensors, else the kind of most of its numbers."""
        from gguf import LlamaFileType

        sizes: Counter[str] = Counter()
        for tensor in self.tensors.values():
            if tensor.kind not in PLAIN:
                sizes[tensor.kind] += math.prod(tensor.shape)
        if not sizes:
            return None
        stated = str(self.metadata.get("general.file_type"))
        given = {str(int(kind)): kind.name.removeprefix("MOSTLY_") for kind in LlamaFileType}.get(stated, "")
        return given if given.startswith(tuple(sizes)) else sizes.most_common(1)[0][0]


def read_header(path: Path, model_id: str) -> GgufHeader:
    """The header of a GGUF file. Errors: InputError for one that is cut short, damaged or of an unknown form."""
    try:
        status = path.stat()
        return _read(path.resolve(), (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns))
    except (OSError, ValueError, struct.error) as error:
        why = "it ends within its header" if isinstance(error, struct.error) else error
        raise InputError(f"{model_id}: {path.name} cannot be read as GGUF ({why}); download or copy it again") from None


@lru_cache(maxsize=4)
def _read(path: Path, state: tuple[int, ...]) -> GgufHeader:
    size = bounds.size_of(path, 2**62)
    with path.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise bounds.BadFile("it does not begin with the letters GGUF")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(data, min(size, _MOST_BYTES)).header(path, size)


class _Cursor:
    """Reads a header from its beginning. limit: the offset at which it has to end."""

    def __init__(self, data: mmap.mmap, limit: int) -> None:
        self.data, self.limit, self.offset = data, limit, 4

    def header(self, path: Path, size: int) -> GgufHeader:
        (version,) = self.numbers("I")
        if version not in (2, 3):
            raise bounds.BadFile(f"it is of version {version}; little-endian files of versions 2 and 3 are read")
        n_tensors, n_entries = self.numbers("QQ")
        self.room(n_entries, 13)  # a key's length, a type, a value of one byte
        metadata: dict[str, Any] = {}
        for _ in range(n_entries):
            key = self.text()
            if key in metadata:
                raise bounds.BadFile(f"it holds {key[:80]!r} twice")
            metadata[key] = self.value(*self.numbers("I"))
        self.room(n_tensors, 24)
        entries = [(self.text(), self.entry()) for _ in range(n_tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**16:
            raise bounds.BadFile(f"its alignment is {alignment!r}")
        first = -(-self.offset // alignment) * alignment
        tensors = {name: _placed(name, shape, kind, first + offset, size) for name, (shape, kind, offset) in entries}
        if not tensors or len(tensors) < n_tensors:
            raise bounds.BadFile("it holds no tensors" if not tensors else "it holds a tensor twice")
        return GgufHeader(path, metadata, tensors, hashlib.sha256(self.data[: self.offset]).hexdigest())

    def room(self, count: int, least: int) -> None:
        """Can so many entries, each of at least so many bytes, lie before the end?"""
        bounds.need("it says that it has", count, max(self.limit - self.offset, 0) // least, " entries")

    def numbers(self, form: str) -> tuple[Any, ...]:
        numbers = struct.unpack_from(f"<{form}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{form}")
        return numbers

    def text(self) -> str:
        (length,) = self.numbers("Q")
        self.room(length, 1)
        self.offset += length
        return self.data[self.offset - length : self.offset].decode()

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.numbers(_SCALARS[kind])[0]
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            raise bounds.BadFile(f"its metadata hold a value of type {kind}")
        inner, count = self.numbers("IQ")
        if inner == _TEXT:
            self.room(count, 8)
            return [self.text() for _ in range(count)]
        if inner not in _SCALARS:
            raise bounds.BadFile(f"its metadata hold a list of type {inner}")
        self.room(count, struct.calcsize(f"<{_SCALARS[inner]}"))
        return list(self.numbers(f"{count}{_SCALARS[inner]}"))

    def entry(self) -> tuple[tuple[int, ...], int, int]:
        """Shape, kind and offset of a tensor."""
        (dimensions,) = self.numbers("I")
        bounds.need("a tensor says that it has", dimensions, _MOST_DIMENSIONS, " dimensions")
        return (self.numbers(f"{dimensions}Q")[::-1], *self.numbers("IQ"))


def _placed(name: str, shape: tuple[int, ...], kind: int, start: int, size: int) -> GgufTensor:
    """A tensor of a file of `size` bytes whose shape and kind fit its place."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        known = GGMLQuantizationType(kind)
    except ValueError:
        raise bounds.BadFile(f"{name[:80]!r} is of kind {kind}, which the package gguf does not know") from None
    title, (block, block_bytes) = known.name, GGML_QUANT_SIZES[known]
    numbers = math.prod(shape)
    if not shape or not all(0 < width <= _LARGEST for width in shape) or numbers > _LARGEST or shape[-1] % block:
        raise bounds.BadFile(f"{name[:80]!r} of {title} has the shape {shape}")
    stop = start + numbers // block * block_bytes
    if stop > size:
        raise bounds.BadFile(f"{name[:80]!r} ends at byte {stop:,}, the file has {size:,}: it was cut short")
    return GgufTensor(title, shape, start, stop)
