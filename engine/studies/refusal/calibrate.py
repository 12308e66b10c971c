"""Contrasts of a model: computed once per selector and domain, kept in the store, written as a results file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.data.corpora import Pair
from engine.data.onsets import OnsetPhrases, OnsetTokens, onset_tokens
from engine.data.pairs import pairs_record
from engine.data.prompts import prompts_hash
from engine.edits.contrasts import Contrast, checksum, save_contrasts
from engine.models.loading import LoadedModel
from engine.records.hashing import Json, cache_key, canonical
from engine.records.manifest import add_to_manifest
from engine.records.progress import Progress
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Results
from engine.run.scoring import score_model
from engine.selectors import formula, get_selector, with_needs
from engine.studies.base import Answer, Study, Tables
from engine.studies.refusal.algorithm import contrasts

if TYPE_CHECKING:
    from engine.studies.refusal.inputs import RefusalInputs

CONTRAST_FILE = "contrast.safetensors"


def calibrate(
    loaded: LoadedModel,
    plan: RefusalPlan,
    pairs: dict[str, list[Pair]],
    *,
    store: Store,
    progress: Progress | None = None,
) -> list[Contrast]:
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
        record = _pairs_key(loaded, plan, members)
        for selector in plan.selectors:
            keys[selector, domain] = _key(loaded, plan, selector, record, onsets, lm_hashes.get(selector))
    found = {place: one for place, key in keys.items() if (one := _kept(store, key, *place)) is not None}

    def keep(contrast: Contrast) -> None:
        place = (contrast.selector, contrast.domain)
        found[place] = contrast
        arrays = {"c_comply": contrast.c_comply, "lm_rank": contrast.lm_rank}
        store.save_arrays(keys[place], arrays, {"contrast": "/".join(place)})
        store.put(keys[place], {"sha256": checksum(arrays)})

    missing: dict[tuple[str, ...], list[Pair]] = {}  # selectors -> pairs of the domains that need them
    for domain, members in pairs.items():
        selectors = tuple(name for name in plan.selectors if (name, domain) not in found)
        if selectors:
            missing.setdefault(selectors, []).extend(members)
    for selectors, members in missing.items():
        contrasts(
            loaded, selectors, members, lm_scores, batch_size=plan.calibration_batch, phrases=plan.phrases,
            seed=plan.random_seed, progress=progress, finished=keep,
        )  # fmt: skip
    return [found[place] for place in keys]


class Calibrated(Study[Any]):
    """The contrasts, which come before all stages (`RefusalInputs.prepare`)."""

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return {}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        pairs = sum(map(len, run.calibration.values()))
        return f"{len(run.contrasts)} contrasts from {pairs} pairs of {', '.join(run.calibration)}"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        onsets, spec = onsets_record(run.loaded, run.plan.phrases), run.calibration_spec()
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


def _pairs_key(loaded: LoadedModel, plan: RefusalPlan, pairs: Sequence[Pair]) -> Json:
    """Texts, domains and splits, and the tokens that the model sees."""
    sides = ([pair.risk for pair in pairs], [pair.base for pair in pairs])
    tokens = [prompts_hash(loaded.tokenizer, side) for side in sides]
    return {"sha256": pairs_record(plan.pairs, pairs)["sha256"], "tokens": tokens}


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
