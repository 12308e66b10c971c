"""Does a selector calibrated on other text remove other rows, and does that cost more?"""

from __future__ import annotations

import numpy.typing as npt
import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.cells import defined
from engine.analysis.similarity import jaccard, spearman
from engine.corpora import Windows, calibration_tokens, windows
from engine.errors import InputError
from engine.masks import removed_rows
from engine.selectors import get_selector
from engine.sweep import masked_nll

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "corpus_a": pl.String,
    "corpus_b": pl.String,
    "rate": pl.Float64,
    "spearman": pl.Float64,
    "jaccard": pl.Float64,
    "nll_a": pl.Float64,
    "nll_b": pl.Float64,
}
EVALUATION_SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "calibrated_on": pl.String,
    "evaluated_on": pl.String,
    "rate": pl.Float64,
    "nll": pl.Float64,
    "stderr": pl.Float64,
    "dense_nll": pl.Float64,
}


def domain(audit: Audit) -> dict[str, pl.DataFrame]:
    """`domain`: every data-dependent selector calibrated on the plan's corpus (a) and on its domain corpus (b).

    Spearman of the scores over all rows (null for constant ones), Jaccard of the LeRF masks, and their NLL on the
    plan's evaluation text, so that the two masks are compared on the same windows (the paper, appendix D, does so
    too). `domain_evaluation` has the same masks on the evaluation text of both corpora; without the second where
    that has no evaluation text that can be read. dense_nll: the unmasked model on the same text. A seeded selector
    counts by its first seed.

    Errors: InputError where both corpora are the same or the second one's calibration text cannot be read.
    """
    first, second = audit.plan.scoring.corpus, audit.plan.domain_corpus
    if first == second or calibration_tokens(first, second, 1):
        raise InputError(
            f"domain sensitivity compares two calibration corpora, got {first!r} twice; "
            "choose another --domain-corpus"
        )
    if calibration_tokens(audit.plan.eval_corpus, second, 1):
        raise InputError(
            f"the second calibration text {second!r} is the evaluation text too, so its scores would have seen what "
            "they are measured on; choose another --domain-corpus or --eval-corpus"
        )
    selectors = [name for name in audit.plan.scoring.selectors if not get_selector(name).data_free]
    if not selectors:
        return {
            "domain": pl.DataFrame(schema=SCHEMA),
            "domain_evaluation": pl.DataFrame(schema=EVALUATION_SCHEMA),
        }
    scored = (audit.scored, audit.scores_on(second))
    names = tuple(one.spec["calibration"]["corpus"] for one in scored)
    if names[0] == names[1]:
        raise InputError(f"both calibration texts are called {names[0]}; rename one of the files")
    texts = [audit.evaluation, *_other_evaluation(audit)]
    rates, done = audit.plan.domain_rates, 0
    total = len(selectors) * len(rates) * 2 * len(texts)
    table, evaluations = [], []
    for selector in selectors:
        a, b = (one.ranking(selector).numpy() for one in scored)
        rho = defined(spearman(a, b))
        for rate in rates:
            masks = (removed_rows(a, "lerf", rate), removed_rows(b, "lerf", rate))
            nlls = []
            for text in texts:
                dense = _nll(audit, [], text)[0]
                for name, mask in zip(names, masks, strict=True):
                    audit.report("domain", done, total)
                    nlls.append(_nll(audit, mask, text))
                    done += 1
                    where = (audit.loaded.id, selector, name, text.corpus, rate)
                    evaluations.append((*where, *nlls[-1], dense))
            found = (rho, defined(jaccard(*masks)), nlls[0][0], nlls[1][0])
            table.append((audit.loaded.id, selector, *names, rate, *found))
    audit.report("domain", total, total)
    return {
        "domain": pl.DataFrame(table, schema=SCHEMA, orient="row"),
        "domain_evaluation": pl.DataFrame(evaluations, schema=EVALUATION_SCHEMA, orient="row"),
    }


def _other_evaluation(audit: Audit) -> list[Windows]:
    """The domain corpus's own evaluation text, cut like the plan's; empty where it has none that can be read."""
    plan, corpus = audit.plan, audit.plan.domain_corpus
    if corpus == plan.eval_corpus:
        return []
    used = calibration_tokens(corpus, corpus, plan.scoring.samples * plan.scoring.length)
    try:
        text = windows(
            corpus,
            audit.loaded.tokenizer,
            role="evaluation",
            samples=plan.eval_samples,
            length=plan.eval_length,
            skip_tokens=used,
        )
    except (
        InputError
    ):  # a short file, a split out of reach: the comparison on the plan's text stands without it
        return []
    return [text]


def _nll(audit: Audit, mask: npt.ArrayLike, text: Windows) -> tuple[float, float | None]:
    """NLL in nats per token and its standard error with the rows of `mask` removed, from the store where known."""
    batch_size = audit.plan.scoring.batch_size
    result = masked_nll(audit.loaded, mask, text, store=audit.store, batch_size=batch_size)
    return result.nats_per_token, result.stderr
