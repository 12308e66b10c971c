"""The tables of the consensus controls on a tiny model, and what is said about them."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
from tiny_audits import controls, lowest, nll_of, tiny_audit

from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import frame, spec
from engine.stats.uncertainty import COLUMNS
from engine.studies.estimate_words import better_or_worse, control_answers

Tables = dict[str, pl.DataFrame]
FIVE = ("random", "lrp", "ig", "consensus2", "magnitude")


@pytest.fixture(scope="module")
def audit_and_tables(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[object, Tables, list[tuple[str, int, int]]]]:
    seen: list[tuple[str, int, int]] = []
    with Store(tmp_path_factory.mktemp("store")) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": FIVE, "seeds": (42, 43)}, progress=lambda *step:
            seen.append(step), control_rates=(0.1, 0.3), null_seeds=(0, 1, 2),
        )  # fmt: skip
        yield audit, controls(audit), seen


def test_tables_have_the_agreed_columns(audit_and_tables) -> None:
    _, tables, seen = audit_and_tables
    table = tables["controls"]
    assert table.schema == spec("controls").schema()
    assert tables["control_differences"].schema == spec("control_differences").schema((*COLUMNS, "saturated"))
    # per rate and order: 5 rankings, 2 x 2 layer-matched, 3 nulls, 3 smaller ones with 5 references each
    assert table.height == 2 * 2 * (5 + 4 + 3 + 3 * (1 + 5))
    done = [step[1] for step in seen if step[0] == "cells"]
    assert done == sorted(set(done))  # equal masks are one cell
    assert table.height / 2 < done[-1] == seen[-1][2] <= table.height
    assert not table.filter(pl.col("perplexity") != pl.col("nll").exp()).height


def test_numbers_are_those_of_the_sets(audit_and_tables, tiny_llama: LoadedModel) -> None:
    audit, tables, _ = audit_and_tables
    n = tiny_llama.rows.n_rows
    count = round(0.3 * n)
    lrp, ig = (set(lowest(audit.scores[name].tolist(), count)) for name in ("lrp", "ig"))
    wanted = {
        "lrp": lrp, "ig": ig, "consensus2": set(lowest(audit.scores["consensus2"].tolist(), count)),
        "intersection": lrp & ig, "veto_lrp": lrp - ig, "veto_ig": ig - lrp,
    }  # fmt: skip
    own = tables["controls"].filter(pl.col("size_matched_to").is_null(), rate=0.3, order="lerf")
    for control, rows in wanted.items():
        line = own.filter(control=control).row(0, named=True)
        with zeroed(tiny_llama, sorted(rows)):
            expected = negative_log_likelihood(tiny_llama, audit.evaluation).nats_per_token
        assert (line["rows_removed"], line["seed"]) == (len(rows), None)
        assert line["nll"] == pytest.approx(expected, rel=1e-6)  # dead neurons are skipped: other sums round
    for control in ("lrp_layer_matched", "ig_layer_matched", "random"):
        assert own.filter(control=control)["seed"].to_list() == [42, 43]
    assert own.filter(control="rank_randomised")["seed"].to_list() == [0, 1, 2]
    matched = tables["controls"].filter(rate=0.3, order="lerf", size_matched_to="veto_ig")
    assert set(matched["rows_removed"]) == {len(ig - lrp)}
    assert matched["control"].to_list() == ["consensus2", "lrp", "ig", "random", "random"]


def test_differences_are_paired_with_consensus2_of_equal_size(audit_and_tables) -> None:
    audit, tables, _ = audit_and_tables
    count = round(0.3 * audit.loaded.rows.n_rows)
    lrp, ig = (set(lowest(audit.scores[name].tolist(), count)) for name in ("lrp", "ig"))
    both = sorted(lrp & ig)
    lines = tables["control_differences"].filter(control="intersection", rate=0.3, order="lerf")
    assert lines["reference"].to_list() == ["consensus2", "consensus2"]
    assert lines["rows_removed"].to_list() == [len(both), len(both)]
    assert lines["reference_rows"].to_list() == [len(both), count]
    measured = np.array(nll_of(audit, both).window_nats)
    for line in lines.iter_rows(named=True):
        rows = lowest(audit.scores["consensus2"].tolist(), line["reference_rows"])
        test = scipy.stats.ttest_rel(measured, np.array(nll_of(audit, rows).window_nats))
        assert line["z"] == pytest.approx(test.statistic, rel=1e-9)
        per_token = (measured - np.array(nll_of(audit, rows).window_nats)).mean() / 15
        assert line["difference"] == pytest.approx(per_token, rel=1e-9)
        assert line["stderr"] == pytest.approx(line["difference"] / test.statistic, rel=1e-9)
    full = tables["control_differences"].filter(~pl.col("control").is_in(["intersection", "veto_lrp", "veto_ig"]))
    assert full.filter(pl.col("rows_removed") != pl.col("reference_rows")).is_empty()
    # per rate and order: lrp, ig, 2 random, 4 layer-matched, 3 nulls
    assert full.height == 2 * 2 * 11
    assert "consensus2" not in full["control"].to_list()


# In words


def difference_lines(*lines: tuple[str, str, int | None, int, int, float, float | None]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            ("m", control, order, 0.3, seed, rows, "consensus2", reference, difference, stderr, None)
            for control, order, seed, rows, reference, difference, stderr in lines
        ],
        schema=spec("control_differences").schema(),
        orient="row",
    )


@pytest.mark.parametrize(
    ("difference", "p_holm", "order", "level", "expected"),
    [
        (-0.3, 0.01, "lerf", 0.05, "better"),
        (0.3, 0.01, "lerf", 0.05, "worse"),
        (-0.3, 0.01, "morf", 0.05, "worse"),
        (0.3, 0.01, "morf", 0.05, "better"),
        (-0.2, 0.05, "lerf", 0.05, "better"),
        (-0.19, 0.051, "lerf", 0.05, "no difference seen"),
        (-0.3, 0.01, "lerf", 0.001, "no difference seen"),
        (-0.3, None, "lerf", 0.05, "no difference seen"),
        (0.0, 0.0, "lerf", 0.05, "no difference seen"),
    ],
)
def test_better_or_worse(difference: float, p_holm: float | None, order: str, level: float, expected: str) -> None:
    assert better_or_worse(difference, p_holm, order, level) == expected


def test_a_smaller_edit_only_looks_better() -> None:
    table = difference_lines(
        ("intersection", "lerf", None, 200, 200, 0.02, 0.02),
        ("intersection", "lerf", None, 200, 300, -0.5, 0.05),
        ("veto_lrp", "lerf", None, 100, 100, -0.3, 0.05),
        ("veto_lrp", "lerf", None, 100, 300, -0.9, 0.05),
        ("veto_ig", "morf", None, 100, 100, -0.3, 0.05),
        ("veto_ig", "morf", None, 100, 300, -0.9, 0.05),
    )
    both, lrp, ig = control_answers(table)
    assert (both.answer, both.at_rate, both.survives) == ("no difference seen", "better", False)
    assert (lrp.answer, lrp.at_rate, lrp.survives) == ("better", "better", True)
    assert (ig.answer, ig.at_rate, ig.survives) == ("worse", "worse", None)
    assert both.sentence == (
        "No difference is seen between the intersection of LRP and IG and consensus2 at 30% (LeRF, 200 rows): "
        "its NLL is +0.02 (-0.0192 to +0.0592) nats per token from consensus2's at equal size. "
        "Against consensus2 with the rate's full 300 rows, it looks better, but not at equal size."
    )
    assert lrp.sentence.endswith("it looks better, and that holds at equal size.")
    assert ig.sentence.startswith("VETO-IG does worse than consensus2 at 30% (MoRF, 100 rows)")


def test_two_destroyed_models_are_not_compared() -> None:
    line = ("lrp", "lerf", None, 300, 300, -0.22, 0.1)
    others = [(name, "lerf", None, 300, 300, 5.0, 0.1) for name in ("ig", "random", "rank_randomised")]
    table = difference_lines(line, *others).with_columns(saturated=pl.Series([False, True, True, True]))
    alive, *destroyed = control_answers(table)
    assert alive.answer == "better"  # tested alone
    assert [one.answer for one in destroyed] == ["saturated"] * 3
    assert "IG alone and consensus2 both destroy the model at 30% (LeRF, 300 rows)" in destroyed[0].sentence


def test_seeds_count_by_their_mean_and_spread() -> None:
    values, errors = [-0.4, -0.1, -0.3], [0.05, 0.02, 0.03]
    table = difference_lines(
        *(("random", "lerf", s, 300, 300, v, e) for s, (v, e) in enumerate(zip(values, errors, strict=True)))
    )
    (answer,) = control_answers(table)
    assert answer.seeds == 3
    assert answer.difference.value == pytest.approx(np.mean(values))
    expected = math.sqrt(np.mean(np.square(errors)) + scipy.stats.sem(values) ** 2)
    assert answer.difference.stderr == pytest.approx(expected)
    # three seeds: the interval is Student's t of few degrees, not two errors
    parts = (np.mean(np.square(errors)), scipy.stats.sem(values) ** 2)
    degrees = sum(parts) ** 2 / (parts[1] ** 2 / 2)
    assert answer.difference.high == pytest.approx(np.mean(values) + scipy.stats.t.ppf(0.975, degrees) * expected)
    assert (answer.answer, answer.at_rate, answer.survives) == ("no difference seen", None, None)
    assert control_answers(table, level=0.2)[0].answer == "better"


def test_one_of_many_controls_has_to_be_clearer() -> None:
    """2.2 errors: p .028 alone; among four controls of the same order and rate not."""
    line = ("lrp", "lerf", None, 300, 300, -0.22, 0.1)
    assert control_answers(difference_lines(line))[0].answer == "better"
    others = [(name, "lerf", None, 300, 300, 0.01, 0.1) for name in ("ig", "random", "rank_randomised")]
    assert control_answers(difference_lines(line, *others))[0].answer == "no difference seen"
    other_order = [(name, "morf", None, 300, 300, 0.01, 0.1) for name in ("ig", "random", "rank_randomised")]
    assert control_answers(difference_lines(line, *other_order))[0].answer == "better"


def test_the_calibration_draw_counts_at_full_size() -> None:
    draws = [("m", "consensus2", None, "lerf", 0.3, draw, 128, 0, nll) for draw, nll in enumerate((2.3, 2.5, 2.9))]
    sweep = frame("draw_sweep", draws)
    full = difference_lines(("rank_randomised", "lerf", None, 300, 300, -0.5, 0.05))
    assert control_answers(full)[0].answer == "better"
    (found,) = control_answers(full, sweep)
    assert found.answer == "no difference seen"
    assert found.difference.stderr == pytest.approx(math.hypot(0.05, np.std((2.3, 2.5, 2.9), ddof=1)))
    smaller = difference_lines(
        ("intersection", "lerf", None, 200, 200, -0.5, 0.05), ("intersection", "lerf", None, 200, 300, -0.5, 0.05)
    )
    assert control_answers(smaller, sweep)[0].answer == "better"  # another mask, whose draws were not measured
