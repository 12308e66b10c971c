"""What terminals and Markdown files are given: names, replies and messages as text, whatever they hold."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from engine.records.domain_names import with_names

# Control characters (escape sequences begin with one) but line ends and tabs, what turns the direction of writing, and
# halves of characters, as in file names that are no UTF-8, which cannot be written at all.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(text: str) -> str:
    r"""Text that a terminal only shows: what it would obey is written out, as \x1b for an escape character; domains
    by their names."""
    return _OBEYED.sub(lambda found: _written(found[0]), with_names(text))


def _written(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    r"""Text on one line with all that is in it in sight: what is no letter, mark, number, sign or blank is written out,
    line ends as \n, characters without a width (in a reply of some scripts they mean something) as \u200b."""
    return "".join(one if one.isprintable() else _written(one) for one in text)


class _PatientStream:
    """A text stream for which a full disk, or a reader who went away, is no error: what cannot be written is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def patient_log() -> Iterator[None]:
    """Meanwhile nothing that is written to stderr raises: no run loses its tables because its log is full."""
    log = sys.stderr
    if log is None:  # closed, which Python and rich take for nowhere
        yield
        return
    sys.stderr = _PatientStream(log)
    try:
        yield
    finally:
        sys.stderr = log
        try:
            log.flush()
        except OSError:  # once more when Python ends, with another exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), log.fileno())


# What begins a link, an image, HTML, code, a formula or an emphasis; `_` only outside of words, where it would.
_MARKUP = re.compile(r"([\\`*\[\]<>~$|])|(?<!\w)(_)|(_)(?!\w)")
# An address would be a link without any markup: an invisible joiner keeps it text.
_ADDRESS = re.compile(r"(?<=http:)(?=//)|(?<=https:)(?=//)|(?<=www)(?=\.)|(?<=@)", re.IGNORECASE)
_LINE_ENDS = re.compile(r"[\r\n\u2028\u2029]+")


def as_text(text: str) -> str:
    """One line that Markdown shows as it is; domains by their names."""
    line = _ADDRESS.sub("\u2060", _LINE_ENDS.sub(" ", with_names(text))).replace("&", "&amp;")
    return _MARKUP.sub(lambda found: f"\\{found[0]}", line)
