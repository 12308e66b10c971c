"""Every stage offers the settings that it reads, and no other: their reads are traced on a small run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from refusal_helpers import small_plan
from traced_reads import reads_of

from engine.judges.embedded import EmbeddedJudge
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import LocalRunner
from engine.studies.base import STAGES, conduct
from engine.studies.refusal.refusal_inputs import RefusalInputs

SOMETIMES = {"longer_replies", "judge_quality"}  # with cut-off replies, a file of the judge's errors: not in this run
BY_THE_COMMAND = {"judge"}  # read where the command opens it
PLAIN = {"system", "thinking"}  # `RefusalInputs.plain` looks at them to leave them out: contrasts are made without


@pytest.fixture
def small_run(demo: LoadedModel, tmp_path: Path) -> Iterator[RefusalInputs]:
    plan = small_plan(
        selectors=("mean_activation",), domains=("hate", "crime"), draws=2, splits=1, steering_coefficients=(0.1,),
        steering_depths=(0.5,), heldout_pairs=2, ks=(0.01,), lambdas=(0.2,),
        calibration_pairs=4, perplexity_factor=None, reply_samples=1, follow_up="Please go on.",
    )  # fmt: skip
    with Store(tmp_path / "store") as store:
        yield RefusalInputs(demo, plan, store, EmbeddedJudge(), runner=LocalRunner(store))


@pytest.mark.first_run("calibrate|structure")
@pytest.mark.parametrize("name", STAGES.names())
def test_a_stage_offers_what_it_reads_and_no_other_setting(small_run: RefusalInputs, name: str):
    info = STAGES.get(name)
    runner = LocalRunner(small_run.store)
    with reads_of(RefusalPlan) as reads:
        study = info.make(small_run)
        if name == "calibrate":
            small_run.prepare([])
        tables = conduct(study, small_run, runner)
        study.record(small_run)
        study.masks(small_run, runner.results)
    assert set(tables) <= set(info.tables) | {"operating_points", "refusal_sweep"}
    assert reads <= info.settings | (set() if info.measures else PLAIN), reads - info.settings
    assert info.settings - reads <= SOMETIMES | BY_THE_COMMAND, info.settings - reads
