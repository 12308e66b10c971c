"""Algorithm 1 of the paper up to the contrast: prompts of two sides to C_comply for every row."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.behaviour import INSTALLS_ONLY, measured_ranks, measured_scores, refuse_behaviour
from engine.corpora import Pair
from engine.errors import InputError, unknown
from engine.evaluation.prompts import EncodedPrompts, encode_prompts
from engine.models import LoadedModel, input_device
from engine.refusal.contrast import VARIANTS, Contrast
from engine.refusal.margin import margin_of_logits, margins
from engine.refusal.onsets import ONSET_PHRASES, OnsetPhrases, OnsetTokens, onset_tokens
from engine.refusal.ranks import percentile_ranks
from engine.selectors.attribution import per_prompt_relevance
from engine.selectors.passes import watching, wide

Progress = Callable[[str, int, int], None]
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
    """Algorithm 1 up to C_comply for every selector on every domain of the pairs.

    lrp, ig          steps 1-2 with that attribution; C_comply = r(I_minus risk) - r(I_minus base)
    consensus2       the mean of lrp's and ig's C_comply: Borda over their per-layer ranks, done once per set of
                     prompts, gives the same number
    mean_activation  r(E abs h, risk) - r(E abs h, base), E over all tokens of the prompts
    random           U(-1, 1) per row, from the seed and the domain (**choice** of the range: C_comply's)

    pairs: 64 per domain in the paper. lm_scores: I_lm [N] of every selector named, its own language-model
    level scores. `random` needs none: then its lm_rank is 1/2 for every row and lambda changes nothing
    (**choice**: the paper's tables give no lambda for it). finished: called with every contrast once it is known.
    One forward and backward per batch for lrp and 16 for ig; lrp and ig are computed once for consensus2 too,
    and once for base prompts that several domains share. The model's lock is held throughout.

    `InputError`: no chat template, an unknown selector, prompts that are risk and base at once, or risk
    prompts that this model refuses less than the base prompts (swapped columns).
    """
    for selector in selectors:
        if selector not in VARIANTS:
            raise unknown("contrast selector", selector, VARIANTS)
        if selector not in lm_scores and selector != "random":
            raise InputError(
                f"there are no language-model scores for {selector!r}; give lm_scores[{selector!r}]"
            )
    if not loaded.tokenizer.chat_template:
        raise InputError(
            f"{loaded.id} has no chat template, and a base model has no refusals to build on; "
            "give an instruction-tuned model"
        )
    domains: dict[str, list[Pair]] = {}
    for pair in pairs:
        domains.setdefault(pair.domain, []).append(pair)
    if not domains:
        raise InputError("there are no prompt pairs; give at least one risk prompt with its base prompt")
    run = _Run(loaded, onset_tokens(loaded.tokenizer, phrases), batch_size, progress, {})
    lm_ranks = {}
    for selector in selectors:
        given = lm_scores[selector] if selector in lm_scores else np.zeros(loaded.rows.n_rows)
        refuse_behaviour(given, f"language-model scores of {selector!r}")
        scores = np.asarray(given)
        if (scores < 0).any():
            raise InputError(
                f"the language-model scores of {selector!r} must be 0 or more, higher for rows that matter more; "
                f"{INSTALLS_ONLY}: give those of `score`"
            )
        lm_ranks[selector] = percentile_ranks(scores, loaded.rows)
    results = []
    with loaded.lock:
        for domain, members in domains.items():
            _refuse_swapped(run, domain, members)
            for selector in selectors:
                c_comply = _c_comply(run, selector, domain, members, seed)
                lm_rank = measured_ranks(lm_ranks[selector])
                results.append(Contrast(selector, domain, measured_scores(c_comply), lm_rank))
                if finished:
                    finished(results[-1])
    return results


@dataclass(frozen=True)
class _Run:
    loaded: LoadedModel
    onsets: OnsetTokens
    batch_size: int
    progress: Progress | None
    ranks: dict[tuple[str, tuple[str, ...]], npt.NDArray[np.float64]]  # (method, prompts) -> r of step 2

    def report(self, what: str, done: int, total: int) -> None:
        if self.progress:
            self.progress(what, done, total)


def _c_comply(
    run: _Run, selector: str, domain: str, pairs: Sequence[Pair], seed: int
) -> npt.NDArray[np.float64]:
    if selector == "random":
        generator = np.random.default_rng([seed, zlib.crc32(domain.encode())])
        return generator.uniform(-1, 1, run.loaded.rows.n_rows)
    if selector == "consensus2":
        parts = [_c_comply(run, method, domain, pairs, seed) for method in ("lrp", "ig")]
        return (parts[0] + parts[1]) / 2
    risk, base = (
        _prompt_set_ranks(run, selector, tuple(getattr(pair, side) for pair in pairs))
        for side in ("risk", "base")
    )
    return risk - base


def _prompt_set_ranks(run: _Run, method: str, prompts: tuple[str, ...]) -> npt.NDArray[np.float64]:
    """Steps 1-2 for one set of prompts: r(E max(-R, 0)), or r(E abs h) for mean_activation."""
    key = (method, prompts)
    if key not in run.ranks:
        total = torch.zeros(run.loaded.rows.n_rows, dtype=torch.float64)
        for start in range(0, len(prompts), run.batch_size):
            total += _batch_sum(run, method, prompts[start : start + run.batch_size])
            run.report(method, min(start + run.batch_size, len(prompts)), len(prompts))
        run.ranks[key] = percentile_ranks((total / len(prompts)).numpy(), run.loaded.rows)
    return run.ranks[key]


def _batch_sum(run: _Run, method: str, prompts: Sequence[str]) -> Tensor:
    """Sum over the prompts of a batch, float64 [N]."""
    batch = encode_prompts(run.loaded.tokenizer, prompts).to(input_device(run.loaded.model))
    if method == "mean_activation":
        return _activation_sum(run.loaded, batch)
    relevance = per_prompt_relevance(
        run.loaded,
        "lrp" if method == "lrp" else "ig",
        batch.input_ids,
        batch.attention_mask,
        lambda logits: margin_of_logits(logits, run.onsets),
    )
    return (-relevance).clamp(min=0).double().sum(0)  # R [batch, N] is signed and summed over positions


@torch.no_grad()
def _activation_sum(loaded: LoadedModel, batch: EncodedPrompts) -> Tensor:
    """abs(h) summed over the real tokens of a batch, float64 [N]."""
    layers = loaded.rows.layers
    sums = torch.zeros(loaded.rows.n_rows, dtype=torch.float64)
    real = batch.attention_mask.bool()

    def add(layer: int, _: Tensor, output: Tensor) -> None:
        h = wide(output).view(*real.shape, -1)[real.to(output.device)]  # [real tokens, rows]
        start = layers[layer].start
        sums[start : start + layers[layer].rows] = h.abs().sum(0).cpu().double()

    with watching(loaded.model, loaded.rows, (real.shape[0], real.shape[1]), add):
        loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=1)
    return sums


def _refuse_swapped(run: _Run, domain: str, pairs: Sequence[Pair]) -> None:
    """`InputError` where the prompts called risk are not the ones this model leans to refuse."""
    risk, base = [pair.risk for pair in pairs], [pair.base for pair in pairs]
    both = set(risk) & set(base)
    if both:
        raise InputError(
            f"{domain}: {len(both)} prompts are risk and base at once, and a contrast needs two kinds; "
            f"{INSTALLS_ONLY}: give each prompt one side"
        )
    difference = margins(run.loaded, risk, run.batch_size, run.onsets) - margins(
        run.loaded, base, run.batch_size, run.onsets
    )
    mean, few = difference.mean().item(), len(pairs) < _FEW_PAIRS
    limit = _FEW_MARGIN if few else _SWAPPED_ERRORS * difference.std().item() / len(pairs) ** 0.5
    if mean < 0 and -mean > limit:
        raise InputError(
            f"{domain}: this model leans less to refusing the risk prompts than the base prompts (margin {mean:.2f} "
            f"over {len(pairs)} pairs), as if they were swapped; {INSTALLS_ONLY}: check which is risk"
            + (", or give more pairs" if few else "")
        )
