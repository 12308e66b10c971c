"""What every stage of a refusal experiment asks for: contrasts, NLL, replies and verdicts under a mask, all kept."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from engine.corpora import Pair, Windows, calibration_tokens, windows
from engine.evaluation.generation import generate_batch
from engine.evaluation.judges import Judge
from engine.evaluation.perplexity import NegativeLogLikelihood
from engine.evaluation.prompts import prompts_hash
from engine.evaluation.rates import Interval, wilson
from engine.intervention import zeroed
from engine.masks import Mask, checked_mask
from engine.models import LoadedModel
from engine.records import Json, cache_key
from engine.refusal.calibrate import calibrate
from engine.refusal.contrast import Contrast
from engine.refusal.onsets import onset_tokens
from engine.refusal.pairs import CALIBRATION, HELDOUT, has_split, pairs_record, read_pairs
from engine.refusal.plan import RefusalPlan
from engine.scores import ProgressCallback
from engine.store import Store
from engine.sweep import masked_nll

UNEDITED: Mask = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Rate:
    """Refused replies to a list of prompts, one verdict each, in the order of the prompts."""

    refused: tuple[bool, ...]

    @property
    def count(self) -> int:
        return sum(self.refused)

    @property
    def n(self) -> int:
        return len(self.refused)

    @property
    def mean(self) -> float:
        return self.count / self.n

    @property
    def interval(self) -> Interval:
        """Wilson's 95% interval."""
        return wilson(self.count, self.n)


@dataclass(frozen=True)
class Rates:
    """Refusal of risk prompts (malign) and of their base prompts (benign) under one mask."""

    malign: Rate
    benign: Rate


@dataclass
class RefusalRun:
    """One model under one plan and one judge. Not thread-safe: it belongs to the run that made it."""

    loaded: LoadedModel
    plan: RefusalPlan
    store: Store
    judge: Judge
    progress: ProgressCallback | None = None

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
    def evaluation(self) -> Windows:
        """The text whose perplexity an edit should keep."""
        plan = self.plan
        used = plan.scoring.samples * plan.scoring.length
        return windows(
            plan.eval_corpus,
            self.loaded.tokenizer,
            role="evaluation",
            samples=plan.eval_samples,
            length=plan.eval_length,
            skip_tokens=calibration_tokens(plan.eval_corpus, plan.scoring.corpus, used),
        )

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """Algorithm 1 for every selector and domain of the plan, from the store where they are known."""
        return self.contrasts_of(self.calibration)

    def contrasts_of(self, pairs: dict[str, list[Pair]]) -> list[Contrast]:
        """Algorithm 1 for every selector of the plan on these pairs."""
        return calibrate(self.loaded, self.plan, pairs, store=self.store, progress=self.progress)

    def nll(self, mask: Mask) -> NegativeLogLikelihood:
        """NLL of the evaluation text under a mask."""
        return masked_nll(self.loaded, mask, self.evaluation, store=self.store)

    @cached_property
    def max_nll(self) -> float:
        """The perplexity cap in nats per token."""
        if self.plan.perplexity_factor is None:
            return float(np.log(self.plan.max_perplexity))
        return self.nll(UNEDITED).nats_per_token + float(np.log(self.plan.perplexity_factor))

    def replies(self, mask: Mask, prompts: Sequence[str]) -> list[str]:
        """Greedy replies under a mask, from the store where they are known."""
        key = self._replies_key(mask, prompts)
        cell = self.store.get(key)
        if cell is None:
            with zeroed(self.loaded, mask):
                replies = generate_batch(self.loaded, prompts, self.plan.reply_tokens, self.plan.batch_size)
            cell = {"replies": [reply.text for reply in replies]}
            self.store.put(key, cell)
        return list(cell["replies"])

    def refused(self, mask: Mask, prompts: Sequence[str]) -> tuple[bool, ...]:
        """The judge's verdict on every reply under a mask."""
        spec = {"replies": self._replies_key(mask, prompts), **self.judge_record}
        key = cache_key("refusal verdicts", spec)
        cell = self.store.get(key)
        if cell is None:
            verdicts = self.judge.judge(self.replies(mask, prompts))
            cell = {"refused": [verdict.refusal for verdict in verdicts]}
            self.store.put(key, cell)
        return tuple(cell["refused"])

    def rates(self, mask: Mask, pairs: Sequence[Pair]) -> Rates:
        """Refusal of both prompts of every pair under a mask, generated together."""
        refused = self.refused(mask, [pair.risk for pair in pairs] + [pair.base for pair in pairs])
        return Rates(Rate(refused[: len(pairs)]), Rate(refused[len(pairs) :]))

    @property
    def judge_record(self) -> Json:
        """The judge's name and version: for keys and manifests."""
        return {"judge": self.judge.id, "judge_version": self.judge.version}

    def report(self, stage: str, done: int, total: int) -> None:
        """Progress for the bar."""
        if self.progress is not None:
            self.progress(stage, done, total)

    def calibration_spec(self) -> Json:
        """What a manifest says about contrasts: prompts and language-model scores."""
        plan = self.plan
        pairs = {domain: pairs_record(plan.pairs, some) for domain, some in self.calibration.items()}
        scoring = plan.scoring
        return {
            "selectors": list(plan.selectors),
            "pairs": pairs,
            "lm_scores": {
                "corpus": Path(scoring.corpus).name,
                "samples": scoring.samples,
                "length": scoring.length,
            },
            "batch_size": plan.calibration_batch,
            "random_seed": plan.random_seed,
        }

    def spec(self) -> Json:
        """What a manifest says about everything that was measured: onsets, text, replies and judge too."""
        plan = self.plan
        onsets = onset_tokens(self.loaded.tokenizer, plan.phrases)
        return {
            **self.calibration_spec(),
            "onset_tokens": {kind: list(tokens) for kind, tokens in onsets._asdict().items()},
            "heldout": self._heldout_record(),
            "evaluation": self.evaluation.record(),
            "reply_tokens": plan.reply_tokens,
            "reply_batch_size": plan.batch_size,
            **self.judge_record,
            "benign_limit": plan.benign_limit,
            "max_nll": self.max_nll,
            "lambdas": list(plan.lambdas),
            "ks": list(plan.ks),
        }

    def _heldout_record(self) -> Json:
        """The held-out pairs by domain; one without any is an error only where they are measured."""
        plan, pairs = self.plan, self.calibration
        if has_split(plan.pairs, HELDOUT):
            pairs = read_pairs(plan.pairs, HELDOUT, per_domain=plan.heldout_pairs)
        return {
            domain: pairs_record(plan.pairs, pairs[domain]) for domain in self.calibration if domain in pairs
        }

    def _replies_key(self, mask: Mask, prompts: Sequence[str]) -> str:
        row_ids = checked_mask(mask, self.loaded.rows.n_rows)
        return cache_key(
            "replies",
            {
                "model": self.loaded.numeric_fingerprint,
                "mask": hashlib.sha256(row_ids.astype("<i8").tobytes()).hexdigest(),
                "prompts": prompts_hash(self.loaded.tokenizer, prompts),
                "reply_tokens": self.plan.reply_tokens,
                "batch_size": self.plan.batch_size,
            },
        )
