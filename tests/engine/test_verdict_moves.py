"""Verdicts under moved limits: every limit alone, against judging again by hand; and what is said of it."""

from dataclasses import fields, replace

import polars as pl
import pytest

from engine.results.folders import read_table
from engine.stats.limits import Thresholds
from engine.studies.verdict.judged_selectors import judge_selectors
from engine.studies.verdict.verdict_moves import LIMITS, sentences, value_text, verdict_moves
from precomputed import demo_dir

FOLDER = demo_dir() / "results"


def judged(limits: Thresholds) -> pl.DataFrame:
    gap, differences, specific, draws, sweep, verdicts = (
        read_table(FOLDER, stem) for stem in ("gap", "differences", "specific", "draws", "draw_sweep", "verdicts")
    )
    return judge_selectors(
        gap, differences, verdicts["dense_nll"][0], specific=specific, draws=draws, draw_sweep=sweep, thresholds=limits
    )


@pytest.fixture(scope="module")
def moves() -> pl.DataFrame:
    return verdict_moves(judged, Thresholds())


def test_every_limit_but_the_rate_and_the_number_of_draws_is_moved():
    assert set(LIMITS) == {field.name for field in fields(Thresholds)} - {"rate", "draws"}


@pytest.mark.long
def test_lines_are_the_verdicts_judged_again(moves):
    base = {row["selector"]: row for row in judged(Thresholds()).to_dicts()}
    assert moves.height == len(base) * sum(
        value != getattr(Thresholds(), key) for key in LIMITS for value in LIMITS[key][1]
    )
    for limit, value in (("faithful_damage", 0.7), ("specific_orders", ("lerf",)), ("jaccard", 0.9)):
        again = judged(replace(Thresholds(), **{limit: value}))
        for row in again.to_dicts():
            [line] = moves.filter(selector=row["selector"], limit=limit, moved_value=value_text(value)).to_dicts()
            for name in ("validity", "specific", "stability"):
                assert line[name] == row[name]
                assert (name in (line["changed"] or "")) == (row[name] != base[row["selector"]][name])


def test_a_limit_that_is_moved_across_a_number_turns_its_verdict(moves):
    lenient = moves.filter(limit="specific_orders", moved_value="lerf", selector="lrp").row(0, named=True)
    assert (lenient["validity"], lenient["specific"]) == ("faithful", "specific")
    assert lenient["changed"] == "validity, specific"
    stricter = moves.filter(limit="jaccard", moved_value="0.9", selector="lrp").row(0, named=True)
    assert stricter["changed"] == "stability"
    assert stricter["stability"] != "stable"


def test_sentences_name_what_changes_and_what_does_not(moves):
    told = sentences(moves, str.upper)
    assert any(
        one.startswith("Jaccard between draws that is stable: 0.9 instead of 0.8: ")
        and all(name in one for name in ("LRP", "IG", "CONSENSUS2", "IG_CONDUCTANCE"))
        and "WANDA" not in one
        for one in told
    )
    still = {(row["limit"], row["moved_value"]) for row in moves.to_dicts()} - {
        (row["limit"], row["moved_value"]) for row in moves.filter(pl.col("changed").is_not_null()).to_dicts()
    }
    assert told[-1].startswith("No verdict changes with ") == bool(still)
    for limit, value in still:
        assert f"{LIMITS[limit][0]}: {value} instead of" in told[-1]
