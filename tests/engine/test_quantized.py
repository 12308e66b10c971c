"""Checkpoints whose weights are packed otherwise than GGUF: the numbers that they stand for, or a line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harmless import harmless
from safetensors.torch import load_file, save_file
from tiny_models import save_tiny
from transformers import AutoModelForCausalLM

from engine.edits.edit import edit_of
from engine.edits.exporting import export_masked
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import fetch_model, load_model, load_rows, load_sketch
from engine.records.errors import InputError


def packed_folder(folder: Path, settings: dict[str, Any] | None) -> tuple[Path, dict[str, torch.Tensor]]:
    """A tiny Llama whose matrices are fp8 with one scale each, and the numbers that they stand for."""
    save_tiny("llama", folder)
    weights, numbers = {}, {}
    for name, weight in load_file(folder / "model.safetensors").items():
        weights[name] = numbers[name] = weight
        if "proj" in name:
            scale = (weight.abs().max() / 448).reshape(1, 1)
            weights[name] = (weight / scale).to(torch.float8_e4m3fn)
            weights[f"{name}_scale_inv"] = scale
            numbers[name] = weights[name].float() * scale
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "quantization_config": settings}))
    return folder, numbers


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


def test_fp8_is_its_numbers_and_is_exported_as_such(tmp_path: Path) -> None:
    folder, numbers = packed_folder(tmp_path / "fp8", FP8)
    loaded = load_model(str(folder), dtype="float32", device="cpu")
    assert loaded.fingerprint["dequantized_from"] == "fp8"
    assert loaded.name == "fp8 (from fp8)"
    weights = loaded.model.state_dict()
    assert weights.keys() - {"lm_head.weight"} == numbers.keys() - {"lm_head.weight"}
    assert all(torch.equal(weights[name], number) for name, number in numbers.items())
    assert not hasattr(loaded.model.config, "quantization_config")
    chosen = edit_of(np.array([3, 100]), loaded.rows.n_rows, kind="language model", spec={})
    effect = harmless(loaded.weights_hash, chosen.mask_hash)
    export_masked(find_checkpoint(str(folder)), chosen, tmp_path / "out", effect=effect)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").state_dict()
    differ = {name for name, number in weights.items() if not torch.equal(again[name], number)}
    assert len(differ) == 2
    assert all(again[name].dtype == torch.float32 for name in weights)
    assert "the numbers that the source's (fp8) stand for" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quant_method": "gptq", "bits": 4}, r"quantized \(gptq\), .* transformers has no `dequantize` for it; give"),
        ({"quant_method": "awq", "bits": 4}, r"quantized \(awq\), .* transformers has no `dequantize` for it; give"),
        (
            {"quant_method": ["a"]},
            "the installed transformers does not know this way; give the unquantized checkpoint$",
        ),
        ({"bits": 4}, r"quantized \(an unknown method\)"),
    ],
)
def test_what_cannot_be_unpacked_is_told_before_weights_are_fetched(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder, _ = packed_folder(tmp_path / "packed", settings)
    assert load_rows(str(folder)).n_rows
    for load in (load_sketch, fetch_model, load_model):
        with pytest.raises(InputError, match=said):
            load(str(folder))


def test_what_fails_to_unpack_here_is_a_line(tmp_path: Path) -> None:
    """bitsandbytes is not installed."""
    folder, _ = packed_folder(tmp_path / "packed", {"quant_method": "bitsandbytes", "load_in_4bit": True})
    with pytest.raises(InputError, match=r"unpacked here: ImportError: .*; give the unquantized checkpoint, or unpack"):
        load_model(str(folder), device="cpu")
