"""Stability against separate scoring runs per size, sets and scipy; interruption; sizes that do not fit."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from tiny_audits import lowest, nll_of, stability, tiny_audit
from tiny_models import text

from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.selectors import ScoringRun, compute_scores, register_selector
from engine.selectors.base import REGISTRY
from engine.studies.audit.audit_inputs import AuditInputs

SELECTORS = ("random", "magnitude", "wanda", "lrp", "shifted")
DATA = ("wanda", "lrp", "shifted")
SIZES = (2, 4, 6)
RATES = (0.1, 0.5)


@pytest.fixture(autouse=True)
def plug_in() -> Iterator[None]:
    """A seeded selector that needs data."""

    @register_selector("shifted", seeded=True)
    class Shifted:
        """s_i = E |h_i| + noise of the seed."""

        def score(self, run: ScoringRun) -> torch.Tensor:
            noise = [torch.rand(run.rows.n_rows, generator=torch.Generator().manual_seed(s)) for s in run.seeds]
            return run.activations().output_mean_abs + torch.stack(noise)

    yield
    REGISTRY.remove("shifted")


def audit_of(loaded: LoadedModel, corpus: Path, store: Store, **changes: Any) -> AuditInputs:
    scoring = {"selectors": SELECTORS, "batch_size": 2, "seeds": (3, 4)} | changes.pop("scoring", {})
    settings = {"stability_sizes": SIZES, "stability_rates": RATES} | changes
    return tiny_audit(loaded, corpus, store, scoring=scoring, **settings)


def test_table_against_separate_runs(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, scored_windows: list[int]
) -> None:
    with Store(tmp_path) as store:
        audit = audit_of(tiny_llama, tiny_text, store)
        table = stability(audit)["stability"]
        assert scored_windows == [2, 2, 2] * 2  # activations and lrp over all windows once
        scored = audit.scored.scores
        assert len(scored_windows) == 6  # and no more for the scores themselves
        assert dict(table.schema) == spec("stability").schema()
        keys = table.select("selector", "size", "rate").rows()
        assert keys == [(name, size, rate) for name in DATA for size in SIZES for rate in RATES]
        scores = {
            size: compute_scores(tiny_llama, DATA, audit.calibration.first(size), batch_size=2, seeds=(3, 4))
            for size in SIZES
        }
        assert all(torch.equal(scored[name], scores[6][name]) for name in DATA)
        for line in table.iter_rows(named=True):
            here, whole = (np.atleast_2d(scores[size][line["selector"]].numpy()) for size in (line["size"], 6))
            rho = [scipy.stats.spearmanr(a, b).statistic for a, b in zip(here, whole, strict=True)]
            shared, nll = [], []
            for a, b in zip(here.tolist(), whole.tolist(), strict=True):
                masks = [set(lowest(values, round(line["rate"] * len(values)))) for values in (a, b)]
                shared.append(len(masks[0] & masks[1]) / len(masks[0] | masks[1]))
                nll.append(nll_of(audit, sorted(masks[0])).nats_per_token)
            assert line["reference_size"] == 6
            assert line["spearman"] == pytest.approx(np.mean(rho), abs=1e-12)
            assert line["jaccard"] == pytest.approx(np.mean(shared), rel=1e-12)
            assert line["nll"] == pytest.approx(np.mean(nll), rel=1e-12)
            assert line["perplexity"] == pytest.approx(math.exp(np.mean(nll)))
    reference = table.filter(size=6)
    assert reference["spearman"].to_numpy() == pytest.approx(1)
    assert (reference["jaccard"] == 1).all()
    assert (table.filter(size=2)["jaccard"] < 1).any()


def test_an_interrupted_run_goes_on_where_it_stopped(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, scored_windows: list[int]
) -> None:
    with Store(tmp_path / "through") as store:
        expected = stability(audit_of(tiny_llama, tiny_text, store))["stability"]
    scored_windows.clear()

    def stop_in_lrp(stage: str, done: int, _: int) -> None:
        if stage == "lrp" and done == 4:
            raise KeyboardInterrupt

    with Store(tmp_path / "stopped") as store:
        audit = audit_of(tiny_llama, tiny_text, store)
        with pytest.raises(KeyboardInterrupt):
            stability(replace(audit, progress=stop_in_lrp))
        assert scored_windows == [2, 2, 2, 2, 2]  # all of activations, two batches of lrp
        scored_windows.clear()
        # wanda is kept; shifted was not scored yet and needs the activations again
        assert stability(audit)["stability"].equals(expected)
        assert sorted(scored_windows) == [2] * 6
        scored_windows.clear()
        cells = len(store)
        assert stability(audit)["stability"].equals(expected)
        assert scored_windows == []
        assert len(store) == cells


def test_a_size_may_exceed_what_the_scores_use(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    other = tmp_path / "evaluation.txt"
    other.write_text(text(seed=5), encoding="utf-8")
    with Store(tmp_path / "store") as store:
        settings: dict[str, Any] = {"stability_sizes": (2, 8), "stability_rates": (0.1,)}
        apart = stability(audit_of(tiny_llama, tiny_text, store, eval_corpus=str(other), **settings))
        assert set(apart["stability"]["reference_size"]) == {8}
        # One file for both: what follows the plan's calibration windows is evaluation text.
        shared = stability(audit_of(tiny_llama, tiny_text, store, **settings))
        assert set(shared["stability"]["reference_size"]) == {6}
