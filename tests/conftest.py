"""Fixtures that all tests share. Models are loaded once per session; tests leave their weights as they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Before anything imports huggingface_hub: no test reaches for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tiny models are slower on several threads, and much slower when several processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if TYPE_CHECKING:
    from torch import Tensor

    from engine.corpora import Windows
    from engine.models import LoadedModel

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text", "gemma3", "mistral", "phi", "olmo", "gpt_neox")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random Llama of two blocks, float32, CPU."""
    from tiny_models import load_tiny

    return load_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session", params=FAMILIES)
def tiny_family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random model of every supported family in turn, float32, CPU."""
    from tiny_models import load_tiny

    return load_tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def float64_on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Fails where a tensor becomes float64 that was not brought to the CPU before: MPS has no float64."""
    import torch

    moved: list[Tensor] = []
    to_cpu, to_double = torch.Tensor.cpu, torch.Tensor.double

    def cpu(tensor: Tensor) -> Tensor:
        moved.append(to_cpu(tensor))
        return moved[-1]

    def double(tensor: Tensor) -> Tensor:
        assert any(tensor is one for one in moved), "float64 before .cpu()"
        return to_double(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    monkeypatch.setattr(torch.Tensor, "double", double)
    return moved


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text file of our own, documents separated by blank lines."""
    from tiny_models import text

    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(text(), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_windows(tiny_llama: LoadedModel, tiny_text: Path) -> Windows:
    """Six windows of 16 tokens of `tiny_text`; all tiny models share the tokenizer."""
    from engine.corpora import windows

    return windows(str(tiny_text), tiny_llama.tokenizer, role="calibration", samples=6, length=16)
