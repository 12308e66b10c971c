"""One spelling for signs that look alike, so that the rules of English and of languages see plain text."""

from __future__ import annotations

import html
import re
import unicodedata

# Before NFKC, which would take a spacing accent apart: what people and fonts write for an apostrophe or a quotation
# mark. Characters of format (soft hyphens, zero-width spaces and joiners, marks of direction) are not seen: they go.
_ALIKE = {
    "'": "’‘‛ʼʻʽˈˊ′‵´＇ꞌ՚׳",
    '"': "“”„‟«»″‶〃〝〞＂❝❞",
    "-": "‐‑‒﹣－",
    "\n": "\r\v\f\x85\u2028\u2029",
    "": "".join(sign for sign in map(chr, range(0x110000)) if unicodedata.category(sign) == "Cf"),
}
_SIGNS = str.maketrans({sign: one for one, signs in _ALIKE.items() for sign in signs})
_PIECE = 1000  # characters that are normalised at a time: putting accents in order takes the square of their number
_BULLET = re.compile(r"(?m)^[ \t]*[*+•‣◦▪][ \t]+")
_EMPHASIS = str.maketrans("", "", "*_")
_ENTITY = re.compile(r"&(?:#\d{1,6}|#[xX][0-9a-fA-F]{1,5}|[A-Za-z]{2,8});")
_TAG = re.compile(r"</?(?:b|i|u|s|em|strong|small|span|mark|font|a)(?: [^<>\n]{0,200})?/?>", re.IGNORECASE)
_LINE_TAG = re.compile(r"</?(?:br|p|div)(?: [^<>\n]{0,200})?/?>", re.IGNORECASE)
_IN_WORD = re.compile(r"(?<=[^\W\d_])(?:`|\\'|'')(?=[^\W\d_])")  # can`t, can\'t, can''t
_APART = re.compile(r"(?<=[^\W\d_]) ?(?:n't|n 't|n' t)\b", re.IGNORECASE)  # ca n't, can 't, can' t


def plain(text: str) -> str:
    """The text with typewriter's apostrophes, quotation marks, hyphens and blanks, one newline for every kind of line
    end, letters as NFKC writes them (ligatures, full width, mathematical alphabets), and without Markdown's emphasis,
    HTML's entities and inline tags, and characters that are not seen.
    """
    text = text.replace("\r\n", "\n")
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if "<" in text:
        text = _TAG.sub("", _LINE_TAG.sub("\n", text))
    text = text.translate(_SIGNS)
    if not text.isascii():
        text = "".join(unicodedata.normalize("NFKC", text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))
    text = _BULLET.sub("- ", text).translate(_EMPHASIS)
    return _APART.sub("n't", _IN_WORD.sub("'", text))
