"""Which scores are computed, from which tokens; and the options for text that audit and refusal share. No torch.

A default stands in a plan and nowhere else: commands and forms are made from its fields (`engine.run.field_types`)."""

from dataclasses import dataclass
from typing import Any

from engine.data.window_starts import WINDOW_STARTS
from engine.run import field_types
from engine.run.field_types import Names, check_plan, option
from engine.selectors import own_scores
from engine.selectors.base import OBJECTIVES, SEEDS, check_skip_first, selector_ids
from engine.selectors.own_scores import ABS_SUM

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
