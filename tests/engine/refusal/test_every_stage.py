"""Every stage of `refusal` does something, also in the first run: one run of all of them on the tiny model. What their
numbers are is asked by the long tests."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from refusal_helpers import ThirdJudge

from engine.edits.contrasts import load_contrasts
from engine.judges.base import Exchange, Verdict
from engine.results.folders import read_table
from engine.run.runner import LocalRunner
from engine.studies.base import STAGES
from engine.studies.conduct import run_studies
from engine.studies.refusal.refusal_inputs import RefusalInputs


class ByPrompt(ThirdJudge):
    """So that every mask within the limits is an operating point."""

    def judge(self, exchanges: Sequence[Exchange], progress: Any = None) -> list[Verdict]:
        return [Verdict(one.prompt.startswith("Sorry"), "") for one in exchanges]


def test_tables_have_the_lines_that_the_plan_asks_for(tiny_run: Callable[..., RefusalInputs], tmp_path: Path) -> None:
    run = tiny_run(
        selectors=("grad_x_input",), domains=("mats", "cups"), calibration_pairs=4, heldout_pairs=1, eval_samples=1,
        ks=(0.2,), lambdas=(0.2,), reply_tokens=2, control_seeds=(4, 5), splits=1, draws=3,
        steering_coefficients=(0.1,),
    )  # fmt: skip
    run, out = replace(run, judge=ByPrompt()), tmp_path / "out"
    report = run_studies(run, STAGES.names(), out, LocalRunner(run.store))
    assert set(report["done"]) == set(STAGES.names())
    assert report["tables"] == {f"{stem}.parquet": height for stem, height in {
        "refusal_sweep": 2 * 2, "operating_points": 2, "signal_density": 2, "refusal_jaccard": 2,
        "refusal_shares": 2 * 2 * 9, "refusal_controls": 2 * 2 * 2, "transfer": 2 * 2, "refusal_replies": 2 * 2 * 2,
        "composed": 2 * 4, "composed_sweep": 2, "mask_stability": 2, "refusal_parts": 2 * 9, "baselines": 2 * 15,
        "specificity": 2, "refusal_draws": 2 * 3,
    }.items()}  # fmt: skip
    masks = {path.stem.rpartition("-")[2] for path in out.glob("mask-*")}
    contrasts, _ = load_contrasts(out / "contrast.safetensors")
    assert masks - {"mats+cups"} == {one.domain for one in contrasts} == {"mats", "cups"} < masks
    parts = read_table(out, "refusal_parts")
    assert parts["margin_alone"].n_unique() == parts["margin_without"].n_unique() == parts.height
