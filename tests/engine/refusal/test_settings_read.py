"""Every stage offers the settings that it reads, and no other: their reads are traced on a small run."""

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from refusal_helpers import small_plan

from engine.judges.embedded import EmbeddedJudge
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import LocalRunner
from engine.studies.base import STAGES, conduct
from engine.studies.refusal.inputs import RefusalInputs

NAMES = frozenset(one.name for one in fields(RefusalPlan))
# Only where a condition holds that this run does not meet: cut-off replies, a file of the judge's errors.
SOMETIMES = {"longer_replies", "judge_quality"}
# Who judges is read where the command opens the judge.
BY_THE_COMMAND = {"judge"}
PLAIN = {"system", "thinking"}  # `RefusalInputs.plain` looks at them to leave them out: contrasts are made without
RECORDS = ("spec", "calibration_spec", "_heldout_record", "__post_init__", "value")  # for the manifest, and checks
reads: set[str] = set()


class TracedPlan(RefusalPlan):
    """Notes which of its fields code of ours reads; what dataclasses read to copy or compare a plan counts for none."""

    def __getattribute__(self, name: str) -> Any:
        if name in NAMES:
            caller = sys._getframe(1).f_code
            copied = "dataclasses" in caller.co_filename or caller.co_filename == "<string>"
            if not copied and caller.co_name not in RECORDS:
                reads.add(name)
        return super().__getattribute__(name)


@pytest.fixture
def traced(demo: LoadedModel, tmp_path: Path) -> Iterator[RefusalInputs]:
    plan = small_plan(
        selectors=("mean_activation",), domains=("hate", "crime"), draws=2, splits=1, steering_coefficients=(0.1,),
        steering_depths=(0.5,), heldout_pairs=2, ks=(0.01,), lambdas=(0.2,),
        calibration_pairs=4, perplexity_factor=None, reply_samples=1, follow_up="Please go on.",
    )  # fmt: skip
    own = TracedPlan(**{one.name: getattr(plan, one.name) for one in fields(plan)})
    with Store(tmp_path / "store") as store:
        reads.clear()
        yield RefusalInputs(demo, own, store, EmbeddedJudge(), runner=LocalRunner(store))


@pytest.mark.first_run("calibrate|structure")
@pytest.mark.parametrize("name", STAGES.names())
def test_a_stage_offers_what_it_reads_and_no_other_setting(traced: RefusalInputs, name: str):
    info = STAGES.get(name)
    runner = LocalRunner(traced.store)
    study = info.make(traced)
    if name == "calibrate":
        traced.prepare([])
    tables = conduct(study, traced, runner)
    study.record(traced)
    study.masks(traced, runner.results)
    assert set(tables) <= set(info.tables) | {"operating_points", "refusal_sweep"}
    assert reads <= info.settings | (set() if info.measures else PLAIN), reads - info.settings
    assert info.settings - reads <= SOMETIMES | BY_THE_COMMAND, info.settings - reads
