"""Weights read without torch against safetensors' own reader."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import precomputed
from dashboard.state import weights
from engine.records.errors import InputError

NAME = "model.layers.{}.self_attn.{}.weight"


@pytest.fixture
def model_file(tmp_path, monkeypatch):
    monkeypatch.setattr(precomputed, "demo_model_dir", lambda: tmp_path)
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values_are_exactly_those_of_the_file(model_file, dtype):
    generator = torch.Generator().manual_seed(1)
    tensors = {
        NAME.format(block, projection): torch.randn(3 + block, 5, generator=generator).to(dtype)
        for block in (1, 0)
        for projection in ("q_proj", "v_proj")
    }
    tensors["model.layers.0.input_layernorm.weight"] = torch.ones(5).to(dtype)
    tensors["model.embed_tokens.weight"] = torch.ones(2, 5).to(dtype)
    save_file(tensors, model_file)
    found = weights.matrices()
    assert [entry.block for entry in found] == [0, 0, 1, 1]
    assert {(entry.projection, entry.shape) for entry in found} == {
        (name, (rows, 5)) for name in ("q_proj", "v_proj") for rows in (3, 4)
    }
    for block in (0, 1):
        for projection in ("q_proj", "v_proj"):
            read = weights.matrix(block, projection)
            assert read.dtype == np.float32
            np.testing.assert_array_equal(read, tensors[NAME.format(block, projection)].float().numpy())


def test_the_shipped_model_is_read_as_by_safetensors():
    tensors = load_file(precomputed.demo_model_dir() / "model.safetensors")
    projections = [name for name in tensors if name.endswith("_proj.weight")]
    assert len(weights.matrices()) == len(projections)
    for entry in weights.matrices():
        (name,) = (n for n in projections if f".{entry.block}." in n and f".{entry.projection}." in n)
        np.testing.assert_array_equal(weights.matrix(entry.block, entry.projection), tensors[name].float().numpy())


@pytest.mark.parametrize("content", [b"", b"\x05\0\0\0\0\0\0\0{}", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_damaged_file_is_one_clear_line(model_file, content):
    model_file.write_bytes(content)
    with pytest.raises(InputError, match="restore it") as caught:
        weights.matrices()
    assert "\n" not in str(caught.value)


def test_a_cut_file_is_noticed_by_its_header(model_file):
    save_file({NAME.format(0, "q_proj"): torch.ones(4, 4)}, model_file)
    model_file.write_bytes(model_file.read_bytes()[:-8])
    with pytest.raises(InputError, match=r"names 168 bytes, it has 160\); restore it"):
        weights.matrix(0, "q_proj")


def test_what_is_not_there_is_said(model_file):
    with pytest.raises(InputError, match="restore it"):
        weights.matrices()
    save_file({NAME.format(0, "q_proj"): torch.ones(2, 2)}, model_file)
    with pytest.raises(InputError, match="no k_proj in block 0"):
        weights.matrix(0, "k_proj")
