"""Repositories with pickles or adapters only: the right hint. (That it comes before any weight: test_hub.py.)"""

import json
from pathlib import Path

import pytest

from engine.models.checkpoints import explained

SMALL = ["README.md", "config.json", "tokenizer.json", "generation_config.json"]
WAYS = {
    "only as pytorch_model.bin, which": [*SMALL, "pytorch_model.bin", "training_args.bin"],
    "only as pytorch_model-00001-of-00002.bin": [
        *SMALL, "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json",
    ],
    "is an adapter without its base model": [*SMALL, "adapter_config.json", "adapter_model.bin"],
    "holds an adapter beside its weights": [*SMALL, "adapter_config.json", "model.safetensors"],
}  # fmt: skip
FINE = {
    "one file": ["model.safetensors"], "both": ["model.safetensors", "pytorch_model.bin", "tiny.gguf"],
    "shards": ["model-00001-of-00002.safetensors", "model.safetensors.index.json"], "nothing known": [],
    "what a trainer leaves": ["training_args.bin", "optimizer.pt"],
}  # fmt: skip


@pytest.mark.parametrize("said", WAYS)
def test_what_a_repository_holds_instead(said: str) -> None:
    assert said in str(explained("org/tiny", WAYS[said]))


@pytest.mark.parametrize("way", FINE)
def test_what_is_fine_or_unknown_is_not_explained(way: str) -> None:
    assert explained("org/tiny", [*SMALL, *FINE[way]]) is None


def test_an_adapter_says_whose_it_is(tmp_path: Path) -> None:
    file = tmp_path / "adapter_config.json"
    for written, said in (
        (json.dumps({"base_model_name_or_path": "org/base"}), "without its base model org/base; merge"),
        (json.dumps({"base_model_name_or_path": None}), "without its base model; merge"),
        ("[]", "without its base model; merge"),
        ("{", "without its base model; merge"),
    ):
        file.write_text(written)
        assert said in str(explained("org/lora", ["adapter_config.json"], file))
