"""What analyses are told to take beforehand, against what they then compute."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tiny_audits import count_edits, tiny_audit
from tiny_models import save_tiny

from engine.models.loading import load_model, load_sketch
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.run_estimate import SWEEP, estimate
from engine.run.runner import LocalRunner
from engine.stats.removal_order import ORDERS
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.base import ANALYSES, conduct
from engine.studies.conduct import from_shapes

SCORING = {"selectors": ("random", "magnitude", "wanda", "lrp", "ig", "consensus2"), "seeds": (1, 2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("expected"))


@pytest.mark.long
@pytest.mark.parametrize("names", [("gap",), ("sweep",), ("gap", "seeds", "controls"), ("agreement",)])
def test_as_many_cells_as_are_computed(
    folder: Path, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(load_model(str(folder), device="cpu"), tiny_text, store, scoring=SCORING)
        found = from_shapes(AuditInputs, partial(load_sketch, str(folder), device="cpu"), audit.plan, names)
        seen = count_edits(monkeypatch)
        runner = LocalRunner(store)
        for name in names:
            conduct(ANALYSES.get(name).make(audit), audit, runner)
        rates = {"gap": audit.plan.gap_rates, "sweep": audit.plan.sweep_rates}.get(names[0], ())
        grid = audit.grid(audit.rankings, ORDERS, [rate for rate in rates if rate])
    asked = {(point.selector, point.seed, point.order, cell.edit.size) for point, cell in grid.items()}
    alike = len(asked) - len({cell.key for cell in grid.values()})  # where rankings give one mask, as of a single row
    controls = 0.1 * found.cells if "controls" in names else 0  # masks of controls may be the same rows
    assert alike <= found.cells - len(seen) <= alike + controls
    assert not found.partly


@pytest.mark.long
def test_flops_grow_by_the_cells(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        plan = tiny_audit(load_sketch(str(folder), device="cpu"), tiny_text, store, scoring=SCORING).plan
    sketch = partial(load_sketch, str(folder), device="cpu")
    forecast = partial(from_shapes, AuditInputs, sketch, plan)
    scores, some, more = forecast(("agreement",)), forecast(("gap",)), forecast(("gap", "sweep"))
    assert scores.cells == scores.flops(SWEEP) == 0
    one_cell = estimate(sketch(), replace(plan, sweep_rates=(0.0,)), RefusalPlan(), (SWEEP,)).flops
    assert [found.flops(SWEEP) for found in (some, more)] == [one_cell * found.cells for found in (some, more)]
    assert some.of.flops == scores.of.flops + some.flops(SWEEP)
    assert (more.partly, forecast(("dangerous",)).partly) == ((), ("dangerous",))  # draws only where a group is


def test_cells_of_other_scores_are_not_told(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    """Stability scores several times: what cannot be counted is said, and nothing is computed or kept."""
    with Store(tmp_path) as store:
        plan = tiny_audit(
            load_sketch(str(folder), device="cpu"), tiny_text, store, scoring=SCORING, stability_sizes=(2, 4)
        ).plan
    found = from_shapes(AuditInputs, partial(load_sketch, str(folder), device="cpu"), plan, ("stability",))
    assert (found.cells, found.partly) == (0, ("stability",))


def test_what_cannot_be_done_is_an_error(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        plan = tiny_audit(
            load_sketch(str(folder), device="cpu"), tiny_text, store, scoring=SCORING, stability_sizes=(10, 20)
        ).plan
    with pytest.raises(InputError):
        from_shapes(AuditInputs, partial(load_sketch, str(folder), device="cpu"), plan, ("stability",))
