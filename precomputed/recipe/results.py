"""The shipped results: scores, sweep, contrasts and the refusal check of the demo model, computed by the engine."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from engine.analysis.audit import Audit
from engine.analysis.plan import preset
from engine.analysis.run import ANALYSES, run_analyses
from engine.corpora import Pair, Windows, contrast_pairs, windows
from engine.models import LoadedModel
from engine.records import Json, Stopwatch, add_to_manifest, canonical, write_parquet
from engine.refusal.algorithm import contrasts
from engine.refusal.contrast import Contrast, save_contrasts
from engine.scores import Scored
from engine.store import Store
from precomputed.recipe import measure

log = logging.getLogger(__name__)

_PLAN = preset("demo")
CALIBRATION = (_PLAN.scoring.samples, _PLAN.scoring.length)
EVALUATION = (_PLAN.eval_samples, _PLAN.eval_length)
REFUSAL_WINDOWS = 16  # of EVALUATION, enough to see a factor of 1.5 in perplexity
REFUSAL_SELECTORS = ("lrp", "ig", "consensus2", "mean_activation")

Progress = Callable[[str, int, int], None]


def evaluation_windows(loaded: LoadedModel, corpus: str) -> Windows:
    samples, length = EVALUATION
    return windows(corpus, loaded.tokenizer, role="evaluation", samples=samples, length=length)


def few(evaluation: Windows) -> Windows:
    """The first REFUSAL_WINDOWS windows."""
    return evaluation.first(REFUSAL_WINDOWS)


def build(
    loaded: LoadedModel,
    folder: Path,
    *,
    store_folder: Path | None = None,
    tasks: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Write every file of `precomputed/demo/results` for the shipped model.

    store_folder: where measured cells are kept, so that an interrupted build goes on; a temporary one if None.
    tasks: folder with local task files for `downstream`, which is left out without one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()  # a manifest of other weights would be refused
    with tempfile.TemporaryDirectory() as scratch, Store(store_folder or scratch) as store:
        plan = replace(preset("demo"), downstream_tasks=tasks)
        audit = Audit(loaded, plan, store, progress)
        names = [name for name in ANALYSES if tasks or name != "downstream"]
        report = run_analyses(audit, names, folder)
        log.info("seconds: %s", report["done"])
        scored, evaluation = audit.scored, audit.evaluation
    refusal(loaded, scored, folder, few(evaluation), progress)


def refusal(
    loaded: LoadedModel, scored: Scored, folder: Path, evaluation: Windows, progress: Progress | None
) -> None:
    """`contrast.safetensors` and `operating_points.parquet`: Algorithm 1, points chosen on calibration pairs."""
    watch = Stopwatch()
    calibration = contrast_pairs("demo", split="calibration")
    by_domain: dict[str, list[Pair]] = {}
    for pair in calibration:
        members = by_domain.setdefault(pair.domain, [])
        if len(members) < measure.CALIBRATION_PAIRS:
            members.append(pair)
    pairs = [pair for members in by_domain.values() for pair in members]
    spec: Json = {
        "scores": scored.spec,
        "pairs": {"source": "demo", "split": "calibration", "per_domain": measure.CALIBRATION_PAIRS},
    }
    found = contrasts(
        loaded,
        REFUSAL_SELECTORS,
        pairs,
        {name: scored.scores[name] for name in REFUSAL_SELECTORS},
        progress=progress,
    )
    save_contrasts(folder / "contrast.safetensors", found, canonical(spec))
    add_to_manifest(folder, loaded.fingerprint, "contrast.safetensors", spec, watch.elapsed_s)
    log.info("contrasts done after %.0f s", watch.elapsed_s)
    table = operating_points(loaded, found, by_domain, evaluation, progress)
    write_parquet(folder / "operating_points.parquet", table)
    spec |= {
        "lambdas": list(measure.LAMBDAS), "ks": list(measure.KS), "control_seeds": list(measure.CONTROL_SEEDS),
        "reply_tokens": measure.REPLY_TOKENS, "evaluation": evaluation.record(),
    }  # fmt: skip
    add_to_manifest(folder, loaded.fingerprint, "operating_points.parquet", spec, watch.elapsed_s)


def operating_points(
    loaded: LoadedModel,
    found: list[Contrast],
    calibration: dict[str, list[Pair]],
    evaluation: Windows,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """One row per selector and domain, as `measure.check` gives it."""
    rows = []
    for done, contrast in enumerate(found):
        heldout = contrast_pairs("demo", contrast.domain, "heldout")
        rows.append(measure.check(loaded, contrast, calibration[contrast.domain], heldout, evaluation))
        if progress:
            progress("refusal check", done + 1, len(found))
    return pl.DataFrame(rows, infer_schema_length=None)
