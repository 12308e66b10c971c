"""Times from a probe: what is made from what was timed, told in words; and that what is counted is what runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_tiny

from engine.models.loading import LoadedModel, load_sketch
from engine.run import probe as probe_module
from engine.run.audit_plan import AuditPlan, ScorePlan
from engine.run.estimate import SCORE, SWEEP, estimate
from engine.run.probe import CellTime, SweepTimes, probe, sweep_seconds
from engine.run.refusal_plan import RefusalPlan

SPEED = 1e15  # FLOP/s: nothing is too long beforehand


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("probed"))


def plan_of(**changes: Any) -> AuditPlan:
    scoring = ScorePlan(selectors=("random", "magnitude", "wanda", "lrp"), samples=10, length=16, seeds=(1, 2))
    settings = {"eval_samples": 7, "eval_length": 16, "sweep_rates": (0.0, 0.1, 0.4, 0.8, 1.0)} | changes
    return AuditPlan(scoring=settings.pop("scoring", scoring), **settings)


class Clock:
    """Stands still but where it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(probe_module, "time", one)
    return one


def test_what_is_timed_is_scaled(
    folder: Path, tiny_llama: LoadedModel, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every window of a scoring pass takes .5 s, the rest of scoring 3 s; every window under a mask 2 s."""

    def scoring(loaded: LoadedModel, names: Any, text: Any, *, progress: Any = None, **_: Any) -> Any:
        if progress is None:  # for the masks
            return real(loaded, names, text, **_)
        for stage in ("activations", "lrp"):
            progress(stage, 0, len(text.input_ids))
            clock.now += 0.5 * len(text.input_ids)
            progress(stage, len(text.input_ids), len(text.input_ids))
        clock.now += 3.0
        return {}

    def passed(_: Any, text: Any, batch_size: int) -> None:
        clock.now += 2.0 * len(text.input_ids)

    real = probe_module.compute_scores
    monkeypatch.setattr(probe_module, "compute_scores", scoring)
    monkeypatch.setattr(probe_module, "negative_log_likelihood", passed)
    plan = plan_of()
    found = estimate(load_sketch(str(folder), device="cpu"), plan, RefusalPlan(), [SCORE, SWEEP])
    score, sweep = probe(tiny_llama, plan, found, SPEED, 1e6)
    assert score.seconds == pytest.approx(3 + 2 * 0.5 * 10)
    assert score.made_from == "every selector on 10 windows of 16 tokens in one batch, of 10 in batches of 10"
    # 5 rankings (random's two seeds), both orders, three rates within, the unedited model and the one without a row
    cells = 5 * 2 * 3 + 2
    assert sweep.seconds == pytest.approx(cells * 7 * 2.0)
    assert sweep.made_from == (
        "the unedited model on 7 windows of 16 tokens and 9 masks of random and wanda (rates 0.1, 0.4, 0.8); other "
        f"masks kill other neurons, of {cells} cells"
    )
    assert score.took_s + sweep.took_s == pytest.approx(clock.now)
    # With less time, on fewer windows, to the same end.
    some = probe(tiny_llama, plan, found, SPEED, 30.0)
    assert [one.seconds for one in some] == pytest.approx([score.seconds, sweep.seconds])
    assert "on 1 window of 16 tokens" in some[0].made_from
    assert "on 2 windows of 16 tokens and 3 masks of random and wanda (rates 0.4)" in some[1].made_from
    # With so little that the products alone would take longer, nothing runs.
    before = clock.now
    none = probe(tiny_llama, plan, found, 1.0, 10.0)
    assert [one.seconds for one in none] == [None, None]
    assert "1 window of 16 tokens through every pass of the scores would take" in none[0].made_from
    assert clock.now == before


def test_cells_take_what_masks_like_theirs_take() -> None:
    """Between the rates that were timed by a straight line, from the unedited model's on."""
    rates = (0.0, 0.2, 0.4, 0.6, 0.8)
    scoring = ScorePlan(selectors=("random", "wanda", "lrp"), seeds=(1, 2, 3))
    plan = plan_of(scoring=scoring, sweep_rates=rates, eval_samples=5)
    random = {0.4: CellTime(1.0, 0.4), 0.8: CellTime(1.0, 0.2)}
    ranked = {(order, rate): CellTime(0.0, one) for order, of in (("lerf", (0.3, 0.1)), ("morf", (0.9, 0.5)))
              for rate, one in zip((0.4, 0.8), of, strict=True)}  # fmt: skip
    times = SweepTimes(CellTime(0.0, 0.8), random, ranked)
    expected = 4.0  # the unedited model, once: five windows of .8 s
    expected += 2 * 3 * sum((3.5, 3.0, 2.5, 2.0))  # random at .2 to .8, both orders, three seeds
    expected += 2 * sum((2.75, 1.5, 1.0, 0.5))  # two selectors, LeRF
    expected += 2 * sum((4.25, 4.5, 3.5, 2.5))
    assert sweep_seconds(plan, times) == pytest.approx(expected)
    more = replace(plan, more_interventions=("mean",))
    assert sweep_seconds(more, times) == pytest.approx(expected + 4.0 * 5 * 2 * 4)
    fewer = replace(more, more_rates=(0.0, 0.3, 1.0))
    assert sweep_seconds(fewer, times) == pytest.approx(expected + 4.0 * (5 * 2 * 1 + 1))
    without = replace(more, sweep_rates=plan.sweep_rates[1:], more_rates=(0.0, 0.3))
    assert sweep_seconds(without, times) == pytest.approx(expected + 4.0 * 5 * 2)  # unedited, once all the same
    one_order = replace(plan, orders=("lerf",))
    assert sweep_seconds(one_order, times) == pytest.approx(4.0 + 3 * 11.0 + 2 * 5.75)


def test_a_probe_leaves_the_model_as_it_was(tiny_llama: LoadedModel, folder: Path) -> None:
    import torch

    before = {name: value.clone() for name, value in tiny_llama.model.state_dict().items()}
    plan = plan_of()
    found = estimate(load_sketch(str(folder), device="cpu"), plan, RefusalPlan(), [SCORE, SWEEP])
    timed = probe(tiny_llama, plan, found, SPEED, 0.5)
    assert [one.stage for one in timed] == [SCORE, SWEEP]
    assert all(one.seconds is not None and 0 < one.seconds < 1e4 for one in timed)
    after = tiny_llama.model.state_dict()
    assert all(torch.equal(values, after[name]) for name, values in before.items())
