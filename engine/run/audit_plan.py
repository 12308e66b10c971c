"""What an audit measures, and every default: the paper's settings, cheaper presets, the shipped model's; which scores
are computed, from which tokens; and the options for text that audit and refusal share. No torch.

A default stands in a plan and nowhere else: commands and forms are made from its fields (`engine.run.field_types`)."""
# ruff: noqa: RUF009 - the calls in class bodies make dataclass fields

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from engine.data.window_starts import WINDOW_STARTS
from engine.edits.edit import ZERO
from engine.interventions.kinds import INTERVENTIONS
from engine.interventions.rewrite_names import REWRITES
from engine.measures.base import MEASURES
from engine.records.errors import InputError, unknown
from engine.run import field_types
from engine.run.claims_plan import ClaimsPlan
from engine.run.field_types import MOST_DRAWS, Checked, Names, check_plan, option, part
from engine.selectors import own_scores
from engine.selectors.base import OBJECTIVES, SEEDS, check_skip_first, selector_ids
from engine.selectors.own_scores import ABS_SUM
from engine.stats.limits import VERDICT_RATES, Thresholds
from engine.stats.protocol_harm import METRICS, UNIT_KINDS, USUAL_UNITS
from engine.stats.removal_order import ORDERS

PAPER_SELECTORS = ("random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2")
SHIPPED = "demo"  # the model, its text, its pairs and its tasks
SCORES = "scores"  # group of settings


@dataclass(frozen=True)
class ScorePlan:
    """Which scores, from which tokens. The defaults are the paper's (section 3.4).
    score_files: `NAME=FILE` each (`engine.selectors.own_scores`); a plan with some makes every NAME a selector, and
    one of its own."""

    selectors: tuple[str, ...] = option(
        PAPER_SELECTORS, "comma-separated ids", read=Names("selector", selector_ids), group=SCORES, label="Selectors"
    )  # fmt: skip
    corpus: str = option("wikitext2", "calibration text: wikitext2, c4, demo, a .txt or a .jsonl file", group=SCORES)
    samples: int = option(128, "calibration windows", least=1, group=SCORES)
    length: int = option(128, "tokens per calibration window", name="--max-length", least=2, group=SCORES)
    window_start: str = option(
        WINDOW_STARTS[0], "how every window of text begins, the evaluation's too: text, after a BOS where the "
        "tokenizer puts one before a text; stream, wherever the text was cut", choices=WINDOW_STARTS, group=SCORES,
        label="Windows begin as",
    )  # fmt: skip
    seeds: tuple[int, ...] = option(
        SEEDS, "seeds of the random selector", read=field_types.seeds, least=0, group=SCORES
    )
    objective: str = option(OBJECTIVES[0], "what attributions explain", choices=OBJECTIVES, group=SCORES)
    batch_size: int | None = option(None, "windows per pass", kind=int, least=1, none="as many as fit", group=SCORES)
    skip_first: int = option(
        0, "first positions of each window that scores leave out of their means: some models put most of a score there",
        metavar="N", least=0, group=SCORES, label="First positions left out",
    )  # fmt: skip
    score_files: tuple[str, ...] = option(
        (), "scores of your own as a selector NAME, from safetensors, npz, parquet or CSV; further files of a NAME are "
        "its disjoint draws, five for a word on stability. In `refusal` they protect rows, elsewhere they stand beside "
        f"{', '.join(own_scores.BASELINES)} unless --selectors names others", name="--scores",
        metavar="NAME=FILE[,FILE]", read=own_scores.read_option, repeats=True,
        sets=("selectors", own_scores.BASELINES), said="none", group=SCORES, label="Scores of your own, NAME=FILE",
    )  # fmt: skip
    scores_reduce: str | None = option(
        None, "of --scores with a number per weight: abs-sum, the sum of absolute values over a row's columns",
        choices=(ABS_SUM,), group=SCORES, label="Numbers per weight",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.score_files:
            own_scores.register(self.score_files, self.scores_reduce)
            selectors = dict.fromkeys((*self.selectors, *own_scores.names_of(self.score_files)))
            object.__setattr__(self, "selectors", tuple(selectors))
        check_plan(self)
        check_skip_first(self.skip_first, self.length)


def rates_option(*default: float) -> Any:
    """Rates that have no option."""
    return option(default, "", name=None, least=0, most=1)


def eval_corpus_option(group: str) -> Any:
    return option(
        "wikitext2", "evaluation text", read=field_types.corpus, follows="corpus", group=group,
        said="the test part of the calibration text; of a file, what follows",
    )  # fmt: skip


def eval_samples_option(group: str) -> Any:
    return option(256, "evaluation windows", least=1, group=group)


def eval_length_option(group: str) -> Any:
    return option(512, "tokens per evaluation window", least=2, group=group)


RATES = field_types.PAPER_RATES  # section 3.4
SWEEP_RATES = tuple(sorted({*RATES, 0.0025, 0.005, 0.01, 0.02, 0.03}))  # budgets of real models lie there
SECOND_CORPUS = "demo-chat"  # the shipped model's second domain
TEXT, SWEEP, CURVES = "evaluation text", "sweep", "curves"  # groups of settings; others are those of one analysis
# What `sweep` and `estimate` ask for, and every `analyze`.
OF_SWEEP, OF_ALL = (SCORES, TEXT, SWEEP, CURVES, "replies"), (SCORES, TEXT, CURVES)


@dataclass(frozen=True)
class SweepPlan:
    """What scores, sweep and all analyses read. The defaults are the paper's (section 3.4)."""

    scoring: ScorePlan = part(ScorePlan)
    eval_corpus: str = eval_corpus_option(TEXT)
    eval_samples: int = eval_samples_option(TEXT)
    eval_length: int = eval_length_option(TEXT)
    orders: tuple[str, ...] = option(
        tuple(ORDERS), "least relevant rows first (lerf), most relevant first (morf), or both",
        read=Names("order", lambda: ORDERS), group=SWEEP,
    )  # fmt: skip
    sweep_rates: tuple[float, ...] = option(
        SWEEP_RATES, "shares of rows removed: a list (0.1,30%), FROM:TO:STEP, or paper (0:0.9:0.05)", name="--rates",
        read=field_types.rates,
        least=0, most=1, group=SWEEP,
    )  # fmt: skip
    measures: tuple[str, ...] = option(
        ("nll",), "what is measured on the evaluation text", read=Names("measure", MEASURES.offered), group=SWEEP
    )  # fmt: skip
    intervention: str = option(
        ZERO, "what is done to the chosen rows", read=Names("intervention", INTERVENTIONS.offered, single=True),
        group=SWEEP,
    )  # fmt: skip
    more_interventions: tuple[str, ...] | None = option(
        None, "interventions under which the curves are measured as well, for a table of their own",
        read=Names("intervention", INTERVENTIONS.offered, none="none"), none="none", group=CURVES,
    )  # fmt: skip
    more_rates: tuple[float, ...] | None = option(
        None, "rates of the curves under --more-interventions: a list or FROM:TO:STEP, or sweep for those of the sweep",
        read=field_types.rates_or_sweep, none=field_types.AS_SWEEP, least=0, most=1, follows="sweep_rates",
        group=CURVES,
    )  # fmt: skip

    @property
    def rates_under_more(self) -> tuple[float, ...]:
        """Rates of the curves under `more_interventions`."""
        return self.sweep_rates if self.more_rates is None else self.more_rates


@dataclass(frozen=True)
class StabilityPlan:
    stability_sizes: tuple[int, ...] = option(
        (8, 16, 32, 64, 128), "calibration sizes of `stability`", name="--sizes", read=field_types.sizes, least=1,
        group="stability",
    )  # fmt: skip
    stability_rates: tuple[float, ...] = rates_option(0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class CalibrationDrawsPlan:
    calibration_draws: int = option(
        5, "disjoint calibration sets of `draws`, each of the largest size where the text has so many windows; 0 for "
        "none, and a verdict leaves open what is stable", metavar="N", least=0, most=MOST_DRAWS, group="draws",
    )  # fmt: skip
    draws_seed: int = option(0, "seed of their places in the text", least=0, group="draws")


@dataclass(frozen=True)
class AgreementPlan:
    agreement_rates: tuple[float, ...] = rates_option(0.2, 0.3, 0.5)


@dataclass(frozen=True)
class RandomMasksPlan:
    control_rates: tuple[float, ...] = option(
        (0.3,), "rates of `controls`, as 10%,30%", read=field_types.rates, least=0, most=1, group="controls"
    )
    null_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    # Of every selector's layer-matched masks, and of the random masks of `specific`; those of `random` come first, so
    # that cells are shared.
    matched_seeds: tuple[int, ...] = option(
        tuple(range(42, 52)), "seeds of the layer-matched masks of `specific`, of every selector",
        read=field_types.seeds, least=0, group="specific",
    )  # fmt: skip
    baseline_seeds: tuple[int, ...] = tuple(range(42, 52))


@dataclass(frozen=True)
class SpecificPlan:
    specific_rates: tuple[float, ...] = option(
        VERDICT_RATES, "rates of `specific`, which compares at the largest at which the controls are not saturated",
        read=field_types.rates, least=0, most=1, group="specific",
    )  # fmt: skip
    specific_until: float | None = option(
        None, "double the masks of `specific` until the interval of a difference is no wider than so many nats, or the "
        "difference is told apart; p allows for these looks", name="--until", kind=float, least=0,
        none="as many masks as seeds", group="specific",
    )  # fmt: skip
    specific_most: int = option(
        80, "masks of a ranking that --until draws at most", name="--most-masks", metavar="N", least=2, group="specific"
    )


@dataclass(frozen=True)
class RankDistributionPlan:
    rank_distribution_rates: tuple[float, ...] = rates_option(0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class DangerousPlan:
    dangerous_rate: float = 0.3
    dangerous_factor: float = 2.0
    dangerous_draws: int = option(
        10, "random groups of its size that a group above the limit of `dangerous` is compared with", metavar="N",
        least=2, most=MOST_DRAWS, group="dangerous",
    )  # fmt: skip


@dataclass(frozen=True)
class DomainPlan:
    domain_corpus: str = option("c4", "second calibration text of `domain`", read=field_types.corpus, group="domain")
    domain_rates: tuple[float, ...] = rates_option(0.2, 0.3)
    domain_draws: int = option(
        4, "disjoint draws of each text by which `domain` tells the domain from the draw, 0 for none; each as large as "
        "the calibration, or what the shorter text has for it", metavar="N", least=0, most=MOST_DRAWS, group="domain",
    )  # fmt: skip


@dataclass(frozen=True)
class GapPlan:
    gap_rates: tuple[float, ...] = rates_option(0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True)
class BudgetPlan:
    budget_factor: float = option(
        2.0, "perplexity that is too much, as a multiple of the unedited model's", least=1, group="budget"
    )
    budget_rates: tuple[float, ...] = rates_option(0.0025, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    budget_resolution: float = 0.05
    budget_orders: tuple[str, ...] = option(
        tuple(ORDERS), "orders of `budget`", read=Names("order", lambda: ORDERS), group="budget"
    )


@dataclass(frozen=True)
class PartsPlan:
    parts_orders: tuple[str, ...] = option(
        ("lerf",), "orders of the masks of `parts`", read=Names("order", lambda: ORDERS), group="parts"
    )
    parts_rates: tuple[float, ...] = option(
        (0.1,), "rates of the masks of `parts`", read=field_types.rates, least=0, most=1, group="parts"
    )
    parts_windows: int = option(
        16, "first evaluation windows, which `parts` reads for each projection and block", metavar="N", least=1,
        group="parts",
    )  # fmt: skip


@dataclass(frozen=True)
class JointPlan:
    joint_rates: tuple[float, ...] = rates_option(0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class SinglesPlan:
    singles_rows: int = option(
        1024, "rows that `singles` removes one by one; all of them if there are no more", metavar="N", least=1,
        group="singles",
    )  # fmt: skip
    singles_neurons: int = option(
        256, "neurons that `singles` removes one by one: gate and up row as one", metavar="N", least=0, group="singles"
    )
    singles_windows: int = option(
        16, "first evaluation windows, which `singles` reads for each of them", metavar="N", least=1, group="singles"
    )
    singles_seed: int = option(0, "seed of the sample of `singles`", least=0, group="singles")
    singles_tops: tuple[float, ...] = rates_option(0.01, 0.1)


@dataclass(frozen=True)
class DownstreamPlan:
    downstream_rates: tuple[float, ...] = rates_option(*field_types.steps(0.0, 0.9, 0.1))
    # None for all. The paper's accuracies are all multiples of 1/500.
    downstream_items: int | None = option(
        500, "first items of each task of `downstream`", least=1, none="all", group="downstream"
    )
    downstream_tasks: str | None = option(
        None, "tasks of `downstream`: hub (the paper's eight, from the Hugging Face hub), demo (the shipped ones), or "
        "a folder with a file NAME.jsonl for each, one line per item: "
        '{"query": "...", "choices": ["...", "..."], "gold": 0}',
        read=field_types.task_files, none=field_types.HUB, group="downstream",
    )  # fmt: skip


_BASE = Thresholds()


@dataclass(frozen=True)
class VerdictPlan(Checked):
    """Limits of `verdict`; the defaults are those of `Thresholds`, chosen after looking at the published tables."""

    faithful_damage: float = option(
        _BASE.faithful_damage,
        "a selector is sufficient if its LeRF mask does at most so much of random's harm",
        least=0,
    )
    invalid_damage: float = option(
        _BASE.invalid_damage, "above so much of random's harm it is close to chance", least=0
    )
    log_gap: float = option(_BASE.log_gap, "nats per token by which MoRF has to be worse than LeRF", least=0)
    level: float = option(
        _BASE.level, "level of the verdicts' tests, after Holm's correction", name="--verdict-level", least=0, most=1
    )
    draw_spearman: float = option(_BASE.spearman, "least Spearman between draws of a stable selector", most=1)
    draw_jaccard: float = option(_BASE.jaccard, "least Jaccard between draws of a stable selector", least=0, most=1)
    specific_orders: tuple[str, ...] = option(
        _BASE.specific_orders, "orders in which a selector has to beat random rows of its own layers",
        read=Names("order", lambda: ORDERS),
    )  # fmt: skip

    @property
    def thresholds(self) -> Thresholds:
        alike = ("faithful_damage", "invalid_damage", "log_gap", "level", "specific_orders")
        same: dict[str, Any] = {name: getattr(self, name) for name in alike}
        return Thresholds(**same, spearman=self.draw_spearman, jaccard=self.draw_jaccard)


def questions(text: str, name: str) -> tuple[str, ...]:
    """ "What is a row?|Why?" -> both questions."""
    prompts = tuple(part.strip() for part in text.split("|"))
    if not all(prompts):
        raise InputError(f"{name} needs prompts separated by |, none of them empty, got {text!r}")
    return prompts


@dataclass(frozen=True)
class RepliesPlan(Checked):
    """Defaults of our own: the paper shows no replies over the removal rate."""

    replies_prompts: tuple[str, ...] = option(
        ("How do I keep bread fresh?", "Tell me how to learn a poem by heart.", "What should I do when it rains?"),
        "what `replies` and some measures ask the model at every rate, separated by |", read=questions, between="|",
    )  # fmt: skip
    replies_tokens: int = option(40, "longest reply to these, in tokens", least=1)


@dataclass(frozen=True)
class InvariancePlan(Checked):
    """Defaults of our own: the paper does not do this. What is exact needs no large sample, so little text will do."""

    rewrites: tuple[str, ...] = option(
        tuple(REWRITES), "rewrites of `invariance`", read=Names("rewrite", lambda: list(REWRITES))
    )
    invariance_samples: int = option(
        32, "calibration windows of `invariance`, at most those of the scores", metavar="N", least=1
    )
    rewrite_seed: int = option(0, "seed of what `invariance` draws", least=0)
    rescaling_power: int = option(4, "`invariance` rescales by 2^-N to 2^N", metavar="N", least=1, most=16)
    decoys: int = option(16, "neurons that `invariance` plants", metavar="N", least=1, most=MOST_DRAWS)
    decoy_power: int = option(8, "decoys are 2^N times the neurons they copy", metavar="N", least=1, most=16)
    invariance_rate: float = option(0.3, "", name=None, least=0, most=1)


@dataclass(frozen=True)
class ProtocolsPlan(Checked):
    """Defaults of our own: the paper has one protocol. Cells: rankings x interventions x units x orders x rates."""

    protocol_interventions: tuple[str, ...] = option(
        ("zero", "mean", "resample"), "interventions of `protocols`", read=Names("intervention", INTERVENTIONS.offered)
    )
    protocol_units: tuple[str, ...] = option(
        USUAL_UNITS,
        "units of `protocols`; expert: all rows of a routed expert",
        read=Names("kind of unit", lambda: UNIT_KINDS),
    )
    protocol_metrics: tuple[str, ...] = option(
        METRICS, "metrics of `protocols`, all from one pass", read=Names("metric", lambda: METRICS)
    )
    protocol_orders: tuple[str, ...] = option(
        tuple(ORDERS), "orders of `protocols`", read=Names("order", lambda: ORDERS)
    )
    protocol_rates: tuple[float, ...] = option(
        (0.1, 0.3, 0.5), "rates of `protocols`, as 10%,30%", read=field_types.rates, least=0, most=1
    )
    protocol_windows: int = option(
        64, "first evaluation windows, which `protocols` reads for each edit", metavar="N", least=1
    )
    resample_windows: int = option(
        4, "calibration windows that resampled outputs come from, each as long as one of the evaluation; the outputs "
        "of every row are kept for each", metavar="N", least=1,
    )  # fmt: skip
    resample_seed: int = option(0, "seed of which of them stands for which evaluation window", least=0)
    resample_draws: int = option(
        1, "seeds of resampling, from --resample-seed on, that `protocols` takes the mean over", metavar="N", least=1,
        most=MOST_DRAWS,
    )  # fmt: skip

    @property
    def resample_seeds(self) -> tuple[int, ...]:
        return tuple(range(self.resample_seed, self.resample_seed + self.resample_draws))


@dataclass(frozen=True)
class AuditPlan(
    DownstreamPlan, ClaimsPlan, SinglesPlan, JointPlan, PartsPlan, BudgetPlan, GapPlan, DomainPlan, DangerousPlan,
    RankDistributionPlan, SpecificPlan, RandomMasksPlan, AgreementPlan, CalibrationDrawsPlan, StabilityPlan, SweepPlan,
):  # fmt: skip
    """Settings of a sweep and of all analyses, put together of the parts that each reads. The defaults are the paper's
    (sections 3.4, 4, appendices B to D)."""

    invariance: InvariancePlan = part(InvariancePlan, group="invariance")
    verdict: VerdictPlan = part(VerdictPlan, group="verdict")
    protocols: ProtocolsPlan = part(ProtocolsPlan, group="protocols")
    replies: RepliesPlan = part(RepliesPlan, group="replies")

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
    """A plan and what it costs, in words. analyses: those that are run where none is named, () for all."""

    note: str
    plan: AuditPlan
    analyses: tuple[str, ...] = ()


_QUICK = AuditPlan(
    scoring=ScorePlan(samples=16), eval_samples=16, eval_length=128, sweep_rates=(0.0, 0.01, 0.03, 0.1, 0.3),
    budget_rates=(0.01, 0.03, 0.1, 0.3, 0.5), budget_resolution=0.35, budget_orders=("lerf",), gap_rates=(0.1, 0.3),
    specific_rates=(0.01, 0.03, 0.1, 0.3), matched_seeds=tuple(range(42, 47)), baseline_seeds=tuple(range(42, 47)),
    stability_sizes=(4, 8, 16), stability_rates=(0.3,), calibration_draws=0, agreement_rates=(0.3,), null_seeds=(0, 1),
    singles_rows=256, singles_neurons=64, singles_windows=8, invariance=InvariancePlan(invariance_samples=8),
    protocols=ProtocolsPlan(protocol_rates=(0.3,), protocol_windows=16),
    downstream_rates=(0.0, 0.1, 0.3, 0.5), downstream_items=100,
)  # fmt: skip
PRESETS = {
    "quick": Preset(
        "less text, fewer rates, fewer analyses, no further calibration text",
        _QUICK,
        ("agreement", "depth", "sweep", "budget", "specific", "verdict"),
    ),
    "paper": Preset("the paper's settings, which take longest", AuditPlan()),
    "demo": Preset(
        "for the shipped model, its own text and tasks",
        replace(
            for_model(AuditPlan(), SHIPPED),
            scoring=ScorePlan((*PAPER_SELECTORS, "grad_x_input", "ig_conductance"), corpus=SHIPPED),
            eval_samples=64,
            eval_length=256,
            more_interventions=("mean",),
            more_rates=(0.0, 0.1, 0.3, 0.5),  # no verdict reads these curves
            replies=RepliesPlan(
                ("How do I bake bread?", "How can I borrow a book?", "What does a loaf of bread cost?"), 60
            ),
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
