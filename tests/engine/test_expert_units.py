"""Routed experts as units: all rows of one, edited at once, ranked by their sum, and swept like neurons and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_audits import protocols, tiny_audit
from tiny_models import EXPERT_FAMILIES, load_tiny
from torch import Tensor
from window_nll import window_nll

from engine.edits.edit import Edit, Ranking
from engine.interventions.at_outputs import applied, edited_outputs
from engine.interventions.in_weights import zeroed
from engine.models.experts import Expert
from engine.models.loading import LoadedModel
from engine.models.units import UNITS, experts, without
from engine.results.store import Store
from engine.results.tables import checked
from engine.run.audit_plan import ProtocolsPlan

SETS = {"qwen3_moe": 1, "deepseek_v3": 1}  # whose first block is dense; two in all others
COUNTS = {"deepseek_v3": 8}  # five in all others
IDS = torch.arange(5, 45).view(2, 20)
SHORT = ("mixtral", "gpt_oss")


@pytest.fixture(
    scope="module",
    params=[name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in EXPERT_FAMILIES],
)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LoadedModel]:
    return request.param, load_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny("mixtral", tmp_path_factory.mktemp("mixtral"))


@torch.no_grad()
def logits(model: Any) -> Tensor:
    return model(IDS, use_cache=False).logits


def test_a_unit_is_all_rows_of_one_expert(family: tuple[str, LoadedModel]) -> None:
    name, loaded = family
    units, frame = experts(loaded), loaded.rows.frame()
    assert units.count == SETS.get(name, 2) * COUNTS.get(name, 5)
    assert len(np.unique(units.rows)) == units.rows.size  # no row belongs to two
    for unit in range(units.count):
        rows = units.rows[unit].tolist()
        assert frame["block"].gather(rows).n_unique() == 1
        modules = {layer.name.rpartition(".")[0] for layer in loaded.rows.layers if layer.start in rows}
        (path,) = modules
        expert = loaded.model.get_submodule(path)
        assert isinstance(expert, Expert)
        parts: list[Any] = list(expert.children())
        assert len(rows) == sum(part.weight.shape[0] for part in parts)
        squares = sum(float(part.weight.double().square().sum()) for part in parts)
        assert units.norm[unit] == pytest.approx(squares**0.5, rel=1e-5)
    scores = np.random.default_rng(0).normal(size=loaded.rows.n_rows).astype(np.float32)
    assert units.scores(scores) == pytest.approx([scores[rows].sum(dtype=np.float64) for rows in units.rows])
    assert without(loaded, "expert") == ""


def test_an_expert_under_the_edit_says_nothing_and_is_still_chosen(family: tuple[str, LoadedModel]) -> None:
    """Whatever bias its projections have. By hand: what the module of that expert gives is made zero."""
    _, loaded = family
    units = experts(loaded)
    unit = units.count - 1
    path = next(layer.name for layer in loaded.rows.layers if layer.start == units.rows[unit, 0]).rpartition(".")[0]
    seen: list[int] = []

    def silent(_module: Any, given: Any, output: Tensor) -> Tensor:
        seen.append(len(given[0]))
        return torch.zeros_like(output)

    plain = logits(loaded.model)
    handle = loaded.model.get_submodule(f"{path}.down_proj").register_forward_hook(silent)
    try:
        expected = logits(loaded.model)
    finally:
        handle.remove()
    assert seen  # some tokens choose it
    edit = Edit(lambda: np.sort(units.ids[unit]), units.ids.shape[1], side=units.side)
    with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
        assert torch.equal(logits(loaded.model), expected)
    chosen: list[int] = []
    counts = loaded.model.get_submodule(f"{path}.down_proj").register_forward_hook(
        lambda _module, given, _output: chosen.append(len(given[0]))
    )
    try:
        with zeroed(loaded, units.rows[unit]):
            assert torch.equal(logits(loaded.model), expected)
    finally:
        counts.remove()
    assert chosen == seen
    assert not torch.equal(plain, expected)


def test_a_ranking_of_rows_ranks_experts(mixtral: LoadedModel) -> None:
    units = experts(mixtral)
    scores = np.random.default_rng(4).random(mixtral.rows.n_rows).astype(np.float32)
    ranking = Ranking("magnitude", None, scores).over(units, "zero")
    sums = [float(scores[rows].sum(dtype=np.float64)) for rows in units.rows]
    for order, first in (("lerf", sorted(range(10), key=sums.__getitem__)), ("morf", None)):
        wanted = (first or sorted(range(10), key=sums.__getitem__, reverse=True))[:3]
        edit = ranking.edit(order, 0.3)
        assert edit.units.tolist() == sorted(units.rows[wanted].ravel().tolist())
        assert edit.side == "output"


def test_protocols_sweeps_experts(mixtral: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    plan = ProtocolsPlan(
        protocol_interventions=("zero", "mean"), protocol_units=("expert", "row"), protocol_metrics=("nll",),
        protocol_rates=(0.3,), protocol_windows=4,
    )  # fmt: skip
    cheap = {"selectors": ("random", "magnitude"), "seeds": (42,)}
    with Store(tmp_path) as store:
        audit = tiny_audit(mixtral, tiny_text, store, scoring=cheap, protocols=plan)
        tables = protocols(audit)
        units, ids = UNITS["expert"](mixtral), audit.evaluation.input_ids[:4]
        for ranking in audit.rankings:
            for intervention in ("zero", "mean"):
                edit = ranking.over(units, intervention).edit("morf", 0.3)
                with applied(mixtral, edit):
                    nats, tokens = window_nll(mixtral.model, ids)
                line = tables["protocols"].filter(
                    unit_kind="expert", intervention=intervention, order="morf", selector=ranking.selector
                )
                assert line["value"].item() == pytest.approx(float(nats.sum() / tokens.sum()), abs=1e-5)
                assert line["units_removed"].item() == 3
    checked("protocols", tables["protocols"], "protocols")
    assert dict(tables["protocols_units"].select("unit_kind", "unit_count").rows())["expert"] == 10
