"""Algorithm 1 of the paper up to the contrast: prompts of two sides to C_comply for every row."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engine.data.corpora import Pair
from engine.data.onsets import ONSET_PHRASES, OnsetPhrases, OnsetTokens, onset_tokens
from engine.edits.contrasts import INSTALLS_ONLY, Contrast
from engine.measures.margin import margin_of_logits, margins
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.progress import Progress
from engine.selectors import PromptRun, check_contrasts, get_selector
from engine.selectors.prompt_run import Means, percentile_ranks

# Paired standard errors by which base prompts must lean more to refusal than risk prompts to call them swapped.
_SWAPPED_ERRORS = 3.0
_FEW_PAIRS = 8  # have no spread to judge by
_FEW_MARGIN = 0.5  # logits; a choice: a smaller difference over so few pairs tells nothing


def contrasts(
    loaded: LoadedModel,
    selectors: Sequence[str],
    pairs: Sequence[Pair],
    lm_scores: Mapping[str, npt.ArrayLike | Tensor],
    *,
    batch_size: int = 16,
    phrases: OnsetPhrases = ONSET_PHRASES,
    seed: int = 42,
    progress: Progress | None = None,
    finished: Callable[[Contrast], None] | None = None,
) -> list[Contrast]:
    """Algorithm 1 up to C_comply for every selector on every domain of the pairs. Each says itself how it contrasts
    prompts, in its method `contrast`; attributions are of the refusal margin m(x), C_comply = r(I_minus risk) -
    r(I_minus base), I_minus = E max(-R, 0).

    pairs: 64 per domain in the paper. lm_scores: I_lm [N] of every selector named, its own or those of the selector
    that protects its rows; a seeded selector (`random`) needs none: its lm_rank is 1/2 for every row (**choice**: the
    paper's tables give no lambda for it). seed: what such a selector draws from. finished: called with every contrast.
    lrp and ig are computed once for consensus2 too, and once for base prompts that domains share. The model's lock is
    held throughout.

    `InputError`: no chat template, a selector that contrasts no prompts, prompts that are risk and base at once, risk
    prompts that this model refuses less than the base prompts (swapped columns), negative lm_scores."""
    for selector in selectors:
        check_contrasts(selector)
        if selector not in lm_scores and not get_selector(selector).seeded:
            raise InputError(f"there are no language-model scores for {selector!r}; give lm_scores[{selector!r}]")
    check_chat_template(loaded)
    domains: dict[str, list[Pair]] = {}
    for pair in pairs:
        domains.setdefault(pair.domain, []).append(pair)
    if not domains:
        raise InputError("there are no prompt pairs; give at least one risk prompt with its base prompt")
    onsets = onset_tokens(loaded.tokenizer, phrases)
    lm_ranks = {}
    for selector in selectors:
        scores = np.asarray(lm_scores.get(selector, np.zeros(loaded.rows.n_rows)))
        if (scores < 0).any():
            raise InputError(
                f"the language-model scores of {selector!r} must be 0 or more, higher for rows that matter more; "
                f"{INSTALLS_ONLY}: give those of `score`"
            )
        lm_ranks[selector] = percentile_ranks(scores, loaded.rows).astype(np.float32)
    results = []
    means: Means = {}
    with loaded.lock:
        for domain, members in domains.items():
            sides = ([pair.risk for pair in members], [pair.base for pair in members])
            margin = partial(margin_of_logits, onsets=onsets)
            run = PromptRun(
                loaded, domain, *sides, margin, batch_size=batch_size, seed=seed, progress=progress, means=means
            )
            _refuse_swapped(run, onsets, batch_size)
            for selector in selectors:
                c_comply = run.contrast(selector).float().numpy()
                results.append(Contrast(selector, domain, c_comply, lm_ranks[selector]))
                if finished:
                    finished(results[-1])
    return results


def check_chat_template(loaded: LoadedModel) -> None:
    """`InputError` for a base model; needs no weights."""
    if not loaded.tokenizer.chat_template:
        raise InputError(
            f"{loaded.id} has no chat template, and a base model has no refusals to build on; "
            "give an instruction-tuned model"
        )


def check_sides(domain: str, risk: Sequence[str], base: Sequence[str]) -> None:
    """`InputError` where a prompt is on both sides; needs no model."""
    both = set(risk) & set(base)
    if both:
        raise InputError(
            f"{domain}: {len(both)} prompts are risk and base at once, and a contrast needs two kinds; "
            f"{INSTALLS_ONLY}: give each prompt one side"
        )


def _refuse_swapped(run: PromptRun, onsets: OnsetTokens, batch_size: int) -> None:
    """`InputError` where the prompts called risk are not the ones this model leans to refuse."""
    check_sides(run.domain, run.risk, run.base)
    risk, base = (margins(run.loaded, side, batch_size, onsets) for side in (run.risk, run.base))
    difference, count = risk - base, len(run.risk)
    mean, few = difference.mean().item(), count < _FEW_PAIRS
    limit = _FEW_MARGIN if few else _SWAPPED_ERRORS * difference.std().item() / count**0.5
    if mean < 0 and -mean > limit:
        raise InputError(
            f"{run.domain}: this model leans less to refusing the risk prompts than the base prompts (margin "
            f"{mean:.2f} over {count} pairs), as if they were swapped; {INSTALLS_ONLY}: check which is risk"
            + (", or give more pairs" if few else "")
        )
