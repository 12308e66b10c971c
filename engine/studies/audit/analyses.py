"""A run of several analyses: scores first, then all cells, each table written as soon as it is there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.models.memory import release
from engine.records.errors import InputError, unknown
from engine.records.hashing import Json
from engine.records.manifest import check_folder, read_manifest
from engine.records.out_of_memory import is_out_of_memory
from engine.records.progress import Stopwatch, begin, grower
from engine.records.registry import plug_in_code
from engine.results.folders import read_table, table_names, write_tables
from engine.run.runner import Runner
from engine.run.scoring import write_scores
from engine.run.share import Measured
from engine.studies.audit.inputs import AuditInputs
from engine.studies.base import ANALYSES, AnalysisInfo, Study, conduct
from engine.studies.claims.ledger import ledger, needed


def run_analyses(audit: AuditInputs, names: Sequence[str], folder: Path, runner: Runner, *, skip: bool = False) -> Json:
    """Scores, then the named analyses; writes one parquet file per table and a manifest entry for each, and last the
    ledger of claims that all tables of the folder support.

    An interrupted run loses at most the cells under way: every result is in the store, and so are the scores.
    skip: leave out an analysis that cannot be done here (a corpus out of reach, an extra not installed, a measure for
    which there is no memory), and do the others; what could not begin is known before the first cell is computed.

    A runner of a share of the cells (`Runner.whole`): no file is written; of every analysis all is measured that it has
    to measure as far as is known what it wants, then `Measured` is raised.

    returns {"done": {analysis: seconds}, "skipped": {analysis: why}, "tables": {file: rows}}
    Errors: InputError for an unknown name, where no analysis is left and, without `skip`, whatever one cannot do.
    """
    for name in names:
        if name not in ANALYSES:
            raise unknown("analysis", name, [*ANALYSES.names(), "all"])
    wanted = [info for info in ANALYSES if info.id in names]
    check_folder(folder, audit.loaded.fingerprint)
    wanted, skipped = possible(audit, wanted, skip=skip)  # what cannot be read is told before hours of scoring
    if runner.whole:
        folder.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    made = {info.id: info.make() for info in wanted}
    begin(audit.progress, "scores", 1, 1 + len(made))
    for study in made.values():
        with suppress(InputError):  # the study's cells tell
            getattr(study, "before_scores", lambda _: None)(audit)
    scored = audit.scored
    if runner.whole:
        write_scores(folder, audit.loaded, replace(scored, elapsed_s=watch.elapsed_s))
    report: Json = {"done": {"scores": round(watch.elapsed_s, 1)}, "skipped": skipped, "tables": {}}
    studies: dict[str, Study[Any]] = {}
    cells = []
    for name, study in made.items():
        try:
            with plug_in_code("analysis", name):
                cells += list(study.cells(audit, runner.results))
        except InputError as error:
            if not skip:
                raise
            report["skipped"][name] = str(error)
            continue
        studies[name] = study
    grow = grower(audit.progress)
    for study in studies.values():
        if grow is not None and hasattr(study, "so_far"):
            grow(study.so_far(audit, runner.results))
    runner.expect(cells)
    for number, (name, study) in enumerate(studies.items(), start=2):
        begin(audit.progress, name, number, 1 + len(studies))
        watch, tables = Stopwatch(), None
        try:
            with plug_in_code("analysis", name):
                tables = conduct(study, audit, runner)
        except Measured:
            continue
        except (InputError, RuntimeError, MemoryError) as error:  # of a later stage, or of a measure
            if not skip or not (isinstance(error, InputError) or is_out_of_memory(error)):
                raise
            report["skipped"][name] = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if tables is None:
            release()  # here the failed pass's tensors, which the traceback kept, can go
            continue
        spec = audit.spec(evaluated=ANALYSES.get(name).reads_text) | {"settings": _settings(audit)}
        spec |= audit.short_texts() if name == "domain" else {}
        spec |= getattr(study, "record", lambda _: {})(audit)
        write_tables(folder, tables, audit.loaded.fingerprint, spec, watch.elapsed_s)
        report["tables"] |= {f"{stem}.parquet": table.height for stem, table in tables.items()}
        report["done"][name] = round(watch.elapsed_s, 1)
    if not runner.whole:
        raise Measured(report["skipped"])
    if report["tables"]:
        try:
            report["tables"] |= _write_claims(folder, audit)
        except InputError as error:  # a table of an earlier run is damaged: what was measured now is kept all the same
            report["skipped"]["claims"] = str(error)
    return report


def possible(
    audit: AuditInputs, wanted: Sequence[AnalysisInfo], *, skip: bool
) -> tuple[list[AnalysisInfo], dict[str, str]]:
    """The analyses that plan, configuration, tokenizer and texts allow, and of the others why not. Needs no weights.

    Errors: InputError without `skip` for the first that cannot be done, with it where none can.
    """
    left, reasons = [], {}
    problem = unreadable = None
    if any(info.reads_text for info in wanted):
        try:
            audit.evaluation  # noqa: B018 - read here or nowhere
        except InputError as error:
            unreadable = error
    for info in wanted:
        try:
            if info.reads_text and unreadable is not None:
                raise unreadable
            with plug_in_code("analysis", info.id):
                getattr(info.make(), "check", lambda _: None)(audit)
        except InputError as error:
            if not skip:
                raise
            problem, reasons[info.id] = error, str(error)
        else:
            left.append(info)
    if problem is not None and not left:
        raise problem
    return left, reasons


def _write_claims(folder: Path, audit: AuditInputs) -> Json:
    """`claims.parquet` from the folder's tables, if they support a claim; its manifest entry names the bytes that it
    was made from."""
    stems = [stem for stem in needed() if stem in table_names(folder)]
    claims = ledger({stem: read_table(folder, stem) for stem in stems})
    if claims.is_empty():
        return {}
    files = read_manifest(folder)["files"]
    made_from = {f"{stem}.parquet": files[f"{stem}.parquet"]["sha256"] for stem in stems}
    write_tables(folder, {"claims": claims}, audit.loaded.fingerprint, {"made_from": made_from}, 0.0)
    return {"claims.parquet": claims.height}


def _settings(audit: AuditInputs) -> Json:
    """The plan as manifests keep it: scores have their own record, and a file's place on this disk is nobody's."""
    settings = {key: value for key, value in asdict(audit.plan).items() if key != "scoring"}
    for key in ("eval_corpus", "domain_corpus", "downstream_tasks"):
        settings[key] = Path(settings[key]).name if settings[key] else None
    return settings
