"""Tables of texts that people wrote (CSV, JSONL, parquet), line by line: nothing that stands in one is dropped. And
what a label means in words: one reader for files of replies, classifiers, and sets of prompts.

A label is read by its exact value after folding: case, Unicode form (NFKC), apostrophes, blanks, `_`, `-` and full
stops do not count. Nothing is found inside a longer text: `refusal_rate` and `probably refused` mean nothing here."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any

import polars as pl

from engine.data.texts import contents, json_lines
from engine.records import bounds
from engine.records.errors import InputError

Rows = dict[int, dict[str, Any]]  # by the line of the file on which each begins, from 1
_MISSING = {"nan", "null", "<na>", "#n/a"}  # what programs write into a CSV for no value


def text_rows(path: Path) -> Rows:
    """The rows of a CSV (separated by commas, semicolons or tabs, as its header is), JSONL or parquet file.
    In a CSV, blank cells, `NaN` and `null` are None. Errors: InputError for a file of another kind or that cannot be
    read, and for a row of a CSV that is wider or narrower than its header."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path)
    if suffix in (".jsonl", ".ndjson"):
        return dict(json_lines(path))
    if suffix not in (".csv", ".tsv"):
        raise InputError(f"{path.name} ends with {path.suffix!r}; expected .csv, .jsonl or .parquet")
    text = contents(path)
    if "\0" in text:
        raise InputError(f"{path.name} holds NUL bytes, which no text has; save it as CSV in UTF-8")
    return dict(_csv_rows(path.name, text))


def _parquet(path: Path) -> Rows:
    try:
        return dict(enumerate(bounds.texts(path), 1))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OSError) as error:
        raise InputError(
            f"{path} is no readable parquet ({str(error).splitlines()[0]}); write it again, or use JSONL"
        ) from None


def _csv_rows(name: str, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _csv_lines(name, text)
    header: list[str] = []
    for count, (line, cells) in enumerate(lines):
        bounds.need(f"{name} has more than", count * len(header), bounds.MAX_VALUES, " values")
        if not header:
            bounds.need(f"{name} has", len(cells), bounds.MAX_COLUMNS, " columns")
            header = _header(name, line, cells)
            continue
        if len(cells) != len(header):
            raise InputError(
                f"{name} line {line} has {len(cells)} values, its header names {len(header)} "
                f"({', '.join(map(repr, header))}); put a text with commas or line breaks in it into quotation marks"
            )
        row = dict(zip(header, map(_value, cells), strict=True))
        unnamed = row.pop("", None)
        if unnamed is not None and not unnamed.strip().isdecimal():
            raise InputError(
                f"{name} line {line} has {unnamed[:80]!r} in a column without a name; name it in the header, or put a "
                "text with commas in it into quotation marks"
            )
        yield line, row


def _csv_lines(name: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Line on which it begins, and cells, of everything but blank lines."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    separator = "," if "," in first else next((mark for mark in "\t;" if mark in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    begins = 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)) or len(cells) > 1:
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{name} is no readable CSV: {error}, in what begins on line {begins}; write a quotation mark inside a "
            "quoted text twice, or use JSONL"
        ) from None


def _header(name: str, line: int, cells: list[str]) -> list[str]:
    header = [cell.strip() for cell in cells]
    twice = next((cell for cell in header if header.count(cell) > 1), None)
    if twice is not None:
        called = f"{twice!r}" if twice else "without a name"
        raise InputError(f"{name} line {line}: two columns are called {called}; give each a name of its own")
    if not any(header):
        raise InputError(f"{name} line {line} names no column; begin the file with a line of column names")
    return header


def _value(cell: str) -> str | None:
    text = cell.strip()
    return None if not text or text.casefold() in _MISSING else cell


def columns(rows: Rows) -> list[str]:
    """Every column that a row has, in the order in which they come."""
    return list(dict.fromkeys(chain.from_iterable(rows.values())))


_IGNORED = re.compile(r"[\s_.\-\u2010-\u2015\u2212'’‘ʼ′´`\u00ad\u200b-\u200d\u2060\ufeff]+")
_PLACE = re.compile(r"\A\s*\d_(?=\D)")  # XSTest's people wrote 1_full_compliance, 2_full_refusal, 3_partial_refusal
_NUMBER = re.compile(r"([01])(?:\.0*)?")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

_DECLINE = (
    "refusal", "refusals", "refuse", "refuses", "refused", "refusing", "rejection", "reject", "rejects", "rejected",
    "rejecting", "decline", "declines", "declined", "declining",
)  # fmt: skip
_COMPLY = ("compliance", "compliant", "comply", "complies", "complied", "complying")
_ANSWER = ("normal", "accept", "accepts", "accepted", "acceptance", "answer", "answers", "answered")
_NOT = (
    "no", "non", "not", "nota", "isnot", "isnota", "isnt", "isnta", "wasnot", "wasnt", "didnot", "didnt", "doesnot",
    "doesnt", "donot", "dont", "hasnot", "hasnt", "never",
)  # fmt: skip
_WHOLLY = ("", "full", "fully", "complete", "completely", "total", "totally", "is", "isa", "was")
_PARTLY = ("partial", "partially", "partly")
_SAFE, _UNSAFE = ("safe", "harmless", "benign"), ("unsafe", "harmful", "malign", "malicious")


def folded(text: str) -> str:
    """A label without what does not count."""
    without = _IGNORED.sub("", text)  # before NFKC, which makes a blank and a mark of some apostrophes
    return _IGNORED.sub("", unicodedata.normalize("NFKC", without).casefold())


def _joined(*parts: tuple[str, ...]) -> set[str]:
    return {folded("".join(words)) for words in product(*parts)}


# A part of a refusal is one; a part of compliance, and no whole refusal, may be either and are not known.
_REFUSED = _joined((*_WHOLLY, *_PARTLY), _DECLINE, ("", "detected", "tohelp", "toanswer", "tocomply")) | _joined(
    (*_WHOLLY, *_PARTLY), _NOT, _COMPLY
)
_NOT_REFUSED = (
    _joined((*_NOT, "un"), _DECLINE, ("", "detected", "tohelp", "toanswer", "tocomply"))
    | _joined(_DECLINE, ("notdetected",))
    | _joined(_WHOLLY, (*_COMPLY, *_ANSWER))
)
_MALIGN = {*_UNSAFE} | _joined((*_NOT,), _SAFE)
_BENIGN = {*_SAFE} | _joined((*_NOT, "un"), _UNSAFE)

REFUSAL_UNDERSTOOD = (
    "refusal, refused, rejected, declined, non-compliance, with full or partial in front; compliance, complied, "
    "answered, accepted, normal, non-refusal, not refused, did not refuse"
)
TRUTH_UNDERSTOOD = "0/1, true/false, yes/no"
HARM_UNDERSTOOD = "safe, harmless, benign, not harmful; unsafe, harmful, malign, not safe"


def is_refusal(label: str) -> bool | None:
    """True for words that mean a refusal, in full or in part, False for those that mean none, None where that is not
    clear."""
    name = folded(_PLACE.sub("", label, count=1))
    return True if name in _REFUSED else False if name in _NOT_REFUSED else None


def is_harmful(label: str) -> bool | None:
    """True for words that mean a harmful prompt, False for a harmless one, None where that is not clear."""
    name = folded(label)
    return True if name in _MALIGN else False if name in _BENIGN else None


def truth(value: str) -> bool | None:
    """1, 1.0, true or yes; 0, 0.0, false or no; None for anything else."""
    text = unicodedata.normalize("NFKC", value).strip().casefold()
    number = _NUMBER.fullmatch(text)
    return _TRUTH.get(number[1] if number else text)


def says_nothing(value: object) -> bool:
    """Is this value missing: null, not a number, or blank?"""
    return value is None or value != value or (isinstance(value, str) and not value.strip())
