"""The analysis `protocols`: values and areas by hand, units that a model lacks, what is kept, the command, sweeps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tiny_audits import protocols, tables_of, tiny_audit

from engine.data.corpora import windows
from engine.interventions.at_outputs import applied
from engine.interventions.kinds import prepare
from engine.measures.divergence import token_kl
from engine.models.loading import LoadedModel
from engine.models.units import UNITS
from engine.results.store import Store
from engine.results.tables import checked
from engine.run import runner
from engine.run.audit_plan import ProtocolsPlan
from engine.run.runner import LocalRunner
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.protocols import STEMS
from engine.studies.base import Tables
from engine.studies.conduct import run_studies

CHEAP = {"selectors": ("random", "magnitude", "wanda"), "seeds": (42, 43)}
SMALL = ProtocolsPlan(protocol_rates=(0.1, 0.3), protocol_windows=4, resample_windows=3)


def made(loaded: LoadedModel, text: Path, store: Store, plan: ProtocolsPlan = SMALL, **more: Any) -> AuditInputs:
    return tiny_audit(loaded, text, store, **{"scoring": CHEAP, "protocols": plan, **more})


@pytest.fixture(scope="module")
def done(tiny_llama: LoadedModel, tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Store(tmp_path_factory.mktemp("store")) as store:
        audit = made(tiny_llama, tiny_text, store)
        yield audit, protocols(audit)


def test_every_protocol_has_every_ranking(done: tuple[AuditInputs, Tables]) -> None:
    _, tables = done
    for stem in STEMS:
        assert checked(stem, tables[stem], stem).height == tables[stem].height
    ways = 3 * 3 * 3 * 2 * 2
    assert tables["protocols"].height == ways * 4  # random twice
    assert tables["protocols_pairs"].height == ways * 3
    assert tables["protocols_areas"].height == 27 * 3
    destroyed = tables["protocols_pairs"].filter("saturated").height
    assert 0 < destroyed == ways * 3 - tables["protocols_claims"]["protocols"].sum()
    assert tables["protocols_units"].rows()[0][1:] == ("row", 288, None)
    assert dict(tables["protocols_units"].select("unit_kind", "unit_count").rows()) == {
        "row": 288, "neuron": 56, "head": 8,
    }  # fmt: skip
    counts = tables["protocols"].filter(rate=0.3).select("unit_kind", "units_removed").unique().rows()
    assert dict(counts) == {"row": 86, "neuron": 17, "head": 2}


@pytest.mark.parametrize(("kind", "intervention", "order"), [
    ("row", "mean", "lerf"), ("neuron", "resample", "morf"), ("head", "zero", "lerf"), ("head", "mean", "morf"),
])  # fmt: skip
def test_values_are_those_of_the_model_under_the_edit(
    done: tuple[AuditInputs, Tables], kind: str, intervention: str, order: str
) -> None:
    """Units sorted by Python by the sums of their rows' scores; means and other windows from the text by hand."""
    audit, tables = done
    loaded, ids = audit.loaded, audit.evaluation.input_ids[:4]
    text = windows(audit.plan.scoring.corpus, loaded.tokenizer, role="calibration", samples=6, length=16)
    prepare(loaded, "mean", text)
    prepare(loaded, "resample", text.first(3))
    units = UNITS[kind](loaded)
    scores = units.scores(audit.scores["wanda"]).tolist()
    sign = 1 if order == "lerf" else -1
    chosen = sorted(range(units.count), key=lambda unit: (sign * scores[unit], unit))[: round(0.3 * units.count)]
    edit = next(one for one in audit.rankings if one.selector == "wanda").over(units, intervention).edit(order, 0.3)
    assert edit.units.tolist() == sorted(units.ids[chosen].reshape(-1).tolist())
    with torch.no_grad():
        before = loaded.model(input_ids=ids).logits[:, :-1]
        with applied(loaded, edit):
            after = loaded.model(input_ids=ids).logits[:, :-1]
    nats = torch.nn.functional.cross_entropy(after.double().flatten(0, 1), ids[:, 1:].flatten())
    expected = {
        "nll": float(nats),
        "kl": float(token_kl(before.flatten(0, 1), after.flatten(0, 1)).mean()),
        "top1": float((before.argmax(-1) == after.argmax(-1)).double().mean()),
    }
    lines = tables["protocols"].filter(
        intervention=intervention, unit_kind=kind, order=order, rate=0.3, selector="wanda"
    )
    found = dict(lines.select("metric", "value").rows())
    assert found == {metric: pytest.approx(value, abs=1e-5) for metric, value in expected.items()}


def test_areas_are_the_trapezoids_of_the_table(done: tuple[AuditInputs, Tables]) -> None:
    audit, tables = done
    dense = LocalRunner(audit.store).run([audit.nll(audit.edit([]), audit.evaluation.first(4))])
    [unedited] = [one.nats_per_token for one in dense.of(object) if hasattr(one, "nats_per_token")]
    values = tables["protocols"].group_by("intervention", "unit_kind", "metric", "order", "rate", "selector").agg(
        pl.col("value").mean()
    )  # fmt: skip
    told = 0
    for line in tables["protocols_areas"].iter_rows(named=True):
        where = {key: line[key] for key in ("intervention", "unit_kind", "metric")}
        start = {"nll": unedited, "kl": 0.0, "top1": 1.0}[line["metric"]]
        sign = -1 if line["metric"] == "top1" else 1

        def under(selector: str, order: str, where: dict[str, str] = where, start: float = start) -> float:
            own = values.filter(selector=selector, order=order, **where).sort("rate")["value"].to_list()
            return float(np.trapezoid([start, *own], [0, 0.1, 0.3]) / 0.3 - start)

        chance = sign * (under("random", "lerf") + under("random", "morf")) / 2
        if line["area"] is None:
            assert chance < 1e-4
            continue
        told += 1
        expected = sign * (under(line["selector"], "morf") - under(line["selector"], "lerf")) / chance
        assert line["area"] == pytest.approx(expected, rel=1e-3, abs=1e-3 / chance)
        assert line["area_low"] <= line["area"] <= line["area_high"]
    assert told > 40


def test_pairs_and_claims_count_the_same(done: tuple[AuditInputs, Tables]) -> None:
    audit, tables = done
    pairs = tables["protocols_pairs"]
    for line in pairs.iter_rows(named=True):
        assert line["difference"] == pytest.approx(line["harm_a"] - line["harm_b"], abs=1e-9)
        if line["ahead"]:
            assert line["p"] <= line["p_holm"] <= 0.05
            less = line["selector_a"] if line["difference"] < 0 else line["selector_b"]
            assert (line["ahead"] == less) == (line["order"] == "lerf")
    for claim in tables["protocols_claims"].iter_rows(named=True):
        both = {claim["selector_a"], claim["selector_b"]}
        own = [line for line in pairs.iter_rows(named=True) if {line["selector_a"], line["selector_b"]} == both]
        assert claim["protocols_for"] == sum(line["ahead"] == claim["selector_a"] for line in own)
        assert claim["protocols_against"] == sum(line["ahead"] == claim["selector_b"] for line in own)
        assert claim["protocols_tied"] == sum(line["ahead"] is None and not line["saturated"] for line in own)
    ways = ["intervention", "unit_kind", "order", "rate"]
    with torch.no_grad():
        ids = audit.evaluation.input_ids[:4]
        logits = audit.loaded.model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    dense = float(torch.nn.functional.cross_entropy(logits.double(), ids[:, 1:].flatten()))
    limit = dense + max(0, math.log(logits.shape[-1]) - dense) / 2
    means = tables["protocols"].filter(metric="nll").group_by(*ways, "selector").agg(pl.col("value").mean())
    nll = {tuple(line[:-1]): line[-1] for line in means.iter_rows()}
    for line in pairs.iter_rows(named=True):
        least = min(nll[*(line[way] for way in ways), line[f"selector_{side}"]] for side in "ab")
        assert line["saturated"] == (least > limit) or abs(least - limit) < 1e-6
        assert not line["saturated"] or (line["ahead"] is line["p_holm"] is None)


def test_nothing_is_measured_twice(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with Store(tmp_path) as store:
        first = protocols(made(tiny_llama, tiny_text, store))
        monkeypatch.setattr(runner, "measured", lambda *_: pytest.fail("measured again"))
        again = protocols(made(tiny_llama, tiny_text, store))
        assert all(first[stem].equals(again[stem]) for stem in STEMS)
        with pytest.raises(pytest.fail.Exception, match="measured again"):  # another window stands for each
            protocols(made(tiny_llama, tiny_text, store, ProtocolsPlan(resample_seed=1, **_as_small())))


def test_several_draws_of_resampling_are_averaged(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    """Against one run per seed; what draws nothing is as it was, and no cell of the first seed is measured again."""
    small = _as_small() | {"protocol_rates": (0.3,), "protocol_interventions": ("mean", "resample")}
    keys = ["intervention", "unit_kind", "metric", "order", "rate", "selector", "seed"]
    with Store(tmp_path) as store:
        alone = [
            protocols(made(tiny_llama, tiny_text, store, ProtocolsPlan(resample_seed=seed, **small)))["protocols"]
            for seed in (3, 4)
        ]
        known = len(store)
        both = protocols(made(tiny_llama, tiny_text, store, ProtocolsPlan(resample_seed=3, resample_draws=2, **small)))
        assert len(store) == known
    assert "resample_sd" not in alone[0].columns
    table = both["protocols"]
    for line, first, second in zip(*(one.sort(keys).iter_rows(named=True) for one in (table, *alone)), strict=True):
        assert [line[key] for key in keys] == [first[key] for key in keys] == [second[key] for key in keys]
        values = [first["value"], second["value"]]
        assert line["value"] == pytest.approx(np.mean(values), rel=1e-12)
        if line["intervention"] == "mean":
            assert line["resample_sd"] is None
        else:
            assert line["resample_sd"] == pytest.approx(np.std(values, ddof=1), rel=1e-9, abs=1e-15)
    assert table.filter(intervention="resample")["resample_sd"].max() > 0


def _as_small() -> dict[str, Any]:
    return {"protocol_rates": (0.1, 0.3), "protocol_windows": 4, "resample_windows": 3}


@pytest.mark.parametrize("intervention", ["mean", "resample"])
def test_a_sweep_takes_the_interventions_too(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, intervention: str
) -> None:
    with Store(tmp_path) as store:
        plan = {"sweep_rates": (0.0, 0.3), "intervention": intervention}
        audit = made(tiny_llama, tiny_text, store, **plan)
        run_studies(audit, ["sweep"], tmp_path / "out", LocalRunner(store))
        table = pl.read_parquet(tmp_path / "out" / "sweep.parquet")
        zero = tables_of("sweep", made(tiny_llama, tiny_text, store, sweep_rates=(0.0, 0.3)))["sweep"]
    assert set(table["intervention"]) == {intervention}
    same = (table["nll"] - zero["nll"]).abs() < 1e-6
    assert same.to_list() == (table["rate"] == 0).to_list()
