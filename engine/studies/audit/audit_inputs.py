"""What every analysis may ask for: scores, rankings, evaluation text, and the cell of an edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, Edit, Ranking, edit_of, rankings
from engine.interventions.at_outputs import sees_sequences
from engine.interventions.kinds import INTERVENTIONS, intervention_info, prepare
from engine.measures.nll import NegativeLogLikelihood, Nll
from engine.measures.predictions import vocabulary_of
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import read_manifest, shortfalls
from engine.records.progress import Progress
from engine.results.folders import read_table, table_names, write_tables
from engine.results.store import Arrays, Store
from engine.run.audit_plan import TEXT, AuditPlan, ScorePlan
from engine.run.recorded_plan import audit_plan, score_plan
from engine.run.runner import Cell, Results
from engine.run.scoring import (
    SCORES_FILE,
    LeftOut,
    Scored,
    calibration_text,
    evaluation_text,
    fitting,
    read_scores,
    score_model,
    score_tokens,
    write_scores,
)
from engine.selectors import get_selector
from engine.selectors.scoring_run import KeptSums
from engine.stats.limits import saturated_above
from engine.studies.base import ANALYSES, AUDIT, Study, StudyInfo, Tables, plan_type
from engine.studies.claims.ledger import ledger, needed
from engine.studies.conduct import OtherText, Recorded, Remaking, StudyInputs

Made = TypeVar("Made")


class Point(NamedTuple):
    """A ranking's first `round(rate * N)` rows in an order. seed: None unless the selector is seeded."""

    selector: str
    seed: int | None
    order: str
    rate: float


@dataclass
class AuditInputs(StudyInputs):
    """One model under one plan. Not thread-safe: it belongs to the run that made it."""

    group, first, cells_known_early = AUDIT, "scores", True
    recorded_by, all_replayed = frozenset({"settings", "scores"}), True

    loaded: LoadedModel
    plan: AuditPlan
    store: Store
    progress: Progress | None = None
    _made: dict[tuple[str, AuditPlan], Any] = field(default_factory=dict, init=False)
    kept: KeptSums = field(default_factory=KeptSums, init=False)  # by scoring, for texts that overlap
    _scored_on: dict[str, Scored] = field(default_factory=dict, init=False)
    _texts: dict[tuple[str, str], Windows] = field(default_factory=dict, init=False)
    _ready: set[str] = field(default_factory=set, init=False)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """What an analysis builds of these inputs, once for a plan."""
        if (name, self.plan) not in self._made:
            self._made[name, self.plan] = make()
        return self._made[name, self.plan]

    @cached_property
    def scored(self) -> Scored:
        """Scores of the plan's selectors on the plan's calibration text, from the store where they are known."""
        return self.score(self.loaded, self.plan.scoring)

    def scores_on(self, corpus: str) -> Scored:
        """The same selectors calibrated on another corpus."""
        if corpus not in self._scored_on:
            self._scored_on[corpus] = self.score(self.loaded, replace(self.plan.scoring, corpus=corpus))
        return self._scored_on[corpus]

    def score(self, loaded: LoadedModel, scoring: ScorePlan) -> Scored:
        """Scores under another plan, or of the model rewritten, from the store where they are known."""
        return score_model(loaded, scoring, store=self.store, progress=self.progress, kept=self.kept)

    def score_text(self, selectors: Sequence[str], text: Windows) -> dict[str, Tensor]:
        """Scores of these selectors on this text, the rest as the plan says, from the store where they are known."""
        plan = self.plan.scoring
        return score_tokens(
            self.loaded, plan, selectors, text, store=self.store, progress=self.progress, kept=self.kept
        )

    @cached_property
    def scores(self) -> dict[str, npt.NDArray]:
        """Selector -> float32 [N], seeded selectors [seeds, N]; higher = more important."""
        return {name: values.numpy() for name, values in self.scored.scores.items()}

    @cached_property
    def rankings(self) -> tuple[Ranking, ...]:
        """One ranking per selector, of a seeded selector one per seed."""
        return self.rankings_under(self.plan.intervention)

    def rankings_under(self, intervention: str) -> tuple[Ranking, ...]:
        """The same rankings, whose edits are by this intervention."""
        self.ready(intervention)
        return tuple(rankings(self.scores, self.scored.seeds, intervention))

    def ready(self, intervention: str) -> None:
        """Give an intervention the calibration text that it reads, once: to one that sets a window in the place of
        another such as are as long as the evaluation's. Errors: InputError, before anything is measured, where
        calibration has less text than one evaluation window, or the Linears do not see one sequence apart from
        another."""
        info = intervention_info(intervention)  # of another draw the first one's, which makes both ready
        intervention, make = info.id, info.make
        if intervention in self._ready or not make.reads_text:
            return
        by_position = make.reads_tokens
        if by_position and not sees_sequences(self.loaded):
            raise InputError(
                f"{self.loaded.id} gives some Linears the tokens of all sequences in one (experts), so that no "
                f"position of another window stands for one of this, as {intervention} needs; use zero or mean"
            )
        text = self._other_windows() if by_position else self.calibration
        first, *more = self.plan.protocols.resample_seeds
        prepare(self.loaded, intervention, text, seed=first, more=more if by_position else ())
        self._ready.add(intervention)

    def _other_windows(self) -> Windows:
        """Of the tokens that calibration reads, so that they are never those of the evaluation."""
        plan, scoring = self.plan, self.plan.scoring
        windows_there = scoring.samples * scoring.length // plan.eval_length
        if not windows_there:
            raise InputError(
                f"resample sets other windows of {plan.eval_length} tokens in the place of evaluation windows, and "
                f"calibration reads {scoring.samples} x {scoring.length} tokens; raise --samples or lower --eval-length"
            )
        samples = min(plan.protocols.resample_windows, windows_there)
        return calibration_text(self.loaded, scoring, samples=samples, length=plan.eval_length)

    def ranking(self, selector: str) -> Ranking:
        """The selector's ranking, of a seeded selector the first."""
        return next(one for one in self.rankings if one.selector == selector)

    @cached_property
    def calibration(self) -> Windows:
        """The plan's calibration windows, the same that `scored` uses."""
        return calibration_text(self.loaded, self.plan.scoring)

    @cached_property
    def evaluation(self) -> Windows:
        """The plan's evaluation windows; of a file that calibration reads too, what follows."""
        return self.evaluation_of(self.plan.eval_corpus, self.plan.scoring.corpus)

    def evaluation_of(self, corpus: str, calibrated_on: str) -> Windows:
        """The evaluation windows of a corpus, cut like the plan's."""
        if (corpus, calibrated_on) not in self._texts:
            self._texts[corpus, calibrated_on] = evaluation_text(self.loaded, self.plan, corpus, calibrated_on)
        return self._texts[corpus, calibrated_on]

    @cached_property
    def _nll(self) -> Nll:
        return Nll(self.evaluation, self.plan.scoring.batch_size)

    def nll(self, edit: Edit, text: Windows | None = None) -> Cell[NegativeLogLikelihood]:
        """NLL of the evaluation text (or of `text`) under an edit."""
        self.ready(edit.intervention)
        return Cell(self.loaded, edit, self._nll if text is None else Nll(text, self.plan.scoring.batch_size))

    @cached_property
    def dense(self) -> Cell[NegativeLogLikelihood]:
        return self.nll(UNEDITED)

    def saturated_above(self, results: Results) -> float:
        """The NLL above which the model is destroyed (`engine.stats.limits`). results: with the cell `dense`."""
        return self.saturated_above_on(self.dense, results)

    def saturated_above_on(self, dense: Cell[NegativeLogLikelihood], results: Results) -> float:
        """The same on the text of `dense`, the unedited model's cell."""
        return saturated_above(results[dense].nats_per_token, vocabulary_of(self.loaded.model))

    def edit(self, mask: npt.ArrayLike) -> Edit:
        """The plan's intervention on these rows."""
        return edit_of(mask, self.loaded.rows.n_rows, intervention=self.plan.intervention)

    def grid(
        self, ranked: Iterable[Ranking], orders: Sequence[str], rates: Sequence[float]
    ) -> dict[Point, Cell[NegativeLogLikelihood]]:
        """NLL of every ranking under all orders and rates: ranking by ranking, then order, then rate, each as given."""
        return {
            Point(ranking.selector, ranking.seed, order, rate): self.nll(ranking.edit(order, rate))
            for ranking in ranked
            for order in orders
            for rate in rates
        }

    def require(self, analysis: str, needed: Sequence[str]) -> None:
        """Errors: InputError naming the selectors that an analysis needs and the plan does not have."""
        missing = [name for name in needed if name not in self.plan.scoring.selectors]
        if missing:
            raise InputError(
                f"{analysis} needs the scores of {', '.join(needed)}, and this audit has no {', no '.join(missing)}; "
                "add to --selectors what this model's architecture allows (lrp and consensus2 need lxt's rules for it)"
            )

    @classmethod
    def fitting_plan(cls, sketch: LoadedModel, plan: AuditPlan, *, named: bool) -> tuple[AuditPlan, LeftOut]:
        scoring, left_out = fitting(sketch, plan.scoring, named=named)
        return replace(plan, scoring=scoring), left_out

    @classmethod
    def sketched(cls, sketch: LoadedModel, plan: AuditPlan, store: Store) -> AuditInputs:
        return cls(sketch, plan, store)

    @classmethod
    def scores_of(cls, plan: AuditPlan) -> ScorePlan:
        return plan.scoring

    def draw_scores(self) -> None:
        seeds, rows = self.plan.scoring.seeds, self.loaded.rows.n_rows
        draw = torch.Generator().manual_seed(0)
        scores = {
            name: torch.rand((len(seeds), rows) if get_selector(name).seeded else (rows,), generator=draw)
            for name in self.plan.scoring.selectors
        }
        self.scored = Scored(scores, seeds, {}, 0.0)

    def check(self, infos: Sequence[StudyInfo]) -> None:
        """`InputError` where calibration has too little text for the plan's interventions; needs no weights."""
        for name in (self.plan.intervention, *(self.plan.more_interventions or ())):
            if INTERVENTIONS.get(name).make.reads_tokens:
                self._other_windows()

    def prepare(self, infos: Sequence[StudyInfo]) -> None:
        for info in infos:
            with suppress(InputError):  # the study's cells tell
                info.make(self).before_scores(self)
        self.scored  # noqa: B018 - computed here

    def write_prepared(self, folder: Path, elapsed_s: float) -> None:
        write_scores(folder, self.loaded, replace(self.scored, elapsed_s=elapsed_s))

    def write(
        self, folder: Path, info: StudyInfo, study: Study[Any], tables: Tables, results: Results, elapsed_s: float
    ) -> None:
        spec: Json = {"scores": self.scored.spec, "settings": self._settings()}
        spec |= {"evaluation": self.evaluation.record()} if info.reads_text else {}
        spec |= self.short_texts() if info.id == "domain" else {}
        write_tables(folder, tables, self.loaded.fingerprint, spec | study.record(self), elapsed_s)

    @classmethod
    def from_record(cls, part: Recorded, remaking: Remaking) -> tuple[AuditInputs, Sequence[str]]:
        spec, texts = part.spec, remaking.texts
        notes: list[str] = []
        if part.study:
            groups = [part.study, *([TEXT] if ANALYSES.get(part.study).reads_text else [])]
            plan, notes = audit_plan(spec, groups, texts, plan_type(AUDIT))
        else:
            plan = AuditPlan(scoring=score_plan(spec, texts))
        inputs = cls(remaking.loaded, plan, remaking.store, remaking.progress)
        audit: AuditInputs = remaking.known.setdefault(plan, inputs)
        for role, record in (
            ("calibration", spec.get("scores", spec).get("calibration")), ("evaluation", spec.get("evaluation"))
        ):  # fmt: skip
            now = getattr(audit, role).record() if record else {}
            for name in ("corpus_hash", "sample_ids", "skipped_tokens"):
                if record and name in record and record[name] != now[name]:
                    raise OtherText(
                        f"{part.name}: the {role} text {record['corpus']} is not the one that was read ({name} "
                        f"{str(record[name])[:12]}, here {str(now[name])[:12]}); give that text with --text"
                    )
        return audit, notes

    def arrays(self, folder: Path, part: Recorded) -> Iterator[tuple[str, Arrays]]:
        if not part.study:
            yield SCORES_FILE, read_scores(folder)

    @classmethod
    def files_beside(cls, folder: Path, part: Recorded) -> Iterable[str]:
        return [SCORES_FILE]

    def conclude(self, folder: Path) -> Json:
        """`claims.parquet` from the folder's tables, if they support a claim; its manifest entry names the bytes that
        it was made from."""
        stems = [stem for stem in needed() if stem in table_names(folder)]
        claims = ledger({stem: read_table(folder, stem) for stem in stems})
        if claims.is_empty():
            return {}
        files = read_manifest(folder)["files"]
        made_from = {f"{stem}.parquet": files[f"{stem}.parquet"]["sha256"] for stem in stems}
        write_tables(folder, {"claims": claims}, self.loaded.fingerprint, {"made_from": made_from}, 0.0)
        return {"claims.parquet": claims.height}

    def _settings(self) -> Json:
        """The plan as manifests keep it: scores have their own record, and a file's place on this disk is nobody's."""
        settings = {key: value for key, value in asdict(self.plan).items() if key != "scoring"}
        for key in ("eval_corpus", "domain_corpus", "downstream_tasks"):
            settings[key] = Path(settings[key]).name if settings[key] else None
        return settings

    def short_texts(self) -> Json:
        """The records of further texts (a second corpus) that were too short."""
        read = [scored.spec["calibration"] for scored in self._scored_on.values()]
        read += [text.record() for key, text in self._texts.items() if key[0] != self.plan.eval_corpus]
        short = [record for record in read if shortfalls(record)]
        return {"short_texts": short} if short else {}
