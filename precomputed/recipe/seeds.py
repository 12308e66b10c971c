"""The required properties on every training seed: one record per seed, kept beside the model."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from engine.data.corpora import windows
from engine.judges.embedded import EmbeddedJudge
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.refusal_plan import demo_plan
from engine.run.runner import LocalRunner
from engine.selectors import compute_scores
from engine.studies.base import conduct
from engine.studies.refusal.operating_point import POINTS
from engine.studies.refusal.points import Controlled
from engine.studies.refusal.refusal_inputs import RefusalInputs
from precomputed.recipe import demo_measure as measure, demo_results as results
from precomputed.recipe.check import checked

SHIPPED, SECOND = 2, 1  # training seeds; of the second only the numbers are kept
RATES = {"lerf": (0.1, 0.2, 0.3, 0.5), "morf": (0.1,)}
FAITHFUL = ("lrp", "ig", "consensus2")
CONTROLS = tuple(range(42, 62))
OTHERS = ("random", "magnitude", "wanda", "mean_activation")


def record(loaded: LoadedModel, seed: int, demo: Path) -> dict[str, Any]:
    """Of one training seed: NLL in nats per token at a few rates for all selectors, refusal with lrp, the replies."""
    samples, length = results.CALIBRATION
    calibration = windows(
        str(demo / "corpus/calibration.txt"),
        loaded.tokenizer,
        role="calibration",
        samples=samples,
        length=length,
    )
    evaluation = results.evaluation_windows(loaded, str(demo / "corpus/evaluation.txt"))
    scores = compute_scores(loaded, [*OTHERS, *FAITHFUL], calibration)
    arrays = {name: values.numpy() for name, values in scores.items()}
    nll = {
        order: {f"{rate:.2f}": measure.masked_nll(loaded, arrays, order, rate, evaluation) for rate in rates}
        for order, rates in RATES.items()
    }
    points = refusal_with_lrp(loaded, demo)
    return {
        "seed": seed,
        "weights_hash": loaded.weights_hash,
        "dense_nll": negative_log_likelihood(loaded, evaluation).nats_per_token,
        "nll": nll,
        "refusal": points.drop("model").to_dicts(),
        "replies": checked(loaded),
    }


def refusal_with_lrp(loaded: LoadedModel, demo: Path) -> pl.DataFrame:
    """`operating_points` of Algorithm 1 with lrp, all domains, beside layer-matched random masks (`CONTROLS`)."""
    plan = demo_plan()
    plan = replace(
        plan,
        selectors=("lrp",),
        control_seeds=CONTROLS,
        pairs=str(demo / "prompts.jsonl"),
        scoring=replace(plan.scoring, corpus=str(demo / "corpus/calibration.txt")),
        eval_corpus=str(demo / "corpus/evaluation.txt"),
    )
    with tempfile.TemporaryDirectory() as scratch, Store(scratch) as store:
        run = RefusalInputs(loaded, plan, store, EmbeddedJudge())
        return conduct(Controlled(run), run, LocalRunner(store))[POINTS]


def margins(one: dict[str, Any]) -> dict[str, float]:
    """How far the requirements are met, in nats: room at 30% LeRF per selector, and damage at 10% MoRF."""
    lerf, morf = one["nll"]["lerf"]["0.30"], one["nll"]["morf"]["0.10"]
    best_other = min(lerf[name] for name in OTHERS)
    found = {f"lerf {name}": best_other - lerf[name] for name in FAITHFUL}
    return found | {f"morf {name}": morf[name] - one["dense_nll"] for name in ("lrp", "consensus2")}


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
