"""The shipped results: the audit and the refusal experiment of the demo model, computed by the engine."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from engine.commands.refusal.run import STAGES_OF_RUN
from engine.data.corpora import Windows, windows
from engine.judges.embedded import EmbeddedJudge
from engine.models.loading import LoadedModel
from engine.records.manifest import MANIFEST, read_manifest
from engine.results.store import Store
from engine.run.audit_plan import preset
from engine.run.refusal_plan import demo_plan
from engine.run.runner import LocalRunner
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import all_analyses
from engine.studies.conduct import run_studies
from engine.studies.refusal.points import Chosen
from engine.studies.refusal.refusal_inputs import RefusalInputs

log = logging.getLogger(__name__)

_PLAN = preset("demo")
CALIBRATION = (_PLAN.scoring.samples, _PLAN.scoring.length)
EVALUATION = (_PLAN.eval_samples, _PLAN.eval_length)
FAITHFUL = ("lrp", "ig", "consensus2")
COMPOSED = ("hate", "crime")
DRAWN = ("lrp",), ("hate",)  # selectors, domains: every draw is a sweep, and all 25 edits would need 499 for Holm's .05

Progress = Callable[[str, int, int], None]


def evaluation_windows(loaded: LoadedModel, corpus: str) -> Windows:
    samples, length = EVALUATION
    return windows(corpus, loaded.tokenizer, role="evaluation", samples=samples, length=length)


def build(
    loaded: LoadedModel,
    folder: Path,
    *,
    store_folder: Path | None = None,
    progress: Progress | None = None,
) -> None:
    """Write every file of `precomputed/demo/results` for the shipped model.

    store_folder: where measured cells are kept, so that an interrupted build goes on; a temporary one if None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFEST).is_file():  # one of other weights would be refused
        for name in [*read_manifest(folder)["files"], MANIFEST]:
            (folder / name).unlink(missing_ok=True)
    with _store(store_folder) as store:
        audit = AuditInputs(loaded, preset("demo"), store, progress)
        report = run_studies(audit, all_analyses(), folder, LocalRunner(store, progress))
        log.info("seconds: %s", report["done"])
        refusal(loaded, folder, store, progress)


def refusal_only(loaded: LoadedModel, folder: Path, *, store_folder: Path | None = None) -> None:
    """Write the tables of refusal editing again, beside what `build` wrote."""
    with _store(store_folder) as store:
        refusal(loaded, folder, store)


def refusal(loaded: LoadedModel, folder: Path, store: Store, progress: Progress | None = None) -> None:
    """Every stage of refusal editing, and one mask for hate and crime; of these two domains the stability of the masks,
    the baselines, and draws beside one edit. The plan is `demo_plan`'s."""
    run = RefusalInputs(loaded, demo_plan(), store, EmbeddedJudge(), progress)
    runner = LocalRunner(store, progress)
    two = replace(run, plan=replace(run.plan, domains=COMPOSED))
    own = {
        "compose": replace(two, plan=replace(two.plan, selectors=FAITHFUL)),
        "stability": two,
        "baselines": two,
        "draws": replace(run, plan=replace(run.plan, selectors=DRAWN[0], domains=DRAWN[1])),
    }
    names = (*STAGES_OF_RUN, *own)
    report = run_studies(run, names, folder, runner, makers={"sweep": Chosen}, inputs_of=own)
    log.info("refusal, seconds: %s", report["done"])


@contextmanager
def _store(folder: Path | None) -> Iterator[Store]:
    """The store in a folder, or a temporary one."""
    with tempfile.TemporaryDirectory() as scratch, Store(folder or scratch) as store:
        yield store
