"""What edits of the shipped models do to text and to refusal: the gate's record, which ships beside their results, so
that the app and a site answer under these edits without a wait. `dashboard.chat.record_effects` writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dashboard.chat import edits
from dashboard.chat.edits import Edit
from dashboard.state import scores, shipped_models as shipped
from dashboard.state.results import POINTS, REFUSAL_SWEEP, read_table, while_unchanged
from engine.edits.contrasts import refusal_mask
from engine.edits.edit import mask_hash
from engine.edits.edit_effect import BROKEN, Change, Effect
from engine.edits.masks import Mask, removed_rows
from engine.judges.base import EMBEDDED, open_judges
from engine.records.errors import InputError
from engine.records.files import json_object
from engine.stats.limits import BASELINE
from precomputed import demo_dir, smollm2_dir

if TYPE_CHECKING:
    from engine.measures.fluency import Reference
    from engine.models.loading import LoadedModel

FILES = {shipped.DEMO: demo_dir() / "effects.json", shipped.SMOLLM2: smollm2_dir() / "effects.json"}
WALKED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)  # rates of Break it
RATES = {
    shipped.DEMO: tuple(rate for rate in edits.RATES if rate in (0.01, 0.02) or rate >= 0.05),
    shipped.SMOLLM2: tuple(sorted((rate for rate in edits.RATES if rate <= 0.3), key=lambda rate: rate not in WALKED)),
}
SELECTORS = ("consensus2", "lrp", "ig")  # of which the demo's whole refusal grid is recorded
HASH_LETTERS = 16
Record = dict[str, Any]


def name_of(edit: Edit) -> str:
    """`lrp lerf 0.3` or `lrp hate 0.5 0.02`: selector, order, rate, or selector, domain, lambda, k."""
    last = f"{edit.domain} {edit.lam:g} {edit.k:g}" if edit.mode == "refusal" else f"{edit.order} {edit.rate:g}"
    return f"{edit.selector} {last}"


def offered(model: str = shipped.DEMO) -> list[Edit]:
    """The edits of a shipped model: every selector and order at `RATES`; before these of the demo the refusal grid of
    `SELECTORS` and every selector's operating points."""
    ranked = [
        Edit("language model", name, order=order, rate=rate)
        for rate in RATES[model] for name in edits.ranking_selectors(model=model) for order in ("lerf", "morf")
    ]  # fmt: skip
    if model != shipped.DEMO:
        return ranked
    folder = shipped.demo_results_dir()
    grid, points = (read_table(folder, stem).frame.filter(pl.col("k") > 0) for stem in (REFUSAL_SWEEP, POINTS))
    tables = (grid.filter(pl.col("selector").is_in(SELECTORS)), points)
    cells = pl.concat([table.select("selector", "domain", "lambda", "k") for table in tables]).unique(
        maintain_order=True
    )
    return [Edit("refusal", name, domain=domain, lam=lam, k=k) for name, domain, lam, k in cells.rows()] + ranked


def recorded(model: str = shipped.DEMO) -> Record:
    """The record of a shipped model: {weights, about, reference, effects}. about: prompts, judge, lengths of replies,
    dtype; reference: of its own replies, which says when one is broken; effects by `name_of`: {mask, nats: [before,
    after], shipped, pairs, base: [n, refused before, after], why}; why: it is not answered. No effects where there is
    no file, or one of other weights, prompts or another judge."""
    file = FILES[model]
    known = json_object(file) if file.is_file() else {}
    weights = shipped.weights_hash_of(model)
    fits = known.get("weights") == weights and about_now().items() <= known.get("about", {}).items()
    return known if fits else {"weights": weights, "about": about_now(), "effects": {}}


def about_now() -> dict[str, str]:
    """The shipped risk prompts and their judge, as an effect has them."""
    from engine.data.pairs import pairs_record
    from engine.studies.refusal.effect import GENERAL, shipped_prompts

    asked = pairs_record(GENERAL.name, [pair for pairs in shipped_prompts().values() for pair in pairs])
    judge = open_judges(EMBEDDED)[0]
    return {
        "shipped prompts": f"{asked['pairs']} in English, SHA-256 {asked['sha256'][:12]}",
        "judge of the shipped prompts": f"{judge.id} {judge.version}",
    }


def effect_of(loaded: LoadedModel, mask: Mask, edit: Edit | None) -> Effect | None:
    """The recorded effect of an edit of a shipped model with the shipped scores; None where there is none of these
    weights, this number type and these rows. `InputError` where the gate did not let it answer."""
    if edit is None or edit.run or loaded.id not in FILES:
        return None
    record = _kept(loaded.id)
    known = record["effects"].get(name_of(edit), {})
    of = record["weights"], record["about"].get("dtype"), known.get("mask")
    if of != (loaded.weights_hash, loaded.dtype, short_hash(mask)):
        return None
    if known["why"]:
        raise InputError(known["why"])
    return effect(known, loaded.weights_hash, mask)


_kept = while_unchanged(4, lambda model: (FILES[model],))(recorded)


def effect(known: Record, weights_hash: str = "", mask: Mask | None = None) -> Effect:
    """A recorded effect, over all domains; its base prompts were held against their limit when it was recorded."""
    risk, malign, benign = (
        {"all": Change(*known[side])} if side in known else {} for side in ("shipped", "pairs", "base")
    )
    nats = (known["nats"][0], known["nats"][1]) if known.get("nats") else None
    removed = "" if mask is None else mask_hash(mask)
    return Effect(weights_hash, removed, malign=malign, benign=benign, benign_limit=1.0, shipped=risk, nats=nats)


def reference_of(loaded: LoadedModel, prompts: Sequence[str], tokens: int) -> Reference | None:
    """What is recorded of a shipped model's own replies to these prompts, of at most so many tokens; None where there
    is nothing of these weights and this number type."""
    from engine.measures.fluency import Reference

    record = _kept(loaded.id) if loaded.id in FILES else {}
    known = record.get("reference", {})
    of = record.get("weights"), record.get("about", {}).get("dtype"), known.get("prompts"), known.get("reply_tokens")
    if of != (loaded.weights_hash, loaded.dtype, hash_of(prompts), tokens):
        return None
    return Reference(**{name: value for name, value in known.items() if name != "prompts"})


def hash_of(prompts: Sequence[str]) -> str:
    return sha256("\n".join(prompts).encode()).hexdigest()[:HASH_LETTERS]


def spared(model: str) -> Edit | None:
    """The largest share of rows, least relevant first, that a shipped model is recorded to speak without."""
    effects = _kept(model)["effects"] if model in FILES else {}
    known = {name: one["nats"] for name, one in effects.items() if one.get("nats") and not one["why"]}
    spared_edits = [
        (edit.rate, before - after, edit)
        for edit in (offered(model) if known else ()) if edit.order == "lerf" and edit.selector != BASELINE
        for before, after in [known.get(name_of(edit), (0.0, math.inf))]
        if after <= before + math.log(BROKEN)
    ]  # fmt: skip
    return max(spared_edits, key=lambda line: line[:2])[-1] if spared_edits else None


def is_known(found: Record, edit: Edit, model: str = shipped.DEMO) -> bool:
    """Does the record hold an edit, and of the rows that it removes today?"""
    return bool(found["effects"].get(name_of(edit), {}).get("mask") == short_hash(mask_of(edit, model)))


def is_recorded(edit: Edit, model: str) -> bool:
    return is_known(_kept(model), edit, model)


def mask_of(edit: Edit, model: str = shipped.DEMO) -> Mask:
    """The rows that an edit of a shipped model removes, by the shipped scores and contrasts; loads no model."""
    if edit.mode == "refusal":
        return refusal_mask(shipped.demo_contrasts()[edit.selector, edit.domain], edit.lam, edit.k)
    folder: Path = shipped.folders()[shipped.TITLES[model]]
    return removed_rows(scores.read_scores(folder, edit.selector), edit.order, edit.rate)


def short_hash(mask: Mask) -> str:
    """By which a recorded mask is known again."""
    return mask_hash(mask)[:HASH_LETTERS]
