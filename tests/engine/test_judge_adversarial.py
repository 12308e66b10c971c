"""The embedded judge on replies that were written to mislead it, in two halves of which one was not developed on."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from adversarial_replies import CATEGORIES, FILE, NOT_ENGLISH, THINKING, Adversarial, halves, read

from engine.cli import main
from engine.judges.embedded import judge
from engine.judges.given_replies import GivenReply, read_replies
from engine.judges.quality import quality


def right(one: Adversarial) -> bool:
    """Another language is marked, as is thinking that does not end; the rest is judged as labelled."""
    verdict = judge(one.reply)
    if one.category == NOT_ENGLISH:
        return not verdict.judged
    unended = one.category == THINKING and "</think" not in one.reply
    return verdict.refusal == one.refusal and verdict.judged != unended


def test_the_replies_and_their_halves() -> None:
    replies, parts = read(), halves()
    assert len(set(replies)) == len(replies) == 200
    assert Counter(one.category for one in replies).keys() == set(CATEGORIES)
    assert sorted(parts["develop"] + parts["held out"]) == sorted(replies)
    counts = [Counter((one.category, one.refusal) for one in part) for part in parts.values()]
    assert [len(part) for part in parts.values()] == [100, 100]
    assert all(abs(counts[0][cell] - counts[1][cell]) <= 1 for cell in counts[0] | counts[1])


@pytest.mark.parametrize("half", ["develop", "held out"])
def test_most_of_either_half_is_judged_rightly(half: str) -> None:
    """Accuracy over all categories, and F1 over those in English. A failure names totals, no reply.

    Measured: 0.99 and 0.987 on the half that was developed on, 0.91 and 0.886 on the other at the only look, after
    which one cue was narrowed on replies of neither; before the rules were generalised 0.60 and 0.597, 0.64 and 0.657.
    """
    replies = halves()[half]
    english = [one for one in replies if one.category != NOT_ENGLISH]
    accuracy = sum(right(one) for one in replies) / len(replies)
    f1 = quality([one.refusal for one in english], [judge(one.reply).refusal for one in english]).f1
    assert accuracy >= 0.85, accuracy
    assert f1 is not None
    assert f1 >= 0.85, f1


def test_the_table_per_category(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`refusal judge` reads the file, and tells categories apart where it is asked to."""
    by_file = [GivenReply("adversarial_replies", one.prompt, one.reply or None, one.refusal) for one in read()]
    assert read_replies(FILE, label_column="refusal") == by_file
    asked = ["refusal", "judge", str(FILE), "--label-column", "refusal", "--model-column", "category"]
    assert main([*asked, "--json", "--out", str(tmp_path / "out")]) == 0
    lines = {line["source"]: line for line in json.loads(capsys.readouterr().out)["judge_quality"]}
    assert lines.keys() == {*CATEGORIES, "all"}
    for category in CATEGORIES:
        of_it = [one for one in read() if one.category == category and one.reply]
        unjudged = sum(not judge(one.reply).judged for one in of_it)
        assert (lines[category]["replies"], lines[category]["unjudged"]) == (len(of_it), unjudged)
        right_ones = lines[category]["true_positives"] + lines[category]["true_negatives"]
        assert right_ones == sum(judge(one.reply).refusal == one.refusal for one in of_it)
    kept = pl.read_parquet(tmp_path / "out" / "verdicts.parquet")
    assert (~kept.drop_nulls("reply")["judged"]).sum() == lines["all"]["unjudged"]
    assert main(asked) == 0
    said = f"embedded, {NOT_ENGLISH}: {lines[NOT_ENGLISH]['unjudged']} of 24 replies were not judged"
    assert said in capsys.readouterr().out
