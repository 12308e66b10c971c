"""What is measured, and every default: the paper's settings, cheaper presets, and those of the shipped model. No torch.

A default stands here and nowhere else: commands and forms are made from these fields (`engine.run.field_types`).
"""
# ruff: noqa: RUF009 - the calls in class bodies make dataclass fields

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from engine.data.onsets import ONSET_PHRASES, OnsetPhrases, read_phrases
from engine.edits.contrasts import check_k, check_lambda
from engine.edits.edit import ZERO
from engine.interventions.kinds import INTERVENTIONS
from engine.judges.base import A_FOLDER, EMBEDDED, JUDGES
from engine.measures.base import MEASURES
from engine.records.errors import InputError, unknown
from engine.run import field_types
from engine.run.field_types import Names, check_plan, option, part
from engine.run.invariance_plan import InvariancePlan
from engine.run.protocols_plan import ProtocolsPlan
from engine.run.replies_plan import RepliesPlan
from engine.run.verdict_plan import VerdictPlan
from engine.selectors.base import OBJECTIVES, PAPER_CONTRASTS, SEEDS, check_contrasts, contrast_ids, selector_ids
from engine.stats.removal_order import ORDERS

PAPER_SELECTORS = ("random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2")
RATES = field_types.steps(0.0, 0.9, 0.05)  # the paper, section 3.4
LAMBDAS = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8)  # the paper, appendix E
KS = (0.005, 0.01, 0.02, 0.05, 0.075, 0.1)
COMPOSED_DOMAINS = ("hate", "crime")  # what the paper predicts a composed mask for (section 5.4)
SHIPPED = "demo"  # the model, its text, its pairs and its tasks
SECOND_CORPUS = "demo-chat"  # the shipped model's second domain
SCORES, TEXT, SWEEP, ANALYSIS = (
    "scores",
    "evaluation text",
    "sweep",
    "single analyses",
)  # groups of an audit's settings
OF_ANALYZE = (SCORES, TEXT, ANALYSIS)
PROMPTS, CONTRASTS, GRID, REPLIES, CONTROLS = "prompts", "contrasts", "grid", "replies", "controls"
DRAWS, SPLITS = "random draws", "resampled pairs"
PROTECTING = "language-model scores, which protect rows"
STEERING = "steering"


@dataclass(frozen=True)
class ScorePlan:
    """Which scores, from which tokens. The defaults are the paper's (section 3.4)."""

    selectors: tuple[str, ...] = option(
        PAPER_SELECTORS, "comma-separated ids", read=Names("selector", selector_ids), group=SCORES, label="Selectors"
    )  # fmt: skip
    corpus: str = option("wikitext2", "calibration text: wikitext2, c4, demo, a .txt or a .jsonl file", group=SCORES)
    samples: int = option(128, "calibration windows", least=1, group=SCORES)
    length: int = option(128, "tokens per calibration window", name="--max-length", least=2, group=SCORES)
    seeds: tuple[int, ...] = option(
        SEEDS, "seeds of the random selector", read=field_types.seeds, least=0, group=SCORES
    )
    objective: str = option(OBJECTIVES[0], "what attributions explain", choices=OBJECTIVES, group=SCORES)
    batch_size: int | None = option(None, "windows per pass", kind=int, least=1, none="as many as fit", group=SCORES)

    def __post_init__(self) -> None:
        check_plan(self)


def _rates(*default: float) -> Any:
    """Rates that have no option."""
    return option(default, "", name=None, least=0, most=1)


def _eval_corpus(group: str) -> Any:
    return option(
        "wikitext2", "evaluation text", read=field_types.corpus, follows="corpus", group=group,
        said="the test part of the calibration text; of a file, what follows",
    )  # fmt: skip


def _eval_samples(group: str) -> Any:
    return option(256, "evaluation windows", least=1, group=group)


def _eval_length(group: str) -> Any:
    return option(512, "tokens per evaluation window", least=2, group=group)


@dataclass(frozen=True)
class AuditPlan:
    """Settings of a sweep and of all analyses. The defaults are the paper's (sections 3.4, 4, appendices B to D)."""

    scoring: ScorePlan = part(ScorePlan)
    eval_corpus: str = _eval_corpus(TEXT)
    eval_samples: int = _eval_samples(TEXT)
    eval_length: int = _eval_length(TEXT)
    orders: tuple[str, ...] = option(
        tuple(ORDERS), "least relevant rows first (lerf), most relevant first (morf), or both",
        read=Names("order", lambda: ORDERS), group=SWEEP,
    )  # fmt: skip
    sweep_rates: tuple[float, ...] = option(
        RATES, "shares of rows removed: a list (0.1,30%) or FROM:TO:STEP", name="--rates", read=field_types.rates,
        least=0, most=1, group=SWEEP,
    )  # fmt: skip
    measures: tuple[str, ...] = option(
        ("nll",), "what is measured on the evaluation text", read=Names("measure", MEASURES.offered), group=SWEEP
    )  # fmt: skip
    intervention: str = option(
        ZERO, "what is done to the chosen rows", read=Names("intervention", INTERVENTIONS.offered, single=True),
        group=SWEEP,
    )  # fmt: skip
    stability_sizes: tuple[int, ...] = option(
        (8, 16, 32, 64, 128), "calibration sizes of `stability`", name="--sizes", read=field_types.sizes, least=1,
        group=ANALYSIS,
    )  # fmt: skip
    stability_rates: tuple[float, ...] = _rates(0.1, 0.2, 0.3, 0.5)
    calibration_draws: int = option(
        5, "disjoint calibration sets of `draws`, each of the largest size where the text has so many windows",
        metavar="N", least=2, group=ANALYSIS,
    )  # fmt: skip
    draws_seed: int = option(0, "seed of their places in the text", least=0, group=ANALYSIS)
    agreement_rates: tuple[float, ...] = _rates(0.2, 0.3, 0.5)
    control_rates: tuple[float, ...] = option(
        (0.3,), "rates of `controls`, as 10%,30%", read=field_types.rates, least=0, most=1, group=ANALYSIS
    )
    null_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    # Of every selector's layer-matched masks, and of the random masks of `specific`; those of `random` come first, so
    # that cells are shared.
    matched_seeds: tuple[int, ...] = (42, 43, 44, 45, 46)
    baseline_seeds: tuple[int, ...] = tuple(range(42, 52))
    rank_distribution_rates: tuple[float, ...] = _rates(0.1, 0.2, 0.3, 0.5)
    dangerous_rate: float = 0.3
    dangerous_factor: float = 2.0
    dangerous_draws: int = option(
        10, "random groups of its size that a group above the limit of `dangerous` is compared with", metavar="N",
        least=2, group=ANALYSIS,
    )  # fmt: skip
    domain_corpus: str = option("c4", "second calibration text of `domain`", read=field_types.corpus, group=ANALYSIS)
    domain_rates: tuple[float, ...] = _rates(0.2, 0.3)
    domain_draws: int = option(
        4, "disjoint draws of each text by which `domain` tells the domain from the draw, 0 for none; each as large as "
        "the calibration, or what the shorter text has for it", metavar="N", least=0, group=ANALYSIS,
    )  # fmt: skip
    gap_rates: tuple[float, ...] = _rates(0.1, 0.2, 0.3, 0.5)
    singles_rows: int = option(
        1024, "rows that `singles` removes one by one; all of them if there are no more", metavar="N", least=1,
        group=ANALYSIS,
    )  # fmt: skip
    singles_neurons: int = option(
        256, "neurons that `singles` removes one by one: gate and up row as one", metavar="N", least=0, group=ANALYSIS
    )
    singles_windows: int = option(
        16, "first evaluation windows, which `singles` reads for each of them", metavar="N", least=1, group=ANALYSIS
    )
    singles_seed: int = option(0, "seed of the sample of `singles`", least=0, group=ANALYSIS)
    singles_tops: tuple[float, ...] = _rates(0.01, 0.1)
    invariance: InvariancePlan = part(InvariancePlan, group=ANALYSIS)
    verdict: VerdictPlan = part(VerdictPlan, group=ANALYSIS)
    protocols: ProtocolsPlan = part(ProtocolsPlan, group=ANALYSIS)
    replies: RepliesPlan = part(RepliesPlan, group=ANALYSIS)
    downstream_rates: tuple[float, ...] = _rates(*field_types.steps(0.0, 0.9, 0.1))
    # None for all. The paper's accuracies are all multiples of 1/500.
    downstream_items: int | None = option(
        500, "first items of each task of `downstream`", least=1, none="all", group=ANALYSIS
    )
    downstream_tasks: str | None = option(
        None, "tasks of `downstream`: hub (the paper's eight, from the Hugging Face hub), demo (the shipped ones), or "
        "a folder with a file NAME.jsonl for each, one line per item: "
        '{"query": "...", "choices": ["...", "..."], "gold": 0}',
        read=field_types.task_files, none=field_types.HUB, group=ANALYSIS,
    )  # fmt: skip

    def __post_init__(self) -> None:
        check_plan(self)
        if self.domain_draws == 1:
            raise InputError("one draw of a text has none to compare it with; give --domain-draws 2 or more, or 0")


def for_model(plan: AuditPlan, model_id: str) -> AuditPlan:
    """The plan; for the shipped model with what it knows: its own text, its instruction text, and its tasks."""
    if model_id != SHIPPED:
        return plan
    scoring = replace(plan.scoring, corpus=SHIPPED)
    return replace(plan, scoring=scoring, eval_corpus=SHIPPED, domain_corpus=SECOND_CORPUS, downstream_tasks=SHIPPED)


class Preset(NamedTuple):
    """A plan and what it costs, in words."""

    note: str
    plan: AuditPlan


PRESETS = {
    "quick": Preset(
        "less text, fewer rates",  # the same questions: minutes instead of hours on a card
        AuditPlan(
            scoring=ScorePlan(samples=32),
            eval_samples=32,
            sweep_rates=(0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7),
            stability_sizes=(8, 16, 32),
            stability_rates=(0.3,),
            agreement_rates=(0.3,),
            null_seeds=(0, 1),
            singles_rows=256,
            singles_neurons=64,
            singles_windows=8,
            invariance=InvariancePlan(invariance_samples=8),
            protocols=ProtocolsPlan(protocol_rates=(0.3,), protocol_windows=16),
            downstream_rates=(0.0, 0.1, 0.3, 0.5),
            downstream_items=100,
        ),
    ),
    "paper": Preset("the paper's settings: hours on a card", AuditPlan()),
    "demo": Preset(
        "for the shipped model, its own text and tasks",
        replace(
            for_model(AuditPlan(), SHIPPED),
            scoring=ScorePlan((*PAPER_SELECTORS, "grad_x_input", "ig_conductance"), corpus=SHIPPED),
            eval_samples=64,
            eval_length=256,
            singles_rows=512,
            singles_neurons=128,
            protocols=ProtocolsPlan(protocol_rates=(0.1, 0.3), protocol_windows=32, resample_windows=16),
            downstream_rates=(0.0, 0.1, 0.3, 0.5),
            downstream_items=100,  # all that a shipped task has
        ),
    ),
}


def preset(name: str) -> AuditPlan:
    """The settings of a preset. Errors: InputError with the nearest name."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name].plan


def default_preset(model_id: str, *, first_look: bool = False) -> str:
    """The preset where none is named. first_look: where one starts by clicking, minutes are better than hours."""
    if model_id == SHIPPED:
        return "demo"
    return "quick" if first_look else "paper"


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
    times the unedited model's. all_cells: generate even above the cap. widen: not the paper's, whose cells all stay: a
    point at the edge of the grid may be better beyond it.
    """

    selectors: tuple[str, ...] = option(
        PAPER_CONTRASTS, "comma-separated ids", read=Names("contrast selector", contrast_ids), group=CONTRASTS
    )
    pairs: str = option(
        SHIPPED, "demo (the shipped pairs), CAST's condition_multiple.json, or a .jsonl file with one JSON object per "
        "line: risk, base, and optionally domain and split (calibration or train; heldout, test or validation; "
        "calibration where absent; without held-out pairs the calibration pairs stand in)",
        said=f"for the shipped model {SHIPPED}, for others none", group=PROMPTS,
    )  # fmt: skip
    domains: tuple[str, ...] | None = option(
        None, "comma-separated", read=field_types.words, none="all that the pairs have", group=PROMPTS
    )
    calibration_pairs: int = option(
        64, "calibration pairs per domain", name="--pairs-per-domain", metavar="N", least=1, group=PROMPTS
    )
    heldout_pairs: int | None = option(
        100, "held-out pairs per domain, 0 for all", metavar="N", least=1, none="all", zero_is_none=True, group=REPLIES
    )  # fmt: skip
    phrases: OnsetPhrases = option(
        ONSET_PHRASES, 'onset phrases: a JSON file with {"refusal": [...], "compliance": [...]}', read=read_phrases,
        metavar="FILE", said="the built-in ones", group=PROMPTS,
    )  # fmt: skip
    scoring: ScorePlan = part(ScorePlan, group=PROTECTING, only=("corpus", "samples", "length"))
    eval_corpus: str = _eval_corpus(GRID)
    eval_samples: int = _eval_samples(GRID)
    eval_length: int = _eval_length(GRID)
    lambdas: tuple[float, ...] = option(
        LAMBDAS, "protection of language-model rows, as 0.2,0.5", read=field_types.numbers, group=GRID
    )
    ks: tuple[float, ...] = option(KS, "share of rows removed, as 0.005,1%", read=field_types.numbers, group=GRID)
    widen: int = option(
        3, "most steps by which the grid goes on where an operating point lies at its edge, lambda by its last step, k "
        "by its last ratio; 0: the edge is flagged only", metavar="STEPS", least=0, group=GRID,
    )  # fmt: skip
    reply_tokens: int = option(200, "longest reply", least=1, group=REPLIES)
    longer_replies: int = option(
        5, "where replies that were cut off leave a choice open, replies so many times as long are used; 1: never",
        metavar="TIMES", least=1, group=REPLIES,
    )  # fmt: skip
    batch_size: int = option(64, "prompts per batch", least=1, group=REPLIES)
    system: str = option(
        "", "system prompt before every prompt that is answered; contrasts are made without it", metavar="TEXT",
        said="none", group=REPLIES,
    )  # fmt: skip
    thinking: bool = option(
        False, "leave the chat template's thinking mode on; what is judged is what comes after the thinking",
        group=REPLIES,
    )  # fmt: skip
    reply_samples: int = option(
        0, "`evaluate` also draws so many replies per prompt, beside the greedy one", metavar="N", least=0,
        group=REPLIES,
    )  # fmt: skip
    temperature: float = option(1.0, "of the drawn replies", least=0, group=REPLIES)
    sampling_seed: int = option(0, "of the drawn replies", least=0, group=REPLIES)
    follow_up: str = option(
        "", '`evaluate` also asks this after the first reply, such as "Please go on.", and judges the second',
        metavar="TEXT", said="none", group=REPLIES,
    )  # fmt: skip
    calibration_batch: int = option(16, "", name=None, least=1)
    benign_limit: float = option(0.10, "largest benign refusal", least=0, most=1, group=REPLIES)
    max_perplexity: float = option(100.0, "cells above it are not generated", clears="perplexity_factor", group=GRID)
    perplexity_factor: float | None = option(
        None, "instead: this many times the unedited model's perplexity", kind=float, least=1, group=GRID
    )
    all_cells: bool = option(False, "generate above the perplexity cap too", group=GRID)
    judge: str = option(
        EMBEDDED, "what reads the replies; embedded: English only",
        read=Names("judge", JUDGES.offered, single=True, or_else=(A_FOLDER,)),
        group=REPLIES,
    )  # fmt: skip
    judge_quality: str | None = option(
        None, "judge_quality.parquet of `refusal judge --out`: `evaluate` tells rates corrected for these errors too",
        read=field_types.existing, metavar="FILE", none="what is known of the embedded judge", group=REPLIES,
    )  # fmt: skip
    control_seeds: tuple[int, ...] = option(
        (42, 43, 44), "seeds of the controls", name="--seeds", read=field_types.integers, group=CONTROLS
    )
    draws: int = option(
        20, "layer-matched draws, each searched over the whole grid; p is at least 1 / (N + 1)", metavar="N", least=2,
        group=DRAWS,
    )  # fmt: skip
    splits: int = option(
        5, "random splits of the calibration pairs into two halves", metavar="N", least=1, group=SPLITS
    )
    random_seed: int = 42
    steering_coefficients: tuple[float, ...] = option(
        (0.25, 0.5, 1.0, 2.0), "how many times a steering vector is added, as 0.5,1,2", name="--coefficients",
        read=field_types.numbers, group=STEERING,
    )  # fmt: skip
    steering_depths: tuple[float, ...] = option(
        (0.25, 0.5, 0.75), "where steering vectors are added: shares of the depth", name="--depths",
        read=field_types.numbers, least=0, most=1, group=STEERING,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for selector in set(self.selectors) - set(PAPER_CONTRASTS):
            check_contrasts(selector)
        for lam in self.lambdas:
            check_lambda(lam)
        for k in self.ks:
            check_k(k)
        check_plan(self)
        if self.reply_samples and not 0 < self.temperature < float("inf"):
            raise InputError(f"the temperature must be above 0, got {self.temperature:g}; greedy replies need none")
        if self.max_perplexity <= 1:
            raise InputError(f"the perplexity cap must be above 1, got {self.max_perplexity:g}; write 100")
        if not self.lambdas or not self.ks or not self.control_seeds:
            raise InputError("the grid needs at least one lambda and one k, and controls one seed")
        if not self.steering_depths or not all(0 < one < 1e6 for one in self.steering_coefficients or (0,)):
            raise InputError(
                "steering needs at least one depth and coefficients above 0, since only refusal is installed, got "
                f"{', '.join(f'{one:g}' for one in self.steering_coefficients) or 'none'}; write 0.5,1,2"
            )
        seeds = self.control_seeds
        if min(seeds) < 0 or len(set(seeds)) < len(seeds):
            raise InputError(
                f"seeds of controls must be 0 or more, each once, got {', '.join(map(str, seeds))}; write 42,43,44"
            )


def demo_plan() -> RefusalPlan:
    """For the shipped model: its own text and prompts, short replies, and a grid that fits its small circuit.

    12 cells (4 for random). Above k = 0.03 some layer-matched random masks break the circuit as well and refuse, so
    that nothing specific can be shown there: the grid is not widened, its edges are flagged only. Between the lambdas
    little changes. Its perplexity is near 9: the cap is 1.5 times the unedited model's. Its replies have at most about
    25 tokens. Vectors as long as those of large models break it.
    """
    return RefusalPlan(
        scoring=ScorePlan(corpus=SHIPPED),
        eval_corpus=SHIPPED,
        eval_samples=16,
        eval_length=256,
        lambdas=(0.2, 0.5, 0.8),
        ks=(0.005, 0.01, 0.02, 0.03),
        widen=0,
        reply_tokens=60,
        perplexity_factor=1.5,
        steering_coefficients=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
    )


def default_plan(model_id: str) -> RefusalPlan:
    """`demo_plan` for the shipped model, else the defaults."""
    return demo_plan() if model_id == SHIPPED else RefusalPlan()
