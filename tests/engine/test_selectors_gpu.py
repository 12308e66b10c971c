"""Selectors on a CUDA device, in float32 and bfloat16."""

from pathlib import Path

import pytest
import torch
from scipy.stats import spearmanr
from tiny_models import save_tiny

from engine.data.corpora import Windows
from engine.models.loading import load_model
from engine.selectors import available_selectors, compute_scores

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SELECTORS = [info.id for info in available_selectors()]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_devices_agree(family: str, tmp_path: Path, tiny_windows: Windows) -> None:
    folder = str(save_tiny(family, tmp_path))
    here, there = (load_model(folder, dtype="float32", device=device) for device in ("cpu", "cuda"))
    expected, found = (compute_scores(loaded, SELECTORS, tiny_windows) for loaded in (here, there))
    for selector in SELECTORS:
        # consensus2: rounding swaps neighbouring ranks; the others: float32 sums in another order
        tolerance = 0.02 if selector == "consensus2" else 1e-5
        torch.testing.assert_close(found[selector], expected[selector], rtol=1e-3, atol=tolerance)


def test_bfloat16_scores_are_finite_and_rank_alike(tmp_path: Path, tiny_windows: Windows) -> None:
    folder = str(save_tiny("llama", tmp_path))
    exact = compute_scores(load_model(folder, dtype="float32", device="cpu"), SELECTORS, tiny_windows)
    loaded = load_model(folder, device="cuda")
    assert loaded.dtype == "bfloat16"
    scores = compute_scores(loaded, SELECTORS, tiny_windows)
    assert torch.equal(scores["random"], exact["random"])
    for selector in SELECTORS:
        assert scores[selector].dtype == torch.float32
        assert scores[selector].isfinite().all()
        if selector != "random":
            assert spearmanr(scores[selector].numpy(), exact[selector].numpy()).statistic > 0.95
