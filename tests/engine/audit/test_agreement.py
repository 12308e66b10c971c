"""Agreement between selectors against Python sets and scipy."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from tiny_audits import agreement, lowest, tiny_audit

from engine.edits.edit import Ranking
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.stats.removal_order import expected_random_jaccard
from engine.studies.audit.agreement import pairwise

SELECTORS = ("random", "magnitude", "wanda", "lrp")
RATES = (0.0, 0.2, 0.5)


def test_tables_against_sets_and_scipy(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    progress: list[tuple[str, int, int]] = []
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": SELECTORS, "seeds": (7, 8)}, agreement_rates=RATES,
            progress=lambda *step: progress.append(step),
        )  # fmt: skip
        tables = agreement(audit)
        scores = {name: np.atleast_2d(values).tolist() for name, values in audit.scores.items()}
    assert [step for step in progress if step[0] == "agreement"][-1] == ("agreement", 5, 5)
    jaccard, spearman = tables["jaccard"], tables["spearman"]
    assert dict(jaccard.schema) == spec("jaccard").schema()
    assert dict(spearman.schema) == spec("spearman").schema()
    pairs = list(combinations(SELECTORS, 2))
    assert list(spearman.select("selector_a", "selector_b").iter_rows()) == pairs
    assert jaccard.height == len(pairs) * len(RATES) * 2
    for line in spearman.iter_rows(named=True):
        expected = np.mean(
            [
                scipy.stats.spearmanr(a, b).statistic
                for a in scores[line["selector_a"]]
                for b in scores[line["selector_b"]]
            ]
        )
        assert line["model"] == tiny_llama.id
        assert line["spearman"] == pytest.approx(expected, abs=1e-12)

    sublayer_of = tiny_llama.rows.frame()["sublayer"].to_list()
    rows_in = {name: sublayer_of.count(name) for name in ("attention", "mlp")}
    for line in jaccard.iter_rows(named=True):
        if line["rate"] == 0:
            assert line["jaccard"] is None
            assert line["expected_random"] is None
            continue
        found, chance = [], []
        for a in scores[line["selector_a"]]:
            for b in scores[line["selector_b"]]:
                sets = [
                    {
                        row
                        for row in lowest(values, round(line["rate"] * len(values)))
                        if sublayer_of[row] == line["sublayer"]
                    }
                    for values in (a, b)
                ]
                found.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
                chance.append(expected_random_jaccard(rows_in[line["sublayer"]], len(sets[0]), len(sets[1])))
        assert line["jaccard"] == pytest.approx(np.mean(found), rel=1e-12)
        assert line["expected_random"] == pytest.approx(np.mean(chance), rel=1e-12)


def test_masks_taken_at_random_agree_as_expected_by_chance() -> None:
    """Many pairs of random rankings: the mean Jaccard lies within its standard error of the column beside it."""
    generator = np.random.default_rng(3)
    rankings = [Ranking(str(k), None, generator.random(400, dtype=np.float32)) for k in range(60)]
    mlp = np.arange(400) >= 130
    found = pairwise(rankings, {"attention": ~mlp, "mlp": mlp}, (0.3,))
    upper = np.triu_indices(60, 1)
    for sublayer in ("attention", "mlp"):
        excess = (found.jaccard[sublayer, 0.3] - found.expected[sublayer, 0.3])[upper]
        # pairs share rankings, so the error counts rankings, not pairs: a bound on the safe side
        assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(60)
        assert found.expected[sublayer, 0.3][upper].mean() > 0.1


def test_ties_are_settled_by_row_id_and_a_constant_score_correlates_with_nothing() -> None:
    constant = Ranking("constant", None, np.zeros(10, dtype=np.float32))
    rising = Ranking("rising", None, np.arange(10, dtype=np.float32))
    everything = np.ones(10, dtype=np.bool_)
    found = pairwise([constant, rising], {"all": everything}, (0.4,))
    assert found.jaccard["all", 0.4][0, 1] == 1  # rows 0..3 both
    assert np.isnan(found.spearman[0, 1])
