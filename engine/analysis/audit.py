"""What every analysis may ask for: scores, evaluation text, the NLL under a mask. Everything is cached in the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from engine.analysis.plan import AuditPlan
from engine.corpora import Windows, calibration_tokens, windows
from engine.evaluation.perplexity import NegativeLogLikelihood
from engine.masks import Mask
from engine.models import LoadedModel
from engine.records import Json
from engine.scores import ProgressCallback, Scored, score_model
from engine.store import Store
from engine.sweep import Ranking, masked_nll, rankings

UNMASKED: Mask = np.zeros(0, dtype=np.int64)


@dataclass
class Audit:
    """One model under one plan. Not thread-safe: an audit belongs to the run that made it."""

    loaded: LoadedModel
    plan: AuditPlan
    store: Store
    progress: ProgressCallback | None = None

    @cached_property
    def scored(self) -> Scored:
        """Scores of the plan's selectors on the plan's calibration text, from the store where they are known."""
        return score_model(self.loaded, self.plan.scoring, store=self.store, progress=self.progress)

    @cached_property
    def calibration(self) -> Windows:
        """The plan's calibration windows, the same that `scored` uses."""
        scoring = self.plan.scoring
        return windows(
            scoring.corpus,
            self.loaded.tokenizer,
            role="calibration",
            samples=scoring.samples,
            length=scoring.length,
        )

    @cached_property
    def evaluation(self) -> Windows:
        """The plan's evaluation windows; of a file that calibration reads too, what follows."""
        scoring = self.plan.scoring
        return windows(
            self.plan.eval_corpus,
            self.loaded.tokenizer,
            role="evaluation",
            samples=self.plan.eval_samples,
            length=self.plan.eval_length,
            skip_tokens=calibration_tokens(
                self.plan.eval_corpus, scoring.corpus, scoring.samples * scoring.length
            ),
        )

    @property
    def scores(self) -> dict[str, npt.NDArray[np.float32]]:
        """Selector -> [N], seeded selectors [seeds, N]; higher = more important."""
        return {name: values.numpy() for name, values in self.scored.scores.items()}

    def rankings(self) -> Iterator[Ranking]:
        """One ranking per selector, of a seeded selector one per seed."""
        return rankings(self.scores, self.scored.seeds)

    def scores_on(self, corpus: str) -> Scored:
        """The same selectors calibrated on another corpus."""
        scoring = replace(self.plan.scoring, corpus=corpus)
        return score_model(self.loaded, scoring, store=self.store, progress=self.progress)

    def nll(self, mask: npt.ArrayLike) -> NegativeLogLikelihood:
        """NLL per evaluation window with the rows of `mask` removed, from the store where it is known."""
        return masked_nll(
            self.loaded, mask, self.evaluation, store=self.store, batch_size=self.plan.scoring.batch_size
        )

    @cached_property
    def dense(self) -> NegativeLogLikelihood:
        """NLL of the unmasked model."""
        return self.nll(UNMASKED)

    def report(self, stage: str, done: int, total: int) -> None:
        """Progress of an analysis, for the bar."""
        if self.progress is not None:
            self.progress(stage, done, total)

    def spec(self, *, evaluated: bool = True) -> Json:
        """What a manifest says about the scores behind an analysis and, where it measures one, the text."""
        scores: Json = {"scores": self.scored.spec}
        return scores | {"evaluation": self.evaluation.record()} if evaluated else scores
