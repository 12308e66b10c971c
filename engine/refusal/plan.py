"""What a refusal experiment measures: settings after the paper's, and those of the shipped model."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.errors import InputError
from engine.refusal.contrast import VARIANTS, check_k, check_lambda
from engine.refusal.onsets import ONSET_PHRASES, OnsetPhrases
from engine.scores import ScorePlan

LAMBDAS = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8)
KS = (0.005, 0.01, 0.02, 0.05, 0.075, 0.1)


@dataclass(frozen=True)
class RefusalPlan:
    """Settings of all stages. The defaults are the paper's (section 5, appendix E) but for where refusal is measured.

    The paper takes every rate, the grid's too, on CAST's 500 held-out risk and 500 base prompts, as ProtectAI's
    rejection model judges the replies. Here the grid is measured on the calibration pairs, controls and evaluation on
    at most 100 held-out pairs per domain, the pairs are the shipped ones, and a run's judge is the embedded one
    unless others are given.

    calibration_pairs: per domain, of the calibration split; the grid is measured on them as well. heldout_pairs:
    per domain for controls and evaluation, None for all. scoring: I_lm, the language-model scores.
    max_perplexity: a cell above it is not generated; perplexity_factor, where given, is used instead: that many
    times the unedited model's. all_cells: generate even above the cap.
    """

    selectors: tuple[str, ...] = VARIANTS
    pairs: str = "demo"
    domains: tuple[str, ...] | None = None
    calibration_pairs: int = 64
    heldout_pairs: int | None = 100
    phrases: OnsetPhrases = ONSET_PHRASES
    scoring: ScorePlan = field(default_factory=ScorePlan)
    eval_corpus: str = "wikitext2"
    eval_samples: int = 256
    eval_length: int = 512
    lambdas: tuple[float, ...] = LAMBDAS
    ks: tuple[float, ...] = KS
    reply_tokens: int = 200
    batch_size: int = 64
    calibration_batch: int = 16
    benign_limit: float = 0.10
    max_perplexity: float = 100.0
    perplexity_factor: float | None = None
    all_cells: bool = False
    control_seeds: tuple[int, ...] = (42, 43, 44)
    random_seed: int = 42

    def __post_init__(self) -> None:
        for lam in self.lambdas:
            check_lambda(lam)
        for k in self.ks:
            check_k(k)
        for name in ("calibration_pairs", "heldout_pairs", "reply_tokens", "batch_size", "calibration_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', ' ')} must be at least 1, got {value}")
        if not 0 <= self.benign_limit <= 1:
            raise InputError(f"the benign limit must be in [0, 1], got {self.benign_limit:g}; write 0.1")
        if self.max_perplexity <= 1 or (self.perplexity_factor is not None and self.perplexity_factor < 1):
            raise InputError(
                f"the perplexity cap must be above 1 and its factor at least 1, got {self.max_perplexity:g} and "
                f"{self.perplexity_factor}"
            )
        if not self.lambdas or not self.ks or not self.control_seeds:
            raise InputError("the grid needs at least one lambda and one k, and controls one seed")
        seeds = self.control_seeds
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InputError(
                f"seeds of controls must be 0 or more, each once, got {', '.join(map(str, seeds))}; write 42,43,44"
            )


def demo_plan() -> RefusalPlan:
    """For the shipped model: its own text and prompts, short replies, and a grid that fits its small circuit.

    12 cells (4 for random). Above k = 0.03 some layer-matched random masks break the circuit as well and refuse, so
    that nothing specific can be shown there; between the lambdas little changes. Its perplexity is near 9: the cap is
    1.5 times the unedited model's. Its replies have at most about 25 tokens.
    """
    return RefusalPlan(
        scoring=ScorePlan(corpus="demo"),
        eval_corpus="demo",
        eval_samples=16,
        eval_length=256,
        lambdas=(0.2, 0.5, 0.8),
        ks=(0.005, 0.01, 0.02, 0.03),
        reply_tokens=60,
        perplexity_factor=1.5,
    )


def default_plan(model_id: str) -> RefusalPlan:
    """`demo_plan` for the shipped model, else the defaults."""
    return demo_plan() if model_id == "demo" else RefusalPlan()
