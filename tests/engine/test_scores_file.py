"""`scores.safetensors`: equal bytes for equal scores, readable by the library that others use."""

from pathlib import Path

import torch
from safetensors import safe_open

from engine.models.loading import LoadedModel
from engine.run.scoring import Scored, write_scores


def test_equal_scores_are_equal_bytes(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    """The library alone gives one of two orders of the metadata at each call: equal by chance once in 2,048 runs."""
    torch.manual_seed(3)
    rows = tiny_llama.rows.n_rows
    scores = {"random": torch.rand(2, rows), "lrp": torch.rand(rows)}
    scored = Scored(scores, (42, 43), {"selectors": ["random", "lrp"], "calibration": None}, 0.0)
    files = []
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_scores(folder, tiny_llama, scored)
        files.append(folder / "scores.safetensors")
    assert len({path.read_bytes() for path in files}) == 1
    with safe_open(files[0], framework="pt") as file:
        assert set(file.metadata()) == {"model", "spec"}
        for name, values in scores.items():
            assert torch.equal(file.get_tensor(name), values)
