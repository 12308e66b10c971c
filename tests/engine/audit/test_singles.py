"""Single units: effects against one edit at a time by hand, resumption, and tables against loops and numpy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from tiny_audits import tables_of, tiny_audit
from tiny_models import load_tiny

from engine.interventions.in_weights import zeroed
from engine.measures.nll import Nll
from engine.models.loading import LoadedModel
from engine.models.units import neurons, rows_alone
from engine.results.store import Store
from engine.results.tables import spec
from engine.run.edited_passes import edits_together
from engine.run.runner import LocalRunner
from engine.selectors import register_selector
from engine.selectors.base import REGISTRY
from engine.stats.blocks import window_blocks
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.singles import Singles, _samples
from engine.studies.base import Tables, conduct

CHEAP = {"selectors": ("random", "magnitude", "wanda"), "seeds": (42, 43)}
SMALL = {"singles_rows": 20, "singles_neurons": 6, "singles_windows": 4, "singles_tops": (0.1,)}


def singles(audit: AuditInputs) -> Tables:
    return tables_of("singles", audit)


def made(loaded: LoadedModel, text: Path, store: Store, **more: Any) -> AuditInputs:
    return tiny_audit(loaded, text, store, **{"scoring": CHEAP, **SMALL, **more})


@torch.no_grad()
def nats_by_hand(model: Any, ids: torch.Tensor) -> float:
    """NLL per predicted token of windows, one after another, in float64 throughout."""
    total = 0.0
    for window in ids:
        logits = model(input_ids=window[None]).logits[0, :-1].double()
        chosen = logits.log_softmax(-1)[torch.arange(len(window) - 1), window[1:]]
        total -= float(chosen.sum())
    return total / (ids.shape[0] * (ids.shape[1] - 1))


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def test_effects_are_those_of_one_edit_at_a_time(family: str, tiny_text: Path, tmp_path: Path) -> None:
    """In float64, several edits in a pass; the reference has one in the weights and one window in a pass.

    What is left is the loss, which the engine takes in float32: 6e-8 of about 6 nats, averaged over 60 tokens.
    """
    loaded = load_tiny(family, tmp_path / "model")
    loaded.model.double()
    loaded = replace(loaded, dtype="float64")
    with Store(tmp_path / "store") as store:
        audit = made(loaded, tiny_text, store)
        assert edits_together(loaded, Nll(audit.evaluation.first(4))) > 1
        table = singles(audit)["singles"]
        ids = audit.evaluation.input_ids[:4]
    assert table.schema == spec("singles").schema()
    assert table["unit_kind"].value_counts(sort=True).rows() == [("row", 20), ("neuron", 6)]
    frame = loaded.rows.frame()
    dense, differences = nats_by_hand(loaded.model, ids), []
    for line in table.iter_rows(named=True):
        where = frame.row(line["row_id"], named=True)
        rows = [line["row_id"]]
        if line["unit_kind"] == "neuron":
            assert (where["projection"], line["projection"]) == ("gate_proj", None)
            up = frame.filter(block=where["block"], projection="up_proj", row=where["row"])
            rows.append(up["row_id"][0])
        else:
            assert line["projection"] == where["projection"]
        assert [line[name] for name in ("block", "sublayer", "row")] == [
            where[name] for name in ("block", "sublayer", "row")
        ]
        with zeroed(loaded, rows):
            expected = nats_by_hand(loaded.model, ids) - dense
        assert line["effect"] == pytest.approx(expected, abs=2e-7)
        differences.append(expected)
    assert np.median(np.abs(differences)) > 1e-3  # far above the tolerance
    assert min(differences) < 0 < max(differences)


def test_a_neuron_its_gate_row_and_its_up_row_have_one_effect(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path
) -> None:
    units = neurons(tiny_llama)
    assert units.count == 2 * 28
    for number in (0, 30):
        gate, up = units.rows[number].tolist()
        with Store(tmp_path) as store:
            audit = made(tiny_llama, tiny_text, store)
            cells = [audit.nll(audit.edit(rows)) for rows in ([gate], [up], [gate, up], [])]
            found = LocalRunner(store).run(cells)
        nats = [found[cell].window_nats for cell in cells]
        assert nats[0] == nats[1] == nats[2] != nats[3]


def test_units_know_their_rows_and_scores(tiny_family: LoadedModel) -> None:
    rows, some = rows_alone(tiny_family), neurons(tiny_family)
    index = tiny_family.rows
    assert rows.rows.tolist() == [[row] for row in range(index.n_rows)]
    assert rows.layer.tolist() == index.layer_of(np.arange(index.n_rows)).tolist()
    row = index.n_rows - 2
    layer = index.layers[rows.layer[row]]
    weight = tiny_family.model.get_submodule(layer.name).weight[row - layer.start]
    assert rows.norm[row] == pytest.approx(float(weight.double().square().sum().sqrt()), rel=1e-6)
    scores = np.random.default_rng(0).random(index.n_rows).astype(np.float32)
    assert rows.scores(scores).tolist() == scores.astype(np.float64).tolist()
    gated = any(layer.projection == "gate_proj" for layer in index.layers)
    assert bool(some.count) == gated
    for gate, up in some.rows[::7]:
        first, second = (index.layers[index.layer_of([row])[0]] for row in (gate, up))
        assert (first.projection, second.projection, first.block) == ("gate_proj", "up_proj", second.block)
        assert gate - first.start == up - second.start
    if gated:
        assert some.scores(scores)[5] == pytest.approx(float(scores[some.rows[5, 0]]) + float(scores[some.rows[5, 1]]))


@pytest.fixture(scope="module")
def audit_and_tables(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AuditInputs, Tables]]:
    @register_selector("signed")
    class Signed:
        """Magnitude less its median: half of the scores are below zero."""

        def score(self, run: Any) -> Any:
            values = run.per_layer(lambda linear: linear.weight.abs().float().mean(dim=1))
            return values - values.median()

    settings = {"singles_rows": 120, "singles_neurons": 40, "singles_tops": (0.05, 0.25)}
    with Store(tmp_path_factory.mktemp("store")) as store:
        scoring = {**CHEAP, "selectors": (*CHEAP["selectors"], "signed")}
        audit = made(tiny_llama, tiny_text, store, scoring=scoring, **settings)
        yield audit, singles(audit)
    REGISTRY.remove("signed")


def test_what_is_said_of_all_units_is_counted(audit_and_tables: tuple[AuditInputs, Tables]) -> None:
    _, tables = audit_and_tables
    for line in tables["singles_units"].iter_rows(named=True):
        own = tables["singles"].filter(unit_kind=line["unit_kind"])
        effects = own["effect"].to_numpy()
        low, high = scipy.stats.binomtest(int((effects < 0).sum()), len(effects)).proportion_ci(method="wilson")
        assert line["helps"] == pytest.approx((effects < 0).mean())
        assert (line["helps_low"], line["helps_high"]) == (pytest.approx(low), pytest.approx(high))
        # four windows are two blocks
        t = scipy.stats.t.ppf(0.975, window_blocks(line["effect_windows"]).number - 1)
        assert t == pytest.approx(12.706, abs=1e-3)
        clear = effects < -t * own["stderr"].to_numpy()
        assert line["helps_clear"] == pytest.approx(clear.mean())
        assert line["helps_clear"] < line["helps"]
        assert line["median_effect"] == pytest.approx(np.median(np.abs(effects)))
        assert line["largest_effect"] == pytest.approx(np.abs(effects).max())


def test_halves_of_the_text_are_compared(audit_and_tables: tuple[AuditInputs, Tables]) -> None:
    audit, tables = audit_and_tables
    sample = _samples(audit)[0]
    results = LocalRunner(audit.store).run([sample.dense, *sample.effects.values()])
    dense = np.array(results[sample.dense].window_nats)
    nats = np.array([results[cell].window_nats for cell in sample.effects.values()]) - dense
    line = tables["singles_units"].row(0, named=True)
    first, second = nats[:, 0] + nats[:, 2], nats[:, 1] + nats[:, 3]
    assert line["split_half_signed"] == pytest.approx(scipy.stats.spearmanr(first, second)[0], abs=1e-6)
    absolute = scipy.stats.spearmanr(np.abs(first), np.abs(second))[0]
    assert line["split_half_absolute"] == pytest.approx(absolute, abs=1e-6)


def test_rankings_are_compared_with_the_effects(audit_and_tables: tuple[AuditInputs, Tables]) -> None:
    audit, tables = audit_and_tables
    scores = {(name, seed): values for name, seed, values in of_rankings(audit)}
    for line in tables["singles_selectors"].iter_rows(named=True):
        own = tables["singles"].filter(unit_kind=line["unit_kind"])
        effects = own["effect"].to_numpy()
        values = scores[line["selector"], line["seed"]].astype(np.float64)
        if line["unit_kind"] == "neuron":
            up = dict(neurons(audit.loaded).rows.tolist())
            values = np.array([values[row] + values[up[row]] for row in own["row_id"]])
        else:
            values = values[own["row_id"].to_numpy()]
        signed, absolute = (scipy.stats.spearmanr(values, truth)[0] for truth in (effects, np.abs(effects)))
        assert line["signed_spearman"] == pytest.approx(signed, abs=1e-6)
        assert line["absolute_spearman"] == pytest.approx(absolute, abs=1e-6)
        assert line["signed_low"] < signed < line["signed_high"]
        assert line["sign_agreement"] == pytest.approx((np.sign(values) == np.sign(effects)).mean())
        assert line["gives_signs"] == (line["selector"] == "signed")
        assert line["lerf_nll"] is None  # there is no sweep


def of_rankings(audit: AuditInputs) -> Iterator[tuple[str, int | None, np.ndarray]]:
    for ranking in audit.rankings:
        yield ranking.selector, ranking.seed, ranking.scores


def test_recall_is_counted_by_sets(audit_and_tables: tuple[AuditInputs, Tables]) -> None:
    audit, tables = audit_and_tables
    scores = {(name, seed): values.tolist() for name, seed, values in of_rankings(audit)}
    n = audit.loaded.rows.n_rows
    own = tables["singles"].filter(unit_kind="row")
    by_size = own.select("row_id", size=pl.col("effect").abs()).sort("size", descending=True)
    for line in tables["singles_recall"].filter(unit_kind="row").iter_rows(named=True):
        above = round(line["top"] * 120)
        values = scores[line["selector"], line["seed"]]
        highest = sorted(range(n), key=lambda row: (-values[row], row))[: round(line["top"] * n)]
        found = len(set(by_size["row_id"][:above]) & set(highest))
        assert (line["top_sampled"], line["top_found"]) == (above, found)
        assert line["top_threshold"] == by_size["size"][above]
        exact = scipy.stats.binomtest(found, above).proportion_ci(method="exact")
        assert (line["top_recall_low"], line["top_recall_high"]) == (
            pytest.approx(exact.low),
            pytest.approx(exact.high),
        )
        one_sided = scipy.stats.binomtest(above - found, above, alternative="less").proportion_ci(method="exact")
        assert line["top_missed_high"] == pytest.approx(one_sided.high)


def test_a_unit_that_breaks_the_model_is_the_largest(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        audit = made(tiny_llama, tiny_text, store, singles_neurons=0)
        runner, study = LocalRunner(store), Singles()
        conduct(study, audit, runner)
        [sample] = _samples(audit)
        found = runner.results[list(sample.effects.values())[3]]
        broken = replace(found, sums=(float("nan"), *found.sums[1:]))
        runner.results.keep(list(sample.effects.values())[3], broken)
        tables = study.tables(audit, runner.results)
    assert np.isnan(tables["singles"]["effect"][3])
    assert tables["singles_recall"].height
    assert np.isfinite(tables["singles_selectors"]["signed_spearman"].to_numpy()).all()
    assert tables["singles_units"]["helps"].is_finite().all()
