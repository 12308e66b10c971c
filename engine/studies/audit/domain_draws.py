"""The baseline of domain sensitivity: how far two draws of one and the same text agree."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Windows
from engine.edits.masks import removed_rows
from engine.run.plan_text import calibration_text
from engine.stats.holm import LEVEL
from engine.stats.similarity import average_ranks, jaccards, rank_correlations
from engine.stats.two_texts import compare_draws
from engine.studies.audit.inputs import AuditInputs

Line = tuple[object, ...]


def text_draws(audit: AuditInputs) -> tuple[list[Windows], list[Windows]] | None:
    """`domain_draws` disjoint draws of the plan's calibration text, and as many of the domain corpus.

    Consecutive pieces from the start, as the plan's own calibration windows are the first of their text: each as many
    windows as the plan calibrates on, or what the shorter text has for each. None where it has not one window.
    """
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
    """Lines of `domain_draws`, a selector and a rate each. A seeded selector counts by its first seed.

    All draws are scored by shared passes first; then they are read selector by selector from the store, so that no
    more than one selector's scores of all draws are in memory.
    """
    found = text_draws(audit) if selectors and audit.plan.domain_draws else None
    if found is None:
        return
    draws, rates = [*found[0], *found[1]], audit.plan.domain_rates
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
    found = audit.score_text(selectors, draw)
    return {name: (one[0] if one.ndim == 2 else one).numpy() for name, one in found.items()}


def _means(correlations: npt.NDArray[np.float64]) -> tuple[float | None, float | None]:
    """Mean Spearman of two draws of one text, and of one draw of each; None where a ranking is constant."""
    half = len(correlations) // 2
    first = np.arange(len(correlations)) < half
    same = (first[:, None] == first[None, :]) & ~np.eye(len(first), dtype=bool)
    within, between = float(correlations[same].mean()), float(correlations[np.outer(first, ~first)].mean())
    return (None if math.isnan(within) else within), (None if math.isnan(between) else between)
