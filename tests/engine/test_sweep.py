"""Sweeps: cells against brute force, caching, and a kill -9 in the middle."""

import math
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from tiny_audits import count_edits, sweep, tiny_audit

from engine.cli import main
from engine.edits.edit import rankings
from engine.measures.nll import negative_log_likelihood
from engine.records.errors import InputError
from engine.results.store import Store
from engine.results.tables import spec
from engine.run.audit_plan import ProtocolsPlan
from engine.run.runner import masked_nll
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.sweeps import sweep_model


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store") as opened:
        yield opened


def some_scores(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {"magnitude": torch.rand(n, generator=generator), "random": torch.rand(2, n, generator=generator)}


def brute_force_nll(loaded, scores, order, rate, windows):
    """Sort, edit a copy of the weights by hand, evaluate; no mask, ranking or intervention code of ours."""
    sign = 1 if order == "lerf" else -1
    ranked = sorted(range(len(scores)), key=lambda row: (sign * float(scores[row]), row))
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    frame = loaded.rows.frame()
    names = {(layer.block, layer.projection): layer.name for layer in loaded.rows.layers}
    with torch.no_grad():
        for row_id in ranked[: round(rate * len(ranked))]:
            where = frame.row(row_id, named=True)
            linear = loaded.model.get_submodule(names[where["block"], where["projection"]])
            linear.weight[where["row"]] = 0
            if linear.bias is not None:
                linear.bias[where["row"]] = 0
    result = negative_log_likelihood(loaded, windows).nats_per_token
    loaded.model.load_state_dict(before)
    return result


def test_cells_equal_editing_the_weights_by_hand(tiny_family, tiny_windows, store):
    scores = some_scores(tiny_family.rows.n_rows)
    table = sweep_model(tiny_family, scores, tiny_windows, store=store, rates=(0, 0.1, 0.5), seeds=(42, 43))
    assert table.schema == spec("sweep").schema(COLUMNS)
    assert set(table["blocks"]) == {3}  # of six windows
    assert table.height == 3 * 2 * 3
    for cell in table.iter_rows(named=True):
        values = scores["magnitude"] if cell["seed"] is None else scores["random"][cell["seed"] - 42]
        assert cell["rows_removed"] == round(cell["rate"] * tiny_family.rows.n_rows)
        expected = brute_force_nll(tiny_family, values.tolist(), cell["order"], cell["rate"], tiny_windows)
        assert cell["nll"] == pytest.approx(expected, rel=1e-6)  # dead neurons are skipped: other sums round
        assert cell["perplexity"] == pytest.approx(np.exp(expected))
        assert cell["tokens"] == 6 * 15


def test_the_unmasked_model_and_known_cells_are_evaluated_once(tiny_llama, tiny_windows, store, monkeypatch):
    calls = count_edits(monkeypatch)
    scores = some_scores(tiny_llama.rows.n_rows)
    first = sweep_model(tiny_llama, scores, tiny_windows, store=store, rates=(0, 0.2, 1), seeds=(42, 43))
    # 3 rankings x 2 orders x rate 0.2, once nothing removed, once everything
    assert len(calls) == 3 * 2 + 2
    again = sweep_model(tiny_llama, scores, tiny_windows, store=store, rates=(0, 0.2, 1), seeds=(42, 43))
    assert len(calls) == 8
    assert again.equals(first)


def test_other_tokens_or_another_batch_size_are_other_cells(tiny_llama, tiny_windows, store):
    from dataclasses import replace

    masked_nll(tiny_llama, [1, 2], tiny_windows, store=store)
    assert len(store) == 1
    masked_nll(tiny_llama, [2, 1], tiny_windows, store=store)
    assert len(store) == 1
    masked_nll(tiny_llama, [1, 2], tiny_windows, store=store, batch_size=2)
    masked_nll(tiny_llama, [1], tiny_windows, store=store)
    changed = tiny_windows.input_ids.clone()
    changed[-1, -1] += 1
    masked_nll(tiny_llama, [1, 2], replace(tiny_windows, input_ids=changed), store=store)
    assert len(store) == 4


def test_random_has_one_ranking_per_seed():
    scores = {"lrp": torch.arange(3.0), "random": torch.rand(2, 3)}
    assert [(r.selector, r.seed) for r in rankings(scores, (7, 9))] == [("lrp", None), ("random", 7), ("random", 9)]


@pytest.mark.long
def test_kill_9_in_the_middle_then_resumed_gives_the_same_bytes(tiny_llama, tiny_text, tmp_path):
    """The command in a process of its own, killed when some cells are there, against one that ran through."""

    def command(name):
        return [
            *("sweep", tiny_llama.id, "--json"),
            *("--selectors", "magnitude,random", "--corpus", str(tiny_text), "--eval-corpus", str(tiny_text)),
            *("--samples", "4", "--max-length", "16", "--eval-samples", "6", "--eval-length", "16"),
            *("--store", str(tmp_path / name), "--out", str(tmp_path / f"{name}-out")),
        ]

    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert main(command("through")) == 0
    with Store(tmp_path / "through") as whole:
        cells = len(whole)

    program = [sys.executable, "-m", "engine", *command("killed")]
    with subprocess.Popen(program, env=environment, stdout=subprocess.DEVNULL) as process:
        database = tmp_path / "killed" / "cells" / "cache.db"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if database.exists():
                with Store(tmp_path / "killed") as seen:
                    if len(seen) >= 5:
                        break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    with Store(tmp_path / "killed") as interrupted:
        finished = len(interrupted)
    assert 5 <= finished < cells, "the process must have been killed in the middle"
    assert not (tmp_path / "killed-out" / "sweep.parquet").exists()

    assert main(command("killed")) == 0
    resumed = (tmp_path / "killed-out" / "sweep.parquet").read_bytes()
    assert resumed == (tmp_path / "through-out" / "sweep.parquet").read_bytes()
    shutil.rmtree(tmp_path / "killed")


def test_a_model_that_says_nan_is_an_error_and_not_a_cell(tiny_llama, tiny_windows, tmp_path):
    head = tiny_llama.model.lm_head.weight
    first = head[0].clone()
    with Store(tmp_path) as store:
        try:
            head.data[0] = float("nan")
            with pytest.raises(InputError, match="no finite perplexity with 0 rows removed"):
                masked_nll(tiny_llama, [], tiny_windows, store=store)
        finally:
            head.data[0] = first
        assert math.isfinite(masked_nll(tiny_llama, [], tiny_windows, store=store).nats_per_token)


def test_curves_under_further_interventions_are_those_of_their_own_sweeps(tiny_llama, tiny_text, tmp_path):
    settings = {
        "scoring": {"selectors": ("random", "wanda"), "seeds": (7, 8)}, "sweep_rates": (0.0, 0.3), "eval_samples": 4,
        "protocols": ProtocolsPlan(resample_windows=3),
    }  # fmt: skip
    with Store(tmp_path) as store:
        both = tiny_audit(tiny_llama, tiny_text, store, more_interventions=("mean", "resample"), **settings)
        tables = sweep(both)
        plain = sweep(tiny_audit(tiny_llama, tiny_text, store, **settings))
        assert plain["sweep"].equals(tables["sweep"])
        assert "sweep_interventions" not in plain
        further = tables["sweep_interventions"]
        assert further.schema == spec("sweep_interventions").schema()
        for name in ("mean", "resample"):
            own = sweep(tiny_audit(tiny_llama, tiny_text, store, intervention=name, **settings))["sweep"]
            assert set(own["intervention"]) == {name}
            assert further.filter(intervention=name).equals(own.select(further.columns))
            assert not own.filter(rate=0.3)["nll"].equals(plain["sweep"].filter(rate=0.3)["nll"])
        audit = tiny_audit(tiny_llama, tiny_text, store, more_interventions=("mean",), more_rates=(0.3,), **settings)
        fewer = sweep(audit)
        assert fewer["sweep"].equals(plain["sweep"])
        assert fewer["sweep_interventions"].equals(further.filter(intervention="mean", rate=0.3))
