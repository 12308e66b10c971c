"""Writes what ships of edits' effects: `python -m dashboard.chat.record_effects [MODEL]` measures what the record of a
shipped model lacks, as the app does before it answers under an edit (`dashboard.chat.effects`)."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from dashboard.chat import effects, live, stamps
from dashboard.chat.edits import Edit, Progress
from dashboard.chat.shipped_effects import (
    FILES,
    Record,
    hash_of,
    is_known,
    mask_of,
    name_of,
    offered,
    recorded,
    short_hash,
)
from dashboard.state import shipped_models as shipped
from engine.edits.edit_effect import total
from engine.records.errors import InputError
from engine.records.files import FileKind, json_object, write_atomic

KIND = FileKind("a record of effects", lambda path: {"weights", "about", "effects"} <= json_object(path).keys())
SAVED_AFTER = 10  # measured edits


def measured(
    found: Record,
    wanted: Sequence[Edit],
    progress: Progress,
    save: Callable[[Record], None] = lambda _: None,
    model: str = shipped.DEMO,
) -> Record:
    """The record with what it lacked of the wanted edits and of the model as it is. save: called now and then."""
    missing = [edit for edit in wanted if not is_known(found, edit, model)]
    if missing:
        with live.POOL.use(model) as entry:
            if "reference" not in found and (reference := stamps.reference_of(entry)) is not None:
                prompts = hash_of([example.prompt for example in shipped.examples(model)])
                found["reference"] = {**asdict(reference), "prompts": prompts}
            for number, edit in enumerate(missing):
                progress("effects of edits", number, len(missing))
                found["effects"][name_of(edit)] = _measured(entry, edit, found["about"])
                if number % SAVED_AFTER == 0:
                    save(found)
        progress("effects of edits", len(missing), len(missing))
        save(found)
    return found


def _measured(entry: live.Entry, edit: Edit, about: Record) -> Record:
    entry.effects.clear()
    mask, why = mask_of(edit, entry.loaded.id), ""
    try:
        effects.checked_effect(entry, mask, edit, lambda *_: None)
    except InputError as error:
        why = str(error)
    known: Record = {"mask": short_hash(mask), "why": why}
    about["dtype"] = entry.loaded.dtype
    for effect in entry.effects.values():
        sides = {"shipped": effect.shipped, "pairs": effect.malign, "base": effect.benign}
        known |= {"nats": effect.nats, **{name: total(changes) for name, changes in sides.items() if changes}}
        about.update({name: value for name, value in effect.about.items() if "shipped" in name})
    return known


def main(model: str = shipped.DEMO) -> None:
    from engine.commands.common import err
    from engine.records.progress import progress_bars

    with progress_bars(err) as progress:
        measured(recorded(model), offered(model), progress, partial(_write, model=model), model)


def _write(found: Record, model: str) -> None:
    """All offered edits, each on a line; those of former offers go."""
    names = {name_of(edit) for edit in offered(model)}
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(one)}" for name, one in sorted(found["effects"].items()) if name in names
    )
    head = json.dumps({name: found[name] for name in ("weights", "about", "reference") if name in found})
    write_atomic(FILES[model], f'{head[:-1]},"effects":{{\n{lines}\n}}}}\n'.encode(), KIND)


if __name__ == "__main__":
    main(*sys.argv[1:2])
