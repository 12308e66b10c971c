"""Would other calibration text have given the same selector? Nested sizes of it, disjoint draws of the whole text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.data.corpora import Draws as Drawn, TooFewDraws, Windows, calibration_tokens, disjoint_draws
from engine.edits.edit import Ranking, rankings
from engine.measures.nll import perplexity
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.results.folders import table_names
from engine.results.tables import frame
from engine.run.audit_plan import CalibrationDrawsPlan, StabilityPlan
from engine.run.runner import Cell, Results
from engine.run.scoring import calibration_text, score_at_sizes
from engine.selectors import get_selector
from engine.selectors.own_scores import Scores, draws
from engine.stats.blocks import defined
from engine.stats.removal_order import ORDERS, average_ranks, jaccard, over_draws, rank_correlations, spearman
from engine.studies.audit.audit_inputs import AuditInputs, Point
from engine.studies.base import AUDIT, Study, Tables, register_study

_Nested = dict[str, dict[int, list[Ranking]]]  # selector -> calibration size -> its rankings


@register_study(
    "stability", of=AUDIT, plan=StabilityPlan, tables=("stability",),
    title="Does more calibration text change a selector?",
)  # fmt: skip
class Stability(Study[AuditInputs]):
    """`stability`: every data-dependent selector at every calibration size against the largest one.

    Spearman of the scores, Jaccard of the LeRF masks, and the LeRF NLL at the plan's stability rates; the
    largest size is its own reference (1 and 1). Sizes are nested, the first n calibration windows each, and
    scores of all sizes come from the pass that scores the calibration text. A seeded selector counts by the mean over
    its seeds; perplexity is exp of the mean NLL. Null: Spearman of constant scores. The paper, section 4.2."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        if not all(get_selector(name).data_free for name in audit.plan.scoring.selectors):
            nested_sizes(audit.plan.stability_sizes, len(_calibration(audit).input_ids))

    def before_scores(self, audit: AuditInputs) -> None:
        _nested(audit)

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        for by_size in _nested(audit).values():
            for ranked in by_size.values():
                yield from audit.grid(ranked, ("lerf",), audit.plan.stability_rates).values()

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines: list[tuple[object, ...]] = []
        for selector, by_size in _nested(audit).items():
            reference = max(by_size)
            whole = by_size[reference]
            for size, ranked in by_size.items():
                rho = float(np.mean([spearman(a.scores, b.scores) for a, b in zip(ranked, whole, strict=True)]))
                for rate in audit.plan.stability_rates:
                    edits = [(a.edit("lerf", rate), b.edit("lerf", rate)) for a, b in zip(ranked, whole, strict=True)]
                    overlap = float(np.mean([jaccard(a.units, b.units) for a, b in edits]))
                    nll = float(np.mean([results[audit.nll(a)].nats_per_token for a, _ in edits]))
                    values = (defined(rho), defined(overlap), nll, perplexity(nll))
                    lines.append((audit.loaded.id, selector, size, reference, rate, *values))
        return {"stability": frame("stability", lines)}


def _nested(audit: AuditInputs) -> _Nested:
    """The rankings of every data-dependent selector at every size, ascending; scored once per audit."""

    def make() -> _Nested:
        selectors = [name for name in audit.plan.scoring.selectors if not get_selector(name).data_free]
        if not selectors:
            return {}
        tokens = _calibration(audit)
        sizes = nested_sizes(audit.plan.stability_sizes, len(tokens.input_ids))
        scores = score_at_sizes(
            audit.loaded, audit.plan.scoring, selectors, tokens, sizes,
            store=audit.store, progress=audit.progress, kept=audit.kept,
        )  # fmt: skip
        seeds, intervention = audit.plan.scoring.seeds, audit.plan.intervention
        return {
            name: {size: list(rankings({name: scores[size][name]}, seeds, intervention)) for size in sizes}
            for name in selectors
        }

    return audit.once("stability", make)


class TooFewSizes(InputError):
    """There is too little calibration text to compare two sizes."""


def nested_sizes(wanted: Sequence[int], available: int) -> tuple[int, ...]:
    """The sizes to measure, ascending; what is more than there is becomes all there is. Errors: fewer than two."""
    if any(size < 1 for size in wanted):
        raise InputError(f"calibration sizes are numbers of windows from 1, got {list(wanted)}")
    sizes = tuple(sorted({min(size, available) for size in wanted}))
    if len(sizes) < 2:
        raise TooFewSizes(
            f"stability compares at least 2 calibration sizes, got {list(wanted)} with {available} windows "
            "available; give smaller sizes or a longer calibration text"
        )
    return sizes


def _calibration(audit: AuditInputs) -> Windows:
    """The audit's calibration windows, more of them where a size asks for more than its scores use.
    Not more where evaluation reads the same file: what follows in it is evaluation text."""
    scoring, largest = audit.plan.scoring, max(audit.plan.stability_sizes, default=0)
    shared_file = calibration_tokens(audit.plan.eval_corpus, scoring.corpus, 1) > 0
    if largest <= scoring.samples or shared_file:
        return audit.calibration
    return calibration_text(audit.loaded, scoring, samples=largest)


class _Made(NamedTuple):
    """Per selector the rankings of every draw (several of a seeded one), and the draws of the text; None where no
    selector reads it, or it is too short, which `why_not` says."""

    rankings: dict[str, list[list[Ranking]]]
    drawn: Drawn | None
    why_not: str


@register_study(
    "draws", of=AUDIT, plan=CalibrationDrawsPlan, tables=("draws", "draw_sweep"),
    title="Would other calibration text give the same selector?",
)  # fmt: skip
class DisjointDraws(Study[AuditInputs]):
    """`draws`, how alike rankings and masks from disjoint calibration sets are, and `draw_sweep`, what these masks do.

    `calibration_draws` sets of the largest of the plan's calibration sizes, or as many windows as the text has for each
    (`engine.data.corpora`); all data-dependent selectors. Spearman of the scores and Jaccard of the LeRF masks at the
    plan's stability rates, over all pairs of draws: mean, least and greatest. NLL under both orders at the control
    rates: its variance between draws is the calibration text's part in every error. A seeded selector counts by the
    mean over its seeds. Scores of one's own have a draw in each of their files. Beyond the paper, whose sizes are
    nested.

    Errors: TooFewDraws for a text too short for two draws of the smallest calibration size, unless files have some."""

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        if not all(get_selector(name).data_free for name in audit.plan.scoring.selectors) and not _in_files(audit):
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
        made, in_files = _made(audit), _in_files(audit)
        for selector, by_draw in made.rankings.items():
            alike += _similarity(audit, selector, by_draw, None if selector in in_files else made.drawn)
        for selector, draw, ranked in _each(audit):
            text = None if made.drawn is None or selector in in_files else made.drawn.sets[draw]
            about = (draw, len(text.sample_ids), text.sample_ids[0]) if text else (draw, None, None)
            for point, cell in self._grid(audit, selector, ranked).items():
                where = (audit.loaded.id, selector, point.seed, point.order, point.rate)
                measured.append((*where, *about, results[cell].nats_per_token))
        return {"draws": frame("draws", alike, optional=ENDS), "draw_sweep": frame("draw_sweep", measured)}

    def _grid(self, audit: AuditInputs, selector: str, ranked: list[Ranking]) -> dict[Point, Cell[Any]]:
        grid: dict[Point, Cell[Any]] = {}
        for order in ORDERS:
            further = {self._further[selector, order]} if (selector, order) in self._further else set()
            grid |= audit.grid(ranked, (order,), sorted({*audit.plan.control_rates, *further}))
        return grid

    @classmethod
    def remade_with(cls, folder: Path, stems: Sequence[str]) -> dict[str, type[Study[AuditInputs]]]:
        from engine.studies.audit.verdicts import Verdicts

        return {"verdict": Verdicts} if "verdicts" in table_names(folder) else {}

    def record(self, audit: AuditInputs) -> Json:
        """Which windows, for the manifest."""
        drawn = _made(audit).drawn
        return {"calibration_draws": drawn.record()} if drawn else {}


ENDS = ("spearman_low", "spearman_high", "jaccard_low", "jaccard_high")


def why_not_drawn(audit: AuditInputs) -> dict[str, str]:
    """Selectors without draws, and why."""
    files = {name: len(get_selector(name).files) for name in audit.plan.scoring.selectors}
    try:
        reason = _made(audit).why_not
    except TooFewDraws as error:
        reason = str(error)
    one_file = "one file; give those of other calibration texts as well, as in --scores mine=a,b"
    return {name: one_file if count == 1 else reason for name, count in files.items() if count < 2}


def _similarity(
    audit: AuditInputs, selector: str, by_draw: list[list[Ranking]], drawn: Drawn | None
) -> Iterator[tuple[object, ...]]:
    draws = len(by_draw)
    pairs = np.triu_indices(draws, 1)
    of_seed = list(zip(*by_draw, strict=True))  # per seed the rankings of all draws
    by_seed = [rank_correlations(np.stack([average_ranks(one.scores) for one in ranked]))[pairs] for ranked in of_seed]
    rhos = np.mean(by_seed, axis=0)
    for rate in audit.plan.stability_rates:
        masks = [[one.edit("lerf", rate).units for one in ranked] for ranked in of_seed]
        overlaps = np.array([[jaccard(of[a], of[b]) for a, b in zip(*pairs, strict=True)] for of in masks]).mean(0)
        sizes = (drawn.size, drawn.size_wanted, drawn.available) if drawn else (None, None, None)
        numbers = (rhos.mean(), overlaps.mean(), overlaps.min(), overlaps.max())
        ends = (*over_draws(rhos.tolist(), draws), *over_draws(overlaps.tolist(), draws))
        about = (audit.loaded.id, selector, rate, draws, *sizes)
        yield (*about, *(defined(float(one)) for one in numbers), *ends)


def _each(audit: AuditInputs) -> Iterator[tuple[str, int, list[Ranking]]]:
    """Selector, number of the draw, its rankings."""
    for selector, by_draw in _made(audit).rankings.items():
        for draw, ranked in enumerate(by_draw):
            yield selector, draw, ranked


def _made(audit: AuditInputs) -> _Made:
    """Draws and rankings, scored once per audit and kept in the store."""
    return audit.once("draws", lambda: _make(audit))


def _make(audit: AuditInputs) -> _Made:
    selectors = tuple(name for name in audit.plan.scoring.selectors if not get_selector(name).data_free)
    in_files = {name: [_ranked(audit, name, one) for one in found] for name, found in _in_files(audit).items()}
    if not selectors:
        return _Made(in_files, None, "")
    try:
        drawn = _drawn(audit)
    except TooFewDraws as error:
        if not in_files:
            raise
        return _Made(in_files, None, str(error))
    found: dict[str, list[list[Ranking]]] = {name: [] for name in selectors}
    for text in drawn.sets:
        scores = audit.score_text(selectors, text)
        for name in selectors:
            found[name].append(_ranked(audit, name, scores[name].numpy()))
    return _Made(found | in_files, drawn, "")


def _in_files(audit: AuditInputs) -> dict[str, list[Scores]]:
    """Scores of one's own that several files have, a draw each."""
    own = (name for name in audit.plan.scoring.selectors if len(get_selector(name).files) > 1)
    return {name: draws(name, audit.loaded.rows) for name in own}


def _ranked(audit: AuditInputs, selector: str, scores: npt.ArrayLike) -> list[Ranking]:
    return list(rankings({selector: scores}, audit.plan.scoring.seeds, audit.plan.intervention))


def _drawn(audit: AuditInputs) -> Drawn:
    plan, scoring = audit.plan, audit.plan.scoring
    if plan.calibration_draws < 2:
        raise TooFewDraws(
            f"disjoint draws are at least 2 calibration sets, --calibration-draws says {plan.calibration_draws}; give "
            "2 or more"
        )
    # Evaluation text of the same file lies behind the calibration windows of the scores.
    skipped = calibration_tokens(plan.eval_corpus, scoring.corpus, scoring.samples * scoring.length)
    evaluated = range(skipped, skipped + plan.eval_samples * plan.eval_length) if skipped else range(0)
    return disjoint_draws(
        scoring.corpus, audit.loaded.tokenizer,
        draws=plan.calibration_draws, size=max(plan.stability_sizes), least=min(plan.stability_sizes),
        length=scoring.length, seed=plan.draws_seed, without=evaluated, window_start=scoring.window_start,
    )  # fmt: skip
