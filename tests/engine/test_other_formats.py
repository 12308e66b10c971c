"""Repositories with pickles or adapters only: the right hint, from the hub too, before any weight is fetched."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import save_tiny

from engine.models.checkpoints import find_checkpoint
from engine.models.loading import load_model, load_rows
from engine.models.other_formats import explained
from engine.records.errors import InputError

SMALL = ["README.md", "config.json", "tokenizer.json", "generation_config.json"]
WAYS = {
    "pickles": ([*SMALL, "pytorch_model.bin", "training_args.bin"], "only as pytorch_model.bin, which"),
    "sharded pickles": (
        [*SMALL, "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json"],
        "only as pytorch_model-00001-of-00002.bin",
    ),
    "adapter": (["adapter_config.json", "adapter_model.safetensors"], "is an adapter without its base model"),
    "adapter with a configuration": (
        [*SMALL, "adapter_config.json", "adapter_model.bin"],
        "is an adapter without its base model",
    ),
    "adapter beside weights": (
        [*SMALL, "adapter_config.json", "model.safetensors"],
        "holds an adapter beside its weights",
    ),
}
FINE = {
    "one file": [*SMALL, "model.safetensors"],
    "both": [*SMALL, "model.safetensors", "pytorch_model.bin", "tiny.gguf"],
    "shards": [*SMALL, "model-00001-of-00002.safetensors", "model.safetensors.index.json"],
    "nothing known": ["README.md"],
    "what a trainer leaves": [*SMALL, "training_args.bin", "optimizer.pt"],
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_repository_holds_instead(way: str) -> None:
    names, said = WAYS[way]
    assert said in str(explained("org/tiny", names))


@pytest.mark.parametrize("way", FINE)
def test_what_is_fine_or_unknown_is_not_explained(way: str) -> None:
    assert explained("org/tiny", FINE[way]) is None


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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[list[str]]]:
    """A hub whose repository has these files; gives the patterns of every download."""
    whole = save_tiny("llama", tmp_path / "whole")
    (whole / "README.md").write_text("a model")
    (whole / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))

    def serve(names: list[str]) -> list[list[str]]:
        asked: list[list[str]] = []
        snapshot = tmp_path / "snapshot"

        def download(_: str, *, allow_patterns: list[str], **__: object) -> str:
            asked.append(allow_patterns)
            snapshot.mkdir(exist_ok=True)
            for name in names:
                if any(Path(name).match(pattern) for pattern in allow_patterns) and (whole / name).is_file():
                    shutil.copy(whole / name, snapshot / name)
            return str(snapshot)

        monkeypatch.setattr("huggingface_hub.snapshot_download", download)
        monkeypatch.setattr("engine.models.downloads.listed_bytes", lambda *_: dict.fromkeys(names, 1))
        return asked

    return serve


@pytest.mark.parametrize("way", WAYS)
def test_the_hubs_repository_is_explained_before_any_weight(
    way: str, hub: Callable[[list[str]], list[list[str]]]
) -> None:
    names, said = WAYS[way]
    asked = hub(names)
    with pytest.raises(InputError) as found:
        load_model("org/tiny", device="cpu")
    assert said in str(found.value)
    assert not any("safetensors" in pattern and "index" not in pattern for some in asked for pattern in some)
    if "adapter" in way:
        assert ("org/base" in str(found.value)) == ("beside weights" not in way)


def test_a_repository_with_safetensors_loads(hub: Callable[[list[str]], list[list[str]]]) -> None:
    asked = hub([*SMALL, "tokenizer_config.json", "model.safetensors"])
    assert load_model("org/tiny", device="cpu").rows == load_rows("org/tiny")
    assert ["model.safetensors"] in asked


def test_a_hub_that_cannot_be_asked_changes_nothing(
    hub: Callable[[list[str]], list[list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    hub([*SMALL, "tokenizer_config.json", "pytorch_model.bin"])

    monkeypatch.setattr("engine.models.downloads.listed_bytes", lambda *_: None)
    assert find_checkpoint("org/tiny").folder.is_dir()
    with pytest.raises(InputError, match="org/tiny has no weights; expected model.safetensors"):
        load_model("org/tiny", device="cpu")
