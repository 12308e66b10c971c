"""A card that is not there, in a child process: nothing mixes devices, and peaks are those of `estimate`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_tiny

CHILD = Path(__file__).parents[1] / "pretend_device.py"
ROOT = CHILD.parents[1]
# Wide enough that tensors, not single numbers, make the peak.
WIDE: dict[str, Any] = {"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 3, "head_dim": 24}
MIXED = "Expected all tensors to be on the same device"
PASSES = {
    "scoring": {"activations", "lrp", "plain gradients", "integrated gradients", "masked gradients"},
    "sweep": {
        "nll", "nll, windows", "nll, rows removed in the weights", "nll, rows removed at the outputs",
        "nll, logits in pieces", "nll, batches", "fidelity",
    },
    "generation": {"replies"},
}  # fmt: skip

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    more: dict[str, Any] = {}
    if request.param == "gemma3_text":
        more = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
    return save_tiny(request.param, tmp_path_factory.mktemp(request.param), **WIDE, **more)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"), **WIDE)


@pytest.fixture(scope="module")
def ended(folder: Path) -> tuple[int, list[dict[str, Any]], str]:
    """Every pass, once for all."""
    return child(folder)


def child(folder: Path, *options: str) -> tuple[int, list[dict[str, Any]], str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CHILD), str(folder), *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_every_pass_runs_on_one_device_and_takes_what_the_estimate_says(
    ended: tuple[int, list[dict[str, Any]], str],
) -> None:
    code, said, err = ended
    assert code == 0, err
    assert [one for one in said if "error" in one] == []
    found = {stage: {one["what"] for one in said if one["stage"] == stage} for stage in PASSES}
    assert found == PASSES
    compared = {one["what"]: one for one in said if one["estimate_bytes"] is not None}
    assert compared.keys() == {"activations", "lrp", "plain gradients", "integrated gradients", "nll"}
    for one in compared.values():
        assert one["peak_bytes"] == pytest.approx(one["estimate_bytes"], rel=0.15), one


def test_no_batch_of_a_cell_waits_for_another(ended: tuple[int, list[dict[str, Any]], str]) -> None:
    """What the host asks of the device, it asks when all batches are on their way; `window_nll` asks for its sums."""
    asked = {one["what"]: one["asked"] for one in ended[1] if one["stage"] == "sweep"}
    assert asked["nll, batches"] == asked["fidelity"] == 0
    assert asked["nll, windows"] == 1


@pytest.mark.parametrize("stage", ["scoring", "sweep", "generation"])
def test_a_tensor_of_the_host_among_them_is_an_error(tiny: Path, stage: str) -> None:
    code, said, err = child(tiny, "--fault", stage)
    assert code == 0, err
    assert {one["what"] for one in said} == PASSES[stage]
    assert all(one.get("error", "").startswith(MIXED) for one in said), said


def test_one_that_meets_a_gradient_ends_the_process(tiny: Path) -> None:
    """The error comes up in a thread of the autograd engine; passes without gradients were through by then."""
    code, said, err = child(tiny, "--fault", "backward")
    assert code != 0
    assert [(one["what"], "error" in one) for one in said] == [("activations", False)]
    assert "terminate called" in err or "run_backward" in err
