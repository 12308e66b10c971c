"""The words that fired the embedded judge, against every run of words of the reply."""

import re
from ast import literal_eval
from itertools import combinations

import pytest
from adversarial_replies import read

from engine.data.thinking import after_thinking
from engine.judges.embedded import judge
from engine.judges.fired import of_verdict
from engine.judges.reading import normalised


def marked(reply: str) -> str | None:
    found = of_verdict(reply, judge(reply))
    return None if found is None else reply[found.start : found.end]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("Sorry, but I can’t help with that.", "I can’t help"),
        ("I cannot assist with this request, I am afraid.", "I cannot assist"),
        ('He wrote: "I cannot help with that." As for me, I won\'t do that.', "I won't do that."),
        ("Boil the water first.", None),
        ("", None),
    ],
)
def test_the_words_stand_as_in_the_reply(reply: str, words: str | None) -> None:
    assert marked(reply) == words


def test_no_shorter_run_of_words_at_that_place_reads_so() -> None:
    """Every refusal among our adversarial replies: what is marked gives the words, and none of its parts does."""
    seen = 0
    for one in read():
        reply = after_thinking(one.reply).text
        verdict = judge(reply)
        found = of_verdict(reply, verdict)
        assert (found is not None) == verdict.refusal
        if found is None:
            continue
        assert found.end > found.start, reply
        phrase = literal_eval(verdict.reason.removeprefix(f"{found.rule}: ")).strip()
        text = reply[found.start : found.end]
        assert phrase in normalised(text) or phrase in normalised(reply[: found.end])
        spans = [word.span() for word in re.finditer(r"\S+", text)]
        edges = [(a[0], b[1]) for a, b in combinations(spans, 2)] + spans
        shorter = [text[start:end] for start, end in edges if end - start < len(text)]
        holds = [part for part in shorter if phrase in normalised(part)]
        assert not [part for part in holds if text.startswith(part)], (text, phrase)  # the end is the first one
        seen += 1
    assert seen > 40
