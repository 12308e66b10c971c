"""Algorithm 1 of the paper: which rows promote complying with risk prompts but not with base prompts.

Removing those rows installs refusal. There is no argument here that turns the direction round: every route
to one (negative weights, swapped prompts or phrases) is an `InputError`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from engine.corpora import Pair
from engine.errors import InputError, unknown
from engine.evaluation.prompts import EncodedPrompts, encode_prompts
from engine.masks import Mask, removed_rows
from engine.models import LoadedModel, input_device
from engine.records import write_atomic
from engine.refusal.margin import margin_of_logits, margins
from engine.refusal.onsets import ONSET_PHRASES, OnsetPhrases, OnsetTokens, onset_tokens
from engine.refusal.ranks import percentile_ranks
from engine.selectors.attribution import per_prompt_relevance
from engine.selectors.passes import watching, wide

Floats = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]

VARIANTS = ("lrp", "ig", "consensus2", "mean_activation", "random")
_INSTALLS_ONLY = "this software only installs refusal and never selects rows in order to remove it"
# Paired standard errors by which base prompts must lean more to refusal than risk prompts to call them swapped.
_SWAPPED_ERRORS = 3.0


@dataclass(frozen=True)
class Contrast:
    """What Algorithm 1 keeps of one variant (`selector`) on one domain, for every mask of the grid.

    c_comply: float32 [N] in [-1, 1], high where the row promotes complying with risk prompts only.
    lm_rank: float32 [N] in [0, 1], r(I_lm), high where the language model needs the row.
    """

    selector: str
    domain: str
    c_comply: Floats
    lm_rank: Floats

    def __post_init__(self) -> None:
        if self.selector not in VARIANTS:
            raise unknown("contrast selector", self.selector, VARIANTS)
        if self.c_comply.ndim != 1 or self.c_comply.shape != self.lm_rank.shape:
            raise InputError(
                f"{self.selector}/{self.domain}: c_comply has shape {list(self.c_comply.shape)} and lm_rank "
                f"{list(self.lm_rank.shape)}; both need [rows]"
            )
        for name, values, lowest in (("c_comply", self.c_comply, -1), ("lm_rank", self.lm_rank, 0)):
            if not ((values >= lowest) & (values <= 1)).all():  # false for NaN as well
                raise InputError(
                    f"{self.selector}/{self.domain}: {name} must be in [{lowest}, 1]; {_INSTALLS_ONLY}: "
                    "calibrate again"
                )


def refusal_score(contrast: Contrast, lam: float) -> npt.NDArray[np.float64]:
    """S = C_comply - lambda * r(I_lm), float64 [N]; `InputError` unless lambda is in [0, 1].

    A negative lambda would seek rows that the model needs, one far above 1 forget C_comply.
    """
    if not 0 <= lam <= 1:
        raise InputError(f"lambda must be in [0, 1], got {lam:g}; {_INSTALLS_ONLY}: give 0.2 to 0.8")
    return contrast.c_comply.astype(np.float64) - lam * contrast.lm_rank.astype(np.float64)


def refusal_mask(contrast: Contrast, lam: float, k: float) -> Mask:
    """The removed rows: the `round(k * N)` rows with the largest S, ties by row id; ascending int64.

    k is a fraction of all rows in (0, 1); `InputError` otherwise, and where it rounds to no row.
    """
    if not 0 < k < 1:
        raise InputError(f"k must be in (0, 1), got {k:g}; {_INSTALLS_ONLY}: give 0.005 to 0.1, or 2%")
    mask = removed_rows(refusal_score(contrast, lam), "morf", k)
    if not mask.size:
        raise InputError(f"k = {k:g} of {contrast.c_comply.size} rows is less than one row; give a larger k")
    return mask


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
) -> list[Contrast]:
    """Algorithm 1 up to C_comply for every selector on every domain of the pairs.

    lrp, ig          steps 1-2 with that attribution; C_comply = r(I_minus risk) - r(I_minus base)
    consensus2       the mean of lrp's and ig's C_comply: Borda over their per-layer ranks, done once per set of
                     prompts, gives the same number
    mean_activation  r(E abs h, risk) - r(E abs h, base), E over all tokens of the prompts
    random           U(-1, 1) per row, from the seed and the domain (**choice** of the range: C_comply's)

    pairs: 64 per domain in the paper. lm_scores: I_lm [N] of every selector named, its own language-model
    level scores; `random` takes those that its mask shall be protected by, for example lrp's.
    One forward and backward per batch for lrp and 16 for ig; lrp and ig are computed once for consensus2 too,
    and once for base prompts that several domains share. The model's lock is held throughout.

    `InputError`: no chat template, an unknown selector, prompts that are risk and base at once, or risk
    prompts that this model refuses less than the base prompts (swapped columns).
    """
    for selector in selectors:
        if selector not in VARIANTS:
            raise unknown("contrast selector", selector, VARIANTS)
        if selector not in lm_scores:
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
        scores = np.asarray(lm_scores[selector])
        if (scores < 0).any():
            raise InputError(
                f"the language-model scores of {selector!r} must be 0 or more, higher for rows that matter more; "
                f"{_INSTALLS_ONLY}: give those of `score`"
            )
        lm_ranks[selector] = percentile_ranks(scores, loaded.rows)
    results = []
    with loaded.lock:
        for domain, members in domains.items():
            _refuse_swapped(run, domain, members)
            for selector in selectors:
                c_comply = _c_comply(run, selector, domain, members, seed)
                results.append(
                    Contrast(
                        selector, domain, c_comply.astype(np.float32), lm_ranks[selector].astype(np.float32)
                    )
                )
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
        sums[start : start + layers[layer].rows] = h.abs().sum(0).double().cpu()

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
            f"{_INSTALLS_ONLY}: give each prompt one side"
        )
    difference = margins(run.loaded, risk, run.batch_size, run.onsets) - margins(
        run.loaded, base, run.batch_size, run.onsets
    )
    if len(pairs) < 2:
        return  # one pair has no spread to judge by
    mean = difference.mean().item()
    standard_error = difference.std().item() / len(pairs) ** 0.5
    if mean < 0 and -mean > _SWAPPED_ERRORS * standard_error:
        raise InputError(
            f"{domain}: this model leans less to refusing the risk prompts than the base prompts (margin "
            f"{mean:.2f} ± {standard_error:.2f}), as if they were swapped; {_INSTALLS_ONLY}: check which is risk"
        )


def save_contrasts(path: Path, results: Sequence[Contrast], manifest: str) -> None:
    """`contrast.safetensors`: `SELECTOR/DOMAIN/c_comply` and `SELECTOR/lm_rank`, the manifest (JSON) as metadata."""
    tensors = {f"{one.selector}/{one.domain}/c_comply": one.c_comply for one in results}
    tensors |= {f"{one.selector}/lm_rank": one.lm_rank for one in results}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save(tensors, metadata={"manifest": manifest}))


def load_contrasts(path: Path) -> tuple[list[Contrast], str]:
    """What `save_contrasts` wrote: the contrasts and the manifest's JSON text."""
    try:
        with safe_open(path, framework="numpy") as file:
            manifest = file.metadata()["manifest"]
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        results = []
        for name in sorted(tensors):
            selector, *middle, last = name.split("/")
            if last == "c_comply":
                results.append(
                    Contrast(selector, "/".join(middle), tensors[name], tensors[f"{selector}/lm_rank"])
                )
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is no contrast file ({error}); write one with `refusal calibrate`"
        ) from None
    return results, manifest
