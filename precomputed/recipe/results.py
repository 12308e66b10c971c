"""The shipped results: the audit and the refusal experiment of the demo model, computed by the engine."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.analysis.audit import Audit
from engine.analysis.plan import preset
from engine.analysis.run import ANALYSES, run_analyses
from engine.corpora import Windows, windows
from engine.evaluation.judges import EmbeddedJudge
from engine.models import LoadedModel
from engine.refusal.experiment import run_experiment
from engine.refusal.plan import demo_plan
from engine.refusal.run import RefusalRun
from engine.store import Store

log = logging.getLogger(__name__)

_PLAN = preset("demo")
CALIBRATION = (_PLAN.scoring.samples, _PLAN.scoring.length)
EVALUATION = (_PLAN.eval_samples, _PLAN.eval_length)
FAITHFUL = ("lrp", "ig", "consensus2")
COMPOSED = ("hate", "crime")

Progress = Callable[[str, int, int], None]


def evaluation_windows(loaded: LoadedModel, corpus: str) -> Windows:
    samples, length = EVALUATION
    return windows(corpus, loaded.tokenizer, role="evaluation", samples=samples, length=length)


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
    with _store(store_folder) as store:
        plan = replace(preset("demo"), downstream_tasks=tasks)
        audit = Audit(loaded, plan, store, progress)
        names = [name for name in ANALYSES if tasks or name != "downstream"]
        report = run_analyses(audit, names, folder)
        log.info("seconds: %s", report["done"])
        refusal(loaded, folder, store, progress)


def refusal_only(loaded: LoadedModel, folder: Path, *, store_folder: Path | None = None) -> None:
    """Write the tables of refusal editing again, beside what `build` wrote."""
    with _store(store_folder) as store:
        refusal(loaded, folder, store)


def refusal(loaded: LoadedModel, folder: Path, store: Store, progress: Progress | None = None) -> None:
    """Every stage of refusal editing, and one mask for hate and crime; the plan is `demo_plan`'s."""
    run = RefusalRun(loaded, demo_plan(), store, EmbeddedJudge(), progress)
    seconds = run_experiment(run, folder, composed=COMPOSED, composed_selectors=FAITHFUL)
    log.info("refusal, seconds: %s", seconds)


@contextmanager
def _store(folder: Path | None) -> Iterator[Store]:
    """The store in a folder, or a temporary one."""
    with tempfile.TemporaryDirectory() as scratch, Store(folder or scratch) as store:
        yield store
