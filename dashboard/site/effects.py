"""What every edit that a site offers does to text and to refusal: the gate's record, which ships beside the model.

`python -m dashboard.site.effects` measures what the record lacks, as the app does before it answers under an edit
(`dashboard.chat.effects`), and writes it. A record of other weights, prompts or another judge counts as none."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from dashboard.chat import edits, effects, live
from dashboard.chat.edits import Edit
from dashboard.state import scores, shipped
from dashboard.state.results import POINTS, REFUSAL_SWEEP, read_table
from engine.edits.contrasts import refusal_mask
from engine.edits.edit import mask_hash
from engine.edits.effect import total
from engine.edits.masks import Mask, removed_rows
from engine.records.errors import InputError
from engine.records.files import FileKind, json_object, write_atomic
from precomputed import demo_dir

FILE = demo_dir() / "effects.json"
KIND = FileKind("a record of effects", lambda path: {"weights", "about", "effects"} <= json_object(path).keys())
RATES = tuple(rate for rate in edits.RATES if rate in (0.01, 0.02) or rate >= 0.05)
SELECTORS = ("consensus2", "lrp", "ig")
SAVED_AFTER = 10  # measured edits
HASH_LETTERS = 16
Record = dict[str, Any]
Progress = Callable[[str, int, int], None]


def name_of(edit: Edit) -> str:
    """`lrp lerf 0.3` or `lrp hate 0.5 0.02`: selector, order, rate, or selector, domain, lambda, k."""
    last = f"{edit.domain} {edit.lam:g} {edit.k:g}" if edit.mode == "refusal" else f"{edit.order} {edit.rate:g}"
    return f"{edit.selector} {last}"


def offered() -> list[Edit]:
    """The edits of the shipped model: the refusal grid of `SELECTORS`, every selector's operating points, and every
    selector and order at `RATES`."""
    folder = shipped.demo_results_dir()
    grid, points = (read_table(folder, stem).frame.filter(pl.col("k") > 0) for stem in (REFUSAL_SWEEP, POINTS))
    tables = (grid.filter(pl.col("selector").is_in(SELECTORS)), points)
    cells = pl.concat([table.select("selector", "domain", "lambda", "k") for table in tables]).unique(
        maintain_order=True
    )
    ranked = [
        Edit("language model", name, order=order, rate=rate)
        for rate in RATES for name in edits.ranking_selectors(model=shipped.DEMO) for order in ("lerf", "morf")
    ]  # fmt: skip
    return [Edit("refusal", name, domain=domain, lam=lam, k=k) for name, domain, lam, k in cells.rows()] + ranked


def recorded() -> Record:
    """The record that ships: {weights, about, effects}. about: prompts, judge, lengths of replies; effects by
    `name_of`: {mask, nats: [before, after], shipped, pairs, base: [n, refused before, after], why}; why: it is not
    answered. No effects where the file is of other weights, prompts or another judge."""
    known, weights = json_object(FILE), shipped.demo_weights_hash()
    fits = known.get("weights") == weights and about_now().items() <= known.get("about", {}).items()
    return known if fits else {"weights": weights, "about": about_now(), "effects": {}}


def about_now() -> dict[str, str]:
    """The shipped risk prompts and their judge, as an effect has them."""
    from engine.data.pairs import pairs_record
    from engine.judges.base import EMBEDDED, open_judges
    from engine.studies.refusal.effect import GENERAL, shipped_prompts

    asked = pairs_record(GENERAL.name, [pair for pairs in shipped_prompts().values() for pair in pairs])
    judge = open_judges(EMBEDDED)[0]
    return {
        "shipped prompts": f"{asked['pairs']} in English, SHA-256 {asked['sha256'][:12]}",
        "judge of the shipped prompts": f"{judge.id} {judge.version}",
    }


def measured(
    found: Record, wanted: Sequence[Edit], progress: Progress, save: Callable[[Record], None] = lambda _: None
) -> Record:
    """The record with what it lacked of the wanted edits. save: called with it now and then."""
    missing = [edit for edit in wanted if not is_known(found, edit)]
    if missing:
        with live.POOL.use(shipped.DEMO) as entry:
            for number, edit in enumerate(missing):
                progress("effects of edits", number, len(missing))
                found["effects"][name_of(edit)] = _measured(entry, edit, found["about"])
                if number % SAVED_AFTER == 0:
                    save(found)
        progress("effects of edits", len(missing), len(missing))
        save(found)
    return found


def is_known(found: Record, edit: Edit) -> bool:
    """Does the record hold an edit, and of the rows that it removes today?"""
    return bool(found["effects"].get(name_of(edit), {}).get("mask") == short_hash(mask_of(edit)))


def mask_of(edit: Edit) -> Mask:
    """The rows that an edit of the shipped model removes, by the shipped scores and contrasts; loads no model."""
    if edit.mode == "refusal":
        return refusal_mask(shipped.demo_contrasts()[edit.selector, edit.domain], edit.lam, edit.k)
    return removed_rows(scores.read_scores(shipped.demo_results_dir(), edit.selector), edit.order, edit.rate)


def short_hash(mask: Mask) -> str:
    """By which a recorded mask is known again."""
    return mask_hash(mask)[:HASH_LETTERS]


def _measured(entry: live.Entry, edit: Edit, about: Record) -> Record:
    entry.effects.clear()
    mask, why = mask_of(edit), ""
    try:
        effects.checked_effect(entry, mask, edit, lambda *_: None)
    except InputError as error:
        why = str(error)
    known: Record = {"mask": short_hash(mask), "why": why}
    for effect in entry.effects.values():
        sides = {"shipped": effect.shipped, "pairs": effect.malign, "base": effect.benign}
        known |= {"nats": effect.nats, **{name: total(changes) for name, changes in sides.items() if changes}}
        about.update({name: value for name, value in effect.about.items() if "shipped" in name or name == "dtype"})
    return known


def main() -> None:
    """Writes the record of all offered edits."""
    from engine.commands.common import err
    from engine.records.progress_bars import progress_bars

    with progress_bars(err) as progress:
        measured(recorded(), offered(), progress, _write)


def _write(found: Record) -> None:
    """All offered edits, each on a line; those of former offers go."""
    names = {name_of(edit) for edit in offered()}
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(one)}" for name, one in sorted(found["effects"].items()) if name in names
    )
    head = json.dumps({"weights": found["weights"], "about": found["about"]})
    write_atomic(FILE, f'{head[:-1]},"effects":{{\n{lines}\n}}}}\n'.encode(), KIND)


if __name__ == "__main__":
    main()
