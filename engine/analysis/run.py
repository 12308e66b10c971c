"""The analyses by name, and a run of several: each table is written as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import polars as pl

from engine.analysis.agreement import agreement
from engine.analysis.audit import Audit
from engine.analysis.controls import controls
from engine.analysis.depth import depth
from engine.analysis.domain import domain
from engine.analysis.downstream import downstream
from engine.analysis.gap import gap, seeds
from engine.analysis.groups import dangerous, rank_distribution
from engine.analysis.stability import stability
from engine.analysis.uncertainty import differences
from engine.analysis.verdict import verdicts
from engine.errors import InputError, unknown
from engine.records import Json, Stopwatch, add_to_manifest, check_folder, write_parquet
from engine.scores import write_scores
from engine.sweep import sweep_model

Analysis = Callable[[Audit], dict[str, pl.DataFrame]]  # returns file stem -> table


def sweep(audit: Audit) -> dict[str, pl.DataFrame]:
    """The LeRF/MoRF curves of every selector of the plan."""
    table = sweep_model(
        audit.loaded,
        audit.scores,
        audit.evaluation,
        store=audit.store,
        rates=audit.plan.sweep_rates,
        seeds=audit.scored.seeds,
        batch_size=audit.plan.scoring.batch_size,
        progress=audit.progress,
    )
    return {"sweep": table}


# In the order in which they run: what is cheap or what others reuse comes first.
ANALYSES: dict[str, Analysis] = {
    "agreement": agreement,
    "depth": depth,
    "sweep": sweep,
    "gap": gap,
    "seeds": seeds,
    "differences": differences,
    "rank-distribution": rank_distribution,
    "controls": controls,
    "dangerous": dangerous,
    "stability": stability,
    "verdict": verdicts,
    "domain": domain,
    "downstream": downstream,
}


_WITHOUT_TEXT = frozenset({"agreement", "depth", "rank-distribution", "downstream"})  # measure no perplexity


def run_analyses(audit: Audit, names: Sequence[str], folder: Path, *, skip: bool = False) -> Json:
    """Scores, then the named analyses; writes one parquet file per table and a manifest entry for each.

    An interrupted run loses at most the cell it was in: every NLL is in the store, and so are the scores.
    skip: go on where an analysis cannot be done here (a corpus out of reach, an extra not installed).

    returns {"done": {analysis: seconds}, "skipped": {analysis: why}, "tables": {file: rows}}
    Errors: InputError for an unknown name and, without `skip`, whatever an analysis cannot do.
    """
    for name in names:
        if name not in ANALYSES:
            raise unknown("analysis", name, [*ANALYSES, "all"])
    check_folder(folder, audit.loaded.fingerprint)
    if not _WITHOUT_TEXT.issuperset(names):
        audit.evaluation  # noqa: B018 - a text that cannot be read is told before hours of scoring
    folder.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    write_scores(folder, audit.loaded, audit.scored)
    report: Json = {"done": {"scores": round(watch.elapsed_s, 1)}, "skipped": {}, "tables": {}}
    for name in (name for name in ANALYSES if name in names):
        watch = Stopwatch()
        try:
            tables = ANALYSES[name](audit)
        except InputError as error:
            if not skip:
                raise
            report["skipped"][name] = str(error)
            continue
        spec = audit.spec(evaluated=name not in _WITHOUT_TEXT) | {"settings": _settings(audit)}
        for stem, table in tables.items():
            write_parquet(folder / f"{stem}.parquet", table)
            add_to_manifest(folder, audit.loaded.fingerprint, f"{stem}.parquet", spec, watch.elapsed_s)
            report["tables"][f"{stem}.parquet"] = table.height
        report["done"][name] = round(watch.elapsed_s, 1)
    return report


def _settings(audit: Audit) -> Json:
    """The plan as manifests keep it: scores have their own record, and a file's place on this disk is nobody's."""
    settings = {key: value for key, value in asdict(audit.plan).items() if key != "scoring"}
    for key in ("eval_corpus", "domain_corpus", "downstream_tasks"):
        settings[key] = Path(settings[key]).name if settings[key] else None
    return settings
