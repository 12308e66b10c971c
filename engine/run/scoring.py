"""Scores of a model: the text that they are made from, the selectors that can make them (mistakes in these are found
before any weight is fetched); computed once per selector, kept in the store, written as a results folder."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.torch import save
from torch import Tensor

from engine.data.corpora import Windows, calibration_tokens, windows
from engine.models.experts import has_experts
from engine.models.loading import LoadedModel
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import same_bytes, write_atomic, write_parquet
from engine.records.hashing import Json, cache_key, canonical
from engine.records.manifest import add_to_manifest, check_folder
from engine.records.progress import Progress
from engine.results.folders import SCORES, TABLE, verified_entry
from engine.results.store import Arrays, Store
from engine.run.audit_plan import AuditPlan, ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.selectors import compute_scores, own_scores
from engine.selectors.base import formula, get_selector, titles_record, with_needs
from engine.selectors.passes import EXPERTS
from engine.selectors.scoring_run import KeptSums, ScoringRun, check_model, nested_scores
from engine.selectors.window_sums import ActivationStatistics, Statistic, checked_asks

LeftOut = dict[str, str]  # selector -> why this model has no scores of it


def calibration_text(
    loaded: LoadedModel, plan: ScorePlan, *, corpus: str | None = None, samples: int | None = None,
    length: int | None = None,
) -> Windows:  # fmt: skip
    """The plan's calibration windows; of another text, more of them or longer ones where that is said."""
    found = windows(
        corpus or plan.corpus, loaded.tokenizer, role="calibration", samples=samples or plan.samples,
        length=length or plan.length, window_start=plan.window_start,
    )  # fmt: skip
    return _fitting(loaded, found)


def evaluation_text(
    loaded: LoadedModel, plan: AuditPlan | RefusalPlan, corpus: str | None = None, calibrated_on: str | None = None
) -> Windows:
    """The plan's evaluation windows, or those of another text, cut like them; of a file that calibration reads too,
    what follows."""
    corpus, scoring = corpus or plan.eval_corpus, plan.scoring
    found = windows(
        corpus, loaded.tokenizer, role="evaluation", samples=plan.eval_samples, length=plan.eval_length,
        skip_tokens=calibration_tokens(corpus, calibrated_on or scoring.corpus, scoring.samples * scoring.length),
        window_start=scoring.window_start,
    )  # fmt: skip
    return _fitting(loaded, found)


def _fitting(loaded: LoadedModel, text: Windows) -> Windows:
    """Errors: InputError where windows would fit the model's context and do not behind what stands before each."""
    room = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    length, read = text.input_ids.shape[1], text.read_ids.shape[1]
    if isinstance(room, int) and length <= room < read:
        raise InputError(
            f"windows of {length} tokens have {read} with what the tokenizer of {loaded.id} puts before a text, and "
            f"the model has {room} positions; give windows of at most {room - len(text.prefix)} tokens (--eval-length, "
            "--max-length), or --window-start stream"
        )
    return text


def fitting(sketch: LoadedModel, plan: ScorePlan, *, named: bool) -> tuple[ScorePlan, LeftOut]:
    """The plan with the selectors that can score this model, and why the others cannot; its text is read as well.

    sketch: the model without its weights (`load_sketch`). named: the selectors were asked for by name, so that one that
    cannot is an error; those of a default are left out and told.
    Errors: InputError for that, where no selector is left, and for a calibration text that cannot be read or is short.
    """
    left_out = impossible(sketch, plan.selectors)
    plan = replace(plan, selectors=remaining(plan.selectors, left_out, named=named))
    check_text(sketch, plan)
    return plan, left_out


def impossible(sketch: LoadedModel, selectors: Iterable[str]) -> LeftOut:
    """The selectors that cannot score such a model, themselves or by what they are made of, with the reason."""
    left_out: LeftOut = {}
    for selector in selectors:
        for name in with_needs([selector]):
            try:
                # A plug-in may look at more than shapes: it is asked again once there are weights.
                with suppress(NotImplementedError, RuntimeError):
                    check_model(sketch, name)
            except InputError as error:
                if get_selector(name).files:  # asked for by its file
                    raise
                left_out.setdefault(selector, str(error))
    return left_out


def remaining(selectors: Iterable[str], left_out: LeftOut, *, named: bool) -> tuple[str, ...]:
    """Those that are not left out. Errors: InputError where one was named that is, or none remains."""
    rest = tuple(name for name in selectors if name not in left_out)
    if left_out and (named or not rest):
        selector, reason = next(iter(left_out.items()))
        others = f"; give --selectors {','.join(rest)}" if rest else ""
        raise InputError(f"{selector} cannot be had of this model: {reason}{others}")
    return rest


def check_text(sketch: LoadedModel, plan: ScorePlan) -> None:
    """`InputError` where the calibration text cannot be read or is too short, if a selector of the plan reads it."""
    if not all(get_selector(name).data_free for name in with_needs(plan.selectors)):
        calibration_text(sketch, plan)


SCORES_FILE = "scores.safetensors"


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


def score_model(
    loaded: LoadedModel, plan: ScorePlan, *, store: Store, progress: Progress | None = None,
    kept: KeptSums | None = None,
) -> Scored:  # fmt: skip
    """The scores of `plan`, from the store where they are known; each selector is kept as soon as it is done.
    kept: batches that scoring of other texts shares with this, as in `compute_scores`."""
    start_s = time.monotonic()
    names = with_needs(plan.selectors)
    tokens = None
    if not all(get_selector(name).data_free for name in names):
        tokens = calibration_text(loaded, plan)
    scores = score_tokens(loaded, plan, plan.selectors, tokens, store=store, progress=progress, kept=kept)
    spec: Json = {
        "selectors": list(plan.selectors), "seeds": list(plan.seeds), "objective": plan.objective, **_skipped(plan),
        "calibration": tokens.record() if tokens else None,
        **titles_record(plan.selectors),
        **own_scores.record(plan.selectors, plan.scores_reduce),
    }  # fmt: skip
    if tokens and has_experts(loaded.model):
        spec["experts"] = EXPERTS
    return Scored({name: scores[name] for name in plan.selectors}, plan.seeds, spec, time.monotonic() - start_s)


def score_tokens(
    loaded: LoadedModel, plan: ScorePlan, selectors: Sequence[str], tokens: Windows | None, *, store: Store,
    progress: Progress | None = None, kept: KeptSums | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Scores of these selectors from these windows, from the store where they are known; the rest as `plan` says.
    Each selector is kept as soon as it is done. tokens: None will do if all are data-free."""
    keys = {name: _score_key(loaded, plan, name, tokens) for name in with_needs(selectors)}
    cached = {name: kept_scores(store, key, loaded.rows.n_rows) for name, key in keys.items()}
    scores = {name: values for name, values in cached.items() if values is not None}
    missing = [name for name in selectors if name not in scores]

    def keep(name: str, values: Tensor) -> None:
        if name in keys:  # not one that a plug-in asked for without saying so
            store.save_arrays(keys[name], {"scores": values.numpy()}, {"selector": name})

    if missing:
        how = _settings(plan) | {"progress": progress, "kept": kept}
        scores |= compute_scores(loaded, missing, tokens, known=scores, finished=keep, **how)
    return {name: scores[name] for name in selectors}


def score_at_sizes(
    loaded: LoadedModel, plan: ScorePlan, selectors: Sequence[str], tokens: Windows, sizes: Sequence[int], *,
    store: Store, progress: Progress | None = None, kept: KeptSums | None = None,
) -> dict[int, dict[str, Tensor]]:  # fmt: skip
    """Scores of these selectors from the first n windows of `tokens` for each size, from the store where they are
    known; the rest as `plan` says. returns {size: {selector: [N]}}, ascending sizes

    One pass serves all sizes, and `score_tokens` of the whole of `tokens`: neither reads a window that the other has
    read. Each selector is kept as soon as it is done."""
    whole = len(tokens.input_ids)
    keys = {
        (size, name): _size_key(loaded, plan, name, tokens, size)
        for size in sorted({*sizes, whole})
        for name in with_needs(selectors)
    }
    known: dict[int, dict[str, Tensor]] = {size: {} for size, _ in keys}
    for (size, name), key in keys.items():
        values = kept_scores(store, key, loaded.rows.n_rows)
        if values is not None:
            known[size][name] = values

    def keep(size: int, name: str, values: Tensor) -> None:
        if (size, name) in keys:  # not one that a plug-in asked for without saying so
            about = {"selector": name} if size == whole else {"selector": name, "size": str(size)}
            store.save_arrays(keys[size, name], {"scores": values.numpy()}, about)

    how = _settings(plan) | {"progress": progress, "kept": kept}
    found = nested_scores(loaded, selectors, tokens, list(known), known=known, finished=keep, **how)
    return {size: found[size] for size in sorted(set(sizes))}


def write_scores(folder: Path, loaded: LoadedModel, scored: Scored) -> Json:
    """`scores.safetensors` (metadata = manifest entry) and `rows.parquet` in a results folder; returns the entry."""
    check_folder(folder, loaded.fingerprint)
    metadata = {"model": canonical(loaded.fingerprint), "spec": canonical(scored.spec)}
    tensors = {name: values.contiguous() for name, values in scored.scores.items()}
    write_atomic(folder / SCORES_FILE, same_bytes(save(tensors, metadata=metadata)), SCORES)
    write_parquet(folder / "rows.parquet", loaded.rows.frame(), TABLE)
    add_to_manifest(folder, loaded.fingerprint, "rows.parquet", {}, 0.0)
    return add_to_manifest(folder, loaded.fingerprint, SCORES_FILE, scored.spec, scored.elapsed_s)


def read_scores(folder: Path) -> Arrays:
    """`scores.safetensors` of a results folder. Errors: InputError where it is not readable or not what was written."""
    verified_entry(folder / SCORES_FILE, "selector-audit score MODEL")
    try:
        bounds.tensors(folder / SCORES_FILE)
        return load_file(folder / SCORES_FILE)
    except (OSError, SafetensorError, bounds.BadFile) as error:
        again = "run `selector-audit score` again"
        raise InputError(f"{folder / SCORES_FILE} is not readable ({error}); {again}") from None


def kept_scores(store: Store, key: str, n_rows: int) -> Tensor | None:
    """Scores of the store: [N] or [seeds, N] float32; None where they are not there."""

    def fits(arrays: Arrays) -> bool:
        values = arrays.get("scores")
        return values is not None and values.dtype == np.float32 and values.shape[-1:] == (n_rows,) and values.ndim < 3

    arrays = store.load_arrays(key, fits)
    return torch.from_numpy(arrays["scores"]) if arrays else None


def _settings(plan: ScorePlan) -> dict[str, Any]:
    """What of the plan `compute_scores` and `nested_scores` are told."""
    batch_size = plan.batch_size or "auto"
    return {"seeds": plan.seeds, "objective": plan.objective, "batch_size": batch_size, "skip_first": plan.skip_first}


def _skipped(plan: ScorePlan) -> Json:
    """Left out where nothing is: then keys and manifests are what they were before there was a choice."""
    return {"skip_first": plan.skip_first} if plan.skip_first else {}


def _score_key(loaded: LoadedModel, plan: ScorePlan, selector: str, tokens: Windows | None) -> str:
    """Everything that can change this selector's scores; what it ignores (tokens, seeds) is left out."""
    made_of = formula(selector)
    spec: Json = {"model": loaded.numeric_fingerprint, "rows": loaded.rows.signature(), "selector": made_of["formulas"]}
    if made_of["seeded"]:
        spec["seeds"] = list(plan.seeds)
    if not all(get_selector(name).data_free for name in with_needs([selector])):
        assert tokens is not None
        spec |= {"tokens": tokens.token_hash, "objective": plan.objective, "batch_size": plan.batch_size}
        spec |= _skipped(plan)
    return cache_key("scores", spec)


def _size_key(loaded: LoadedModel, plan: ScorePlan, selector: str, tokens: Windows, size: int) -> str:
    """Of scores from the first windows; of all of them `_score_key`. The last of them may have gone through the model
    beside later ones, which can change the last bits: the whole text is part of it."""
    whole = _score_key(loaded, plan, selector, tokens)
    if size == len(tokens.input_ids):
        return whole
    return cache_key("nested_scores", {"whole": whole, "tokens": tokens.first(size).token_hash})


# Of a mean over tokens the sum over its parts, and the tokens of a window that are not in it.
_OF_ACTIVATIONS: dict[str, Callable[[ActivationStatistics], tuple[float, int]]] = {
    **dict.fromkeys(("wanda", "ria"), lambda of: (sum(float(rms.square().sum()) for rms in of.input_rms), 0)),
    "mean_activation": lambda of: (float(of.output_mean_abs.sum()), 1),
}
WINDOWS = 4  # the first calibration windows, which are read once more
TOO_MUCH = 0.2  # a share that is told; an even one is 1 / (tokens - 1)


def first_position_shares(loaded: LoadedModel, plan: ScorePlan, progress: Progress | None = None) -> dict[str, float]:
    """Per selector that is a mean of relevances over tokens: the share of the sum over all rows and tokens that lies on
    the first position of a window, behind what stands before it. For mean_activation outputs stand in the place of
    relevances, for wanda and ria squares of inputs, of all T positions.

    Of the T - 1 predicting positions of the first `WINDOWS` calibration windows, which are read once more. Empty where
    the plan skips positions, for windows of two tokens, and for models with routed experts."""
    asked = {name: checked_asks(get_selector(name).asks) for name in plan.selectors}
    of_tokens = {name: asks[0] for name, asks in asked.items() if asks and asks[0][1] in ("abs", "square")}
    forward = [name for name in plan.selectors if name in _OF_ACTIVATIONS]
    if not (of_tokens or forward) or plan.skip_first or has_experts(loaded.model):
        return {}
    windows = calibration_text(loaded, plan)
    windows = windows.first(min(WINDOWS, len(windows.input_ids)))
    tokens = windows.input_ids.shape[1]
    if tokens < 3:
        return {}
    firsts = {name: (method, cast(Statistic, f"first {kind}")) for name, (method, kind) in of_tokens.items()}
    how: Any = {"objective": plan.objective, "asked": (*of_tokens.values(), *firsts.values()), "progress": progress}
    of_all, later = (ScoringRun(loaded, windows, **how, skip_first=skipped) for skipped in (0, 1))
    parts = {name: [float(of_all.mean_relevance(*it[name]).sum()) for it in (firsts, of_tokens)] for name in of_tokens}
    for name in forward:
        (total, unread), (rest, _) = (_OF_ACTIVATIONS[name](run.activations()) for run in (of_all, later))
        total, rest = total * (tokens - unread), rest * (tokens - unread - 1)
        parts[name] = [total - rest, total]
    return {name: first / whole if whole else 0.0 for name, (first, whole) in parts.items()}


def told(shares: Mapping[str, float]) -> list[str]:
    """What is said of shares above `TOO_MUCH`."""
    large = {name: share for name, share in shares.items() if share > TOO_MUCH}
    if not large:
        return []
    each = ", ".join(f"{share:.0%} of {name}" for name, share in large.items())
    return [
        f"on the first {WINDOWS} windows {each} lies on each window's first position; --skip-first 1 leaves it out of "
        "the means"
    ]
