"""What a results folder has measured of an edit: the record that its grid of lambda and k is."""

from contextlib import suppress
from pathlib import Path

import polars as pl

from engine.edits.edit import Edit
from engine.edits.effect import Change, Effect
from engine.records.domain_names import find_domain
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import read_manifest
from engine.results.folders import read_table

GRID, CONTRASTS = "refusal_sweep", "contrast.safetensors"
_OF_DOMAIN, _OF_ALL = ("pairs", "pairs_left_out"), ("lm_scores", "batch_size", "random_seed")  # make a contrast


def recorded_effect(folder: Path, edit: Edit, weights_hash: str, dtype: str) -> Effect | None:
    """Refusals of the folder's calibration pairs before and under a refusal edit of its own contrasts.

    None where the folder says nothing of it: results of other weights or another dtype, contrasts of other pairs than
    the grid, a cell that is not in the grid, has another number of rows, or wrote no replies. The edit's mask must have
    been made from the folder's own contrasts."""
    if not (folder / f"{GRID}.parquet").is_file():
        return None
    manifest = read_manifest(folder)
    model, files = manifest.get("model", {}), manifest.get("files", {})
    specs = [files.get(name, {}).get("spec") for name in (f"{GRID}.parquet", CONTRASTS)]
    if (model.get("weights_hash"), model.get("dtype")) != (weights_hash, dtype) or not all(specs):
        return None
    selector, domain = edit.spec["selector"], str(edit.spec["domain"])
    with suppress(InputError):  # the pages have its name
        domain = find_domain(domain, specs[0].get("pairs", {}))
    grid, contrasts = (_made_from(spec, domain) for spec in specs)
    if grid != contrasts:
        return None
    cells = read_table(folder, GRID).filter(selector=selector, domain=domain).drop_nulls(["malign", "benign"])
    before = cells.filter(pl.col("k") == 0)
    near = (pl.col(name).sub(edit.spec[name]).abs() < 1e-9 for name in ("lambda", "k"))
    after = cells.filter(*near, rows_removed=edit.size)
    if before.height != 1 or after.height != 1:
        return None
    malign, benign = (_change(side, before, after) for side in ("malign", "benign"))
    about = {
        "pairs": f"{malign.n} calibration pairs of the grid",
        "judge": f"{specs[0].get('judge')} {specs[0].get('judge_version')}",
        "reply tokens": specs[0].get("reply_tokens"),
    }
    limit = specs[0].get("benign_limit", 0.0)
    if not isinstance(limit, int | float):
        return None
    return Effect(weights_hash, edit.mask_hash, {domain: malign}, {domain: benign}, float(limit), about)


def _made_from(spec: Json, domain: str) -> list[object]:
    """What decides about the contrasts of one domain; there may be more domains in one file than in the other."""
    by_domain = [found if isinstance(found := spec.get(name), dict) else {} for name in _OF_DOMAIN]
    return [found.get(domain) for found in by_domain] + [spec.get(name) for name in _OF_ALL]


def _change(side: str, before: pl.DataFrame, after: pl.DataFrame) -> Change:
    n = int(after[f"{side}_n"][0])
    return Change(n, *(round(table[side][0] * n) for table in (before, after)))
