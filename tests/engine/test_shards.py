"""Weight files that contradict each other, or their index, are refused: never a value that nobody chose."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from bad_inputs import run
from safetensors.torch import load_file, save_file
from tiny_models import save_tiny
from transformers import AutoModelForCausalLM

from engine.commands.doctor import _reading as reading
from engine.models.loading import load_model
from engine.records.errors import InputError

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
NAME = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("sharded"), max_shard_size="20KB")


@pytest.fixture
def folder(sharded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "model"))


def index_of(folder: Path) -> dict[str, str]:
    return json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]


def write_index(folder: Path, names: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8")


def put(file: Path, **tensors: torch.Tensor | None) -> None:
    """The file with these tensors more, or without them."""
    kept = {**load_file(file), **tensors}
    save_file({name: value for name, value in kept.items() if value is not None}, file, metadata={"format": "pt"})


def first_and_last(folder: Path) -> tuple[Path, Path]:
    files = sorted(folder.glob("model-*.safetensors"))
    assert len(files) > 2
    own = folder / index_of(folder)[NAME]
    return own, next(file for file in reversed(files) if file != own)


def other(folder: Path) -> torch.Tensor:
    return load_file(folder / index_of(folder)[NAME])[NAME] + 1


def twice(folder: Path) -> None:
    put(first_and_last(folder)[1], **{NAME: other(folder)})


def twice_before(folder: Path) -> None:
    own, elsewhere = first_and_last(folder)
    write_index(folder, {**index_of(folder), NAME: elsewhere.name})
    put(elsewhere, **{NAME: load_file(own)[NAME] * 2})


def of_another_type(folder: Path) -> None:
    put(first_and_last(folder)[1], **{NAME: other(folder).bfloat16()})


def elsewhere(folder: Path) -> None:
    own, other_file = first_and_last(folder)
    value = load_file(own)[NAME]
    put(own, **{NAME: None})
    put(other_file, **{NAME: value})


def not_named(folder: Path) -> None:
    write_index(folder, {name: file for name, file in index_of(folder).items() if name != NAME})


def under_two_names(folder: Path) -> None:
    file = first_and_last(folder)[1]
    put(file, **{NAME.removeprefix("model."): other(folder)})
    write_index(folder, {**index_of(folder), NAME.removeprefix("model."): file.name})


def both_sets(folder: Path) -> None:
    whole = {name: value for file in folder.glob("model-*") for name, value in load_file(file).items()}
    save_file({**whole, NAME: whole[NAME] + 1}, folder / SINGLE, metadata={"format": "pt"})


def shard_of_another(folder: Path) -> None:
    again = save_tiny("llama", folder.parent / "again", seed=1, max_shard_size="30KB")
    for file in sorted(again.glob("model-*.safetensors"))[:1]:
        target = sorted(folder.glob("model-*.safetensors"))[0]
        shutil.copy(file, target)


CONTRADICTIONS = {
    twice: f"{NAME} in .* has other values than {NAME} in",
    twice_before: f"{NAME} in .* has other values than",
    of_another_type: "has other values than",
    elsewhere: f"{NAME} is in .*, and {INDEX} says in",
    not_named: f"{NAME} is in .* and not in {INDEX}",
    under_two_names: "has other values than",
    both_sets: "holds two sets of weights",
    shard_of_another: "contradict each other|weights are missing",
}


@pytest.mark.parametrize("spoil", CONTRADICTIONS, ids=lambda spoil: spoil.__name__)
def test_files_that_contradict_each_other_are_refused(spoil, folder):
    spoil(folder)
    with pytest.raises(InputError, match=CONTRADICTIONS[spoil]) as error:
        load_model(str(folder), dtype="float32", device="cpu")
    assert len(str(error.value).splitlines()) == 1


def test_a_command_ends_with_two_and_doctor_lists_it(folder, tmp_path, capfd):
    twice(folder)
    assert run("score", folder, "--selectors", "magnitude", "--store", tmp_path / "s", "--out", tmp_path / "o") == 2
    assert len(capfd.readouterr().err.strip().splitlines()) == 1
    found = {one.subject: one for one in reading(str(folder), None)}
    assert found["weights"].state == "problem"
    assert "contradict each other" in found["weights"].found


# What contradicts nothing


def same(folder: Path) -> None:
    pass


def repeated(folder: Path) -> None:
    own, elsewhere = first_and_last(folder)
    put(elsewhere, **{NAME: load_file(own)[NAME]})


def stray_shard(folder: Path) -> None:
    save_file({NAME: other(folder)}, folder / "model-00009-of-00009.safetensors", metadata={"format": "pt"})


def other_formats(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"none")
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {"x": "y.bin"}}', encoding="utf-8")
    (folder / "model.fp16.safetensors").write_bytes(b"none")
    (folder / "consolidated.safetensors").write_bytes(b"none")


def stale_index(folder: Path) -> None:
    whole = {name: value for file in folder.glob("model-*") for name, value in load_file(file).items()}
    for file in sorted(folder.glob("model-*.safetensors"))[1:]:
        file.unlink()
    save_file(whole, folder / SINGLE, metadata={"format": "pt"})


def positions_that_the_index_leaves_out(folder: Path) -> None:
    put(first_and_last(folder)[0], **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)})


@pytest.mark.parametrize(
    "change",
    [same, repeated, stray_shard, other_formats, stale_index, positions_that_the_index_leaves_out],
    ids=lambda change: change.__name__,
)
def test_what_is_loaded_is_what_transformers_loads(change, folder):
    change(folder)
    loaded = load_model(str(folder), dtype="float32", device="cpu")
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True).state_dict()
    ours = loaded.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
