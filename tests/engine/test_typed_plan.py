"""A plan as one would type it: the command makes the same plan of these words again."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.cli import build_parser
from engine.commands.analyze import audit_plan
from engine.commands.options import plan_from
from engine.commands.refusal.stage import plan_of
from engine.run.audit_plan import OF_SWEEP, PRESETS, AuditPlan, ScorePlan, for_model, preset
from engine.run.recorded_plan import Typed, typed, typed_audit
from engine.run.refusal_plan import default_plan
from engine.studies.base import analyze_groups

OTHER = "org/model"
parser = cache(build_parser)


def parsed(words: list[str], found: Typed) -> Any:
    return parser().parse_args([*words, *(f"{name}={value}" for name, value in found.options)])


def changed(text: Path) -> list[AuditPlan]:
    quick = preset("quick")
    return [
        replace(quick, scoring=ScorePlan(selectors=("lrp", "ig"), samples=7, seeds=(1, 2), batch_size=3, length=31)),
        replace(quick, eval_samples=9, control_rates=(0.125, 1 / 3), stability_sizes=(2, 4)),
        replace(AuditPlan(), scoring=ScorePlan(corpus=str(text)), downstream_items=17),  # the evaluation text stays
        replace(AuditPlan(), scoring=ScorePlan(corpus=str(text)), eval_corpus=str(text), domain_corpus=str(text)),
    ]


@pytest.mark.parametrize("model", [OTHER, "demo"])
def test_every_preset_is_its_name_alone(model: str) -> None:
    for name, one in PRESETS.items():
        plan = for_model(one.plan, model)
        found = typed_audit(plan, model, analyze_groups())
        assert found == Typed((("--preset", name),), ())


def test_analyze_makes_the_same_plan_of_the_words(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("words")
    for plan in changed(text):
        found = typed_audit(plan, OTHER, analyze_groups())
        assert found.untold == ()
        assert audit_plan(parsed(["analyze", OTHER, "gap"], found)) == plan


def test_sweep_makes_the_same_plan_of_the_words() -> None:
    plan = replace(AuditPlan(), sweep_rates=(0.0, 0.07, 1.0), orders=("morf",), more_interventions=("mean",))
    found = typed(plan, for_model(AuditPlan(), OTHER), OF_SWEEP)
    assert found.untold == ()
    args = parsed(["sweep", OTHER], found)
    assert plan_from(args, for_model(AuditPlan(), OTHER)) == plan


@pytest.mark.parametrize("model", [OTHER, "demo"])
def test_refusal_makes_the_same_plan_of_the_words(model: str) -> None:
    base = default_plan(model)
    plan = replace(
        base, pairs="demo", lambdas=(0.1, 0.25), heldout_pairs=None, max_perplexity=14.889, perplexity_factor=None,
        domains=("hate", "crime"), benign_limit=0.2,
    )  # fmt: skip
    found = typed(plan, base)
    if not any(name == "--pairs" for name, _ in found.options):
        found = Typed((("--pairs", "demo"), *found.options), found.untold)
    assert found.untold == ()
    assert plan_of(parsed(["refusal", "run", model], found)) == plan
    assert typed(replace(base, thinking=True), base).untold == ("thinking",)
