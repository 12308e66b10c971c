"""Two calibration corpora against scipy, sets and evaluation by hand."""

import math
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
from engine.stats.blocks import missed
from engine.stats.uncertainty import COLUMNS
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.domain import text_draws

SELECTORS = ("random", "wanda", "grad_x_input")
ERRORS = ("stderr_a", "stderr_b", "stderr_blocks_a", "stderr_blocks_b", "blocks", "saturated")


@pytest.fixture
def audit(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path):
    other = tmp_path / "other.txt"
    other.write_text(tiny_models.text(documents=60, seed=5).replace("t", "z"), encoding="utf-8")
    with Store(tmp_path / "store") as store:
        yield tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": SELECTORS}, domain_corpus=str(other),
            domain_rates=(0.2, 0.3),
        )  # fmt: skip


@pytest.mark.long
def test_every_data_dependent_selector_on_both_corpora(audit: AuditInputs, tiny_text: Path) -> None:
    tables = domain(audit)
    table = tables["domain"]
    assert table.schema == spec("domain").schema(ERRORS)
    assert table.select("selector", "rate").rows() == [
        (selector, rate) for selector in ("wanda", "grad_x_input") for rate in (0.2, 0.3)
    ]
    assert set(table.select("corpus_a", "corpus_b").rows()) == {("text.txt", "other.txt")}
    loaded, n = audit.loaded, audit.loaded.rows.n_rows
    scores = []
    for corpus in (str(tiny_text), audit.plan.domain_corpus):
        text = windows(corpus, loaded.tokenizer, role="calibration", samples=6, length=16)
        scores.append(compute_scores(loaded, ("wanda", "grad_x_input"), text))
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
        dense = negative_log_likelihood(loaded, audit.evaluation).nats_per_token
        limit = dense + max(0, math.log(loaded.model.config.vocab_size) - dense) / 2
        assert line["saturated"] == (min(line["nll_a"], line["nll_b"]) > limit)
    own = tables["domain_evaluation"].filter(evaluated_on="text.txt")
    for column, name in (("stderr_a", "text.txt"), ("stderr_b", "other.txt")):
        assert table[column].to_list() == own.filter(calibrated_on=name)["stderr"].to_list()
        blocks = column.replace("stderr", "stderr_blocks")
        assert table[blocks].to_list() == own.filter(calibrated_on=name)["stderr_blocks"].to_list()
    assert set(table["blocks"]) == {3}  # of five windows


@pytest.mark.long
def test_masks_on_the_second_corpus_too(audit: AuditInputs) -> None:
    tables = domain(audit)
    table = tables["domain_evaluation"]
    assert table.schema == spec("domain_evaluation").schema(COLUMNS)
    assert table.height == 2 * 2 * 2 * 2  # selectors, rates, calibration texts, evaluation texts
    own = table.filter(evaluated_on="text.txt")
    for column, name in (("nll_a", "text.txt"), ("nll_b", "other.txt")):
        assert own.filter(calibrated_on=name)["nll"].to_list() == tables["domain"][column].to_list()
    loaded = audit.loaded
    # of one file, evaluation takes what follows calibration
    text = windows(
        audit.plan.domain_corpus, loaded.tokenizer, role="evaluation", samples=5, length=16, skip_tokens=6 * 16
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
    means = np.array(result.window_nats) / 15
    assert line["stderr"] == pytest.approx(scipy.stats.sem(means))
    rest = [(part - means.mean()).sum() for part in np.split(means, [2, 3])]  # blocks of 2, 1 and 2 windows
    by_blocks = np.sqrt(np.square(rest).sum() * 3 / 2 * missed(1, 3)) / 5
    assert line["stderr_blocks"] == pytest.approx(by_blocks)
    assert line["dense_nll"] == negative_log_likelihood(loaded, text).nats_per_token


def test_a_second_corpus_without_evaluation_text(audit: AuditInputs, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    tokens = audit.loaded.tokenizer(tiny_models.text(documents=200))["input_ids"][: 6 * 16]
    short.write_text(audit.loaded.tokenizer.decode(tokens), encoding="utf-8")
    audit.plan = replace(audit.plan, domain_corpus=str(short))
    tables = domain(audit)
    assert tables["domain"].height == 4
    assert set(tables["domain_evaluation"]["evaluated_on"]) == {"text.txt"}


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


def test_draws_of_a_text_have_no_window_in_common(audit: AuditInputs) -> None:
    audit.plan = replace(audit.plan, domain_draws=3)
    for of_text in text_draws(audit) or ():
        assert [place for one in of_text for place in one.sample_ids] == list(range(3 * 6))


@pytest.mark.long
def test_draws_within_a_text_and_between_two(audit: AuditInputs, tiny_text: Path) -> None:
    """Overlaps by sets, over masks of scores computed anew on every piece of both texts."""
    audit.plan = replace(audit.plan, domain_draws=3)
    table = domain(audit)["domain_draws"]
    assert table.schema == spec("domain_draws").schema()
    loaded, count = audit.loaded, 3
    masks: dict[str, list[set[int]]] = {}
    for corpus in (str(tiny_text), audit.plan.domain_corpus):
        text = windows(corpus, loaded.tokenizer, role="calibration", samples=count * 6, length=16)
        assert len(text.sample_ids) == count * 6
        for number in range(count):
            scores = compute_scores(loaded, ("wanda", "grad_x_input"), text.part(6 * number, 6))
            for name, values in scores.items():
                masks.setdefault(name, []).append(set(lowest(values.tolist(), round(0.3 * values.numel()))))
    for line in table.filter(rate=0.3).iter_rows(named=True):
        own = masks[line["selector"]]
        within = [[_overlap(own[i], own[j]) for i, j in ((s, s + 1), (s, s + 2), (s + 1, s + 2))] for s in (0, 3)]
        between = [_overlap(a, b) for a in own[:3] for b in own[3:]]
        assert (line["size"], line["text_draws"]) == (6, 3)
        assert line["jaccard_a"] == pytest.approx(np.mean(within[0]))
        assert line["jaccard_b"] == pytest.approx(np.mean(within[1]))
        assert line["jaccard_between"] == pytest.approx(np.mean(between))
        assert line["drop"] == pytest.approx(np.mean(within) - np.mean(between))
        assert line["p_family"] >= 1 / 10
        assert line["beyond_draw"] is False  # ten ways to label six draws cannot say more
        assert line["spearman_within"] > 0.5


def _overlap(a: set[int], b: set[int]) -> float:
    return len(a & b) / len(a | b)
