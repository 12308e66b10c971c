"""Disjoint draws: their windows, their tables against separate runs and sets, and texts that are too short."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from tiny_audits import draws, lowest, nll_of, tiny_audit
from tiny_models import text

from engine.data.corpora import TooFewDraws, _runs, _starts, disjoint_draws, windows
from engine.models.loading import LoadedModel
from engine.records.manifest import shortfalls
from engine.results.store import Store
from engine.results.tables import spec
from engine.selectors import compute_scores
from engine.studies.audit.stability import ENDS, DisjointDraws, _drawn

LENGTH = 16


def drawn(loaded: LoadedModel, corpus: Path, **changes):
    settings = {"draws": 5, "size": 6, "least": 2, "length": LENGTH, "seed": 0} | changes
    return disjoint_draws(str(corpus), loaded.tokenizer, **settings)


@pytest.fixture(scope="module")
def long_text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "long.txt"
    path.write_text(text(400), encoding="utf-8")
    return path


def test_draws_are_stretches_of_the_whole_text_without_a_window_in_common(tiny_llama, long_text):
    whole = windows(str(long_text), tiny_llama.tokenizer, role="calibration", samples=10**6, length=LENGTH)
    available = len(whole.input_ids)
    last = set()
    for seed in range(40):
        found = drawn(tiny_llama, long_text, seed=seed)
        taken = [one.sample_ids for one in found.sets]
        assert all(ids == tuple(range(ids[0], ids[0] + 6)) for ids in taken)
        assert len(set().union(*taken)) == 30
        assert found.available == available
        for one in found.sets:
            assert (one.input_ids == whole.input_ids[list(one.sample_ids)]).all()
        last.add(max(max(ids) for ids in taken) / available)
    assert max(last) > 0.95  # the end of the text is drawn too
    assert min(min(one.sample_ids) for one in found.sets) >= 0
    again = drawn(tiny_llama, long_text, seed=3)
    assert [one.token_hash for one in again.sets] == [
        one.token_hash for one in drawn(tiny_llama, long_text, seed=3).sets
    ]
    record = again.record()
    assert record["first_windows"] == [one.sample_ids[0] for one in again.sets]
    assert (record["seed"], record["samples"], record["draws"]) == (3, 6, 5)
    assert shortfalls(record) == []


@pytest.mark.parametrize("length", [1, 2, 3])
def test_no_window_of_a_draw_touches_the_text_that_is_left_out_and_no_other_is_lost(length):
    """Every stretch of tokens of a text of six windows and a rest, its ends within windows, between and beyond them."""
    tokens = 6 * length + length // 2
    for first, last in itertools.combinations_with_replacement(range(tokens + 2), 2):
        held = range(first, last)
        runs = _runs(6, length, held)
        free = [w for w in range(6) if not set(range(w * length, (w + 1) * length)) & set(held)]
        assert [window for run in runs for window in run] == free
        for size, seed in itertools.product((1, 2, 3), range(3)):
            tiles = sum(len(run) // size for run in runs)
            starts = _starts(runs, size, tiles, seed) if tiles else []
            taken = [window for start in starts for window in range(start, start + size)]
            assert len(taken) == len(set(taken)) == tiles * size
            assert set(taken) <= set(free)


def test_the_evaluation_text_of_the_audit_is_what_draws_leave_out(tiny_llama, long_text, tmp_path):
    """One file for both: token by token, no draw has what the audit evaluates on; its own calibration text may be."""
    settings = {"eval_corpus": str(long_text), "calibration_draws": 5, "stability_sizes": (2, 6), "eval_length": 20}
    with Store(tmp_path) as store:
        audit = tiny_audit(tiny_llama, long_text, store, scoring={"corpus": str(long_text)}, **settings)
        text = audit.evaluation
        held = range(text.skipped_tokens, text.skipped_tokens + text.input_ids.numel())
        assert len(held)
        for seed in range(10):
            found = _drawn(replace(audit, plan=replace(audit.plan, draws_seed=seed)))
            used = {w * LENGTH + place for one in found.sets for w in one.sample_ids for place in range(LENGTH)}
            assert not used & set(held)


def test_no_draws_are_made_where_none_are_wanted(tiny_llama, long_text, tmp_path):
    with Store(tmp_path) as store:
        audit = tiny_audit(tiny_llama, long_text, store, scoring={"corpus": str(long_text)}, calibration_draws=0)
        with pytest.raises(TooFewDraws, match="--calibration-draws says 0; give 2 or more"):
            _drawn(audit)


def test_tables_against_separate_runs(tiny_llama, tiny_text, long_text, tmp_path):
    settings = {
        "stability_sizes": (2, 6), "stability_rates": (0.1, 0.3), "control_rates": (0.3,), "calibration_draws": 4,
        "eval_corpus": str(tiny_text),
    }  # fmt: skip
    scoring = {"selectors": ("random", "magnitude", "wanda", "lrp"), "corpus": str(long_text)}
    with Store(tmp_path) as store:
        audit = tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, **settings)
        tables = draws(audit)
        alike, sweep = tables["draws"], tables["draw_sweep"]
        assert dict(alike.schema) == spec("draws").schema(ENDS)
        assert dict(sweep.schema) == spec("draw_sweep").schema()
        assert alike.select("selector", "rate").rows() == [(s, r) for s in ("wanda", "lrp") for r in (0.1, 0.3)]
        assert sweep.height == 2 * 4 * 2
        sets = drawn(tiny_llama, long_text, draws=4).sets
        for selector in ("wanda", "lrp"):
            scores = [compute_scores(tiny_llama, [selector], one)[selector].numpy() for one in sets]
            pairs = list(itertools.combinations(scores, 2))
            rho = np.mean([scipy.stats.spearmanr(a, b).statistic for a, b in pairs])
            count = round(0.3 * scores[0].size)
            masks = [set(lowest(one.tolist(), count)) for one in scores]
            overlaps = [len(a & b) / len(a | b) for a, b in itertools.combinations(masks, 2)]
            line = alike.filter(selector=selector, rate=0.3).row(0, named=True)
            assert line["spearman"] == pytest.approx(rho, abs=1e-6)
            found = (line["jaccard"], line["jaccard_min"], line["jaccard_max"])
            assert found == pytest.approx((np.mean(overlaps), min(overlaps), max(overlaps)), rel=1e-12)
            assert (line["calibration_draws"], line["draw_size"], line["size_wanted"]) == (4, 6, 6)
            here = sweep.filter(selector=selector, order="lerf")
            expected = [nll_of(audit, sorted(mask)).nats_per_token for mask in masks]
            assert here["nll"].to_list() == pytest.approx(expected, rel=1e-9)
            assert here["first_window"].to_list() == [one.sample_ids[0] for one in sets]
        record = DisjointDraws().record(audit)["calibration_draws"]
        assert record["first_windows"] == [one.sample_ids[0] for one in sets]
        before = len(store)
        again = draws(replace(audit))  # scores and cells come from the store
        assert again["draws"].equals(alike)
        assert len(store) == before
