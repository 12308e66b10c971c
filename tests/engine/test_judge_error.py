"""Rates corrected for a judge's errors: by hand and by coverage; the embedded judge's counts on labelled replies."""

from pathlib import Path

import numpy as np
import pytest
from replies_by_kind import FILES, KINDS, quality_by_kind, read

from engine.judges.base import EMBEDDED, open_judges
from engine.judges.measured_quality import FILE, measured_quality, quality_from
from engine.records.errors import InputError
from engine.stats.uncertainty import JudgeCounts, corrected_rate
from precomputed.judge_quality import measure, measure_kinds

AGAIN = f"`python -m {measure.__module__} LABELLED/*.csv --kinds tests/data/replies_by_kind_*unseen.jsonl`"
LABELLED = Path(__file__).parents[2].parent / "shared" / "data" / "judge"


def test_rogan_and_gladen():
    counts = JudgeCounts(90, 20, 10, 80)  # sensitivity .9, specificity .8
    for truth in (0.0, 0.25, 1.0):
        judged = truth * 0.9 + (1 - truth) * 0.2
        estimate, (low, high) = corrected_rate(round(judged * 1000), 1000, counts)
        assert estimate == pytest.approx(truth)
        assert low <= estimate <= high
    assert corrected_rate(10, 100, counts)[0] == 0  # fewer than the judge takes for refusals by mistake
    assert corrected_rate(5, 10, JudgeCounts(50, 50, 50, 50)) is None  # no better than chance
    with pytest.raises(InputError, match="labelled refusals and labelled answers"):
        JudgeCounts(0, 1, 0, 5)
    with pytest.raises(InputError, match="got 3 of 2"):
        corrected_rate(3, 2, counts)


def test_an_example_by_the_authors_script():
    """q 27 of 650, Se 50 of 100, Sp 199 of 200, step by step in the notation of Lang and Reiczigel's R script."""
    z = 1.959963984540054
    nprev, kprev, nsens, ksens, nspec, kspec = 650 + z**2, 27 + z**2 / 2, 102, 51, 202, 200
    obs_prev, obs_sens, obs_spec = kprev / nprev, ksens / nsens, kspec / nspec
    youden = obs_sens + obs_spec - 1
    est = (obs_prev + obs_spec - 1) / youden
    of_sens, of_spec = obs_sens * (1 - obs_sens) / nsens, obs_spec * (1 - obs_spec) / nspec
    error = (obs_prev * (1 - obs_prev) / nprev + of_sens * est**2 + of_spec * (1 - est) ** 2) ** 0.5 / youden
    shift = 2 * z**2 * (est * of_sens - (1 - est) * of_spec)
    estimate, interval = corrected_rate(27, 650, JudgeCounts(50, 1, 50, 199))
    assert estimate == pytest.approx((27 / 650 + 0.995 - 1) / 0.495)
    assert interval == pytest.approx((est + shift - z * error, est + shift + z * error))


@pytest.mark.parametrize(
    ("truth", "sensitivity", "specificity"), [(0.05, 0.95, 0.96), (0.4, 0.9, 0.8), (0.9, 0.95, 0.96)]
)
def test_the_interval_covers_the_true_rate(truth: float, sensitivity: float, specificity: float):
    rng, trials, n = np.random.default_rng(4), 4000, 100
    judged = rng.binomial(n, truth * sensitivity + (1 - truth) * (1 - specificity), trials)
    hits, right = rng.binomial(120, sensitivity, trials), rng.binomial(150, specificity, trials)
    covered = 0
    for one, true_positives, true_negatives in zip(judged.tolist(), hits.tolist(), right.tolist(), strict=True):
        counts = JudgeCounts(true_positives, 150 - true_negatives, 120 - true_positives, true_negatives)
        _, (low, high) = corrected_rate(one, n, counts)
        covered += low <= truth <= high
    assert 0.94 < covered / trials < 0.995  # the authors report 95% or a little more


def test_another_version_of_the_judge_has_no_counts(tmp_path: Path):
    [judge] = open_judges(EMBEDDED)
    entry = f'[embedded]\njudge_version = "{judge.version}"\nsource = "some"\n'
    file = tmp_path / "quality.toml"
    file.write_text(
        entry + "true_positives = 9\nfalse_positives = 1\nfalse_negatives = 2\ntrue_negatives = 8\n", "utf-8"
    )
    assert measured_quality(judge, file).counts == JudgeCounts(9, 1, 2, 8)
    file.write_text(file.read_text("utf-8").replace(judge.version, "000000000000"), "utf-8")
    assert measured_quality(judge, file) is None


@pytest.mark.long
@pytest.mark.skipif(not LABELLED.is_dir(), reason="the labelled replies do not lie beside the checkout")
def test_the_counts_are_those_of_the_judge_as_it_is():
    found = measure(sorted(LABELLED.glob("*.csv")))
    again = f"run {AGAIN} and commit {FILE.name}"
    [judge] = open_judges(EMBEDDED)
    assert measured_quality(judge) == found, again


def test_the_counts_by_kind_are_those_of_the_judge_as_it_is():
    [judge] = open_judges(EMBEDDED)
    found = measure_kinds([FILES[half] for half in FILES if half.endswith("unseen")])
    assert quality_by_kind(judge) == found, f"run {AGAIN} and commit {FILE.name}"
    assert list(found) == list(KINDS)
    for kind, quality in found.items():
        of_kind = [one for half in FILES if half.endswith("unseen") for one in read(half) if one.kind == kind]
        assert sum(vars(quality).values()) == len(of_kind) == 16
        assert quality.true_positives + quality.false_negatives == sum(one.refusal for one in of_kind)


def test_counts_of_ones_own_labelled_replies(tmp_path: Path):
    from engine.cli import main

    file = tmp_path / "mine.csv"
    rows = ["I cannot help with that.,refusal", "I won't do this.,refusal", "Sure: the answer is 4.,compliance"]
    file.write_text("\n".join(["reply,label", *rows, "Here you go.,refusal"]) + "\n", "utf-8")
    assert main(["refusal", "judge", str(file), "--out", str(tmp_path / "out"), "--json"]) == 0
    [judge] = open_judges(EMBEDDED)
    for path in (tmp_path / "out", tmp_path / "out" / "judge_quality.parquet"):
        found = quality_from(path, judge)
        assert found.counts == JudgeCounts(2, 0, 1, 1)
        assert found.source.startswith("4 labelled replies")
    with pytest.raises(InputError, match=r"refusal judge FILE --judge embedded --out FOLDER"):
        quality_from(file, judge)

    class Other:
        id, version = "other", "1"

    with pytest.raises(InputError, match="says nothing of the judge other 1, but of embedded"):
        quality_from(tmp_path / "out", Other())
