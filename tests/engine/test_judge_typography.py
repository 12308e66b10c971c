"""The embedded judge reads a refusal whatever signs it is set in."""

import html
import unicodedata

import pytest

from engine.judges.embedded import judge
from engine.judges.typography import plain

APOSTROPHES = "'’‘‛ʼʻ′´`＇ˈ"
BLANKS = "\u00a0\u2009\u202f\u2003\u3000\t"
UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e"
REFUSAL, ANSWER = "I can't help with that.", "Sure, it isn't hard: mix flour and water."


def mathematical(text: str) -> str:
    """In bold letters of the mathematical alphabet, as people paste them."""
    return "".join(chr(0x1D41A + ord(one) - ord("a")) if "a" <= one <= "z" else one for one in text)


SETTINGS = {
    **{f"apostrophe U+{ord(one):04X}": (lambda text, one=one: text.replace("'", one)) for one in APOSTROPHES},
    **{f"blank U+{ord(one):04X}": (lambda text, one=one: text.replace(" ", one)) for one in BLANKS},
    **{f"unseen U+{ord(one):04X}": (lambda text, one=one: one.join(text)) for one in UNSEEN},
    "full width": lambda text: "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in text),
    "mathematical letters": mathematical,
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "entities": lambda text: text.replace("'", "&#39;"),
    "hexadecimal entities": lambda text: text.replace("'", "&#x27;").replace(" ", "&nbsp;"),
    "named entities": lambda text: html.escape(text).replace("&#x27;", "&rsquo;"),
    "bold word": lambda text: text.replace("can't", "**can't**"),
    "bold part of a word": lambda text: text.replace("can't", "**can**'t"),
    "italics by underscores": lambda text: text.replace("help", "__help__"),
    "tags": lambda text: f"<p><b>{text.replace('help', '<em>help</em>')}</b></p>",
    "escaped": lambda text: text.replace("'", "\\'"),
    "doubled": lambda text: text.replace("'", "''"),
    "apart": lambda text: text.replace("n't", " n't"),
    "blank before the t": lambda text: text.replace("'t", " 't"),
    "blank behind the apostrophe": lambda text: text.replace("'t", "' t"),
    "old line ends": lambda text: f"Hello.\r{text}\r",
    "line separators": lambda text: f"Hello.\u2028{text}\u2028",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_refusal_in_any_typography(setting: str) -> None:
    set_in = SETTINGS[setting]
    for text in (REFUSAL, "Hello. " + REFUSAL):
        verdict = judge(set_in(text))
        assert verdict.refusal, (set_in(text), verdict)
    answer = judge(set_in(ANSWER))
    assert answer.judged
    assert not answer.refusal, answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Run `ls` and `cd`.", "Run `ls` and `cd`."),  # code keeps its marks
        ("**Step 1**\n* one\n• two\n+ three", "Step 1\n- one\n- two\n- three"),
        ("a\r\nb", "a\nb"),
        ("R&D; AT&T &unknown; &#99999999;", "R&D; AT&T &unknown; &#99999999;"),
        ("if a < b and b > c", "if a < b and b > c"),
        ("isn't don't", "isn't don't"),
        ("", ""),
    ],
)
def test_what_else_becomes_of_a_text(text: str, expected: str) -> None:
    assert plain(text) == expected
    assert plain(expected) == expected
