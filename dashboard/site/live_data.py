"""What the live parts need of the shipped model, as scripts: weights, tokenizer, scores, contrasts, edits and their
effects, and what Watch it break plays."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import polars as pl

from dashboard.charts import palette, watch
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat import edits, opening, shipped_effects as effects, stamps
from dashboard.chat.effects import in_words
from dashboard.pages.overview import watch_it
from dashboard.site.blocks import Run, as_json, script
from dashboard.state import scores, shipped
from engine.data.onsets import ONSET_PHRASES
from engine.run.refusal_plan import RefusalPlan
from precomputed import demo_model_dir

LOWERED, BROKEN, SHOWN = "lowered", "broken", "shown"  # what becomes of an edit
WEIGHTS = "model.safetensors"


def model_files() -> Iterator[tuple[str, bytes]]:
    """Name and content of the scripts with the model's files as they are, binary ones in base64."""
    results = shipped.demo_results_dir()
    for folder, name in ((demo_model_dir(), WEIGHTS), (results, scores.SCORES), (results, edits.CONTRASTS)):
        content = base64.b64encode((folder / name).read_bytes()).decode()
        yield name, f"SelectorAudit.files[{json.dumps(name)}] = {json.dumps(content)};\n".encode()
    tokenizer = json.loads((demo_model_dir() / "tokenizer.json").read_text("utf-8"))
    yield "tokenizer", script("tokenizer", as_json(tokenizer))


def live(record: effects.Record) -> bytes:
    """The script `live`: configuration, layers, edits that are offered with what was measured of them, examples."""
    config, generation = (
        json.loads((demo_model_dir() / f"{name}.json").read_text("utf-8")) for name in ("config", "generation_config")
    )
    rows = scores.read_rows(shipped.demo_results_dir())
    layers = rows.group_by("block", "projection", maintain_order=True).agg(pl.col("row_id").min(), pl.len())
    first = opening.request(shipped.DEMO)
    offered = [edit for edit in effects.offered() if effects.is_known(record, edit)]
    known = {effects.name_of(edit): _told(record["effects"][effects.name_of(edit)]) for edit in offered}
    return script("live", as_json({
        "config": config, "layers": [list(row) for row in layers.rows()], "rows": rows.height,
        "ends": [generation["eos_token_id"]], "phrases": ONSET_PHRASES._asdict(),
        "effects": known, "opening": None if first is None else effects.name_of(first.edit),
        "titles": {name: palette.title(name) for name in {edit.selector for edit in offered}},
        "selectors": palette.in_order([edit.selector for edit in offered]), "domains": list(edits.DOMAINS),
        "orders": ORDER_TITLES, "seeds": list(RefusalPlan.control_seeds),
        "examples": [[one.domain, one.kind, one.prompt] for one in shipped.examples(shipped.DEMO)],
        "looks": {name: [look.icon, look.colour] for name, look in stamps.LOOKS.items()},
    }))  # fmt: skip


def _told(known: effects.Record) -> tuple[str, str]:
    if known["why"]:
        return LOWERED, f"Not answered: {known['why']}."
    effect = effects.effect(known)
    return BROKEN if effect.broken else SHOWN, in_words(effect)


def race(run: Run, name: str, *, every: bool) -> tuple[bytes, str]:
    """The script `name` of what Watch it break plays, and its legend. every: all rankings, to choose from; else two."""
    sweep, replies = run.sweep, run.table(watch_it.REPLIES)
    racers = watch_it.racers_of(sweep)
    pair = watch_it.defaults(racers, sweep)
    chosen = racers if every else list(pair)
    lanes = [watch_it.lane(run.folder, sweep, replies, *racer.split()) for racer in chosen]
    picture = watch_it.picture_of(run.folder)
    played: dict[str, Any] = watch.payload(picture, lanes) | {"racers": chosen, "pair": list(pair)}
    legend = watch.legend(picture, [lanes[chosen.index(racer)] for racer in pair])
    return script(name, as_json(played)), legend
