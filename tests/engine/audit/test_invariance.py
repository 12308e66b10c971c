"""Exact controls on tiny models: known answers, proofs that fail, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from relatives import relatives
from same_bits import assert_same_bits, bits
from tiny_audits import count_edits, invariance, lowest, nll_of, tiny_audit
from tiny_models import load_tiny, save_tiny

import engine.interventions.rewrites as rewrites
import engine.studies.audit.audit_inputs as inputs
from engine.cli import main
from engine.interventions.rewrites import make_rewrite
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.folders import read_table
from engine.results.store import Store
from engine.results.tables import spec
from engine.run.audit_plan import InvariancePlan
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.invariance.invariance_verdicts import judge_invariance

Tables = dict[str, pl.DataFrame]
BY_WEIGHTS = ("magnitude", "wanda", "mean_activation")
BY_EFFECT = ("lrp", "ig", "consensus2", "grad_x_input", "ig_conductance")
ALL = ("random", *BY_WEIGHTS, *BY_EFFECT)
RESCALED = ("neurons", "values", "norms")


@pytest.fixture(scope="module", params=relatives(["llama", "qwen3", "gemma3_text"], ["llama"]))
def audit_and_tables(
    request: pytest.FixtureRequest, tiny_text: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AuditInputs, Tables]]:
    loaded = load_tiny(request.param, tmp_path_factory.mktemp(request.param))
    with Store(tmp_path_factory.mktemp("store")) as store:
        audit = tiny_audit(loaded, tiny_text, store, scoring={"selectors": ALL, "seeds": (42, 43)})
        yield audit, invariance(audit)


def test_what_is_proven(audit_and_tables) -> None:
    audit, tables = audit_and_tables
    proofs = {row["rewrite"]: row for row in tables["invariance_rewrites"].iter_rows(named=True)}
    assert list(proofs) == list(audit.plan.invariance.rewrites)
    for name, row in proofs.items():
        whole = name == "norms-whole"
        assert (row["proven"], row["windows"], row["windows_equal"]) == (not whole, 6, 0 if whole else 6)
        assert row["units"] > 0
        assert abs(row["nll_difference"]) <= (1e-5 if whole else 0)
        assert ("not bit-equal in float32" in row["reason"]) if whole else row["reason"] is None
    assert set(tables["invariance"]["rewrite"]) == set(RESCALED)  # nothing is said under what is not proven
    for stem, table in tables.items():
        assert table.schema == spec(stem).schema()


def test_selectors_of_effects_keep_every_bit_and_those_of_sizes_move(audit_and_tables) -> None:
    """Powers of two cancel in h * dF/dh and in a weight times its input's norm, not in either alone."""
    _, tables = audit_and_tables
    found = {(row["rewrite"], row["selector"]): row for row in tables["invariance"].iter_rows(named=True)}
    for name in RESCALED:
        kept = ("random", *BY_EFFECT, *(("wanda", "mean_activation") if name == "norms" else ()))
        for selector in kept:
            row = found[name, selector]
            assert (row["spearman"], row["jaccard"], row["bit_equal"], row["moved"]) == (
                pytest.approx(1.0), 1.0, 1.0, 0.0,
            ), (name, selector)  # fmt: skip
        for selector in set(ALL) - set(kept):
            row = found[name, selector]
            assert row["spearman"] < 0.95
            assert row["jaccard"] < 0.95
            assert row["bit_equal"] < 1
            assert row["moved"] != 0
    assert tables["invariance"].filter(selector="random", rewrite="neurons")["seed"].to_list() == [42, 43]


def test_magnitude_after_the_rewrite_is_what_the_formula_gives(audit_and_tables) -> None:
    """Magnitudes by hand: rows of up_proj times 2^a; the mean over a row of down_proj, each column times 2^-a."""
    audit, tables = audit_and_tables
    loaded, rate = audit.loaded, 0.3
    rewrite = make_rewrite("neurons", loaded)
    scores = audit.scores["magnitude"].copy()
    places = {layer.name: layer for layer in loaded.rows.layers}
    for link, exponents in zip(rewrite.links, rewrite.exponents, strict=True):
        up, down = places[link.rows], places[link.columns]
        scores[up.start : up.start + up.rows] *= np.float32(2.0) ** exponents
        weight = loaded.model.get_submodule(link.columns).weight.abs().numpy()
        scores[down.start : down.start + down.rows] = (weight * 2.0 ** -exponents.astype(float)).mean(1)
    row = tables["invariance"].filter(rewrite="neurons", selector="magnitude").row(0, named=True)
    count = round(rate * loaded.rows.n_rows)
    before, after = (lowest(list(map(float, one)), count) for one in (audit.scores["magnitude"], scores))
    assert row["jaccard"] == pytest.approx(len(set(before) & set(after)) / len(set(before) | set(after)))
    assert row["nll_before"] == nll_of(audit, before).nats_per_token
    assert row["nll_after"] == nll_of(audit, after).nats_per_token
    assert row["moved"] == pytest.approx(row["nll_after"] - row["nll_before"], abs=1e-12)


def test_decoys_are_protected_by_size_and_last_by_effect(audit_and_tables) -> None:
    audit, tables = audit_and_tables
    drawn = pl.col("selector") == "random"
    found = {row["selector"]: row for row in tables["invariance_decoys"].filter(~drawn).iter_rows(named=True)}
    rows = 2 * audit.plan.invariance.decoys  # gate and up of each
    for selector in BY_WEIGHTS:
        assert found[selector]["protected"] == 1
        assert found[selector]["removed_first"] == 0
    for selector in BY_EFFECT:
        assert found[selector]["protected"] == 0
        assert found[selector]["removed_first"] == 1
        # No score is below zero: the decoys share the lowest ranks, with other rows that score zero if there are any.
        assert found[selector]["percentile"] < 0.1
    assert {row["decoys"] for row in found.values()} == {rows}
    random = tables["invariance_decoys"].filter(drawn)
    assert random["seed"].to_list() == [42, 43]
    assert all(0 < share < 0.7 for share in random["protected"])


def test_the_model_is_as_it_was_and_a_second_run_measures_nothing(audit_and_tables, monkeypatch) -> None:
    audit, tables = audit_and_tables
    before = bits(audit.loaded.model)
    passes = []
    real = type(audit.loaded.model).forward
    monkeypatch.setattr(type(audit.loaded.model), "forward", lambda *a, **k: passes.append(1) or real(*a, **k))
    edits = count_edits(monkeypatch)
    again = invariance(audit)
    assert not edits
    assert len(passes) <= 2  # which norms are read where is watched in a pass of five tokens, once per fold
    assert all(again[stem].equals(tables[stem]) for stem in tables)
    assert_same_bits(audit.loaded.model, before)


def small(loaded: LoadedModel, text: Path, store: Store, *names: str, selectors=("magnitude",), **more) -> AuditInputs:
    plan = InvariancePlan(rewrites=names, **more) if names else InvariancePlan(**more)
    return tiny_audit(loaded, text, store, scoring={"selectors": selectors}, invariance=plan)


def test_a_rewrite_that_is_not_exact_gives_no_number(tiny_llama, tiny_text, tmp_path, monkeypatch) -> None:
    """Powers of three in the place of two: the same function up to rounding, which is not enough."""

    def threes(exponents, like):
        return torch.from_numpy(3.0**exponents).to(like)

    monkeypatch.setattr(rewrites, "powers_of_two", threes)
    with Store(tmp_path) as store:
        tables = invariance(small(tiny_llama, tiny_text, store, "neurons", "decoys"))
        assert tables["invariance_rewrites"]["proven"].to_list() == [False, True]
        assert tables["invariance_rewrites"]["windows_equal"][0] < 6
        assert tables["invariance"].is_empty()
        assert tables["invariance_verdicts"]["invariance"].to_list() == ["unknown"]
        with pytest.raises(
            InputError, match=r"no rewrite of its weights is proven .*neurons: not bit-equal in float32"
        ):
            invariance(small(tiny_llama, tiny_text, store, "neurons"))


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["neurons", "values", "norms", "decoys"])
def test_the_weights_come_back_when_scoring_under_a_rewrite_stops(
    tiny_llama, tiny_text, tmp_path, monkeypatch, name, error
) -> None:
    before, real, seen = bits(tiny_llama.model), inputs.score_model, []

    def stopping(loaded, *given, **more):
        if loaded is not tiny_llama:
            seen.append(any(not same(value, before.get(key)) for key, value in loaded.model.state_dict().items()))
            raise error
        return real(loaded, *given, **more)

    def same(value, old):
        return old is not None and value.shape == old.shape and torch.equal(value, old)

    monkeypatch.setattr(inputs, "score_model", stopping)
    with Store(tmp_path) as store, pytest.raises(error):
        invariance(small(tiny_llama, tiny_text, store, name))
    assert seen == [True]
    assert_same_bits(tiny_llama.model, before)


def test_an_architecture_without_a_place_for_it_is_told(tiny_text, tmp_path, capsys) -> None:
    model = save_tiny("gpt_neox", tmp_path / "model")
    arguments = [
        "analyze", str(model), "invariance", "--selectors", "magnitude,grad_x_input", "--corpus", str(tiny_text),
        "--samples", "4", "--max-length", "16", "--eval-samples", "3", "--eval-length", "16",
        "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    capsys.readouterr()  # transformers' own bar, from saving the model
    assert main([*arguments, "--rewrites", "neurons,values,norms"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for why in ("has no gate_proj beside", "no v_proj and o_proj of its own", "LayerNorm is no RMS norm"):
        assert why in err
    assert not (tmp_path / "out" / "invariance.parquet").exists()
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["tables"]["invariance.parquet"] == 0
    proofs = read_table(tmp_path / "out", "invariance_rewrites")
    assert dict(proofs.select("rewrite", "proven").iter_rows()) == {
        "neurons": False, "values": False, "norms": False, "norms-whole": False, "decoys": True,
    }  # fmt: skip
    assert proofs.filter(~pl.col("proven"))["reason"].str.starts_with("cannot be done: ").all()
    decoys = read_table(tmp_path / "out", "invariance_decoys")
    assert dict(decoys.select("selector", "protected").iter_rows()) == {"magnitude": 1.0, "grad_x_input": 0.0}


# In words


def compared(*lines: tuple[str, float | None, float, float, float]) -> pl.DataFrame:
    rows = [
        ("m", rewrite, "s", None, 0.3, rho, overlap, equal, 2.0, 2.0 + moved, moved, 0.1)
        for rewrite, rho, overlap, equal, moved in lines
    ]
    return pl.DataFrame(rows, schema=spec("invariance").schema(), orient="row")


NO_DECOYS = pl.DataFrame(schema=spec("invariance_decoys").schema())


@pytest.mark.parametrize(
    ("lines", "word", "worst"),
    [
        ([("neurons", 1.0, 1.0, 1.0, 0.0), ("norms", None, 1.0, 1.0, 0.0)], "exact", None),
        ([("neurons", 1.0, 1.0, 1.0, 0.0), ("norms", 0.99995, 0.995, 0.2, 0.0)], "rounding", "norms"),
        ([("neurons", 0.9998, 1.0, 0.2, 0.0)], "moved", "neurons"),
        ([("neurons", 1.0, 0.98, 0.2, 0.0)], "moved", "neurons"),
        ([("neurons", 0.5, 0.6, 0.2, 0.3), ("norms", 0.4, 0.7, 0.2, 0.5)], "moved", "neurons"),
    ],
)
def test_words(lines, word: str, worst: str | None) -> None:
    (row,) = judge_invariance(compared(*lines), NO_DECOYS).to_dicts()
    assert (row["invariance"], row["worst_rewrite"], row["rewrites"]) == (word, worst, len(lines))
    assert row["decoys_protected"] is None
    assert row["reasons"].endswith(".")
    assert "decoy" not in row["reasons"]
