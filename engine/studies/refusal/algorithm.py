"""Algorithm 1 of the paper up to the contrast: prompts of two sides to C_comply for every row; kept in the store once
per selector and domain, written as a results file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engine.data.corpora import Pair
from engine.data.onsets import ONSET_PHRASES, OnsetPhrases, OnsetTokens, onset_tokens
from engine.data.pairs import pairs_record
from engine.data.prompts import prompts_hash
from engine.edits.contrasts import INSTALLS_ONLY, Contrast, checksum, save_contrasts
from engine.measures.margin import margin_of_logits, margins
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import Json, cache_key, canonical
from engine.records.manifest import add_to_manifest
from engine.records.progress import Progress
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Results
from engine.run.scoring import score_model
from engine.selectors.base import check_contrasts, formula, get_selector, with_needs
from engine.selectors.prompt_run import Means, PromptRun, percentile_ranks
from engine.studies.base import Answer, Study, Tables

if TYPE_CHECKING:
    from engine.studies.refusal.refusal_inputs import RefusalInputs

CONTRAST_FILE = "contrast.safetensors"
# Paired standard errors by which base prompts must lean more to refusal than risk prompts to call them swapped.
_SWAPPED_ERRORS = 3.0
_FEW_PAIRS = 8  # have no spread to judge by
_FEW_MARGIN = 0.5  # logits; a choice: a smaller difference over so few pairs tells nothing


def contrasts(
    loaded: LoadedModel, selectors: Sequence[str], pairs: Sequence[Pair],
    lm_scores: Mapping[str, npt.ArrayLike | Tensor], *, batch_size: int = 16, phrases: OnsetPhrases = ONSET_PHRASES,
    seed: int = 42, progress: Progress | None = None, finished: Callable[[Contrast], None] | None = None,
) -> list[Contrast]:  # fmt: skip
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


def calibrate(
    loaded: LoadedModel, plan: RefusalPlan, pairs: dict[str, list[Pair]], *, store: Store,
    progress: Progress | None = None,
) -> list[Contrast]:  # fmt: skip
    """Algorithm 1 for every selector of the plan on every domain: domain by domain, selectors as given.
    Each contrast is kept as soon as it is known, so that an interrupted calibration goes on where it stopped."""
    scored = {name: plan.protector(name) for name in plan.selectors if not get_selector(name).seeded}
    lm_scores = {}
    if scored:
        scoring = replace(plan.scoring, selectors=tuple(dict.fromkeys(scored.values())))
        scores = score_model(loaded, scoring, store=store, progress=progress).scores
        lm_scores = {selector: scores[name] for selector, name in scored.items()}
    onsets = onset_tokens(loaded.tokenizer, plan.phrases)
    lm_hashes = {name: checksum({name: values.numpy()}) for name, values in lm_scores.items()}
    keys = {}
    for domain, members in pairs.items():
        sides = ([pair.risk for pair in members], [pair.base for pair in members])
        tokens = [prompts_hash(loaded.tokenizer, side) for side in sides]  # which the model sees, beside the texts
        record = {"sha256": pairs_record(plan.pairs, members)["sha256"], "tokens": tokens}
        for selector in plan.selectors:
            keys[selector, domain] = _key(loaded, plan, selector, record, onsets, lm_hashes.get(selector))
    known = {place: one for place, key in keys.items() if (one := _kept(store, key, *place)) is not None}

    def keep(contrast: Contrast) -> None:
        key = (contrast.selector, contrast.domain)
        known[key] = contrast
        arrays = {"c_comply": contrast.c_comply, "lm_rank": contrast.lm_rank}
        store.save_arrays(keys[key], arrays, {"contrast": "/".join(key)})
        store.put(keys[key], {"sha256": checksum(arrays)})

    missing: dict[tuple[str, ...], list[Pair]] = {}  # selectors -> pairs of the domains that need them
    for domain, members in pairs.items():
        selectors = tuple(name for name in plan.selectors if (name, domain) not in known)
        if selectors:
            missing.setdefault(selectors, []).extend(members)
    for selectors, members in missing.items():
        contrasts(
            loaded, selectors, members, lm_scores, batch_size=plan.calibration_batch, phrases=plan.phrases,
            seed=plan.random_seed, progress=progress, finished=keep,
        )  # fmt: skip
    return [known[place] for place in keys]


class Calibrated(Study[Any]):
    """The contrasts, which come before all stages (`RefusalInputs.prepare`)."""

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return {}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        pairs = sum(map(len, run.calibration.values()))
        return f"{len(run.contrasts)} contrasts from {pairs} pairs of {', '.join(run.calibration)}"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        onsets, spec = onsets_record(run.loaded, run.plan.phrases), run.calibration_spec
        names = [{"selector": contrast.selector, "domain": contrast.domain} for contrast in run.contrasts]
        record = {"file": CONTRAST_FILE, "contrasts": names, "pairs": spec["pairs"], "onsets": onsets}
        text = [
            f"{kind} begins with {len(onset['tokens'])} tokens: {', '.join(map(repr, onset['text']))}"
            for kind, onset in onsets.items()
        ]
        text += [
            f"{domain}: {count} pairs left out, whose base prompt the unedited model refuses itself"
            for domain, count in spec.get("pairs_left_out", {}).items()
        ]
        hint = "next: refusal sweep, or refusal run for all stages"
        return Answer((*text, f"{len(run.contrasts)} contrasts written to {folder / CONTRAST_FILE}; {hint}"), record)


def write_contrasts(
    folder: Path, loaded: LoadedModel, results: Sequence[Contrast], spec: Json, elapsed_s: float
) -> Json:
    """`contrast.safetensors` and its manifest entry in a results folder."""
    save_contrasts(folder / CONTRAST_FILE, results, canonical({"model": loaded.fingerprint, "spec": spec}))
    return add_to_manifest(folder, loaded.fingerprint, CONTRAST_FILE, spec, elapsed_s)


def onsets_record(loaded: LoadedModel, phrases: OnsetPhrases) -> Json:
    """The first tokens that stand for refusing and for complying in this model, and the phrases they are from."""
    tokens = onset_tokens(loaded.tokenizer, phrases)
    texts = {kind: [loaded.tokenizer.decode([token]) for token in ids] for kind, ids in tokens._asdict().items()}
    return {
        kind: {"phrases": list(getattr(phrases, kind)), "tokens": list(ids), "text": texts[kind]}
        for kind, ids in tokens._asdict().items()
    }


def _key(
    loaded: LoadedModel, plan: RefusalPlan, selector: str, pairs: Json, onsets: OnsetTokens, lm_hash: str | None
) -> str:
    spec: Json = {
        "model": loaded.numeric_fingerprint,
        "selector": selector,
        "pairs": pairs,
        "onsets": [list(ids) for ids in onsets],
        "lm_scores": lm_hash,
        "batch_size": plan.calibration_batch,
    }
    made_of = formula(selector)
    if made_of["seeded"]:
        spec["seed"] = plan.random_seed
    first = [f"{name}/1" for name in with_needs([selector])]
    if made_of["formulas"] != first:  # left out of the key at first, so that what was kept then stays good
        spec["formulas"] = made_of["formulas"]
    return cache_key("contrast", spec)


def _kept(store: Store, key: str, selector: str, domain: str) -> Contrast | None:
    """A contrast of the store; one whose file no longer holds what was saved is calibrated again."""
    arrays, cell = store.load_arrays(key, lambda found: set(found) == {"c_comply", "lm_rank"}), store.get(key)
    if arrays is None or cell is None or checksum(arrays) != cell.get("sha256"):
        return None
    return Contrast(selector, domain, arrays["c_comply"], arrays["lm_rank"])
