"""What every stage of a refusal experiment asks for: pairs, contrasts, and the cells of an edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from engine.data.corpora import CALIBRATION, HELDOUT, Pair, Windows
from engine.data.onsets import onset_tokens
from engine.data.pairs import domain_spellings, has_split, pairs_record, read_pairs
from engine.data.prompts import Prompt, thinking_record
from engine.data.thinking import template_marks
from engine.data.window_starts import before_each, start_record
from engine.edits.contrasts import INSTALLS_ONLY, Contrast, load_contrasts, read_mask, refusal_mask
from engine.edits.edit import UNEDITED, AnyEdit, Edit, edit_of
from engine.edits.masks import Mask
from engine.judges.base import Judge, open_judges
from engine.judges.measured_quality import MeasuredQuality, measured_quality, quality_from
from engine.judges.refusals import Refusals, Refused, judge_record
from engine.measures.generation import REPLIES, checked_prompt, room_for_replies
from engine.measures.margin import margins
from engine.measures.nll import NegativeLogLikelihood, Nll
from engine.measures.replies import Replies, Written
from engine.measures.sampling import Sampling
from engine.models.loading import LoadedModel
from engine.models.memory import largest_batch
from engine.records.errors import InputError
from engine.records.hashing import Json, canonical
from engine.records.manifest import read_manifest
from engine.records.progress import Progress
from engine.results.folders import read_table, table_names, with_model_name, write_tables
from engine.results.store import Arrays, Store
from engine.run.audit_plan import ScorePlan
from engine.run.recorded_plan import refusal_plan
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Cell, LocalRunner, Results, Runner
from engine.run.scoring import LeftOut, calibration_text, check_text, evaluation_text, impossible, remaining
from engine.selectors import own_scores
from engine.selectors.base import get_selector, titles_record
from engine.studies.base import REFUSAL, STAGES, Study, StudyInfo, Tables
from engine.studies.conduct import Recorded, Remaking, StudyInputs
from engine.studies.refusal.algorithm import (
    CONTRAST_FILE,
    calibrate,
    check_chat_template,
    check_sides,
    onsets_record,
    write_contrasts,
)
from engine.studies.refusal.mask_outputs import kept_masks, write_masks
from engine.studies.refusal.operating_point import CONTROL_SEEDS, HELDOUT_RECORD, POINTS, Rate, Rates, with_earlier

EXAMPLES = 3  # of refused base prompts in a message
DRAW_SEEDS = "draw_seeds"  # entry of the manifest
_SAME = (HELDOUT_RECORD, "pairs", "onset_tokens", "judge", "judge_version", "evaluation", "thinking_mode")


def _short(text: str, most: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def sides(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The risk prompts, then the base prompts: generated together."""
    return (*(pair.risk for pair in pairs), *(pair.base for pair in pairs))


@dataclass
class RefusalInputs(StudyInputs):
    """One model under one plan and one judge. Not thread-safe: it belongs to the run that made it."""

    group, first, cells_known_early = REFUSAL, "calibrate", False
    recorded_by, own_entries, all_replayed = frozenset({"pairs", "lm_scores"}), (CONTROL_SEEDS, DRAW_SEEDS), False

    loaded: LoadedModel
    plan: RefusalPlan
    store: Store
    judge: Judge
    progress: Progress | None = None
    runner: Runner | None = None  # of the command, so that its bar counts what calibration asks for
    _nlls: dict[AnyEdit, Cell[NegativeLogLikelihood]] = field(default_factory=dict, init=False)
    _longer: dict[int, RefusalInputs] = field(default_factory=dict, init=False)
    _measures: dict[tuple[tuple[Prompt, ...], Sampling | None], Replies] = field(default_factory=dict, init=False)

    @cached_property
    def calibration(self) -> dict[str, list[Pair]]:
        """Domain -> the pairs that contrasts are made from and the grid is measured on."""
        plan = self.plan
        return read_pairs(plan.pairs, CALIBRATION, plan.domains, plan.calibration_pairs)

    @cached_property
    def heldout(self) -> dict[str, list[Pair]]:
        """Domain -> the pairs for controls and evaluation; the calibration pairs where the source has no others."""
        plan = self.plan
        if not has_split(plan.pairs, HELDOUT):
            return self.calibration
        return read_pairs(plan.pairs, HELDOUT, tuple(self.calibration), plan.heldout_pairs)

    @property
    def measures_heldout(self) -> bool:
        """False where controls and evaluation have to use the calibration pairs."""
        return self.heldout is not self.calibration

    @cached_property
    def judge_quality(self) -> MeasuredQuality | None:
        """How often the judge errs, by the plan's file or by what is known of it; None where nothing is."""
        given = self.plan.judge_quality
        return quality_from(Path(given).expanduser(), self.judge) if given else measured_quality(self.judge)

    @cached_property
    def evaluation(self) -> Windows:
        """The text whose perplexity an edit should keep."""
        return evaluation_text(self.loaded, self.plan)

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """Algorithm 1 for every selector and domain of the plan, from the store where they are known."""
        return self.contrasts_of(self.calibration)

    @cached_property
    def plain(self) -> RefusalInputs:
        """This run without a system prompt and with thinking off. Contrasts are made so, and so is the record without
        which no edit leaves: a system prompt that has everything declined would hide what an edit does."""
        if not self.plan.system and not self.plan.thinking:
            return self
        return replace(self, plan=replace(self.plan, system="", thinking=False))

    def longer(self, pairs: Sequence[Pair]) -> RefusalInputs | None:
        """This run with replies up to `longer_replies` times as long, or as the model's context allows after these
        pairs' prompts; None where that is no more than the plan's."""
        plan = self.plan
        if plan.longer_replies == 1:
            return None
        room = room_for_replies(self.loaded, sides(pairs), system=plan.system, thinking=plan.thinking)
        wanted = plan.longer_replies * plan.reply_tokens
        tokens = wanted if room is None else min(wanted, room)
        if tokens <= plan.reply_tokens:
            return None
        if tokens not in self._longer:
            self._longer[tokens] = replace(self, plan=replace(plan, reply_tokens=tokens))
        return self._longer[tokens]

    @classmethod
    def fitting_plan(cls, sketch: LoadedModel, plan: RefusalPlan, *, named: bool) -> tuple[RefusalPlan, LeftOut]:
        """Left out are selectors that cannot contrast prompts of such a model, or whose rows nothing can protect there.
        Errors: InputError also for a model without a chat template."""
        check_chat_template(sketch)
        left_out: LeftOut = {}
        for name in plan.selectors:
            for reason in impossible(sketch, (name, plan.protector(name))).values():
                left_out.setdefault(name, reason)
            own_scores.check_protects(plan.protector(name), sketch.rows)
        return replace(plan, selectors=remaining(plan.selectors, left_out, named=named)), left_out

    @classmethod
    def scores_of(cls, plan: RefusalPlan) -> ScorePlan:
        """Of the selectors that protect rows, once; seeded ones need none."""
        scored = dict.fromkeys(plan.protector(name) for name in plan.selectors if not get_selector(name).seeded)
        return replace(plan.scoring, selectors=tuple(scored))

    @classmethod
    def sketched(cls, sketch: LoadedModel, plan: RefusalPlan, store: Store) -> RefusalInputs:
        return cls(sketch, plan, store, cast(Any, None))  # nothing is judged here

    def check(self, infos: Sequence[StudyInfo]) -> None:
        """Errors: InputError for pairs that cannot be read or have one prompt on both sides, onset phrases, system
        prompt and thinking mode that the tokenizer does not allow, prompts that leave no room for their reply, and a
        text of the scores that cannot be read or is short."""
        sketch, plan = self.loaded, self.plan
        for domain, pairs in self.calibration.items():
            check_sides(domain, [pair.risk for pair in pairs], [pair.base for pair in pairs])
        onset_tokens(sketch.tokenizer, plan.phrases)
        self._check_prompts(self.calibration)
        scoring = self.scores_of(plan)
        if scoring.selectors:
            check_text(sketch, scoring)
        if any(info.measures for info in infos):
            with suppress(InputError):  # a domain without held-out pairs is an error only where they are measured
                self._check_prompts(self.heldout)

    def _check_prompts(self, domains: dict[str, list[Pair]]) -> None:
        plan = self.plan
        for prompt in (prompt for pairs in domains.values() for prompt in sides(pairs)):
            checked_prompt(self.loaded, prompt, plan.reply_tokens, plan.system, plan.thinking)

    def prepare(self, infos: Sequence[StudyInfo]) -> None:
        self.contrasts  # noqa: B018 - computed here

    def write_prepared(self, folder: Path, elapsed_s: float) -> None:
        spec = self.calibration_spec | {"onsets": onsets_record(self.loaded, self.plan.phrases)}
        write_contrasts(folder, self.loaded, self.contrasts, spec, elapsed_s)

    def write(
        self, folder: Path, info: StudyInfo, study: Study[Any], tables: Tables, results: Results, elapsed_s: float
    ) -> None:
        """The operating points keep what earlier stages measured."""
        fingerprint, record = self.loaded.fingerprint, study.record(self)
        tables = {stem: with_model_name(table, fingerprint) for stem, table in tables.items()}
        spec = self.spec(results) if info.measures else self.calibration_spec
        others = {stem: table for stem, table in tables.items() if stem != POINTS}
        write_tables(folder, others, fingerprint, spec | record, elapsed_s)
        if POINTS in tables:
            if "heldout_pairs" not in info.settings:  # those of the columns that are kept
                spec = {name: value for name, value in spec.items() if name != HELDOUT_RECORD}
            whole, kept = with_earlier(folder, spec, tables[POINTS])
            own = {CONTROL_SEEDS: record[CONTROL_SEEDS]} if CONTROL_SEEDS in record else {}
            write_tables(folder, {POINTS: whole}, fingerprint, spec | own | kept, elapsed_s)
        if study.masks_of in tables:
            write_masks(folder, self.loaded, study.masks_of, study.masks(self, results), elapsed_s)

    @classmethod
    def called(cls, study_id: str) -> str:
        """Those of the grid and its points by the grid's."""
        return f"refusal {'sweep' if study_id == 'select' else study_id}"

    @classmethod
    def from_record(cls, part: Recorded, remaking: Remaking) -> tuple[RefusalInputs, Sequence[str]]:
        """The run that the stage belongs to."""
        folder, spec = remaking.folder, _whole(part, remaking.parts)
        judge = open_judges(str(spec["judge"]))[0]
        if judge.version != spec.get("judge_version"):
            raise InputError(
                f"the replies were judged by {spec['judge']} {spec.get('judge_version')}, here it is {judge.version}: "
                "another judge's rates say nothing about these"
            )
        plan = refusal_plan(spec, remaking.texts, **_beside_record(folder, part, spec))
        run = cls(remaking.loaded, plan, remaking.store, judge, remaking.progress, remaking.runner)
        now = run.spec(remaking.runner.results)
        for name in (name for name in _SAME if name in spec):
            was, here = spec[name], now.get(name)
            if _identity(was) != _identity(here):
                raise InputError(
                    f"{part.name}: {name} is not what it was: {_short(canonical({name: was}), 80)}, here "
                    f"{_short(canonical({name: here}), 80)}; a file that the run read is given with --text, onset "
                    "phrases of one's own are not recorded"
                )
        return run, ()

    def arrays(self, folder: Path, part: Recorded) -> Iterator[tuple[str, Arrays]]:
        """Contrasts of this run, and which rows the mask of each operating point removes: 0 or 1 for every row."""
        entry, now = read_manifest(folder)["files"].get(CONTRAST_FILE), self.calibration_spec
        if entry and all(entry.get("spec", {}).get(name) == value for name, value in now.items()):
            contrasts = load_contrasts(folder / CONTRAST_FILE)[0]
            arrays = {f"{one.selector}/{one.domain}/c_comply": one.c_comply for one in contrasts}
            yield CONTRAST_FILE, arrays | {f"{one.selector}/lm_rank": one.lm_rank for one in contrasts}
        if masks := kept_masks(folder, POINTS).values() if POINTS in part.stems else ():
            removed = {path.name: np.zeros(self.loaded.rows.n_rows, dtype=np.float32) for path in masks}
            for path in masks:
                removed[path.name][read_mask(path, self.loaded.rows.n_rows)[0]] = 1
            yield "masks of operating points", removed

    @classmethod
    def files_beside(cls, folder: Path, part: Recorded) -> Iterable[str]:
        return [CONTRAST_FILE, *(path.name for path in kept_masks(folder, POINTS).values() if POINTS in part.stems)]

    def contrasts_of(self, pairs: dict[str, list[Pair]]) -> list[Contrast]:
        """Algorithm 1 for every selector of the plan on these pairs, without those that `self_refused` names."""
        used = self.contrastable(pairs)
        return calibrate(self.loaded, self.plan, used, store=self.store, progress=self.progress)

    def contrastable(self, pairs: dict[str, list[Pair]]) -> dict[str, list[Pair]]:
        """The pairs without those that `self_refused` names."""
        out = {pair for some in self.self_refused(pairs).values() for pair in some}
        return {domain: [pair for pair in members if pair not in out] for domain, members in pairs.items()}

    def self_refused(self, pairs: dict[str, list[Pair]]) -> dict[str, list[Pair]]:
        """Domain -> pairs whose base prompt the unedited model refuses itself: no harmless side to contrast with.
        `InputError` with share and examples where they are more than one and more than `benign_limit` of a domain's
        pairs, or all. Asked without the plan's system prompt, as contrasts are made."""
        if self.plain is not self:
            return self.plain.self_refused(pairs)
        by_domain: dict[str, list[Pair]] = {}
        if not self.loaded.tokenizer.chat_template:
            return by_domain  # Algorithm 1 says what is missing
        domains: dict[str, list[Pair]] = {}  # of the pairs themselves: those of a composed mask have several
        for pair in (pair for some in pairs.values() for pair in some):
            domains.setdefault(pair.domain, []).append(pair)
        cells = [self.on_pairs(UNEDITED, members) for members in domains.values()]
        results = (self.runner or LocalRunner(self.store, self.progress)).run(cells)
        for domain, members in domains.items():
            verdicts = self.rates(results, UNEDITED, members).benign.refused
            refused = [pair for pair, verdict in zip(members, verdicts, strict=True) if verdict]
            if len(refused) > min(max(1, self.plan.benign_limit * len(members)), len(members) - 1):
                raise InputError(self._refused_bases(results, domain, members, refused))
            if refused:
                by_domain[domain] = refused
        return by_domain

    def _refused_bases(self, results: Results, domain: str, pairs: list[Pair], refused: list[Pair]) -> str:
        """The message, with replies and margins of the first few."""
        few = refused[:EXAMPLES]
        replies = results[self.replies(UNEDITED, sides(pairs))][len(pairs) :]
        onsets = onset_tokens(self.loaded.tokenizer, self.plan.phrases)
        known = margins(self.loaded, [pair.base for pair in few], onsets=onsets).tolist()
        examples = "; ".join(
            f"{_short(pair.base)!r} -> {_short(replies[pairs.index(pair)].text)!r} (margin {margin:+.2f})"
            for pair, margin in zip(few, known, strict=True)
        )
        return (
            f"{domain}: the unedited model itself refuses {len(refused)} of {len(pairs)} base prompts "
            f"({len(refused) / len(pairs):.0%}; --benign-limit {self.plan.benign_limit:g}), such as {examples}. "
            f"A base prompt must be harmless to this model, since {INSTALLS_ONLY}: give other base prompts, or check "
            "which side is risk"
        )

    def edit(self, mask: Mask) -> Edit:
        return edit_of(mask, self.loaded.rows.n_rows, kind="refusal")

    def refusal_edit(self, contrast: Contrast, lam: float, k: float) -> Edit:
        return self.edit(refusal_mask(contrast, lam, k))

    @cached_property
    def _nll(self) -> Nll:
        return Nll(self.evaluation)

    def nll(self, edit: AnyEdit) -> Cell[NegativeLogLikelihood]:
        """NLL of the evaluation text under an edit. Made once: a cell's key is dear, and asked for often."""
        return self._nlls.setdefault(edit, Cell(self.loaded, edit, self._nll))

    def max_nll(self, results: Results) -> float:
        """The perplexity cap in nats per token; where it is a factor, of the unedited model's."""
        if self.plan.perplexity_factor is None:
            return float(np.log(self.plan.max_perplexity))
        return results[self.nll(UNEDITED)].nats_per_token + float(np.log(self.plan.perplexity_factor))

    def feasible(self, results: Results, nll: float, rates: Rates, before: Rates) -> bool:
        """Are benign refusal and perplexity within the plan's limits, malign refusal not below the unedited model's?"""
        within = rates.benign.mean <= self.plan.benign_limit and nll <= self.max_nll(results)
        return within and rates.malign.count >= before.malign.count

    def replies(
        self, edit: AnyEdit, prompts: Sequence[Prompt], sampling: Sampling | None = None
    ) -> Cell[list[Written]]:
        """Replies under an edit, greedy unless they are sampled."""
        plan, asked = self.plan, tuple(prompts)
        measure = Replies(asked, plan.reply_tokens, plan.batch_size, plan.system, sampling, plan.thinking)
        return Cell(self.loaded, edit, self._measures.setdefault((asked, sampling), measure))

    def refused(self, edit: AnyEdit, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> Cell[Refused]:
        """The judge's verdict on every reply under an edit."""
        measure = self.replies(edit, prompts, sampling).measure
        return Cell(self.loaded, edit, Refusals(measure, self.judge, template_marks(self.loaded.tokenizer)))

    def on_pairs(self, edit: AnyEdit, pairs: Sequence[Pair]) -> Cell[Refused]:
        return self.refused(edit, sides(pairs))

    def rates(self, results: Results, edit: AnyEdit, pairs: Sequence[Pair]) -> Rates:
        found, n = results[self.on_pairs(edit, pairs)], len(pairs)
        return Rates(Rate(found.refused[:n], found.finished[:n]), Rate(found.refused[n:], found.finished[n:]))

    @cached_property
    def calibration_spec(self) -> Json:
        """What a manifest says about contrasts: prompts and language-model scores."""
        plan = self.plan
        pairs = {domain: pairs_record(plan.pairs, some) for domain, some in self.calibration.items()}
        left_out = {domain: len(some) for domain, some in self.self_refused(self.calibration).items()}
        scoring = plan.scoring
        reads = not all(get_selector(name).seeded for name in plan.selectors) and not scoring.score_files
        sample_count = len(calibration_text(self.loaded, scoring).sample_ids) if reads else scoring.samples
        return {
            "selectors": list(plan.selectors),
            **titles_record(plan.selectors),
            "pairs": pairs,
            **({"pairs_left_out": left_out} if left_out else {}),
            **({"domain_spellings": spelled} if (spelled := domain_spellings(plan.pairs)) else {}),
            "lm_scores": {
                "corpus": Path(scoring.corpus).name,
                "samples": sample_count,
                "length": scoring.length,
                **({} if sample_count == scoring.samples else {"samples_requested": scoring.samples}),
                **start_record(scoring.window_start, before_each(self.loaded.tokenizer, scoring.window_start)),
                **own_scores.record(own_scores.names_of(scoring.score_files), scoring.scores_reduce),
            },
            "batch_size": plan.calibration_batch,
            "random_seed": plan.random_seed,
            **thinking_record(self.loaded.tokenizer),  # contrasts are made with thinking off
        }

    def spec(self, results: Results) -> Json:
        """What a manifest says about everything that was measured: onsets, text, replies and judge too."""
        plan = self.plan
        onsets = onset_tokens(self.loaded.tokenizer, plan.phrases)
        fitted = largest_batch(self.loaded.model, REPLIES, plan.batch_size)  # of this process, where memory ran out
        return {
            **self.calibration_spec,
            "onset_tokens": {kind: list(tokens) for kind, tokens in onsets._asdict().items()},
            HELDOUT_RECORD: self._heldout_record(),
            "evaluation": self.evaluation.record(),
            "reply_tokens": plan.reply_tokens,
            "reply_batch_size": plan.batch_size,
            **({"reply_batch_size_fitted": fitted} if fitted < plan.batch_size else {}),
            **({"system": plan.system} if plan.system else {}),
            **({"thinking": True} if plan.thinking else {}),
            **thinking_record(self.loaded.tokenizer, thinking=plan.thinking),
            **({} if plan.longer_replies == RefusalPlan.longer_replies else {"longer_replies": plan.longer_replies}),
            **judge_record(self.judge),
            "benign_limit": plan.benign_limit,
            "max_nll": self.max_nll(results),
            "lambdas": list(plan.lambdas),
            "ks": list(plan.ks),
            **({"widen": plan.widen} if plan.widen else {}),
        }

    def _heldout_record(self) -> Json:
        """The held-out pairs by domain; one without any is an error only where they are measured."""
        plan, pairs = self.plan, self.calibration
        if has_split(plan.pairs, HELDOUT):
            pairs = read_pairs(plan.pairs, HELDOUT, per_domain=plan.heldout_pairs)
        return {domain: pairs_record(plan.pairs, pairs[domain]) for domain in self.calibration if domain in pairs}


def _whole(part: Recorded, parts: Sequence[Recorded]) -> Json:
    """The stage's record; `structure` by itself records its contrasts only, and a sweep of them tells the rest."""
    for spec in (part.spec, *(other.spec for other in parts if other.group == REFUSAL)):
        if "evaluation" in spec and all(spec.get(key) == value for key, value in part.spec.items()):
            return spec
    raise InputError(
        f"{part.name}: its tables tell of their contrasts alone, and no table of `refusal sweep` beside them tells of "
        "the judge; run it again with `refusal structure`"
    )


def _beside_record(folder: Path, part: Recorded, spec: Json) -> Json:
    """Settings that tables tell and their record does not."""
    settings: Json = {"domains": tuple(spec["pairs"])}
    stems = [stem for stem in (*part.stems, *STAGES.get(part.study).tables) if stem in table_names(folder)]
    for table in map(partial(read_table, folder), stems):
        # In the run's order, which names the two sides of a pair; a manifest has them by name.
        domains = table["domain"].unique(maintain_order=True).to_list() if "domain" in table.columns else []
        if set(domains) == set(spec["pairs"]):
            settings["domains"] = tuple(domains)
            break
    if CONTROL_SEEDS in part.spec:
        settings["control_seeds"] = tuple(part.spec[CONTROL_SEEDS])
    if DRAW_SEEDS in part.spec:
        settings["draws"] = len(part.spec[DRAW_SEEDS])
    if "mask_stability" in part.stems:
        settings["splits"] = int(read_table(folder, "mask_stability")["seed"].n_unique())
    if "refusal_sweep" in table_names(folder):
        sweep = read_table(folder, "refusal_sweep")
        above = sweep.filter(sweep["nll"] > spec["max_nll"])
        settings["all_cells"] = above.height > 0 and bool(above["malign"].is_not_null().any())
    return settings


def _identity(value: Any) -> Any:
    """Of a text: its tokens' source and the windows, whose revision or path may differ."""
    if isinstance(value, dict) and "corpus_hash" in value:
        identity = ("corpus_hash", "sample_ids", "length", "skipped_tokens", "window_prefix")
        return {name: value.get(name) for name in identity}
    return value
