"""Would other calibration text of the same kind have given the same selector? Disjoint draws of the whole text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from engine.data.corpora import calibration_tokens
from engine.data.disjoint import Draws as Drawn, TooFewDraws, disjoint_draws
from engine.edits.ranked_edits import Ranking, rankings
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.audit_plan import CalibrationDrawsPlan
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.selectors import get_selector
from engine.stats.paired import defined
from engine.stats.removal_order import ORDERS
from engine.stats.similarity import average_ranks, jaccard, rank_correlations
from engine.studies.audit.inputs import AuditInputs, Point
from engine.studies.base import AUDIT, Study, Tables, register_study

__all__ = ["DisjointDraws", "TooFewDraws"]


class _Made(NamedTuple):
    """The draws, and per selector the rankings of every draw (several of a seeded one)."""

    drawn: Drawn
    rankings: dict[str, list[list[Ranking]]]


@register_study(
    "draws",
    of=AUDIT,
    plan=CalibrationDrawsPlan,
    tables=("draws", "draw_sweep"),
    title="Would other calibration text give the same selector?",
)
class DisjointDraws(Study[AuditInputs]):
    """`draws`, how alike rankings and masks from disjoint calibration sets are, and `draw_sweep`, what these masks do.

    `calibration_draws` sets of the largest of the plan's calibration sizes, or as many windows as the text has for
    each (`engine.data.disjoint`); all data-dependent selectors. Spearman of the scores and Jaccard of the LeRF masks
    at the plan's stability rates, over all pairs of draws: mean, least and greatest. NLL under both orders at the
    control rates: its variance between draws is the calibration text's part in every error.
    A seeded selector counts by the mean over its seeds. Beyond the paper, whose sizes are nested.

    Errors: TooFewDraws for a text too short for two draws of the smallest calibration size.
    """

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        if not all(get_selector(name).data_free for name in audit.plan.scoring.selectors):
            _drawn(audit)

    def __init__(
        self, inputs: AuditInputs | None = None, *, further: Mapping[tuple[str, str], float] | None = None
    ) -> None:
        """further: selector and order -> one more rate of their masks, beside the control rates."""
        self._further = further or {}

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for selector, _, ranked in _each(audit):
            yield from self._grid(audit, selector, ranked).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        alike: list[tuple[object, ...]] = []
        measured: list[tuple[object, ...]] = []
        made = _made(audit)
        for selector, by_draw in made.rankings.items() if made else ():
            assert made is not None
            alike += _similarity(audit, selector, by_draw, made.drawn)
        for selector, draw, ranked in _each(audit):
            assert made is not None
            text = made.drawn.sets[draw]
            for point, cell in self._grid(audit, selector, ranked).items():
                where = (audit.loaded.id, selector, point.seed, point.order, point.rate)
                about = (draw, len(text.sample_ids), text.sample_ids[0])
                measured.append((*where, *about, results[cell].nats_per_token))
        return {"draws": frame("draws", alike), "draw_sweep": frame("draw_sweep", measured)}

    def _grid(self, audit: AuditInputs, selector: str, ranked: list[Ranking]) -> dict[Point, Cell[Any]]:
        grid: dict[Point, Cell[Any]] = {}
        for order in ORDERS:
            further = {self._further[selector, order]} if (selector, order) in self._further else set()
            grid |= audit.grid(ranked, (order,), sorted({*audit.plan.control_rates, *further}))
        return grid

    def record(self, audit: AuditInputs) -> Json:
        """Which windows, for the manifest."""
        made = _made(audit)
        return {"calibration_draws": made.drawn.record()} if made else {}


def _similarity(
    audit: AuditInputs, selector: str, by_draw: list[list[Ranking]], drawn: Drawn
) -> Iterator[tuple[object, ...]]:
    pairs = np.triu_indices(len(by_draw), 1)
    of_seed = list(zip(*by_draw, strict=True))  # per seed the rankings of all draws
    rho = np.mean(
        [rank_correlations(np.stack([average_ranks(one.scores) for one in ranked]))[pairs] for ranked in of_seed]
    )
    for rate in audit.plan.stability_rates:
        masks = [[one.edit("lerf", rate).units for one in ranked] for ranked in of_seed]
        overlaps = np.array([[jaccard(of[a], of[b]) for a, b in zip(*pairs, strict=True)] for of in masks]).mean(0)
        about = (len(by_draw), drawn.size, drawn.size_wanted, drawn.available)
        found = (overlaps.mean(), overlaps.min(), overlaps.max())
        yield (audit.loaded.id, selector, rate, *about, defined(float(rho)), *(defined(float(one)) for one in found))


def _each(audit: AuditInputs) -> Iterator[tuple[str, int, list[Ranking]]]:
    """Selector, number of the draw, its rankings."""
    made = _made(audit)
    for selector, by_draw in made.rankings.items() if made else ():
        for draw, ranked in enumerate(by_draw):
            yield selector, draw, ranked


def _made(audit: AuditInputs) -> _Made | None:
    """Draws and rankings, scored once per audit and kept in the store; None without a selector that sees text."""
    key = ("draws", audit.plan)
    if key not in audit.made:
        selectors = tuple(name for name in audit.plan.scoring.selectors if not get_selector(name).data_free)
        audit.made[key] = _scored(audit, selectors) if selectors else None
    made: _Made | None = audit.made[key]
    return made


def _drawn(audit: AuditInputs) -> Drawn:
    plan, scoring = audit.plan, audit.plan.scoring
    # Evaluation text of the same file lies behind the calibration windows of the scores.
    skipped = calibration_tokens(plan.eval_corpus, scoring.corpus, scoring.samples * scoring.length)
    evaluated = range(skipped, skipped + plan.eval_samples * plan.eval_length) if skipped else range(0)
    return disjoint_draws(
        scoring.corpus, audit.loaded.tokenizer,
        draws=plan.calibration_draws, size=max(plan.stability_sizes), least=min(plan.stability_sizes),
        length=scoring.length, seed=plan.draws_seed, without=evaluated, window_start=scoring.window_start,
    )  # fmt: skip


def _scored(audit: AuditInputs, selectors: tuple[str, ...]) -> _Made:
    plan, scoring, drawn = audit.plan, audit.plan.scoring, _drawn(audit)
    found: dict[str, list[list[Ranking]]] = {name: [] for name in selectors}
    for text in drawn.sets:
        scores = audit.score_text(selectors, text)
        for name in selectors:
            ranked = rankings({name: scores[name].numpy()}, scoring.seeds, plan.intervention)
            found[name].append(list(ranked))
    return _Made(drawn, found)
