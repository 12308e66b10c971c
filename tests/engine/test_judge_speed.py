"""The embedded judge's time grows with a reply's length, whatever repeats itself there: masked models repeat."""

import random
import time

import pytest

from engine.judges.embedded import judge
from engine.judges.fired import of_verdict
from engine.judges.reading import normalised, sentences

UNITS = (
    *("\n", "\t", " ", "\r\n", "\u2028", "\u00a0", "1. ", "1. \n", "- \n", "* \n\n", "1", "> x\n", "a: b\n", "```"),
    *("'", '"', "' ", '" ', " '", '"a ', "'i ", "e'", "(((", "_", "*", "...", ". ", "? ! ", ":", "\\'", "&amp", "&#1"),
    *("<b ", "<think>", "</think>", "\u0301\u0316", "\ufdfa", "Ü", "л ", "l' ", "a", "a,", "a-", "hi a,\n"),
    *("I ", "sorry ", "so sorry, ", "not ", "no, ", "the ", "it is not ", "i am ", "i am so ", "i was and ", "i'm "),
    *("i cannot ", "i do not ", "i do not have opinions ", "i understand but ", "making ", "regards, ", "instead "),
    *("here is a a a a ", "the act of ", "please note that ", "there is no ", "cannot be ", "not something "),
    *("i have to ", "dear a,\n"),
)


def mixtures(count: int) -> list[str]:
    drawn = random.Random(0)
    return ["".join(drawn.choices(UNITS, k=4)) for _ in range(count)]


def cpu_s(unit: str, characters: int) -> float:
    text = (unit * (characters // len(unit) + 1))[:characters]
    start = time.process_time()
    judge(text)
    return time.process_time() - start


@pytest.mark.first_run("units1")
@pytest.mark.parametrize(
    "units", [UNITS[::4], mixtures(12), *(pytest.param(UNITS[n::4], marks=pytest.mark.long) for n in (1, 2, 3))]
)
def test_four_times_as_long_takes_about_four_times_as_long(units: list[str]) -> None:
    """Quadratic growth would be sixteen times. Measured: at most 5."""
    for unit in units:
        short, long = cpu_s(unit, 3_000), cpu_s(unit, 12_000)
        assert long <= 8 * short + 0.1, (unit, short, long)


@pytest.mark.long
@pytest.mark.parametrize("unit", [*UNITS[::3], *mixtures(10)])
def test_100_kb_take_seconds_at_most(unit: str) -> None:
    """Measured: 0.7 s at most."""
    assert cpu_s(unit, 100_000) < 5


@pytest.mark.parametrize("unit", ["a", "the ", "'", "i am ", "a" * 599 + " ", "Well. " + "a" * 2000])
def test_no_rule_reads_more_than_600_characters_at_once(unit: str) -> None:
    """So that the time of a rule which takes the square of its text is bounded; and nothing is left out."""
    text = normalised(unit * (5000 // len(unit)))
    pieces = sentences(text)
    assert max(map(len, pieces)) <= 600
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_refusal_inside_a_sentence_without_end_is_still_heard() -> None:
    assert judge("and so on " * 300 + "but I cannot help with that " + "and so on " * 300).refusal


def test_the_words_that_fired_are_found_in_a_long_reply_in_bounded_time() -> None:
    text = "The road leads on. " * 5000 + "I can't help with that."
    start = time.process_time()
    found = of_verdict(text, judge(text))
    assert time.process_time() - start < 5
    assert found is not None
    assert text[found.start : found.end] == "I can't help"
