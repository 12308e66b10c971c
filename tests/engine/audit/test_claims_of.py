"""Published claims: files of strangers, correlations and masks against brute force, noise at its nominal level."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tiny_audits import lowest, nll_of, tables_of, tiny_audit

import precomputed
from engine.cli import main
from engine.commands import analyze
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.results.tables import checked
from engine.run.audit_plan import AuditPlan
from engine.run.claims_plan import SHIPPED, claim_of, read_claims
from engine.selectors.base import available_selectors
from engine.stats import single_units
from engine.stats.single_units import compared, shuffled
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.singles import sampled_rows
from engine.studies.claims.ledger import ledger

EFFECTS = """title = "A follows effects"
source = "nobody 2026"
models = ["GPT-2"]
setup = "other units"
kind = "effects"
units = "row"
measure = "pearson"
score = "wanda"
than = "magnitude"
control = "layer_matched"
published = { score = 0.9, than = 0.1 }
"""
PRUNING = EFFECTS.replace("A follows", "B prunes").replace('"effects"', '"pruning"')
PRUNING = PRUNING.replace("pearson", "perplexity") + "rates = [0.3]"


def test_correlations_are_scipys() -> None:
    """Both, with ties, and the interval of scipy's own paired percentile bootstrap."""
    draw = np.random.default_rng(1)
    truth = draw.normal(size=40)
    a, b = np.round(truth + draw.normal(size=40), 0), draw.normal(size=40)
    for measure, of in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        assert compared(a, b, truth, measure)[:2] == pytest.approx((of(a, truth)[0], of(b, truth)[0]), abs=1e-6)
    theirs = stats.bootstrap(
        (a, b, truth), lambda a, b, t: np.corrcoef(a, t)[0, 1] - np.corrcoef(b, t)[0, 1], paired=True,
        vectorized=False, n_resamples=499, method="percentile", rng=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    low, high = compared(a, b, truth, "pearson")[2:]
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.08)  # 2.5% quantiles of some 500 draws
    assert compared(a[:20], b[:20], truth[:20], "pearson").low is None
    assert compared(np.ones(40), b, truth, "pearson").first is None


@pytest.mark.parametrize("tails", [lambda x: x, np.exp])
def test_noise_is_told_at_its_level(tails: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scores of noise, 400 trials of 128 units: 95% intervals cover 0 in .92 to .96 (see `compared`), give or take
    three standard errors of the trials; the first is told ahead in some 2.5%."""
    monkeypatch.setattr(single_units, "RESAMPLES", 300)
    draw, ends = np.random.default_rng(3), []
    for trial in range(400):
        truth, a, b = (tails(one) for one in draw.normal(size=(3, 128)))
        ends.append(compared(a, b, truth, "pearson", seed=trial)[2:])
    low, high = np.array(ends, dtype=float).T
    assert 0.92 - 0.041 <= np.mean((low <= 0) & (high >= 0)) <= 0.96 + 0.03
    assert np.mean(low > 0) <= 0.025 + 0.035
    truth = draw.normal(size=128)
    assert (compared(truth + draw.normal(size=128), draw.normal(size=128), truth, "pearson").low or 0) > 0


def test_controls_keep_what_they_are_to_keep() -> None:
    values, groups = np.arange(9.0), np.array([2, 0, 1, 0, 2, 1, 2, 2, 0])
    copies = shuffled(values, groups, 200, 5)
    for group in range(3):
        inside = np.sort(copies[:, groups == group], axis=1)
        assert (inside == np.sort(values[groups == group])).all()
    assert len({tuple(copy) for copy in copies}) > 100
    assert min((copies[:, 7] == value).mean() for value in values[groups == 2]) > 0.15  # a quarter each


def test_shipped_claims_are_as_printed() -> None:
    claims = {name: claim_of(name) for name in SHIPPED}
    known = {info.id for info in available_selectors() if not info.seeded}
    assert len(claims) == 3
    assert all({claim.score, claim.than} <= known and claim.published for claim in claims.values())
    ours = claims["lrp_pruning"]
    table = pl.read_parquet(Path(precomputed.__file__).parent / "paper" / "lerf_morf_ppl.parquet")
    table = table.filter(model=ours.models[0], order="lerf", rate=ours.rates[0])
    for name, printed in zip((ours.score, ours.than), ours.published or (), strict=True):
        assert table.filter(selector=name)["ppl"].item() == printed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("title", "titel"), "did you mean 'title'"),
        (('"wanda"', '"wnada"'), "did you mean 'wanda'"),
        (('"magnitude"', '"wanda"'), "two selectors"),
        (('"pearson"', '"perplexity"'), "available: pearson, spearman"),
        (('["GPT-2"]', '"GPT-2"'), "models must be a list"),
        (("than = 0.1", "than = nan"), "score = NUMBER"),
        (("nobody 2026", r"nobody\u001b[2J"), "one line of 1 to 300"),
        (("other units", ""), "setup must be one line"),
        (("published =", "rates = [0.3]\npublished ="), "rates"),
        (("A follows", 'A" follows'), "no published claim"),
        (('["GPT-2"]', "[" * 5000), "no published claim"),
        (("nobody", "#" * 70_000), "bytes"),
    ],
)
def test_what_is_no_claim_is_one_line(
    change: tuple[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any model is loaded: exit code 2."""
    file = tmp_path / "claim.toml"
    file.write_text(EFFECTS.replace(*change, 1))
    assert main(["analyze", "demo", "claims-of", str(file), "--store", str(tmp_path / "store")]) == 2
    told = capsys.readouterr().err.strip()
    assert said in " ".join(told.split())
    assert "\x1b[2J" not in told
    assert "Traceback" not in told


def test_claims_stand_behind_the_analysis_or_in_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(EFFECTS)
    seen: list[tuple[AuditPlan, list[str]]] = []
    monkeypatch.setattr(analyze, "measured", lambda args, plan, names, **_: seen.append((plan, names)) or 1 / 0)
    for words in (["claims-of", "relp_effects", str(file)], ["claims-of", "--claims", f"relp_effects,{file}"]):
        main(["analyze", "demo", *words])
        assert seen[-1][0].published_claims == ("relp_effects", EFFECTS)
        assert list(seen[-1][1]) == ["claims-of"]
        assert seen[-1][0].scoring.selectors == ("relp", "grad_x_input", "wanda", "magnitude")
    with pytest.raises(InputError, match="did you mean 'relp_effects'"):
        read_claims("relp_efects", "--claims")


@pytest.mark.long
def test_numbers_are_those_of_every_mask_measured_by_hand(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows one by one, and two masks with their controls; the plan lacks a selector. Then all are destroyed."""
    n = tiny_llama.rows.n_rows
    claims = (EFFECTS, PRUNING, PRUNING.replace("B prunes", "C prunes") + '\norder = "morf"')
    claims = (*claims, EFFECTS.replace("A follows", "D follows").replace('"row"', '"neuron"'))
    with Store(tmp_path) as store:
        monkeypatch.setattr(AuditInputs, "saturated_above_on", lambda *_: 1e9)
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("magnitude",)}, singles_rows=40, singles_neurons=0,
            singles_windows=5, published_claims=claims, matched_seeds=(1, 2, 3),
        )  # fmt: skip
        table = checked("published_claims", tables_of("claims-of", audit)["published_claims"], "claims-of")
        lines = {row["title"][0]: row for row in table.iter_rows(named=True)}
        both = tiny_audit(tiny_llama, tiny_text, store, scoring={"selectors": ("wanda", "magnitude")}).scores
        dense = nll_of(audit, []).nats_per_token
        rows = list(sampled_rows(audit).effects)
        effects = np.abs([nll_of(audit, [row]).nats_per_token - dense for row in rows])
        for side, name in (("a", "wanda"), ("b", "magnitude")):
            for column, of in (("value", stats.pearsonr), ("spearman", stats.spearmanr)):
                assert lines["A"][f"{column}_{side}"] == pytest.approx(of(both[name][rows], effects)[0], abs=1e-5)
            for case, scores in (("B", both[name]), ("C", -both[name])):
                nll = nll_of(audit, lowest(scores.tolist(), round(0.3 * n))).nats_per_token
                assert lines[case][f"value_{side}"] == pytest.approx(nll, abs=1e-6)
        for line, sign in ((lines["A"], 1), (lines["B"], -1), (lines["C"], 1)):
            assert line["advantage"] == pytest.approx(sign * (line["value_a"] - line["value_b"]))
            assert line["advantage_low"] <= line["advantage"] <= line["advantage_high"]
            ahead, behind = line["advantage_low"] > 0 and line["p_control"] <= 0.05, line["advantage_high"] < 0
            assert line["answer"] == ("holds" if ahead else "fails" if behind else "open")
            assert "0.9 against 0.1, GPT-2, other units (nobody 2026)" in line["claim"]
        assert f"{math.exp(lines['B']['value_a']):.4g} for wanda" in lines["B"]["claim"]
        assert (lines["D"]["answer"], lines["D"]["value_a"]) == ("unmeasured", None)
        assert set(ledger({"published_claims": table})["case"]) == {lines[name]["title"] for name in "ABC"}
        monkeypatch.setattr(AuditInputs, "saturated_above_on", lambda *_: 0.0)
        again = tables_of("claims-of", audit)["published_claims"].filter(kind="pruning")
        assert again.select("answer", "advantage").rows() == [("saturated", None)] * 2
        seeded = tiny_audit(tiny_llama, tiny_text, store, published_claims=(EFFECTS.replace("magnitude", "random"),))
        with pytest.raises(InputError, match="one per seed"):
            tables_of("claims-of", seeded)
