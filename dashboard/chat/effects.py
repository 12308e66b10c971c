"""What an edit does to refusal, known or measured before its replies are shown: one that lowers it is not shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dashboard.chat.live import fitting_threads
from dashboard.state import access, results, shipped

if TYPE_CHECKING:
    from dashboard.chat.edits import Edit
    from dashboard.chat.live import Entry
    from engine.edits import edit as engine_edit
    from engine.edits.effect import Effect
    from engine.edits.masks import Mask

PAIRS, PAIRS_OF_EACH = 32, 8  # held-out shipped pairs: of a refusal edit's domain, of each domain for other edits


def checked_effect(entry: Entry, mask: Mask, edit: Edit | None, progress: Callable[[str, int, int], None]) -> Effect:
    """Refusals before and under an edit: what the grid of its run measured, else replies to shipped held-out prompts.

    edit: None for rows that somebody ticked. `InputError` where it refuses fewer risk prompts, or, a refusal edit, more
    base prompts than the limit.
    """
    from engine.studies.refusal.recorded import recorded_effect

    loaded, wanted = entry.loaded, _engine_edit(entry, mask, edit)
    if wanted.mask_hash not in entry.effects:
        found = None
        if wanted.kind == "refusal":
            folder = results.folder_of(edit.run) if edit and edit.run else shipped.demo_results_dir()
            found = recorded_effect(folder, wanted, loaded.weights_hash, loaded.dtype)
        entry.effects[wanted.mask_hash] = found or _measured(entry, wanted, progress)
    effect: Effect = entry.effects[wanted.mask_hash]
    effect.check(wanted, loaded.weights_hash)
    return effect


def _engine_edit(entry: Entry, mask: Mask, edit: Edit | None) -> engine_edit.Edit:
    from engine.edits.edit import edit_of

    rows = entry.loaded.rows.n_rows
    if edit is None or edit.mode != "refusal":
        return edit_of(mask, rows)
    lam = 0.0 if edit.selector == "random" else edit.lam  # nothing protects random rows: one cell for every lambda
    spec = {"selector": edit.selector, "domain": edit.domain, "lambda": lam, "k": edit.k}
    return edit_of(mask, rows, kind="refusal", spec=spec)


def _measured(entry: Entry, edit: engine_edit.Edit, progress: Callable[[str, int, int], None]) -> Effect:
    """On the shipped pairs, from the store where it is known."""
    from engine.judges.base import EMBEDDED, open_judges
    from engine.results.store import Store
    from engine.run.refusal_plan import demo_plan
    from engine.run.runner import LocalRunner
    from engine.studies.refusal.effect import measured_effect
    from engine.studies.refusal.inputs import RefusalInputs

    pairs = PAIRS if edit.kind == "refusal" else PAIRS_OF_EACH
    plan = replace(demo_plan(), heldout_pairs=pairs, longer_replies=1)  # people wait for it

    def told(_stage: str, done: int, total: int) -> None:
        progress("Measuring what this edit does to refusal", done, total)

    # On a server for other machines nothing that they ask for stays on the disk.
    scratch = TemporaryDirectory(prefix="selector-audit-") if access.limited() else nullcontext()
    with scratch as place, Store(Path(place) if place else None) as store, fitting_threads(entry.loaded):
        run = RefusalInputs(entry.loaded, plan, store, open_judges(EMBEDDED)[0])
        return measured_effect(run, edit, LocalRunner(store, told))


def in_words(effect: Effect) -> str:
    """One sentence: refused risk prompts, and base prompts where they were asked, before and after."""
    if effect.unasked:
        return f"Refusal was not measured: {effect.unasked}."
    sides = {"risk": effect.malign.values(), "base": effect.benign.values()}
    told = [
        f"{sum(one.after for one in found)} of {sum(one.n for one in found)} {side} prompts "
        f"({sum(one.before for one in found)} without it)"
        for side, found in sides.items()
        if found
    ]
    return f"Measured: it refuses {' and '.join(told)}."
