"""Validity gap and seed spread against the sweep's cells and numpy."""

import math
from pathlib import Path

import numpy as np
import pytest
from tiny_audits import gap, seeds, tiny_audit

from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.stats.blocks import window_blocks
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.sweeps import sweep_model
from engine.studies.audit.verdicts import validity_gap

RATES = (0.1, 0.5)


def test_tables_say_what_the_sweep_measured(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama,
            tiny_text,
            store,
            scoring={"selectors": ("random", "magnitude", "lrp"), "seeds": (7, 8, 9)},
            gap_rates=RATES,
        )
        swept = sweep_model(tiny_llama, audit.scores, audit.evaluation, store=store, rates=RATES, seeds=(7, 8, 9))
        cells = len(store)
        gaps, spreads = gap(audit)["gap"], seeds(audit)["seeds"]
        assert len(store) == cells + 1, "beside the unedited model cells of the sweep are used, not measured again"
    assert dict(gaps.schema) == spec("gap").schema((*COLUMNS, "saturated_above"))
    assert dict(spreads.schema) == spec("seeds").schema()
    nll = {tuple(row[:4]): row[4] for row in swept.select("selector", "seed", "order", "rate", "nll").rows()}
    assert [(line["selector"], line["seed"], line["rate"]) for line in gaps.iter_rows(named=True)] == [
        *(("random", seed, rate) for seed in (7, 8, 9) for rate in RATES),
        *((selector, None, rate) for selector in ("magnitude", "lrp") for rate in RATES),
    ]
    for line in gaps.iter_rows(named=True):
        lerf, morf = (nll[line["selector"], line["seed"], order, line["rate"]] for order in ("lerf", "morf"))
        assert (line["nll_lerf"], line["nll_morf"]) == (lerf, morf)
        assert line["ppl_lerf"] == pytest.approx(math.exp(lerf))
        assert line["gap"] == pytest.approx(math.exp(morf) - math.exp(lerf))
        assert line["log_gap"] == pytest.approx(morf - lerf)
        assert line["stderr"] > 0
    assert spreads.select("selector", "order", "rate").rows() == [
        ("random", order, rate) for order in ("lerf", "morf") for rate in RATES
    ]
    for line in spreads.iter_rows(named=True):
        values = [nll["random", seed, line["order"], line["rate"]] for seed in (7, 8, 9)]
        assert line["seeds"] == 3
        assert line["nll_mean"] == pytest.approx(np.mean(values))
        assert line["nll_sd"] == pytest.approx(np.std(values, ddof=1))
        assert (line["nll_min"], line["nll_max"]) == (min(values), max(values))


def test_perplexities_beyond_float64() -> None:
    def measured(*nats: float) -> NegativeLogLikelihood:
        return NegativeLogLikelihood(nats, (1, 1))

    one_infinite = validity_gap(measured(2.0, 4.0), measured(700.0, 900.0))
    wider = math.sqrt(window_blocks(2).widening)
    assert one_infinite == pytest.approx((3, 800, math.exp(3), math.inf, math.inf, 797, 99, 99 * wider, 2))
    both_infinite = validity_gap(measured(800.0, 800.0), measured(900.0, 900.0))
    assert both_infinite == (800, 900, math.inf, math.inf, None, 100, 0, 0, 2)
