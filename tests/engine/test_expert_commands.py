"""Commands on models with routed experts and on GPT-2: rows, score, mask, sweep by weights and by text."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from tiny_models import load_tiny

from engine.cli import main
from engine.data.corpora import windows
from engine.edits.contrasts import read_mask
from engine.interventions.in_weights import zeroed
from engine.measures.nll import negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.records.manifest import read_manifest

SMALL = ("--samples", "3", "--max-length", "16")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def call(*arguments: object, store: bool = True) -> tuple[int, str, str]:
        extra = ["--store", str(tmp_path / "store")] if store else []
        code = main([*map(str, arguments), *extra])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module", params=["mixtral", "gpt2"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param))


def test_rows_counts_experts_in_one_line_and_says_what_is_kept(run: Run, tmp_path: Path) -> None:
    mixtral = load_tiny("mixtral", tmp_path / "mixtral")
    code, out, _ = run("rows", mixtral.id, "--json", store=False)
    assert code == 0
    told = json.loads(out)
    rows = {entry["projection"]: entry["rows"] for entry in told["projections"]}
    assert rows["mlp.experts.*.gate_proj"] == 2 * 5 * 14
    assert sum(rows.values()) == told["rows"] == mixtral.rows.n_rows
    assert told["kept"] == "2 routers"
    code, out, _ = run("rows", mixtral.id, store=False)
    words = " ".join(out.split())
    assert "not rows, always kept: norms, 2 routers" in words
    assert "means over the tokens that the expert sees, and 0 where it sees none" in words
    _, out, _ = run("rows", load_tiny("mamba", tmp_path / "mamba").id, store=False)
    assert "kept: norms, 2 convolutions, 2 time steps, 2 state-space parameters" in " ".join(out.split())
    assert "routed expert" not in out


@pytest.mark.first_run("mixtral")
def test_score_mask_and_sweep_agree(run: Run, loaded: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    """The sweep's NLL of a cell is that of the mask file's rows set to zero: 1e-5, neurons may be skipped there."""
    chosen = ("--selectors", "magnitude,random,wanda,grad_x_input", "--corpus", tiny_text, *SMALL)
    out = tmp_path / "out"
    code, _, err = run("score", loaded.id, *chosen, "--out", out)
    assert code == 0, err
    told = "note: scores that read text are, for rows of a routed expert, means over the tokens that the expert sees"
    assert (told in err) == ("experts" in read_manifest(out)["files"]["scores.safetensors"]["spec"])
    assert (told in err) == any("experts" in layer.name for layer in loaded.rows.layers)
    scores = load_file(out / "scores.safetensors")
    assert pl.read_parquet(out / "rows.parquet").equals(loaded.rows.frame())
    evaluation = ("--eval-corpus", tiny_text, "--eval-samples", "3", "--eval-length", "16")
    code, _, err = run("sweep", loaded.id, *chosen, *evaluation, "--rates", "0,0.3", "--orders", "lerf", "--out", out)
    assert code == 0, err
    found = pl.read_parquet(out / "sweep.parquet")
    text = windows(
        str(tiny_text), loaded.tokenizer, role="evaluation", samples=3, length=16, skip_tokens=3 * 16
    )  # calibration has had the first
    for selector in ("magnitude", "wanda", "grad_x_input"):
        file = tmp_path / f"{selector}.safetensors"
        code, _, err = run(
            "mask", loaded.id, "--selector", selector, "--rate", "30%", "--corpus", tiny_text, *SMALL, "--out", file
        )
        assert code == 0, err
        mask, _ = read_mask(file, loaded.rows.n_rows, loaded.weights_hash)
        order = np.argsort(scores[selector], kind="stable")
        assert mask.tolist() == sorted(order[: round(0.3 * loaded.rows.n_rows)].tolist())
        with zeroed(loaded, mask):
            nll = negative_log_likelihood(loaded, text).nats_per_token
        cell = found.filter(selector=selector, rate=0.3)
        assert cell["nll"].item() == pytest.approx(nll, rel=1e-5)
        assert cell["nll"].item() != found.filter(selector=selector, rate=0.0)["nll"].item()
