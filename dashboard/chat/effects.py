"""What an edit does to text and to refusal, measured before its replies: one that lowers refusal is not shown."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dashboard.chat import shipped_effects
from dashboard.chat.edits import Edit
from dashboard.chat.live import DEMO, Entry, fitting_threads
from dashboard.chat.measure import store_of_the_session
from dashboard.state import results, shipped_models as shipped
from engine.edits import edit as engine_edit
from engine.edits.edit import edit_of
from engine.edits.edit_effect import Effect, total
from engine.edits.masks import Mask
from engine.judges.base import EMBEDDED, open_judges
from engine.records.errors import InputError
from engine.records.progress import each_pass
from engine.run.refusal_plan import demo_plan
from engine.studies.refusal.operating_point import recorded_effect

_TELL_S = 0.25  # between two words of a measurement that goes on
PAIRS = 40  # held-out shipped pairs of each domain


def checked_effect(entry: Entry, mask: Mask, edit: Edit | None, progress: Callable[[str, int, int], None]) -> Effect:
    """What an edit does to text and, unless that is broken, to refusal: as it was recorded for the shipped models; else
    of the shipped risk prompts, and of what the grid of its run measured, else of shipped held-out pairs.
    edit: None for rows that somebody ticked. `InputError` where it refuses fewer risk prompts, or, a refusal edit, more
    base prompts than the limit."""
    loaded, wanted = entry.loaded, _engine_edit(entry, mask, edit)
    key = _key(wanted)
    if key not in entry.effects:
        run = results.folder_of(edit.run) if edit and edit.run else shipped.demo_results_dir()
        shipped_effect = shipped_effects.effect_of(loaded, mask, edit)
        entry.effects[key] = shipped_effect or _measured(entry, wanted, run, progress)
    effect: Effect = entry.effects[key]
    effect.check_shown(wanted, loaded.weights_hash)
    return effect


def is_known(entry: Entry, mask: Mask, edit: Edit) -> bool:
    try:
        return _key(_engine_edit(entry, mask, edit)) in entry.effects or bool(
            shipped_effects.effect_of(entry.loaded, mask, edit)
        )
    except InputError:  # that it is not to be answered is known, too
        return True


def _key(edit: engine_edit.Edit) -> tuple[object, ...]:
    return edit.mask_hash, edit.kind, edit.spec.get("domain")  # a refusal edit is asked more than ticked rows


def _engine_edit(entry: Entry, mask: Mask, edit: Edit | None) -> engine_edit.Edit:
    rows = entry.loaded.rows.n_rows
    if edit is None or edit.mode != "refusal":
        return edit_of(mask, rows)
    lam = 0.0 if edit.selector == "random" else edit.lam  # nothing protects random rows: one cell for every lambda
    spec = {"selector": edit.selector, "domain": edit.domain, "lambda": lam, "k": edit.k}
    return edit_of(mask, rows, kind="refusal", spec=spec)


def _measured(
    entry: Entry, edit: engine_edit.Edit, run_folder: Path, progress: Callable[[str, int, int], None]
) -> Effect:
    """From the store where it is known; of a refusal edit what its run's grid measured, where it did, in the place of
    the shipped pairs."""
    from engine.run.runner import LocalRunner
    from engine.studies.refusal.effect import measured_effect, shipped_effect, text_effect
    from engine.studies.refusal.refusal_inputs import RefusalInputs

    of = (edit, entry.loaded.weights_hash, entry.loaded.dtype)
    known = recorded_effect(run_folder, *of) if edit.kind == "refusal" else None
    plan = replace(demo_plan(), heldout_pairs=PAIRS, longer_replies=1)  # people wait for it
    what, since, cells, due = "Measuring what this edit does to text", time.monotonic(), (0, 1), 0.0

    def told(_stage: str, done: int, total: int) -> None:
        nonlocal cells, due
        cells, due = (done, total), 0.0
        going_on()

    def going_on() -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + _TELL_S
            progress(f"{what}, {now - since:.0f} s", *cells)

    with store_of_the_session() as store, fitting_threads(entry.loaded), each_pass(going_on):
        run, runner = RefusalInputs(entry.loaded, plan, store, open_judges(EMBEDDED)[0]), LocalRunner(store, told)
        effect = text_effect(run, edit, runner)
        if effect.broken:
            return effect  # it is shown, whatever it refuses
        what = "Measuring what this edit does to refusal"
        if known is None:
            return measured_effect(run, edit, runner, with_pairs=edit.kind == "refusal" or entry.loaded.id == DEMO)
        effect = shipped_effect(run, edit, runner)
    return replace(known, shipped=effect.shipped, neighbours=effect.neighbours, nats=effect.nats, about={
        **known.about, **effect.about
    })  # fmt: skip


def in_words(effect: Effect) -> str:
    """One sentence: perplexity where the model is broken, else refused prompts before and after."""
    if effect.broken:
        return f"BROKEN: {effect.on_text()}. What it refuses was not measured."
    risk = "shipped risk" if effect.malign else "risk"
    counts = [
        f"{one.after} of {one.n} {side} prompts, {one.before} before it"
        for side, changes in ((risk, effect.shipped), ("risk", effect.malign), ("base", effect.benign)) if changes
        for one in [total(changes)]
    ]  # fmt: skip
    return f"With this edit the model refuses {'; '.join(counts)}."
