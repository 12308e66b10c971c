"""Scores of a model: computed once per selector, kept in the store, written as a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from engine.data.corpora import Windows, windows
from engine.models.experts import has_experts
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.files import same_bytes, write_atomic, write_parquet
from engine.records.hashing import Json, cache_key, canonical
from engine.records.manifest import add_to_manifest, check_folder
from engine.records.progress import Progress, Stopwatch
from engine.results.store import Store
from engine.run.plans import ScorePlan
from engine.selectors import compute_scores, formula, get_selector, with_needs
from engine.selectors.base import titles_record
from engine.selectors.seen import EXPERTS


@dataclass(frozen=True)
class Scored:
    """Scores by selector id ([N], random [seeds, N]; float32, CPU) and what they were computed from."""

    scores: dict[str, Tensor]
    seeds: tuple[int, ...]
    spec: Json
    elapsed_s: float

    def ranking(self, selector: str, seed: int | None = None) -> Tensor:
        """One score per row: of `seed` (default the first) where the selector has several."""
        scores = self.scores[selector]
        if scores.ndim == 1:
            return scores
        check_seed(seed, self.seeds)
        return scores[self.seeds.index(seed) if seed is not None else 0]


def check_seed(seed: int | None, seeds: Sequence[int]) -> None:
    """`InputError` for a seed that is not among those of the seeded selectors."""
    if seed is not None and seed not in seeds:
        raise InputError(f"seed {seed} was not scored; available: {', '.join(map(str, seeds))} (--seeds)")


def score_model(loaded: LoadedModel, plan: ScorePlan, *, store: Store, progress: Progress | None = None) -> Scored:
    """The scores of `plan`, from the store where they are known; each selector is kept as soon as it is done."""
    watch = Stopwatch()
    names = with_needs(plan.selectors)
    tokens = None
    if not all(get_selector(name).data_free for name in names):
        tokens = windows(plan.corpus, loaded.tokenizer, role="calibration", samples=plan.samples, length=plan.length)
    scores = score_tokens(loaded, plan, plan.selectors, tokens, store=store, progress=progress)
    spec: Json = {
        "selectors": list(plan.selectors),
        "seeds": list(plan.seeds),
        "objective": plan.objective,
        "calibration": tokens.record() if tokens else None,
        **titles_record(plan.selectors),
    }
    if tokens and has_experts(loaded.model):
        spec["experts"] = EXPERTS
    return Scored({name: scores[name] for name in plan.selectors}, plan.seeds, spec, watch.elapsed_s)


def score_tokens(
    loaded: LoadedModel,
    plan: ScorePlan,
    selectors: Sequence[str],
    tokens: Windows | None,
    *,
    store: Store,
    progress: Progress | None = None,
) -> dict[str, Tensor]:
    """Scores of these selectors from these windows, from the store where they are known; the rest as `plan` says.

    Each selector is kept as soon as it is done. tokens: None will do if all are data-free.
    """
    names = with_needs(selectors)
    keys = {name: _score_key(loaded, plan, name, tokens) for name in names}
    cached = {name: store.load_arrays(key) for name, key in keys.items()}
    scores = {name: torch.from_numpy(arrays["scores"]) for name, arrays in cached.items() if arrays}
    missing = [name for name in selectors if name not in scores]

    def keep(name: str, values: Tensor) -> None:
        if name in keys:  # not one that a plug-in asked for without saying so
            store.save_arrays(keys[name], {"scores": values.numpy()}, {"selector": name})

    if missing:
        scores |= compute_scores(
            loaded,
            missing,
            tokens,
            seeds=plan.seeds,
            objective=plan.objective,
            batch_size=plan.batch_size or "auto",
            progress=progress,
            known=scores,
            finished=keep,
        )
    return {name: scores[name] for name in selectors}


def write_scores(folder: Path, loaded: LoadedModel, scored: Scored) -> Json:
    """`scores.safetensors` (metadata = manifest entry) and `rows.parquet` in a results folder; returns the entry."""
    check_folder(folder, loaded.fingerprint)
    metadata = {"model": canonical(loaded.fingerprint), "spec": canonical(scored.spec)}
    tensors = {name: values.contiguous() for name, values in scored.scores.items()}
    write_atomic(folder / "scores.safetensors", same_bytes(save(tensors, metadata=metadata)))
    write_parquet(folder / "rows.parquet", loaded.rows.frame())
    add_to_manifest(folder, loaded.fingerprint, "rows.parquet", {}, 0.0)
    return add_to_manifest(folder, loaded.fingerprint, "scores.safetensors", scored.spec, scored.elapsed_s)


def _score_key(loaded: LoadedModel, plan: ScorePlan, selector: str, tokens: Windows | None) -> str:
    """Everything that can change this selector's scores; what it ignores (tokens, seeds) is left out."""
    made_of = formula(selector)
    spec: Json = {"model": loaded.numeric_fingerprint, "rows": loaded.rows.signature(), "selector": made_of["formulas"]}
    if made_of["seeded"]:
        spec["seeds"] = list(plan.seeds)
    if not all(get_selector(name).data_free for name in with_needs([selector])):
        assert tokens is not None
        spec |= {"tokens": tokens.token_hash, "objective": plan.objective, "batch_size": plan.batch_size}
    return cache_key("scores", spec)
