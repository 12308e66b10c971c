"""Results folders with scores of a tiny model, for tests of the Rows page."""

from collections.abc import Sequence
from pathlib import Path

import torch

SELECTORS = ("lrp", "magnitude", "random")


def write_scored(folder: Path, model: Path | str, seed: int = 0, selectors: Sequence[str] = SELECTORS) -> Path:
    """`scores.safetensors`, `rows.parquet` and manifest for the model saved at `model`; scores drawn from `seed`."""
    from engine.models.loading import load_model
    from engine.run.scoring import Scored, write_scores

    loaded = load_model(str(model), dtype="float32", device="cpu")
    generator = torch.Generator().manual_seed(seed)
    n = loaded.rows.n_rows
    scores = {name: torch.rand((2, n) if name == "random" else (n,), generator=generator) for name in selectors}
    folder.mkdir(parents=True, exist_ok=True)
    write_scores(folder, loaded, Scored(scores, (42, 43), {"calibration": None}, 0.0))
    return folder
