"""What a terminal is given: names, replies and messages as text, whatever they hold."""

from __future__ import annotations

import re

# Control characters (escape sequences begin with one) but line ends and tabs, what turns the direction of writing, and
# halves of characters, as in file names that are no UTF-8, which cannot be written at all.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(text: str) -> str:
    r"""Text that a terminal only shows: what it would obey is written out, as \x1b for an escape character."""
    return _OBEYED.sub(lambda found: _written(found[0]), text)


def _written(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    r"""Text on one line with all that is in it in sight: what is no letter, mark, number, sign or blank is written out,
    line ends as \n, characters without a width (in a reply of some scripts they mean something) as \u200b."""
    return "".join(one if one.isprintable() else _written(one) for one in text)
