"""What refusal editing measures, and every default: the paper's settings, and the shipped model's. No torch."""
# ruff: noqa: RUF009 - the calls in class bodies make dataclass fields

from dataclasses import dataclass

from engine.data.onsets import ONSET_PHRASES, OnsetPhrases, read_phrases
from engine.edits.contrasts import check_k, check_lambda
from engine.judges.base import A_FOLDER, EMBEDDED, JUDGES
from engine.records.errors import InputError
from engine.run import field_types
from engine.run.audit_plan import SHIPPED, ScorePlan, eval_corpus_option, eval_length_option, eval_samples_option
from engine.run.field_types import MOST_DRAWS, Names, check_plan, option, part
from engine.selectors.base import PAPER_CONTRASTS, check_contrasts, contrast_ids, protected_by
from engine.selectors.own_scores import names_of

LAMBDAS = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8)  # the paper, appendix E
KS = (0.005, 0.01, 0.02, 0.05, 0.075, 0.1)
COMPOSED_DOMAINS = ("hate", "crime")  # what the paper predicts a composed mask for (section 5.4)
# Groups of settings.
PROMPTS, CONTRASTS, GRID, REPLIES, CONTROLS = "prompts", "contrasts", "grid", "replies", "controls"
DRAWS, SPLITS = "random draws", "resampled pairs"
PROTECTING = "language-model scores, which protect rows"
STEERING = "steering"


@dataclass(frozen=True)
class PromptsPlan:
    """Which prompts contrasts are made from. calibration_pairs: per domain, of the calibration split; the grid is
    measured on them as well."""

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
    phrases: OnsetPhrases = option(
        ONSET_PHRASES, 'phrases that open a refusal or an answer, as JSON: {"refusal": [...], "compliance": [...]}',
        read=read_phrases, metavar="FILE", said="the built-in ones", group=PROMPTS,
    )  # fmt: skip


@dataclass(frozen=True)
class ContrastsPlan:
    """How contrasts are made. scoring: I_lm, the language-model scores."""

    selectors: tuple[str, ...] = option(
        PAPER_CONTRASTS, "comma-separated ids", read=Names("contrast selector", contrast_ids), group=CONTRASTS
    )
    scoring: ScorePlan = part(
        ScorePlan, group=PROTECTING,
        only=("score_files", "scores_reduce", "corpus", "samples", "length", "window_start"),
    )  # fmt: skip
    calibration_batch: int = option(16, "", name=None, least=1)
    random_seed: int = 42

    def protector(self, selector: str) -> str:
        """Whose scores of text protect rows where this selector contrasts prompts: those of one's own, if there are
        any, else what it names itself."""
        return next(iter(names_of(self.scoring.score_files)), "") or protected_by(selector)


@dataclass(frozen=True)
class JudgedPlan:
    """Replies and who reads them: also contrasts need the unedited model's, which may refuse base prompts itself."""

    reply_tokens: int = option(200, "longest reply", least=1, group=REPLIES)
    batch_size: int = option(256, "most replies that are written at once", least=1, group=REPLIES)
    benign_limit: float = option(
        0.10, "largest share of base prompts that may be refused", least=0, most=1, group=REPLIES
    )
    judge: str = option(
        EMBEDDED, "what reads the replies; embedded: English only",
        read=Names("judge", JUDGES.offered, single=True, or_else=(A_FOLDER,)),
        group=REPLIES,
    )  # fmt: skip


@dataclass(frozen=True)
class AskedPlan:
    longer_replies: int = option(
        5, "where a choice hangs on replies that were cut off, they are written so many times as long; 1: never",
        metavar="TIMES", least=1, most=MOST_DRAWS, group=REPLIES,
    )  # fmt: skip
    system: str = option(
        "", "system prompt before every prompt that is answered; contrasts are made without it", metavar="TEXT",
        said="none", group=REPLIES,
    )  # fmt: skip
    thinking: bool = option(
        False, "leave the chat template's thinking mode on; what is judged is what comes after the thinking",
        group=REPLIES,
    )  # fmt: skip


@dataclass(frozen=True)
class GridPlan:
    """The grid, and the text whose perplexity an edit should keep.

    max_perplexity: a cell above it is not generated; perplexity_factor, where given, is used instead: that many
    times the unedited model's. all_cells: generate even above the cap. widen: not the paper's, whose cells all stay: a
    point at the edge of the grid may be better beyond it."""

    eval_corpus: str = eval_corpus_option(GRID)
    eval_samples: int = eval_samples_option(GRID)
    eval_length: int = eval_length_option(GRID)
    lambdas: tuple[float, ...] = option(
        LAMBDAS, "protection of language-model rows, as 0.2,0.5", read=field_types.numbers, group=GRID
    )
    ks: tuple[float, ...] = option(KS, "share of rows removed, as 0.005,1%", read=field_types.numbers, group=GRID)
    widen: int = option(
        3, "steps at most by which the grid grows where an operating point lies at its edge (lambda by its last step, "
        "k by its last ratio); 0: the edge is only flagged", metavar="STEPS", least=0, most=MOST_DRAWS, group=GRID,
    )  # fmt: skip
    max_perplexity: float = option(
        100.0, "no replies are written for cells above it", sets=("perplexity_factor", None), group=GRID
    )
    perplexity_factor: float | None = option(
        None, "in its place: this many times the unedited model's perplexity", kind=float, least=1, group=GRID
    )
    all_cells: bool = option(False, "write replies for cells above the perplexity cap, too", group=GRID)


@dataclass(frozen=True)
class HeldoutPlan:
    """The pairs that points are measured on. heldout_pairs: per domain, None for all."""

    heldout_pairs: int | None = option(
        100, "held-out pairs per domain, 0 for all", metavar="N", least=1, none="all", zero_is_none=True, group=REPLIES
    )  # fmt: skip


@dataclass(frozen=True)
class EvaluatePlan:
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
    judge_quality: str | None = option(
        None, "judge_quality.parquet of `refusal judge --out`: `evaluate` tells rates corrected for these errors too",
        read=field_types.existing, metavar="FILE", none="what is known of the embedded judge", group=REPLIES,
    )  # fmt: skip


@dataclass(frozen=True)
class ControlsPlan:
    control_seeds: tuple[int, ...] = option(
        (42, 43, 44), "seeds of the controls", name="--seeds", read=field_types.integers, group=CONTROLS
    )


@dataclass(frozen=True)
class DrawsPlan:
    draws: int = option(
        20, "layer-matched draws, each searched over the whole grid; p is at least 1 / (N + 1)", metavar="N", least=2,
        most=MOST_DRAWS, group=DRAWS,
    )  # fmt: skip


@dataclass(frozen=True)
class SplitsPlan:
    splits: int = option(
        5, "random splits of the calibration pairs into two halves", metavar="N", least=1, most=MOST_DRAWS, group=SPLITS
    )


@dataclass(frozen=True)
class SteeringPlan:
    steering_coefficients: tuple[float, ...] = option(
        (0.25, 0.5, 1.0, 2.0), "how many times a steering vector is added, as 0.5,1,2", name="--coefficients",
        read=field_types.numbers, group=STEERING,
    )  # fmt: skip
    steering_depths: tuple[float, ...] = option(
        (0.25, 0.5, 0.75), "where steering vectors are added: shares of the depth", name="--depths",
        read=field_types.numbers, least=0, most=1, group=STEERING,
    )  # fmt: skip


@dataclass(frozen=True)
class RefusalPlan(
    SteeringPlan, SplitsPlan, DrawsPlan, ControlsPlan, EvaluatePlan, HeldoutPlan, GridPlan, AskedPlan, JudgedPlan,
    ContrastsPlan, PromptsPlan,
):  # fmt: skip
    """Settings of all stages, put together of the parts that each reads. The defaults are the paper's (section 5,
    appendix E) but for where refusal is measured.

    The paper takes every rate, the grid's too, on CAST's 500 held-out risk and 500 base prompts, as ProtectAI's
    rejection model judges the replies. Here the grid is measured on the calibration pairs, controls and evaluation on
    at most 100 held-out pairs per domain, the pairs are the shipped ones, and a run's judge is the embedded one
    unless others are given."""

    def __post_init__(self) -> None:
        for selector in set(self.selectors) - set(PAPER_CONTRASTS):
            check_contrasts(selector)
        if len(names := names_of(self.scoring.score_files)) > 1:
            raise InputError(f"rows are protected by one kind of scores, got {', '.join(names)}; give --scores of one")
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
    """For the shipped model: its own text and prompts, short replies (its own have at most about 55 tokens), and a grid
    of 16 cells (4 for random) that fits its small circuit and is not widened. Its perplexity is below 2: the cap is 1.5
    times the unedited model's. Vectors as long as those of large models break it."""
    return RefusalPlan(
        scoring=ScorePlan(corpus=SHIPPED), eval_corpus=SHIPPED, eval_samples=16, eval_length=256,
        lambdas=(0.2, 0.5, 0.8, 0.95), ks=(0.01, 0.02, 0.04, 0.08), widen=0, reply_tokens=60, perplexity_factor=1.5,
        steering_coefficients=(0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
    )  # fmt: skip


def default_plan(model_id: str) -> RefusalPlan:
    """`demo_plan` for the shipped model, else the defaults."""
    return demo_plan() if model_id == SHIPPED else RefusalPlan()
