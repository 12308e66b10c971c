"""Paired standard errors against scipy's paired t-test, a bootstrap, and the table against both."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from tiny_audits import differences, lowest, nll_of, tiny_audit

from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.stats.blocks import missed, paired_difference
from engine.stats.printed import noise_of
from engine.stats.uncertainty import COLUMNS


def measured(nats: np.ndarray, tokens: np.ndarray) -> NegativeLogLikelihood:
    return NegativeLogLikelihood(tuple(nats.tolist()), tuple(tokens.tolist()))


def hard_windows(windows: int, tokens: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows differ much, the two masks little."""
    generator = np.random.default_rng(seed)
    base = tokens * generator.uniform(1, 6, windows)
    return base + tokens * generator.normal(0.3, 0.2, windows), base


def test_equal_windows_give_the_paired_t_test() -> None:
    tokens = np.full(40, 255)
    a, b = hard_windows(40, tokens, seed=0)
    difference, stderr = paired_difference(measured(a, tokens), measured(b, tokens))
    test = scipy.stats.ttest_rel(a / tokens, b / tokens)
    assert difference == pytest.approx(np.mean((a - b) / tokens), rel=1e-12)
    assert stderr is not None
    assert difference / stderr == pytest.approx(test.statistic, rel=1e-12)
    apart = math.hypot(measured(a, tokens).stderr or 0, measured(b, tokens).stderr or 0)
    assert stderr < apart / 5  # what windows share has cancelled


def test_unequal_windows_agree_with_a_bootstrap() -> None:
    generator = np.random.default_rng(1)
    tokens = generator.integers(40, 400, 200)
    a, b = hard_windows(200, tokens, seed=2)
    difference, stderr = paired_difference(measured(a, tokens), measured(b, tokens))
    assert difference == pytest.approx(a.sum() / tokens.sum() - b.sum() / tokens.sum(), rel=1e-12)
    draws = generator.integers(0, 200, (20_000, 200))
    resampled = (a - b)[draws].sum(1) / tokens[draws].sum(1)
    # the bootstrap's own error at 20,000 draws is 0.5%, the linearised formula's of order 1/n
    assert stderr == pytest.approx(resampled.std(ddof=1), rel=0.03)


def test_swapping_the_sides_only_changes_the_sign_and_equal_sides_differ_by_nothing() -> None:
    tokens = np.array([10, 20, 30])
    a, b = hard_windows(3, tokens, seed=3)
    forward, backward = (
        paired_difference(measured(a, tokens), measured(b, tokens)),
        paired_difference(measured(b, tokens), measured(a, tokens)),
    )
    assert forward == (-backward[0], backward[1])
    assert paired_difference(measured(a, tokens), measured(a, tokens)) == (0.0, 0.0)


def test_table_lists_every_pair_and_every_gap(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    selectors = ("random", "magnitude", "wanda")
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": selectors, "seeds": (7, 8)}, gap_rates=(0.0, 0.4)
        )
        table = differences(audit)["differences"]
        assert dict(table.schema) == spec("differences").schema((*COLUMNS, "saturated"))
        # random's 2 seeds against 2 selectors, and those against each other; a gap per ranking
        assert table.filter(rate=0.4).group_by("kind").len().sort("kind").rows() == [("gap", 4), ("lerf", 5)]
        for line in table.iter_rows(named=True):
            windows = []
            for side in ("a", "b"):
                values = np.atleast_2d(audit.scores[line[f"selector_{side}"]])
                ranking = values[0 if line[f"seed_{side}"] is None else line[f"seed_{side}"] - 7]
                sign = 1 if line[f"order_{side}"] == "lerf" else -1
                mask = lowest((sign * ranking).tolist(), round(line["rate"] * ranking.size))
                windows.append(np.array(nll_of(audit, mask).window_nats) / 15)
            test = scipy.stats.ttest_rel(*windows) if line["rate"] else None
            assert line["difference"] == pytest.approx(np.mean(windows[0] - windows[1]), abs=1e-12)
            dense = np.mean(nll_of(audit, []).window_nats) / 15
            limit = dense + max(0, math.log(tiny_llama.model.config.vocab_size) - dense) / 2
            assert line["saturated"] == (min(map(np.mean, windows)) > limit)
            blocks = np.split(windows[0] - windows[1], [2, 3])  # five windows: three blocks of 2, 1 and 2
            assert line["blocks"] == 3
            rest = [(part - line["difference"]).sum() for part in blocks]
            assert line["stderr_blocks"] == pytest.approx(
                math.sqrt(np.square(rest).sum() * 3 / 2 * missed(1, 3)) / 5, abs=1e-12
            )
            if test is None:
                assert (line["stderr"], line["z"]) == (0, None)
            else:
                assert line["z"] == pytest.approx(test.statistic, rel=1e-6)
                assert line["stderr"] == pytest.approx(line["difference"] / line["z"], rel=1e-12)
    gaps = table.filter(kind="gap")
    assert (gaps["selector_a"] == gaps["selector_b"]).all()
    assert set(gaps["order_a"]) == {"morf"}
    assert set(gaps["order_b"]) | set(table.filter(kind="lerf")["order_a"]) == {"lerf"}


def test_the_error_of_a_mean_over_seeds_is_its_spread_over_repetitions() -> None:
    """Window errors are shared by the seeds, so that three seeds do not average them away."""
    generator = np.random.default_rng(7)
    means, squares = [], []
    for _ in range(4000):
        shared = generator.normal(0, 0.05)
        values = (generator.normal(0, 0.3, 3) + shared).tolist()
        noise = noise_of(values, [0.05] * 3, None)
        assert noise is not None
        means.append(np.mean(values))
        squares.append(noise.stderr**2)
    assert math.sqrt(np.mean(squares)) == pytest.approx(float(np.std(means)), rel=0.05)  # 2% is one sd of 4000 draws
    assert np.std(means) == pytest.approx(math.hypot(0.3 / math.sqrt(3), 0.05), rel=0.05)


def test_without_seeds_or_without_an_error() -> None:
    assert noise_of([1.5], [0.2], None) == (pytest.approx(0.2), math.inf)
    assert noise_of([1.0, 2.0], [0.2, None], None) is None
