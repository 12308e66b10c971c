"""Does a selector calibrated on other text remove other rows, and does that cost more?"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Windows, calibration_tokens
from engine.data.texts import available_corpora, reachable
from engine.edits.edit import UNEDITED, Ranking
from engine.edits.masks import removed_rows
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.audit_plan import DomainPlan
from engine.run.runner import Cell, Results
from engine.run.scoring import calibration_text
from engine.selectors import get_selector
from engine.stats.blocks import block_error, defined, with_documents
from engine.stats.layer_matched import compare_draws
from engine.stats.removal_order import average_ranks, jaccard, jaccards, rank_correlations, spearman
from engine.stats.uncertainty import COLUMNS, LEVEL
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import AUDIT, Study, Tables, register_study

_ERRORS = ("stderr_a", "stderr_b", "stderr_blocks_a", "stderr_blocks_b", "blocks", "saturated")


Line = tuple[object, ...]


@register_study(
    "domain", of=AUDIT, plan=DomainPlan, tables=("domain", "domain_evaluation", "domain_draws"),
    title="Does other calibration text remove other rows, and more than another draw of the same text?",
)  # fmt: skip
class Domain(Study[AuditInputs]):
    """`domain`: every data-dependent selector calibrated on the plan's corpus (a) and on its domain corpus (b).

    Spearman of the scores over all rows (null for constant ones), Jaccard of the LeRF masks, and their NLL on the
    plan's evaluation text (the paper, appendix D); saturated: both destroy the model (`engine.stats.limits`).
    `domain_evaluation` has the same masks on the evaluation text of both corpora. dense_nll: the unmasked model on the
    same text. A seeded selector counts by its first seed.

    `domain_draws` has the overlap of disjoint draws within each text and between the two, all of one size, and whether
    the text can be told apart from the draw (`engine.stats.layer_matched`). Beyond the paper.

    Errors: InputError where both corpora are the same or the second one's calibration text cannot be read."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        second, scoring = audit.plan.domain_corpus, audit.plan.scoring
        _check_two_texts(audit)
        if all(get_selector(name).data_free for name in scoring.selectors):
            return
        if second not in available_corpora():
            calibration_text(audit.loaded, scoring, corpus=second)
        elif problem := reachable(second):
            raise InputError(problem)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        both = list(_selectors(audit))
        texts = _texts(audit) if both else []
        for text in texts:
            yield audit.nll(UNEDITED, text)
        for _, ranked in both:
            for rate in audit.plan.domain_rates:
                for text in texts:
                    for ranking in ranked:
                        yield audit.nll(ranking.edit("lerf", rate), text)

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        table, evaluations, drawn, both = [], [], list[Line](), list(_selectors(audit))
        texts = _texts(audit) if both else []
        if both:
            names = (_name(audit.scored.spec), _name(audit.scores_on(audit.plan.domain_corpus).spec))
            drawn = list(draw_lines(audit, [selector for selector, _ in both], names))
        for selector, ranked in both:
            rho = defined(spearman(*(one.scores for one in ranked)))
            for rate in audit.plan.domain_rates:
                edits = [ranking.edit("lerf", rate) for ranking in ranked]
                lines = []
                for text in texts:
                    dense = results[audit.nll(UNEDITED, text)].nats_per_token
                    for name, edit in zip(names, edits, strict=True):
                        one = results[audit.nll(edit, text)]
                        lines.append((one.nats_per_token, one.stderr, *block_error(one)))
                        where = (audit.loaded.id, selector, name, text.corpus, rate)
                        nll, stderr, *blocks = lines[-1]
                        evaluations.append((*where, nll, stderr, dense, *blocks, text.blocks.documents))
                overlap = defined(jaccard(*(edit.units for edit in edits)))
                nlls, errors, wider, counts = zip(*lines[:2], strict=True)
                limit = audit.saturated_above_on(audit.nll(UNEDITED, texts[0]), results)
                numbers = (rho, overlap, *nlls, *errors, *wider, min(counts), not min(nlls) <= limit)
                table.append((audit.loaded.id, selector, *names, rate, *numbers))
        evaluated = frame("domain_evaluation", evaluations, optional=(*COLUMNS, "documents"))
        if evaluated["documents"].is_null().all():  # no text's errors are over documents
            evaluated = evaluated.drop("documents")
        return {
            "domain": with_documents(frame("domain", table, optional=_ERRORS), audit.evaluation.blocks),
            "domain_evaluation": evaluated,
            "domain_draws": frame("domain_draws", drawn),
        }


def _check_two_texts(audit: AuditInputs) -> None:
    first, second = audit.plan.scoring.corpus, audit.plan.domain_corpus
    if first == second or calibration_tokens(first, second, 1):
        raise InputError(
            f"domain sensitivity compares two calibration corpora, got {first!r} twice; choose another --domain-corpus"
        )
    if calibration_tokens(audit.plan.eval_corpus, second, 1):
        raise InputError(
            f"the second calibration text {second!r} is the evaluation text too, so its scores would have seen what "
            "they are measured on; choose another --domain-corpus or --eval-corpus"
        )


def _selectors(audit: AuditInputs) -> Iterator[tuple[str, tuple[Ranking, Ranking]]]:
    """The data-dependent selectors, and their rankings as calibrated on either corpus."""
    _check_two_texts(audit)
    second = audit.plan.domain_corpus
    selectors = [name for name in audit.plan.scoring.selectors if not get_selector(name).data_free]
    if not selectors:
        return
    other = audit.scores_on(second)
    names = (_name(audit.scored.spec), _name(other.spec))
    if names[0] == names[1]:
        raise InputError(f"both calibration texts are called {names[0]}; rename one of the files")
    for name in selectors:
        scores = other.ranking(name).numpy()
        yield name, (audit.ranking(name), Ranking(name, None, scores, audit.plan.intervention))


def _name(spec: dict[str, Any]) -> str:
    return str(spec["calibration"]["corpus"])


def _texts(audit: AuditInputs) -> list[Windows]:
    """The plan's evaluation text, and the domain corpus's own where it has one that can be read."""
    corpus = audit.plan.domain_corpus
    if corpus == audit.plan.eval_corpus:
        return [audit.evaluation]
    try:
        return [audit.evaluation, audit.evaluation_of(corpus, corpus)]
    except InputError:  # a short file, a split out of reach: the comparison on the plan's text stands without it
        return [audit.evaluation]


def text_draws(audit: AuditInputs) -> tuple[list[Windows], list[Windows]] | None:
    """`domain_draws` disjoint, consecutive draws of the plan's calibration text, and as many of the domain corpus: each
    as many windows as the plan calibrates on, or what the shorter text has for each. None where it has not one
    window."""
    plan, scoring = audit.plan, audit.plan.scoring
    count = plan.domain_draws
    read = [
        calibration_text(audit.loaded, scoring, corpus=corpus, samples=count * scoring.samples)
        for corpus in (scoring.corpus, plan.domain_corpus)
    ]
    size = min(len(text.sample_ids) for text in read) // count
    if not size:
        return None
    first, second = ([text.part(number * size, size) for number in range(count)] for text in read)
    return first, second


def draw_lines(audit: AuditInputs, selectors: Sequence[str], names: tuple[str, str]) -> Iterator[Line]:
    """Lines of `domain_draws`, a selector and a rate each. A seeded selector counts by its first seed. All draws are
    scored by shared passes first, then read selector by selector from the store: no more than one's scores are in
    memory."""
    draws_of_text = text_draws(audit) if selectors and audit.plan.domain_draws else None
    if draws_of_text is None:
        return
    draws, rates = [*draws_of_text[0], *draws_of_text[1]], audit.plan.domain_rates
    for draw in draws:
        _scores(audit, selectors, draw)
    places, rho, overlaps = [], [], []
    for selector in selectors:
        scores = [_scores(audit, (selector,), draw)[selector] for draw in draws]
        correlations = rank_correlations(np.stack([average_ranks(one) for one in scores]))
        for rate in rates:
            members = np.zeros((len(draws), audit.loaded.rows.n_rows), dtype=bool)
            for row, values in zip(members, scores, strict=True):
                row[removed_rows(values, "lerf", rate)] = True
            places.append((selector, rate))
            rho.append(_means(correlations))
            overlaps.append(jaccards(members))
    defined = [one for one in overlaps if np.isfinite(one).all()]
    answers = iter(compare_draws(np.stack(defined)) if defined else ())
    for (selector, rate), correlation, overlap in zip(places, rho, overlaps, strict=True):
        numbers: Line = (None,) * 6
        if np.isfinite(overlap).all():
            *means, p = next(answers)
            numbers = (*means, p, p <= LEVEL)
        where = (audit.loaded.id, selector, *names, rate, len(draws[0].sample_ids), audit.plan.domain_draws)
        yield (*where, *correlation, *numbers)


def _scores(audit: AuditInputs, selectors: Sequence[str], draw: Windows) -> dict[str, npt.NDArray[np.float32]]:
    """Scores of one draw, of a seeded selector those of the first seed; from the store where they are known."""
    scores = audit.score_text(selectors, draw)
    return {name: (one[0] if one.ndim == 2 else one).numpy() for name, one in scores.items()}


def _means(correlations: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Mean Spearman of two draws of one text, and of one draw of each; None where a ranking is constant."""
    first = np.arange(len(correlations)) < len(correlations) // 2
    same = (first[:, None] == first[None, :]) & ~np.eye(len(first), dtype=bool)
    within, between = float(correlations[same].mean()), float(correlations[np.outer(first, ~first)].mean())
    return (None if math.isnan(within) else within), (None if math.isnan(between) else between)
