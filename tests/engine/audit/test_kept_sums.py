"""Batches that texts share are passed once: the same bits, counted at the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_audits import tiny_audit
from tiny_models import text

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.results.folders import read_table
from engine.results.store import Store
from engine.run.audit_plan import InvariancePlan
from engine.run.runner import LocalRunner
from engine.selectors import compute_scores
from engine.selectors.scoring_run import KeptSums, nested_scores
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.domain import text_draws
from engine.studies.conduct import run_studies

DATA = ("wanda", "lrp", "grad_x_input")
PASSES = 2  # AttnLRP, and plain gradients, which give the activations


@pytest.fixture
def short(tiny_llama: LoadedModel, tmp_path: Path) -> str:
    """A second text of 17 windows, so that three draws of each text have five."""
    ids = tiny_llama.tokenizer(text(documents=60, seed=5).replace("t", "z"))["input_ids"][: 17 * 16]
    path = tmp_path / "short.txt"
    path.write_text(tiny_llama.tokenizer.decode(ids), encoding="utf-8")
    return str(path)


def audit_of(loaded: LoadedModel, corpus: Path, store: Store, second: str, **kept: Any) -> AuditInputs:
    """Six calibration windows, draws of five, two windows per pass."""
    scoring = {"selectors": ("random", *DATA), "batch_size": 2, "seeds": (3,)}
    settings: dict[str, Any] = {
        "domain_corpus": second, "domain_draws": 3, "stability_sizes": (2, 5), "stability_rates": (0.3,),
        "domain_rates": (0.3,), "calibration_draws": 2,
        "invariance": InvariancePlan(rewrites=("neurons",), invariance_samples=5),
    }  # fmt: skip
    audit = tiny_audit(loaded, corpus, store, scoring=scoring, **settings)
    audit.kept = KeptSums(**kept)
    return audit


def all_scores(audit: AuditInputs) -> list[torch.Tensor]:
    """Of the audit, of its second text, of both texts' draws, and of the first five windows."""
    found = [audit.scored.scores, audit.scores_on(audit.plan.domain_corpus).scores]
    draws = text_draws(audit)
    assert draws is not None
    assert {len(draw.sample_ids) for one in draws for draw in one} == {5}
    found += [audit.score_text(DATA, draw) for one in draws for draw in one]
    found.append(audit.score(audit.loaded, replace(audit.plan.scoring, samples=5)).scores)
    return [scores[name] for scores in found for name in DATA]


def test_texts_that_begin_alike_share_whole_batches(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, short: str, scored_windows: list[int]
) -> None:
    found, counts = [], []
    for largest in (2**20, 0):
        with Store(tmp_path / str(largest)) as store:
            audit = audit_of(tiny_llama, tiny_text, store, short, largest=largest)
            scored_windows.clear()
            found.append(all_scores(audit))
            counts.append(sum(scored_windows))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    # Two texts of six windows, three draws of five of each; the first five once more are the first draw.
    assert counts[1] == PASSES * (2 * 6 + 2 * 3 * 5)
    # Of each text's first draw four windows are two batches of its scores; the fifth goes alone.
    assert counts[0] == counts[1] - PASSES * 2 * 4


def test_texts_that_overlap_share_the_batches_inside_both(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """Wherever a text begins, its batches end where those of the whole text do."""
    kept = KeptSums()
    compute_scores(tiny_llama, DATA, tiny_windows, batch_size=2, kept=kept)
    for start, size, shared in ((1, 5, 2), (2, 3, 1), (3, 3, 1), (5, 1, 0)):
        before, part = kept.spared, tiny_windows.part(start, size)
        found = compute_scores(tiny_llama, DATA, part, batch_size=2, kept=kept)
        assert kept.spared - before == PASSES * shared, (start, size)
        alone = compute_scores(tiny_llama, DATA, part, batch_size=2)
        assert all(torch.equal(found[name], alone[name]) for name in DATA)


def test_what_is_not_the_same_work_is_not_shared(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    kept = KeptSums()

    def spared(loaded: LoadedModel = tiny_llama, tokens: Windows = tiny_windows, **more: Any) -> int:
        before = kept.spared
        settings: dict[str, Any] = {"batch_size": 2} | more
        found = compute_scores(loaded, ["lrp"], tokens, kept=kept, **settings)["lrp"]
        assert torch.equal(found, compute_scores(loaded, ["lrp"], tokens, **settings)["lrp"])
        return kept.spared - before

    assert spared() == 0
    assert spared() == 3
    assert spared(tokens=tiny_windows.first(5)) == 2
    assert spared(batch_size=3) == 0
    assert spared(objective="logit") == 0
    assert spared(skip_first=3) == 0
    assert spared(replace(tiny_llama, weights_hash="others")) == 0
    turned = replace(tiny_windows, input_ids=tiny_windows.input_ids.flip(0))
    assert spared(tokens=turned) == 0


def test_a_size_inside_a_batch_is_read_where_it_goes_through(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """Nested sizes need sums over fewer windows than a batch has, which are not kept."""
    kept = KeptSums()
    compute_scores(tiny_llama, DATA, tiny_windows, batch_size=4, kept=kept)
    together = nested_scores(tiny_llama, DATA, tiny_windows, [3, 6], batch_size=4, kept=kept)
    assert kept.spared == PASSES  # the second batch of four and two
    alone = nested_scores(tiny_llama, DATA, tiny_windows, [3, 6], batch_size=4)
    for size, scores in alone.items():
        for name, values in scores.items():
            assert torch.equal(values, together[size][name])


def test_what_depends_on_the_whole_text_is_not_shared(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    """relp takes differences to the text's own mean output."""
    kept = KeptSums()
    for tokens in (tiny_windows, tiny_windows.first(4)):
        found = compute_scores(tiny_llama, ["relp"], tokens, batch_size=2, kept=kept)["relp"]
        assert torch.equal(found, compute_scores(tiny_llama, ["relp"], tokens, batch_size=2)["relp"])
    assert kept.spared == 2  # of the activations alone


def test_no_more_is_kept_than_its_limit(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    whole = KeptSums()
    compute_scores(tiny_llama, ["lrp"], tiny_windows, batch_size=2, kept=whole)
    one = whole.taken // 3
    assert one >= 8 * tiny_llama.rows.n_rows
    kept = KeptSums(2 * one + 1)
    for expected in (0, 2, 4):
        compute_scores(tiny_llama, ["lrp"], tiny_windows, batch_size=2, kept=kept)
        assert (kept.spared, kept.taken) == (expected, 2 * one)


@pytest.mark.long
def test_every_table_of_an_audit_has_the_same_bits(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, short: str, scored_windows: list[int]
) -> None:
    """Stability reads the text first, in passes that also end within a batch; a rewritten model shares nothing."""
    names = ["stability", "draws", "domain", "invariance"]
    counts = []
    for largest in (2**20, 0):
        with Store(tmp_path / f"store{largest}") as store:
            audit = audit_of(tiny_llama, tiny_text, store, short, largest=largest)
            scored_windows.clear()
            report = run_studies(audit, names, tmp_path / str(largest), LocalRunner(store))
            assert set(report["done"]) == {"scores", *names}
            counts.append(sum(scored_windows))
    shared, apart = tmp_path / "1048576", tmp_path / "0"
    tables = sorted(path.stem for path in apart.glob("*.parquet"))
    assert len(tables) > 9
    for stem in tables:
        assert read_table(shared, stem).equals(read_table(apart, stem)), stem
    assert (shared / "scores.safetensors").read_bytes() == (apart / "scores.safetensors").read_bytes()
    drawn = sum(_sizes(audit))
    # The audit's text, the second, their draws, two further draws, and the first five windows of the rewritten model:
    # of the model as it is the five are the first draw's, whose scores are known.
    assert counts[1] == PASSES * (6 + 6 + 2 * 3 * 5 + drawn + 5)
    assert counts[0] < counts[1]


def _sizes(audit: AuditInputs) -> list[int]:
    from engine.studies.audit.stability import DisjointDraws

    record = DisjointDraws().record(audit)["calibration_draws"]
    return [record["samples"]] * record["draws"]
