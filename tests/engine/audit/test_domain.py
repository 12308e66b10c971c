"""Two calibration corpora against scipy, sets and evaluation by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
import tiny_models
from tiny_audits import domain, lowest, tiny_audit

from engine.data.corpora import windows
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.results.tables import spec
from engine.selectors import compute_scores
from engine.studies.audit.inputs import AuditInputs

SELECTORS = ("random", "wanda", "ig")


@pytest.fixture
def audit(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path):
    other = tmp_path / "other.txt"
    other.write_text(tiny_models.text(documents=60, seed=5).replace("t", "z"), encoding="utf-8")
    with Store(tmp_path / "store") as store:
        yield tiny_audit(
            tiny_llama,
            tiny_text,
            store,
            scoring={"selectors": SELECTORS},
            domain_corpus=str(other),
            domain_rates=(0.2, 0.3),
        )


def test_every_data_dependent_selector_on_both_corpora(audit: AuditInputs, tiny_text: Path) -> None:
    tables = domain(audit)
    table = tables["domain"]
    assert table.schema == spec("domain").schema()
    assert table.select("selector", "rate").rows() == [
        (selector, rate) for selector in ("wanda", "ig") for rate in (0.2, 0.3)
    ]
    assert set(table.select("corpus_a", "corpus_b").rows()) == {("text.txt", "other.txt")}
    loaded, n = audit.loaded, audit.loaded.rows.n_rows
    scores = []
    for corpus in (str(tiny_text), audit.plan.domain_corpus):
        text = windows(corpus, loaded.tokenizer, role="calibration", samples=6, length=16)
        scores.append(compute_scores(loaded, ("wanda", "ig"), text))
    for line in table.iter_rows(named=True):
        a, b = (one[line["selector"]].tolist() for one in scores)
        assert line["spearman"] == pytest.approx(scipy.stats.spearmanr(a, b).statistic, abs=1e-6)
        first, second = (lowest(values, round(line["rate"] * n)) for values in (a, b))
        assert first != second
        common = len(set(first) & set(second))
        assert line["jaccard"] == pytest.approx(common / (2 * len(first) - common))
        for name, mask in (("nll_a", first), ("nll_b", second)):
            with zeroed(loaded, mask):
                expected = negative_log_likelihood(loaded, audit.evaluation).nats_per_token
            assert line[name] == pytest.approx(expected, rel=1e-6)  # dead neurons are skipped: other sums round


def test_masks_on_the_second_corpus_too(audit: AuditInputs) -> None:
    tables = domain(audit)
    table = tables["domain_evaluation"]
    assert table.schema == spec("domain_evaluation").schema()
    assert table.height == 2 * 2 * 2 * 2  # selectors, rates, calibration texts, evaluation texts
    own = table.filter(evaluated_on="text.txt")
    for column, name in (("nll_a", "text.txt"), ("nll_b", "other.txt")):
        assert own.filter(calibrated_on=name)["nll"].to_list() == tables["domain"][column].to_list()
    loaded = audit.loaded
    # of one file, evaluation takes what follows calibration
    text = windows(
        audit.plan.domain_corpus,
        loaded.tokenizer,
        role="evaluation",
        samples=5,
        length=16,
        skip_tokens=6 * 16,
    )
    line = table.row(
        by_predicate=(pl.col("evaluated_on") == "other.txt")
        & (pl.col("calibrated_on") == "other.txt")
        & (pl.col("selector") == "wanda")
        & (pl.col("rate") == 0.3),
        named=True,
    )
    scores = audit.scores_on(audit.plan.domain_corpus).ranking("wanda").tolist()
    with zeroed(loaded, lowest(scores, round(0.3 * len(scores)))):
        result = negative_log_likelihood(loaded, text)
    assert line["nll"] == result.nats_per_token
    assert line["stderr"] == pytest.approx(scipy.stats.sem(np.array(result.window_nats) / 15))
    assert line["dense_nll"] == negative_log_likelihood(loaded, text).nats_per_token


def test_a_second_corpus_without_evaluation_text(audit: AuditInputs, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    tokens = audit.loaded.tokenizer(tiny_models.text(documents=200))["input_ids"][: 6 * 16]
    short.write_text(audit.loaded.tokenizer.decode(tokens), encoding="utf-8")
    audit.plan = replace(audit.plan, domain_corpus=str(short))
    tables = domain(audit)
    assert tables["domain"].height == 4
    assert set(tables["domain_evaluation"]["evaluated_on"]) == {"text.txt"}


def test_one_corpus_twice_and_no_corpus(audit: AuditInputs, tiny_text: Path) -> None:
    audit.plan = replace(audit.plan, domain_corpus=str(tiny_text))
    with pytest.raises(InputError, match="compares two calibration corpora, got .* twice"):
        domain(audit)
    audit.plan = replace(audit.plan, domain_corpus="c4")
    with pytest.raises(InputError, match="corpus c4: the Hugging Face hub cannot be reached"):
        domain(audit)


def test_selectors_that_see_no_text_have_no_domain(audit: AuditInputs) -> None:
    scoring = replace(audit.plan.scoring, selectors=("random", "magnitude"))
    audit.plan = replace(audit.plan, scoring=scoring, domain_corpus="c4")
    tables = domain(audit)
    assert {name: table.height for name, table in tables.items()} == {"domain": 0, "domain_evaluation": 0}


def test_the_second_text_must_not_be_what_is_measured_on(audit: AuditInputs, tmp_path: Path) -> None:
    other = Path(audit.plan.domain_corpus)
    twisted = str(other.parent / "." / ".." / other.parent.name / other.name)
    measured = replace(audit.plan, eval_corpus=twisted)
    with pytest.raises(InputError, match="is the evaluation text too"):
        domain(AuditInputs(audit.loaded, measured, audit.store))
    twice = replace(audit.plan, scoring=replace(audit.plan.scoring, corpus=twisted))
    with pytest.raises(InputError, match="twice"):
        domain(AuditInputs(audit.loaded, twice, audit.store))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    namesake = folder / Path(audit.plan.scoring.corpus).name
    namesake.write_text(other.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InputError, match="rename one"):
        domain(AuditInputs(audit.loaded, replace(audit.plan, domain_corpus=str(namesake)), audit.store))
